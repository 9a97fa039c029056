# SPDX-License-Identifier: Apache-2.0
"""Every operator on a million elements or a 512-cube, beside onnxruntime.

``python -m tests.bench.operators`` prints the table, ``... Reduce Tile`` that of operators whose names
contain one of these. One thread both, in turn, medians of this process's CPU time, so that a busy machine
disturbs little, and their rates: operations of products, else bytes read and made. ``modelled`` is the
device's own time.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from onnxruntime.capi import onnxruntime_pybind11_state as state

import onedispatch as od
from onedispatch.dispatch.tools.beside import Once, in_turn, onnxruntime_run
from tests.bench.operator_cases import cases
from tests.bench.rates import Work, work_of
from tests.ops.case import Case

SECONDS, LEAST, MOST = 0.15, 3, 21  # of each side: as many runs as that takes, between these


@dataclass(frozen=True)
class Row:
    """Milliseconds of one run."""

    name: str
    ours: float
    theirs: float | None
    modelled: float
    work: Work
    note: str = ""

    @property
    def ratio(self) -> float:
        return self.ours / self.theirs if self.theirs else 0.0

    def __str__(self) -> str:
        theirs = "–" if self.theirs is None else f"{self.theirs:.3f}"
        ratio = f"{self.ratio:.1f}" if self.theirs else "–"
        rates = self.work.rate(self.ours), self.work.rate(self.theirs) if self.theirs else "–"
        cells = (self.name, f"{self.ours:.3f}", theirs, ratio, *rates, self.work.unit, f"{self.modelled:.3f}")
        return f"| {' | '.join(cells)} | {self.note} |"


def measure(case: Case) -> Row:
    session = od.InferenceSession(case.model, case.device, fallback="error", threads=1)
    ours: Once = lambda: session.run(None, case.feed)  # noqa: E731
    work = work_of(case, ours())
    try:
        theirs = onnxruntime_run(case.model, case.feed, 1)
    except (state.NotImplemented, state.Fail, state.InvalidGraph):
        theirs = None
    sides = [ours] if theirs is None else [ours, theirs]
    medians = in_turn(*sides, least=LEAST, most=MOST, seconds=len(sides) * SECONDS)
    milliseconds = [1e3 * one.cpu_seconds for one in medians]
    report = session.last_run
    modelled = report.seconds * 1e3 if report else 0.0
    if theirs is None:
        return Row(case.id, milliseconds[0], None, modelled, work, "onnxruntime has no such kernel")
    return Row(case.id, milliseconds[0], milliseconds[1], modelled, work)


def main(wanted: list[str]) -> None:
    """Prints the table as it is measured, then the worst ratios."""
    print(
        "| case | ours, ms | onnxruntime, ms | ratio | our rate | theirs | of | modelled, ms | |\n"
        "|---|---|---|---|---|---|---|---|---|"
    )
    rows = []
    for case in cases():
        if wanted and not any(part in case.op_type for part in wanted):
            continue
        try:
            rows.append(measure(case))
        except od.OneDispatchError as error:
            print(f"| {case.id} | – | – | – | – | {str(error).splitlines()[0]} |", flush=True)
            continue
        print(rows[-1], flush=True)
    known = sorted((row for row in rows if row.theirs), key=lambda row: -row.ratio)
    print("\nworst: " + ", ".join(f"{row.name} {row.ratio:.0f} x" for row in known[:15]))


if __name__ == "__main__":
    main(sys.argv[1:])
