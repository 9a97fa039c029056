# SPDX-License-Identifier: Apache-2.0
"""Bodies become nodes of the graph around them: an If whose condition is known, the branch that it takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from onnx import FunctionProto, GraphProto, NodeProto, helper

from onedispatch.dispatch.frontend.exporter import node_proto
from onedispatch.dispatch.frontend.graph import Array, Folded, Graph, Node, Value, sort_nodes
from onedispatch.dispatch.frontend.importer import read_array, read_node, value_of
from onedispatch.dispatch.frontend.walk import Body, bodies_of, subgraphs
from onedispatch.transactions.base.errors import ModelError
from onedispatch.transactions.base.text import counted

_AXES_ARE_INPUTS = 13  # opset from which on sizes of Split, and axes of Squeeze and Unsqueeze, are operands


def is_if(node: Node) -> bool:
    return node.op_type == "If" and not node.domain


def inline_branches(graph: Graph) -> tuple[Graph, bool]:
    """The graph without Ifs whose condition is a constant or a value that it is compiled for, and whether
    there were any.

    The branch's nodes keep their names, and so do its values, where no other has them. Ifs
    inside the branch are left for the next call.

    Raises:
        ModelError: an If without the branch, a branch that lacks outputs or reads unknown names.
    """
    branches = {id(node): which for node in graph.nodes if (which := _taken(graph, node))}
    if not branches:
        return graph, False
    inliner = Inliner(graph, bodies=branches)
    for node in graph.nodes:
        if id(node) in branches:
            _take(inliner, node, branches[id(node)])
        else:
            inliner.nodes.append(node)
    return inliner.result(), True


def _taken(graph: Graph, node: Node) -> str | None:
    """``then_branch`` or ``else_branch``; None where that is not known, and for other nodes."""
    if not is_if(node) or not node.inputs:
        return None
    name = node.inputs[0]
    value = graph.constants.get(name, graph.decided.get(name))
    if value is None or value.size != 1:
        return None
    return "then_branch" if bool(np.asarray(value).reshape(())) else "else_branch"


def _take(inliner: Inliner, node: Node, which: str) -> None:
    """Adds what the branch ``which`` of ``node`` holds."""
    branch = body_of(node, which)
    if branch is None or len(branch.output) < len(node.outputs):
        given = "no such branch" if branch is None else counted(len(branch.output), "output")
        raise ModelError(
            f"node {node.name} (If), {which}",
            given,
            f"a graph with {counted(len(node.outputs), 'output')}",
        )
    inliner.open(node, f"its condition is known: its {which} is part of the graph")
    outer: dict[str, str] = {}
    for info, name in zip(branch.output, node.outputs, strict=False):
        if name:
            outer.setdefault(info.name, name)
    names = {
        name: outer.get(name) or unique(name, node.name, inliner.edges) for name in defined_once(node, branch)
    }
    inliner.write_constants(branch, names)
    inliner.write_nodes(node, branch, names)
    for info in branch.value_info:
        if info.name in names:
            inliner.values[names[info.name]] = replace(value_of(info), name=names[info.name])
    # What no node of the branch writes: captured values, and values that leave twice.
    for info, name in zip(branch.output, node.outputs, strict=False):
        source = names.get(info.name, info.name)
        if name and source != name:
            inliner.same(node, source, name)


@dataclass
class Writer:
    """Collects nodes for a graph, and constants that they read, under names that nothing else has.

    ``bodies`` has the attribute of a node, by its id, whose body leaves it.
    """

    graph: Graph
    bodies: Mapping[int, str] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    folded: list[Folded] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.edges = edge_names(self.graph, self.bodies)
        self.node_names = {node.name for node in self.graph.nodes} | set(self.graph.order)

    def write(
        self, parent: Node, op_type: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any
    ) -> Node:
        """Returns a new node for ``parent``; ``axes`` and ``split`` become operands or attributes."""
        for name in ("axes", "split"):
            if name in attributes and self.graph.opset_of(parent) >= _AXES_ARE_INPUTS:
                inputs = [*inputs, self.constant(parent, name, np.asarray(attributes.pop(name), np.int64))]
        name = unique(f"{parent.name}/{op_type}", parent.name, self.node_names)
        return self.add(parent, helper.make_node(op_type, inputs, outputs, name, **attributes))

    def constant(self, parent: Node, what: str, array: Array) -> str:
        """Returns the name of a new constant."""
        name = unique(f"{parent.name}/{what}", parent.name, self.edges)
        self.constants[name] = array
        return name

    def add(self, parent: Node, proto: NodeProto) -> Node:
        """Adds a node that is no ``Constant``."""
        node = read_node(proto, self.graph.opsets, self.graph.ir_version)
        assert isinstance(node, Node)
        if parent.opset and not node.domain:
            node = replace(node, opset=parent.opset)
        self.nodes.append(node)
        return node


@dataclass
class Inliner(Writer):
    """Writes nodes of bodies in the place of the nodes that have them."""

    inside: dict[str, list[str]] = field(default_factory=dict)  # by node: names of what its body holds

    def __post_init__(self) -> None:
        super().__post_init__()
        self.constants = dict(self.graph.constants)
        self.values: dict[str, Value] = dict(self.graph.values)

    def result(self) -> Graph:
        """Returns the graph with the nodes that were written in the place of those that were opened."""
        graph = self.graph
        known = [v.name for v in graph.inputs] + list(self.constants)
        order = [name for outer in graph.order for name in (outer, *self.inside.get(outer, ()))]
        graph = replace(graph, values=self.values, order=tuple(order))
        folded = graph.folded + tuple(self.folded)
        return graph.with_nodes(sort_nodes(self.nodes, known), constants=self.constants, folded=folded)

    def open(self, node: Node, reason: str) -> None:
        """Begins with the body of ``node``, which is not written itself."""
        self.folded.append(Folded(node.name, node.op_type, reason))
        self.inside[node.name] = []

    def write_constants(self, body: GraphProto, names: Mapping[str, str]) -> None:
        """Adds the constants of a body; ``names`` are those that its values have in the graph."""
        for tensor in body.initializer:
            self.constants[names[tensor.name]] = read_array(tensor)
        for sparse in body.sparse_initializer:
            self.constants[names[sparse.values.name]] = read_array(sparse)
        for proto in body.node:
            if is_constant(proto):
                array = read_node(proto, self.graph.opsets, self.graph.ir_version)
                assert not isinstance(array, Node)
                self.constants[names[proto.output[0]]] = array
                self.folded.append(Folded(proto.name, "Constant", "a constant of the model"))

    def write_nodes(self, parent: Node, body: GraphProto, names: Mapping[str, str], prefix: str = "") -> None:
        """Adds the nodes of a body that are no constants, their names behind ``prefix``."""
        for index, proto in enumerate(body.node):
            if is_constant(proto):
                continue
            own = NodeProto()
            own.CopyFrom(proto)
            own.name = unique(
                prefix + (proto.name or f"{proto.op_type}_{index}"), parent.name, self.node_names
            )
            own.input[:] = [names.get(n, n) for n in proto.input]
            own.output[:] = [names.get(n, n) for n in proto.output]
            for inner in subgraphs(own):
                _rename(inner, names)
            self.add(parent, own)

    def same(self, parent: Node, source: str, name: str) -> None:
        """Makes ``name`` another name of ``source``."""
        own = unique(f"{parent.name}/{name}", parent.name, self.node_names)
        self.add(parent, helper.make_node("Identity", [source], [name], name=own))

    def add(self, parent: Node, proto: NodeProto) -> Node:
        """Adds a node of the body of ``parent``."""
        self.inside[parent.name].append(proto.name)
        return super().add(parent, proto)


def is_constant(proto: NodeProto) -> bool:
    """Returns whether the node is a ``Constant``."""
    return proto.op_type == "Constant" and not proto.domain


def defined_once(node: Node, body: GraphProto) -> list[str]:
    """Returns the values that a body defines itself, inputs aside. Raises ``ModelError`` for one twice."""
    names: dict[str, None] = {}
    for name in _defined(body, inputs=False):
        if name in names:
            raise ModelError(
                f"node {node.name} ({node.op_type})",
                f"a branch that defines {name!r} twice",
                "distinct names",
            )
        names[name] = None
    return list(names)


def body_of(node: Node, which: str) -> GraphProto | None:
    """Returns the body in an attribute of a node."""
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
    """Gives captured values their new names, in subgraphs inside too. Own values of the graph that have one
    of the new names get others."""
    own = set(_defined(graph))
    names = {old: new for old, new in names.items() if old not in own}
    taken = own.union(names.values(), read_in(graph))
    moved = {name: unique(name, name, taken) for name in sorted(own.intersection(names.values()))}
    for value in (*graph.input, *graph.initializer, *graph.value_info):
        value.name = moved.get(value.name, value.name)
    for sparse in graph.sparse_initializer:
        sparse.values.name = moved.get(sparse.values.name, sparse.values.name)
    names |= moved
    for node in graph.node:
        node.input[:] = [names.get(n, n) for n in node.input]
        node.output[:] = [moved.get(n, n) for n in node.output]
        for inner in subgraphs(node):
            _rename(inner, names)
    for info in graph.output:
        info.name = names.get(info.name, info.name)


def read_in(graph: GraphProto) -> set[str]:
    """Returns the names that nodes of a body read or hand on, at any depth."""
    found = {value.name for value in graph.output}
    for node in graph.node:
        found.update(name for name in node.input if name)
        for inner in subgraphs(node):
            found |= read_in(inner)
    return found


def edge_names(graph: Graph, branches: Mapping[int, str] = MappingProxyType({})) -> set[str]:
    """Names of values that inlined ones must not take: the graph's, and those of subgraphs that stay.

    ``branches`` is which body of a node, by its id, does not stay a subgraph.
    """
    found = {v.name for v in (*graph.inputs, *graph.outputs)} | set(graph.constants) | set(graph.values)
    for node in graph.nodes:
        found.update(node.reads, node.writes)
        if not node.has_subgraph:
            continue
        which = branches.get(id(node))
        branch = body_of(node, which) if which else None
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
