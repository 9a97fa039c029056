# SPDX-License-Identifier: Apache-2.0
"""Loops and Scans whose number of rounds is known become the nodes of all rounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from onnx import GraphProto

from onedispatch.dispatch.bodies.function_bodies import has_body
from onedispatch.dispatch.compiler.inline import (
    Inliner,
    body_of,
    defined_once,
    is_constant,
    is_if,
    read_in,
    unique,
)
from onedispatch.dispatch.compiler.loop_control import (
    Surroundings,
    decided_by_data,
    nodes_of,
    numbered,
    rounds_of,
    size_of,
)
from onedispatch.dispatch.compiler.rewrite import anchored
from onedispatch.dispatch.compiler.sequences import of_sequences
from onedispatch.dispatch.frontend.graph import Graph, Node
from onedispatch.dispatch.frontend.importer import read_node
from onedispatch.operators.declarations import registry
from onedispatch.transactions.base.cached import cached_property
from onedispatch.transactions.base.text import counted

_MOST_NODES = 6_000  # of a graph after unrolling: ten seconds of compile
_ON_NO_DEVICE = frozenset(f"tensor({kind})" for kind in ("double", "string", "complex64", "complex128"))
_MISMATCH = "a body that does not go with its operands and results"
_FIRST_SCAN = 9  # opset from which on Scan has no batches


def is_loop(node: Node) -> bool:
    """Returns whether the node may become its rounds, for some shapes."""
    return node.op_type in ("Loop", "Scan") and not node.domain


def has_operator(node: Node, opset: int) -> bool:
    """Returns whether the device may compute the node, or the compiler take it away."""
    return (
        registry.mapping_for(node.domain, node.op_type) is not None
        or has_body(node, opset)
        or anchored(node)
        or of_sequences(node)
        or is_loop(node)
    )


def unroll_loops(graph: Graph) -> tuple[Graph, bool]:
    """Returns the graph with the nodes of all rounds in place of Loops and Scans, and whether it had such.

    What a Loop's condition follows from is computed here, round after round. A node stays, with a remark
    that says why, if its rounds depend on data, are too many, or need an operator that nothing maps.
    """
    if not any(map(is_loop, graph.nodes)):
        return graph, False
    found: dict[int, _Rounds] = {}
    remarks, written = dict(graph.remarks), len(graph.nodes)
    for node in graph.nodes:
        body = body_of(node, "body") if is_loop(node) else None
        if body is None:
            continue
        rounds = _rounds_of(graph, node, body, max(0, _MOST_NODES - written))
        if isinstance(rounds, str):
            remarks[node.name] = f"not unrolled: {rounds}"
        else:
            found[id(node)] = rounds
            written += rounds.size
            remarks.pop(node.name, None)
    graph = replace(graph, remarks=remarks)
    if not found:
        return graph, False
    inliner = Inliner(graph, bodies=dict.fromkeys(found, "body"))
    for node in graph.nodes:
        if id(node) in found:
            found[id(node)].write(inliner)
        else:
            inliner.nodes.append(node)
    return inliner.result(), True


@dataclass(frozen=True)
class _Rounds:
    """A Loop or Scan with its body and the number of its rounds.

    ``states`` are the values that begin as its operands; ``slices`` by input of the body the operand that
    a round gets a part of, with axis and direction; ``stacks`` the axis and direction of each result that
    has a part from every round.
    """

    graph: Graph
    node: Node
    body: GraphProto
    count: int
    states: Sequence[str]
    inputs: Sequence[str]  # of the body, for the states
    slices: Mapping[str, tuple[str, int, bool]]
    results: Sequence[str]  # of the body: the states, then what is stacked
    stacks: Sequence[tuple[int, bool]]
    number: str = ""  # inputs of a Loop's body
    condition: str = ""

    @cached_property
    def around(self) -> Surroundings:
        """What the body's inputs are."""
        states = dict(zip(self.inputs, self.states, strict=True))
        becomes = dict(zip(self.inputs, self.results, strict=False))
        given = {self.number: "tensor(int64)", self.condition: "tensor(bool)"} if self.number else {}
        return Surroundings(self.graph, self.body, states, becomes, given)

    @cached_property
    def size(self) -> int:
        """Nodes of all rounds."""
        return self.count * (size_of(self.around) + len(self.slices) + len(self.stacks))

    def write(self, inliner: Inliner) -> None:
        """Adds the nodes of all rounds, and those that make the results of the node."""
        inliner.open(self.node, f"its {counted(self.count, 'round')} are part of the graph")
        own = defined_once(self.node, self.body)
        constants = {name: unique(name, self.node.name, inliner.edges) for name in self._constants()}
        inliner.write_constants(self.body, constants)
        read = read_in(self.body)
        if self.condition in read:
            constants[self.condition] = inliner.constant(self.node, "goes_on", np.array(True))
        states, parts = list(self.states), [list[str]() for _ in self.stacks]
        for at in range(self.count):
            prefix = f"{self.node.name}/{at}/"
            names = constants | dict(zip(self.inputs, states, strict=True))
            if self.number in read:
                names[self.number] = inliner.constant(self.node, "round", numbered(self.body, at))
            for name, (source, axis, backward) in self.slices.items():
                place = np.array(self.count - 1 - at if backward else at)
                names[name] = unique(prefix + name, self.node.name, inliner.edges)
                index = inliner.constant(self.node, "place", place)
                inliner.write(self.node, "Gather", [source, index], [names[name]], axis=axis)
            new = [name for name in own if name not in constants]
            names |= {name: unique(prefix + name, self.node.name, inliner.edges) for name in new}
            inliner.write_nodes(self.node, self.body, names, prefix)
            made = [names.get(name, name) for name in self.results]
            states = made[: len(states)]
            for stack, name in zip(parts, made[len(states) :], strict=True):
                stack.append(name)
        for name, output in zip(states, self.node.outputs, strict=False):
            if output:
                inliner.same(self.node, name, output)
        stacked = zip(parts, self.stacks, self.node.outputs[len(states) :], strict=False)
        for stack, (axis, backward), output in stacked:
            if output:
                self._stack(inliner, stack[::-1] if backward else stack, axis, output)

    def _constants(self) -> Iterator[str]:
        yield from (tensor.name for tensor in self.body.initializer)
        yield from (tensor.values.name for tensor in self.body.sparse_initializer)
        yield from (proto.output[0] for proto in self.body.node if is_constant(proto))

    def _stack(self, inliner: Inliner, parts: Sequence[str], axis: int, output: str) -> None:
        rows = [unique(f"{output}/{at}", self.node.name, inliner.edges) for at in range(len(parts))]
        for part, row in zip(parts, rows, strict=True):
            inliner.write(self.node, "Unsqueeze", [part], [row], axes=[axis])
        inliner.write(self.node, "Concat", rows, [output], axis=axis)


