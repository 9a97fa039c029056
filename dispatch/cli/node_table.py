# SPDX-License-Identifier: Apache-2.0
"""Tables of ``onedispatch compare``: errors of outputs and nodes over the samples, and what cures them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from onedispatch.dispatch.cli import comparison
from onedispatch.dispatch.cli import output as out
from onedispatch.dispatch.tools.cures import Cure
from onedispatch.dispatch.tools.node_errors import NodeErrors, Row
from onedispatch.transactions.base.text import counted


@dataclass(frozen=True)
class Found:
    """Errors of all samples, beside what; and cures of the worst nodes."""

    errors: NodeErrors
    against: str  # another model, "" for the model itself
    per_node: bool
    aside: Sequence[str]  # arrays of the data set that name no input
    cures: Sequence[Cure]

    @property
    def diverges(self) -> bool:
        return self.errors.first is not None

    @property
    def beside(self) -> str:
        return f"{self.against} by {self.errors.sides.beside}" if self.against else self.errors.sides.beside

    def as_dict(self) -> dict[str, Any]:
        first = self.errors.first
        return {
            "precision": self.errors.sides.like.precision,
            "threshold": self.errors.threshold,
            "samples": self.errors.samples,
            "against": self.against,
            "diverges": first is not None,
            "first": None if first is None else first.node,
            "first_value": None if first is None else first.as_dict(),
            "outputs_beside": self.errors.sides.beside,
            "outputs": [row.as_dict() for row in self.errors.outputs],
            "rows": [row.as_dict() for row in self.errors.rows],
            "aside": list(self.aside),
            "cures": [asdict(cure) for cure in self.cures],
        }


def show(found: Found) -> None:
    """The tables, the first value that diverges, and the cures."""
    errors = found.errors
    if not errors.rows and not errors.outputs:
        out.tell(comparison.NOTHING)
        return
    how = f"in {errors.sides.like.precision} beside {found.beside}, {counted(errors.samples, 'sample')}"
    columns = ("output", "relative error", "SNR", "cosine", "top-1", "verdict")
    out.table(f"outputs {how}", columns, map(_output, errors.outputs), right=(1, 2, 3, 4))
    out.tell(comparison.RELATIVE)
    if found.per_node:
        titles = ("node", "value", "error", "own", "inherited", "SNR", "cosine", "verdict")
        rows = map(_node, errors.rows)
        out.table(f"values {how}", titles, rows, right=(2, 3, 4, 5, 6), droppable=(6, 5, 1))
        out.tell(
            "relative errors: error, all of it; own, of the node fed with the reference's numbers; "
            "inherited, what its inputs add (+n: as one with n nodes before)"
        )
    if found.aside:
        out.tell(f"left aside, since no input has the name: {', '.join(found.aside)}")
    first = errors.first
    where = f", sample {first.sample}" if first is not None and errors.samples > 1 else ""
    comparison.show_first(None if first is None else first.worst, errors.threshold, where)
    if found.cures:
        out.table("largest own errors, and what would cure them", ("node", "own", "cure"), _cures(found))


def _output(row: Row) -> tuple[str, ...]:
    return row.value, *_error(row), percent(row.tally.agreement), comparison.verdict_of(row.diverges)


def _node(row: Row) -> tuple[str, ...]:
    relative, snr, cosine = _error(row)
    noises = row.tally.own, row.tally.inherited
    own, inherited = (_share(row.tally.relative(noise)) for noise in noises)
    ends = relative, own, inherited, snr, cosine, comparison.verdict_of(row.diverges)
    return named(row), row.theirs, *ends


def named(row: Row) -> str:
    """The node that writes a value, and how many others are one with it."""
    return f"{row.node} ({row.op_type})" + (f" +{len(row.nodes) - 1}" if row.nodes[1:] else "")


def _error(row: Row) -> tuple[str, str, str]:
    relative = math.nan if row.worst is None else row.worst.relative
    return f"{relative:.3g}", decibels(row.tally.snr(row.tally.total)), f"{row.tally.cosine:.5f}"


def _share(relative: float | None) -> str:
    return "–" if relative is None else f"{relative:.3g}"


def percent(share: float | None) -> str:
    """A share of rows, as top-1 is; a dash where it is not known."""
    return "–" if share is None else f"{share:.1%}"


def decibels(snr: float | None) -> str:
    """A ratio as people read it; "exact" without an error."""
    if snr is None:
        return "–"
    return "exact" if snr == math.inf else f"{snr:.1f} dB"


def _cures(found: Found) -> Iterator[tuple[str, str, str]]:
    rows = {row.value: row for row in found.errors.rows}
    for cure in found.cures:
        row = rows[cure.value]
        yield row.node, _share(row.tally.relative(row.tally.own)), cure.text
