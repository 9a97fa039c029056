# SPDX-License-Identifier: Apache-2.0
"""Recorded runs of whole operators by google-benchmark, at every SIMD level that this processor has, beside
onnxruntime.

``python -m tests.bench.levels`` prints the table of operators as networks have them, ``--every`` also of
those of ``operator_cases`` that are one operator of the device; ``... Conv MatMul`` of names that contain one
of these. Both sides compute the same values on one thread, one right after the other. Rates are those of the
median run, in processor time; the ratio is of times, ours at the highest level by onnxruntime's. Ours begin
and end at the kernel's arguments, without Python; onnxruntime is called from Python, some microseconds of a
run. What we compute in bf16 stands beside its float32.

``make bench`` builds the program before (tests/bench/cpp), which also has kernels on chunks.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from onnxruntime.capi import onnxruntime_pybind11_state as state

from onedispatch.dispatch.tools.beside import in_turn, onnxruntime_run
from tests.bench.network_cases import as_onnxruntime_has_it, network_cases
from tests.bench.operator_cases import cases
from tests.bench.rates import Work, work_of
from tests.cpp.make_cases import is_one_operator, write
from tests.ops.case import Case

PROGRAM = Path(__file__).resolve().parents[2] / "build" / "bench" / "onedispatch_bench"
REPETITIONS, SECONDS = 5, 0.02  # of each level: their median, and the least that one takes
LEAST, MOST = 5, 51  # runs of onnxruntime, about as long


def our_rates(case: Case, work: Work) -> dict[str, float]:
    """By level, lowest first, in thousands of millions a second."""
    with tempfile.TemporaryDirectory() as name:
        folder, counter = Path(name), work.unit.removeprefix("G").removesuffix("/s")
        write(case, folder, "case", answered=True)
        with (folder / "case.case").open("a", encoding="utf-8") as file:
            file.write(f"float work {work.amount}\ntext unit {counter}\n")
        options = [f"--benchmark_repetitions={REPETITIONS}", f"--benchmark_min_time={SECONDS}"]
        options += ["--benchmark_format=json", "--benchmark_report_aggregates_only"]
        done = subprocess.run([PROGRAM, *options, folder], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(done.stderr)
        found = json.loads(done.stdout)["benchmarks"]
    if wrong := {one["error_message"] for one in found if one.get("error_occurred")}:
        raise SystemExit(f"{case.id}: {'; '.join(wrong)}")
    medians = [one for one in found if one["aggregate_name"] == "median"]
    if others := {one["label"] for one in medians} - {"played"}:
        raise SystemExit(f"{case.id} is not made from a recording: {'; '.join(others)}")
    return {one["run_name"].split("/")[1]: one[counter] / 1e9 for one in medians}


def their_rate(case: Case, work: Work) -> float | None:
    try:
        theirs = onnxruntime_run(case.model, case.feed, 1)
    except (state.NotImplemented, state.Fail, state.InvalidGraph):
        return None
    if theirs is None:
        return None
    (median,) = in_turn(theirs, least=LEAST, most=MOST, seconds=REPETITIONS * SECONDS)
    return work.amount / median.cpu_seconds / 1e9


def name_of(case: Case) -> str:
    """Without what is small: scales, zero points, biases."""
    return replace(case, inputs=tuple(x for x in case.inputs if x and not (x.const and len(x.shape) < 2))).id


def print_row(case: Case, head: bool) -> None:
    """With the head of the table above it, which has this processor's levels."""
    work = work_of(case, case.expected)
    ours, theirs = our_rates(case, work), their_rate(as_onnxruntime_has_it(case), work)
    if head:
        print(f"| case | of | {' | '.join(ours)} | onnxruntime | ratio |\n|{'---|' * (len(ours) + 4)}")
    highest = list(ours.values())[-1]
    cells = [f"{rate:.1f}" for rate in ours.values()]
    cells += [f"{theirs:.1f}", f"{theirs / highest:.2f}"] if theirs else ["–", "–"]
    print(f"| {' | '.join((name_of(case), work.unit, *cells))} |", flush=True)


def wanted(parts: list[str], every: bool) -> Iterator[Case]:
    for case in (*network_cases(), *(cases() if every else ())):
        if not parts or any(part in case.op_type for part in parts):
            yield case


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help="of names of operators; all if none is given"
    )
    parser.add_argument("--every", action="store_true", help="a large case of every operator as well")
    given = parser.parse_args()
    if not PROGRAM.exists():
        parser.error(f"{PROGRAM} is missing: `make {PROGRAM.relative_to(PROGRAM.parents[2])}` builds it")
    parted, head = set(), True
    for case in wanted(given.parts, given.every):
        if is_one_operator(case):
            print_row(case, head)
            head = False
        else:
            parted.add(case.op_type)
    if parted:
        print(f"\nseveral operators of the device, so not here: {', '.join(sorted(parted))}")


if __name__ == "__main__":
    main()