# -- how many rounds -------------------------------------------------------------------------------------


def _rounds_of(graph: Graph, node: Node, body: GraphProto, most: int) -> _Rounds | str:
    """Returns the rounds of a node, or why it stays: they may have ``most`` nodes."""
    nodes = nodes_of(body)
    rounds = (_loop if node.op_type == "Loop" else _scan)(graph, node, body, most // max(1, len(nodes)))
    if isinstance(rounds, str):
        return rounds
    if not rounds.count and any(node.outputs[len(rounds.states) :]):
        return "it has no rounds that its results would be of"
    if rounds.size > most:
        every = f"{counted(rounds.size, 'node')} in {counted(rounds.count, 'round')}"
        return f"{every}, more than the {counted(most, 'node')} that a graph may grow by"
    for proto in nodes:
        inner = read_node(proto, graph.opsets, graph.ir_version)
        if isinstance(inner, Node) and not is_if(inner) and not has_operator(inner, graph.opset_of(inner)):
            return f"no device operator for {proto.domain or 'ai.onnx'}.{proto.op_type} of its body"
    wide = [name for name in node.reads if graph.value(name).type in _ON_NO_DEVICE]
    if wide:
        return f"{graph.value(wide[0])}, of a type that no device operator takes"
    return decided_by_data(rounds.around) or rounds


def _scan(graph: Graph, node: Node, body: GraphProto, _: int) -> _Rounds | str:
    if graph.opset_of(node) < _FIRST_SCAN:
        return f"a Scan of operator set {graph.opset_of(node)}, which has batches"
    given = int(node.attributes.get("num_scan_inputs", 0))
    begin = len(node.inputs) - given
    made = len(body.output) - begin
    if begin < 0 or made < 0 or len(body.input) != len(node.inputs) or len(node.outputs) > begin + made:
        return _MISMATCH
    inputs = [value.name for value in body.input]
    sides, stacks = _sides(node, "input", given), _sides(node, "output", made)
    if len(sides) != given or len(stacks) != made:
        return "axes or directions of another number than its operands or results"
    slices = {
        name: (source, axis, backward)
        for name, source, (axis, backward) in zip(inputs[begin:], node.inputs[begin:], sides, strict=True)
    }
    sizes = set()
    for source, axis, _backward in slices.values():
        shape = graph.value(source).shape or ()
        size = shape[axis] if -len(shape) <= axis < len(shape) else None
        if not isinstance(size, int):
            return f"its number of rounds is a size of {source!r}, which is open"
        sizes.add(size)
    if len(sizes) != 1:
        return "operands of different lengths"
    return _Rounds(
        graph,
        node,
        body,
        sizes.pop(),
        node.inputs[:begin],
        inputs[:begin],
        slices,
        [value.name for value in body.output],
        stacks,
    )


def _sides(node: Node, what: str, count: int) -> list[tuple[int, bool]]:
    """Axis and direction of what a Scan takes apart or puts together, ``count`` of them by default."""
    axes, directions = (
        node.attributes.get(f"scan_{what}_{kind}") or [0] * count for kind in ("axes", "directions")
    )
    return [(int(axis), bool(backward)) for axis, backward in zip(axes, directions, strict=False)]


def _loop(graph: Graph, node: Node, body: GraphProto, most: int) -> _Rounds | str:
    states = list(node.inputs[2:])
    fits = len(body.input) == len(states) + 2 and len(body.output) > max(len(states), len(node.outputs))
    if not all(states) or not fits:
        return _MISMATCH
    inputs, results = ([value.name for value in values] for values in (body.input, body.output))
    stacks = [(0, False)] * (len(results) - 1 - len(states))
    rounds = _Rounds(graph, node, body, 0, states, inputs[2:], {}, results[1:], stacks, inputs[0], inputs[1])
    numbers: list[int | None] = [None, 1]
    for place, name in enumerate(node.inputs[:2]):
        value = rounds.around.known.get(name)
        if name and (value is None or value.size != 1):
            return f"its number of rounds depends on {name!r}, which is data"
        numbers[place] = numbers[place] if value is None else int(value.reshape(()))
    limit, begins = numbers
    count = rounds_of(rounds.around, most, limit) if begins else 0
    return count if isinstance(count, str) else replace(rounds, count=count)
