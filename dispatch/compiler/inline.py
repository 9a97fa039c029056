# SPDX-License-Identifier: Apache-2.0
"""Ifs whose condition is known become the nodes of the branch that it takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np
from onnx import FunctionProto, GraphProto, NodeProto, helper

from onedispatch.dispatch.frontend.exporter import node_proto
from onedispatch.dispatch.frontend.graph import Array, Folded, Graph, Node, Value, sort_nodes
from onedispatch.dispatch.frontend.importer import read_array, read_node, value_of
from onedispatch.dispatch.frontend.walk import Body, bodies_of, subgraphs
from onedispatch.transactions.base.errors import ModelError
from onedispatch.transactions.base.text import counted


def is_if(node: Node) -> bool:
    return node.op_type == "If" and not node.domain


def inline_branches(graph: Graph) -> tuple[Graph, bool]:
    """The graph without Ifs whose condition is one of its constants, and whether there were any.

    The branch's nodes keep their names, and so do its values, where no other has them. Ifs
    inside the branch are left for the next call.

    Raises:
        ModelError: an If without the branch, a branch that lacks outputs or reads unknown names.
    """
    branches = {id(node): which for node in graph.nodes if (which := _taken(graph, node))}
    if not branches:
        return graph, False
    inlining = _Inlining(graph, branches)
    for node in graph.nodes:
        if id(node) in branches:
            inlining.take(node, branches[id(node)])
        else:
            inlining.nodes.append(node)
    return inlining.result(), True


def _taken(graph: Graph, node: Node) -> str | None:
    """``then_branch`` or ``else_branch``; None where that is not known, and for other nodes."""
    if not is_if(node) or not node.inputs:
        return None
    value = graph.constants.get(node.inputs[0])
    if value is None or value.size != 1:
        return None
    return "then_branch" if bool(np.asarray(value).reshape(())) else "else_branch"


@dataclass
class _Inlining:
    graph: Graph
    branches: Mapping[int, str]  # id of an If -> its branch
    nodes: list[Node] = field(default_factory=list)
    folded: list[Folded] = field(default_factory=list)
    inside: dict[str, list[str]] = field(default_factory=dict)  # If -> names of its nodes

    def __post_init__(self) -> None:
        self.constants: dict[str, Array] = dict(self.graph.constants)
        self.values: dict[str, Value] = dict(self.graph.values)
        self.edges = edge_names(self.graph, self.branches)
        self.node_names = {node.name for node in self.graph.nodes} | set(self.graph.order)

    def result(self) -> Graph:
        graph = self.graph
        known = [v.name for v in graph.inputs] + list(self.constants)
        order = [name for outer in graph.order for name in (outer, *self.inside.get(outer, ()))]
        graph = replace(graph, values=self.values, order=tuple(order))
        folded = graph.folded + tuple(self.folded)
        return graph.with_nodes(sort_nodes(self.nodes, known), constants=self.constants, folded=folded)

    def take(self, node: Node, which: str) -> None:
        """Adds what the branch ``which`` of ``node`` holds."""
        branch = _branch(node, which)
        if branch is None or len(branch.output) < len(node.outputs):
            given = "no such branch" if branch is None else counted(len(branch.output), "output")
            raise ModelError(
                f"node {node.name} (If), {which}",
                given,
                f"a graph with {counted(len(node.outputs), 'output')}",
            )
        self.folded.append(
            Folded(node.name, "If", f"its condition is known: its {which} is part of the graph")
        )
        self.inside[node.name] = []
        names = self._names(node, branch)
        for index, proto in enumerate(branch.node):
            self._node(node, proto, proto.name or f"{proto.op_type}_{index}", names)
        for tensor in branch.initializer:
            self.constants[names[tensor.name]] = read_array(tensor)
        for sparse in branch.sparse_initializer:
            self.constants[names[sparse.values.name]] = read_array(sparse)
        for info in branch.value_info:
            if info.name in names:
                self.values[names[info.name]] = replace(value_of(info), name=names[info.name])
        self._outputs(node, branch, names)

    def _names(self, node: Node, branch: GraphProto) -> dict[str, str]:
        """Names of the branch's own values in the graph around it."""
        outer: dict[str, str] = {}
        for info, name in zip(branch.output, node.outputs, strict=False):
            if name:
                outer.setdefault(info.name, name)
        names: dict[str, str] = {}
        for name in _defined(branch, inputs=False):
            if name in names:
                raise ModelError(
                    f"node {node.name} (If)", f"a branch that defines {name!r} twice", "distinct names"
                )
            names[name] = outer.get(name) or unique(name, node.name, self.edges)
        return names

    def _node(self, parent: Node, proto: NodeProto, name: str, names: Mapping[str, str]) -> None:
        own = NodeProto()
        own.CopyFrom(proto)
        own.name = unique(name, parent.name, self.node_names)
        own.input[:] = [names.get(n, n) for n in proto.input]
        own.output[:] = [names.get(n, n) for n in proto.output]
        for inner in subgraphs(own):
            _rename(inner, names)
        self._add(parent, own)

    def _add(self, parent: Node, proto: NodeProto) -> None:
        self.inside[parent.name].append(proto.name)
        node = read_node(proto, self.graph.opsets, self.graph.ir_version)
        if isinstance(node, Node):
            self.nodes.append(node)
        else:
            self.constants[proto.output[0]] = node
            self.folded.append(Folded(proto.name, "Constant", "a constant of the model"))

    def _outputs(self, node: Node, branch: GraphProto, names: Mapping[str, str]) -> None:
        """What no node of the branch writes: captured values, and values that leave twice."""
        for info, name in zip(branch.output, node.outputs, strict=False):
            source = names.get(info.name, info.name)
            if not name or source == name:
                continue
            own = unique(f"{node.name}/{name}", node.name, self.node_names)
            self._add(node, helper.make_node("Identity", [source], [name], name=own))


