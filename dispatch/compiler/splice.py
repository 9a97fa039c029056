# SPDX-License-Identifier: Apache-2.0
"""Nodes of a graph that give way to others: names, constants, and what the new ones stand for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from onedispatch.dispatch.base.host_work import HostWork
from onedispatch.dispatch.frontend.exporter import renamed
from onedispatch.dispatch.frontend.graph import Array, Graph, Node, Origin, Value, sort_nodes


@dataclass
class Splice:
    """What is put into ``graph``; ``result`` is the graph with it."""

    graph: Graph
    _nodes: dict[int, list[Node]] = field(default_factory=dict)  # id of a node -> what is in its place
    _constants: dict[str, Array] = field(default_factory=dict)
    _values: dict[str, Value] = field(default_factory=dict)
    _decided: dict[str, Array] = field(default_factory=dict)
    _origins: dict[str, Origin] = field(default_factory=dict)
    _remarks: dict[str, str] = field(default_factory=dict)
    _evaluated: list[HostWork] = field(default_factory=list)
    _opsets: dict[str, int] = field(default_factory=dict)
    _taken: set[str] | None = None

    def remark(self, node: Node, text: str) -> None:
        """Says of a node what else was tried."""
        known = self._remarks.get(node.name) or self.graph.remarks.get(node.name, "")
        if text not in known:
            self._remarks[node.name] = f"{known}; {text}" if known else text

    def put(self, old: Sequence[Node], new: Graph, how: str) -> None:
        """The nodes of ``new`` in the place of ``old``, the last of which is where they go.

        Inputs and outputs of ``new`` are values of the graph under their names; everything between them,
        nodes too, gets names that begin with that of the last node of ``old``.
        """
        last = old[-1]
        border = {v.name for v in (*new.inputs, *new.outputs)}
        border.update(name for node in old for name in node.reads)
        inner = {n for node in new.nodes for n in (*node.reads, *node.writes)} - border
        names = {name: self._unique(f"{last.name}/{name}") for name in sorted(inner)}
        origin = self._origin(old, how)
        self._opsets.update(new.opsets)
        placed = []
        for node in new.nodes:
            name = self._unique(f"{last.name}/{node.name}")
            placed.append(renamed(node, name, names))
            self._origins[name] = origin
        self._evaluated += [work for work in new.evaluated if work not in self.graph.evaluated]
        self._nodes.update({id(node): [] for node in old})
        self._nodes[id(last)] = placed
        for value in new.outputs:
            if not self.graph.value(value.name).is_concrete:
                self._values[value.name] = new.value(value.name)
        for name, own in names.items():
            if name in new.constants:
                self._constants[own] = new.constants[name]
            else:
                self._values[own] = replace(new.value(name), name=own)
            if name in new.decided:
                self._decided[own] = new.decided[name]

    def _origin(self, old: Sequence[Node], how: str) -> Origin:
        """What stands for the nodes ``old`` stands for these of the model, and came about so."""
        graph = self.graph
        known = [graph.origins.get(node.name) or Origin((node,), "") for node in old]
        nodes = dict.fromkeys(node for origin in known for node in origin.nodes)
        hows = dict.fromkeys([*(origin.how for origin in known if origin.how), how])
        constants = {n: graph.constants[n] for node in nodes for n in node.reads if n in graph.constants}
        for origin in known:
            constants.update(origin.constants)
        return Origin(tuple(nodes), ", then ".join(hows), constants)

    def _unique(self, name: str) -> str:
        if self._taken is None:
            graph = self.graph
            self._taken = {*graph.constants, *graph.values, *graph.order, *(n.name for n in graph.nodes)}
            self._taken.update(name for node in graph.nodes for name in (*node.reads, *node.writes))
        candidate, count = name, 1
        while candidate in self._taken:
            candidate, count = f"{name}#{count}", count + 1
        self._taken.add(candidate)
        return candidate

    def result(self) -> Graph:
        """The graph as it is now; the same one where nothing was said or put in."""
        graph = self.graph
        if self._remarks:
            graph = replace(graph, remarks={**graph.remarks, **self._remarks})
        if not self._nodes:
            return graph
        nodes = [new for node in graph.nodes for new in self._nodes.get(id(node), [node])]
        constants = {**graph.constants, **self._constants}
        known = [v.name for v in graph.inputs] + list(constants)
        return graph.with_nodes(
            sort_nodes(nodes, known),
            constants=constants,
            values={**graph.values, **self._values},
            decided={**graph.decided, **self._decided},
            origins={**graph.origins, **self._origins},
            evaluated=(*graph.evaluated, *self._evaluated),
            opsets={**self._opsets, **graph.opsets},
        )
