# SPDX-License-Identifier: Apache-2.0
"""How the nodes of a model belong together: edges between them, and which of them an operator computes.

An executable keeps the names of nodes alone, and operators those of nodes that rules and passes made of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
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
    origins: dict[str, Names] = field(default_factory=dict)  # of a node that was made: those it replaced

    def after(self, ran: Pass, before: Any, result: Any, seconds: float) -> None:
        for value in (before, result):
            if isinstance(value, Graph):
                self.add(value)

    def add(self, graph: Graph) -> None:
        for node in graph.nodes:
            self.nodes.setdefault(node.name, (node.reads, node.writes))
        for name, origin in graph.origins.items():
            self.origins[name] = tuple(node.name for node in origin.nodes)

    def edges(self, names: Sequence[str]) -> list[Edge]:
        """Edges between nodes of these names, as indices, in order and each once."""
        known = [(at, *self.nodes[name]) for at, name in enumerate(names) if name in self.nodes]
        makers: dict[str, int] = {}
        for at, _, writes in known:
            for value in writes:
                makers.setdefault(value, at)
        found = ((makers[v], at) for at, reads, _ in known for v in reads if v in makers)
        return list(dict.fromkeys(edge for edge in found if edge[0] != edge[1]))

    def members(self, names: Sequence[str], step: DeviceStep) -> list[list[int]]:
        """For each operator of a step, the nodes of these names that it computes, as indices.

        Where it is not known what a node was made of, it is the one whose name its own begins with.
        """
        at = {name: index for index, name in enumerate(names)}

        def found(name: str) -> Names:
            return (name,) if name in at else self.origins.get(name, (name.rpartition("/")[0],))

        named = ([one for name in op.nodes for one in found(name) if one in at] for op in step.ops)
        return [[at[name] for name in dict.fromkeys(those)] for those in named]


def edges_of_steps(members: Sequence[Sequence[Sequence[int]]], steps: Sequence[DeviceStep]) -> list[Edge]:
    """Edges where no graph is known, as of a compiled file: along the nodes of an operator, and from its last
    one to the first of each operator that reads its results in scratch."""
    found: dict[Edge, None] = {}
    for nodes, step in zip(members, steps, strict=True):
        for own in nodes:
            found.update(dict.fromkeys(pairwise(own)))
        pairs = ((nodes[made], nodes[read]) for made, read in readers(step))
        found.update(dict.fromkeys((one[-1], other[0]) for one, other in pairs if one and other))
    return [edge for edge in found if edge[0] != edge[1]]
