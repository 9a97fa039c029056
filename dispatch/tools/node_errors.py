# SPDX-License-Identifier: Apache-2.0
"""Where a model loses its numbers: of each node the error of its own, and the error that it inherits.

The own error is that of the node fed with the reference's numbers; what a run makes beside that is inherited
(``sides``). Nodes that are one operator on the device have one row. Integers count as what they stand for.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from onedispatch.dispatch.frontend.graph import Array, Node
from onedispatch.dispatch.tools.compare import ValueComparison, check_threshold, value_comparison
from onedispatch.dispatch.tools.matches import SAME, Match
from onedispatch.dispatch.tools.sides import Feed, Sides
from onedispatch.dispatch.tools.tally import Tally, class_scores, maker_of
from onedispatch.dispatch.tools.written_values import nodes_inside
from onedispatch.operators.declarations.tensor import Quantisation
from onedispatch.transactions.base.cached import cached_property


@dataclass
class Span:
    """The reference's numbers: the least, the largest, and how many lie beyond a value's scale."""

    low: float = 0.0
    high: float = 0.0
    count: int = 0
    beyond: int = 0

    def add(self, wanted: Array, beyond: Array) -> None:
        """``beyond`` says of each number whether no integer stands for it."""
        finite = wanted[np.isfinite(wanted)]
        self.low = min(self.low, float(finite.min(initial=0.0)))
        self.high = max(self.high, float(finite.max(initial=0.0)))
        self.count += wanted.size
        self.beyond += int(np.count_nonzero(beyond))


@dataclass
class Row:
    """A value: the sample where it is worst, and all samples.

    ``theirs`` is what the reference calls it, ``dtype`` what it is made in.
    """

    value: str
    node: str = ""
    op_type: str = ""
    nodes: tuple[str, ...] = ()
    theirs: str = ""
    quantised: Quantisation | None = None
    dtype: str = ""
    tally: Tally = field(default_factory=Tally)
    span: Span = field(default_factory=Span)
    worst: ValueComparison | None = None
    sample: int = 0  # where it is worst

    def add(self, sample: int, mine: Array, theirs: Array, bound: float) -> None:
        maker = (self.node, self.op_type)
        found = value_comparison(maker, self.nodes, self.value, mine, theirs, bound)
        if self.worst is None or found.relative > self.worst.relative:
            self.worst, self.sample = found, sample

    @property
    def diverges(self) -> bool:
        return self.worst is not None and self.worst.diverges

    def as_dict(self) -> dict[str, Any]:
        worst = {} if self.worst is None else asdict(self.worst)
        return worst | self.tally.as_dict() | {"reference": self.theirs, "sample": self.sample}


class NodeErrors:
    """Errors of all samples that were added; see ``Sides``.

    ``threshold`` is where a value diverges: a share of its largest number in a sample. Raises ``InputError``
    for one that is not above 0.
    """

    def __init__(self, sides: Sides, threshold: float) -> None:
        check_threshold(threshold)
        self.sides, self.threshold, self.samples = sides, threshold, 0
        self.rows = [self._row(one) for one in sides.matches]
        names = sides.output_names
        self.outputs = [Row(name, *self._ends(name), theirs=names[name]) for name in names]
        self._makers_there = {name: maker_of(sides.reference, name) for name in names.values()}

    def add(self, feed: Feed) -> None:
        """Runs one sample, on all sides."""
        mine, theirs = self.sides.outputs(feed)
        for row in self.outputs:
            row.add(self.samples, mine[row.value], theirs[row.value], self.threshold)
            _count(row, mine[row.value], theirs[row.value], self._makers_there[row.theirs])
        if self.rows:
            self._add_values(feed)
        self.samples += 1

    def _add_values(self, feed: Feed) -> None:
        given, mine = self.sides.given(feed), self.sides.values(feed)
        alone = self.sides.alone(feed, given)
        for row, one in zip(self.rows, self.sides.matches, strict=True):
            got, wanted, own = (one.floats(side[one.value]) for side in (mine, given, alone))
            row.add(self.samples, got, wanted, self.threshold)
            row.tally.add(got, wanted, own)
            row.span.add(wanted, one.beyond(wanted, self.sides.dtype(one.value)))

    @property
    def first(self) -> Row | None:
        """The first value that diverges, in execution order; an output if no intermediate value does."""
        return next((row for row in (*self.rows, *self.outputs) if row.diverges), None)

    def worst(self, most: int) -> list[Row]:
        """The rows with the largest own errors, as shares of their energy."""
        known = [row for row in self.rows if row.tally.own is not None and row.tally.own.squares]
        return sorted(known, key=lambda row: row.tally.snr(row.tally.own) or 0.0)[:most]

    @cached_property
    def _makers(self) -> dict[str, Node]:
        return {name: node for node in self.sides.graph.nodes for name in node.writes}

    @cached_property
    def _inside(self) -> dict[str, tuple[str, ...]]:
        return nodes_inside(self.sides.graph, {one.value for one in self.sides.matches})

    def _row(self, one: Match) -> Row:
        nodes, types = self._inside[one.value], self._op_types
        last = next((name for name in nodes if types[name] not in SAME), nodes[0])
        dtype = str(self.sides.dtype(one.value))
        return Row(one.value, last, types[last], nodes, one.theirs, one.quantised, dtype)

    @cached_property
    def _op_types(self) -> dict[str, str]:
        return {node.name: node.op_type for node in self.sides.graph.nodes}

    def _ends(self, name: str) -> tuple[str, str]:
        node = self._makers.get(name)
        return (node.name, node.op_type) if node is not None else ("", "")


def _count(row: Row, mine: Array, theirs: Array, maker: str) -> None:
    """``maker`` is the type of the reference's node that computes the output."""
    row.tally.add(mine, theirs)
    scores, wanted = (class_scores(row.value, one, maker) for one in (mine, theirs))
    if scores is not None and wanted is not None and scores.shape == wanted.shape:
        row.tally.add_classes(scores, wanted)
