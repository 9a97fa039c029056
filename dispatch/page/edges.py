# SPDX-License-Identifier: Apache-2.0
"""Edges between the nodes of a model, of which an executable keeps the names alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from onedispatch.dispatch.compiler.executable import DeviceStep
from onedispatch.dispatch.compiler.passes import Pass
from onedispatch.dispatch.frontend.graph import Graph
from onedispatch.dispatch.page.facts import Edge
from onedispatch.dispatch.page.scratch import readers

Names = tuple[str, ...]


@dataclass
class EdgeObserver:
    """An observer of passes that keeps what every node reads and writes: of a node that passes change, what
    it read and wrote at first."""

    nodes: dict[str, tuple[Names, Names]] = field(default_factory=dict)

    def after(self, ran: Pass, before: Any, result: Any, seconds: float) -> None:
        for value in (before, result):
            if isinstance(value, Graph):
                self.add(value)

    def add(self, graph: Graph) -> None:
        for node in graph.nodes:
            self.nodes.setdefault(node.name, (node.reads, node.writes))

    def edges(self, names: Sequence[str]) -> list[Edge]:
        """Edges between nodes of these names, as indices, in order and each once."""
        known = [(at, *self.nodes[name]) for at, name in enumerate(names) if name in self.nodes]
        makers: dict[str, int] = {}
        for at, _, writes in known:
            for value in writes:
                makers.setdefault(value, at)
        found = ((makers[v], at) for at, reads, _ in known for v in reads if v in makers)
        return list(dict.fromkeys(edge for edge in found if edge[0] != edge[1]))


def edges_of_steps(names: Sequence[str], steps: Iterable[DeviceStep]) -> list[Edge]:
    """Edges where no graph is known, as of a compiled file: along the nodes of an operator, and from its last
    one to the first of each operator that reads its results in scratch."""
    at = {name: index for index, name in enumerate(names)}
    found: dict[Edge, None] = {}
    for step in steps:
        nodes = [[at[name] for name in op.nodes if name in at] for op in step.ops]
        for own in nodes:
            found.update(dict.fromkeys(zip(own, own[1:], strict=False)))
        pairs = ((nodes[made], nodes[read]) for made, read in readers(step))
        found.update(dict.fromkeys((one[-1], other[0]) for one, other in pairs if one and other))
    return [edge for edge in found if edge[0] != edge[1]]