def _branch(node: Node, which: str) -> GraphProto | None:
    return next((a.g for a in node_proto(node).attribute if a.name == which and a.HasField("g")), None)


def _defined(graph: Body, *, inputs: bool = True) -> Iterator[str]:
    """Every value that a subgraph defines itself."""
    if isinstance(graph, FunctionProto):
        return
    if inputs:
        yield from (v.name for v in graph.input)
    yield from (t.name for t in graph.initializer)
    yield from (t.values.name for t in graph.sparse_initializer)
    yield from (name for node in graph.node for name in node.output if name)


def _rename(graph: GraphProto, names: Mapping[str, str]) -> None:
    """Gives captured values their new names, in subgraphs inside too."""
    own = set(_defined(graph))
    names = {old: new for old, new in names.items() if old not in own}
    for node in graph.node:
        node.input[:] = [names.get(n, n) for n in node.input]
        for inner in subgraphs(node):
            _rename(inner, names)
    for info in graph.output:
        info.name = names.get(info.name, info.name)


def edge_names(graph: Graph, branches: Mapping[int, str] = MappingProxyType({})) -> set[str]:
    """Names of values that inlined ones must not take: the graph's, and those of subgraphs that stay.

    ``branches`` is which branch of an If, by its id, does not stay a subgraph.
    """
    found = {v.name for v in (*graph.inputs, *graph.outputs)} | set(graph.constants) | set(graph.values)
    for node in graph.nodes:
        found.update(node.reads, node.writes)
        if not node.has_subgraph:
            continue
        which = branches.get(id(node))
        branch = _branch(node, which) if which else None
        holders = [node_proto(node)] if which is None else branch.node if branch is not None else ()
        for holder in holders:
            for body, _ in bodies_of(subgraphs(holder)):
                found.update(_defined(body))
    return found


def unique(name: str, parent: str, taken: set[str]) -> str:
    """``name``, or ``parent/name``, or that with a number; ``taken`` learns it."""
    candidate, count = name, 0
    while candidate in taken:
        candidate = f"{parent}/{name}" + (f"#{count}" if count else "")
        count += 1
    taken.add(candidate)
    return candidate
