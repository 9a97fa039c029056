# SPDX-License-Identifier: Apache-2.0
"""Loops and Scans whose number of rounds is known become the nodes of all rounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from onnx import GraphProto, NodeProto

from onedispatch.dispatch.compiler.evaluate import evaluate, may_evaluate
from onedispatch.dispatch.compiler.inline import Inliner, body_of, defined_once, is_constant, is_if, unique
from onedispatch.dispatch.compiler.rewrite import anchored
from onedispatch.dispatch.compiler.sequences import of_sequences
from onedispatch.dispatch.frontend.function_bodies import has_body
from onedispatch.dispatch.frontend.graph import Array, Graph, Node
from onedispatch.dispatch.frontend.importer import read_array, read_node
from onedispatch.operators.declarations import registry
from onedispatch.transactions.base.text import counted

_MOST_NODES = 10_000  # of a graph after unrolling: ten seconds of compile
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

    @property
    def size(self) -> int:
        """Nodes of all rounds."""
        return self.count * sum(not is_constant(proto) for proto in self.body.node)

    def write(self, inliner: Inliner) -> None:
        """Adds the nodes of all rounds, and those that make the results of the node."""
        inliner.open(self.node, f"its {counted(self.count, 'round')} are part of the graph")
        own = defined_once(self.node, self.body)
        constants = {name: unique(name, self.node.name, inliner.edges) for name in self._constants()}
        inliner.write_constants(self.body, constants)
        read = {name for proto in self.body.node for name in proto.input} | set(self.results)
        if self.condition in read:
            constants[self.condition] = inliner.constant(self.node, "goes_on", np.array(True))
        states, parts = list(self.states), [list[str]() for _ in self.stacks]
        for at in range(self.count):
            prefix = f"{self.node.name}/{at}/"
            names = constants | dict(zip(self.inputs, states, strict=True))
            if self.number in read:
                names[self.number] = inliner.constant(self.node, "round", np.array(at))
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
    nodes = [proto for proto in body.node if not is_constant(proto)]
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
    return rounds


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
    count = _loop_count(graph, node, body, most)
    if isinstance(count, str):
        return count
    inputs, results = ([value.name for value in values] for values in (body.input, body.output))
    stacks = [(0, False)] * (len(results) - 1 - len(states))
    return _Rounds(node, body, count, states, inputs[2:], {}, results[1:], stacks, inputs[0], inputs[1])


def _loop_count(graph: Graph, node: Node, body: GraphProto, most: int) -> int | str:
    known = {**graph.decided, **graph.constants}
    numbers: list[int | None] = [None, 1]
    for place, name in enumerate(node.inputs[:2]):
        if not name:
            continue
        value = known.get(name)
        if value is None or value.size != 1:
            return f"its number of rounds depends on {name!r}, which is data"
        numbers[place] = int(value.reshape(()))
    limit, begins = numbers
    if not begins:
        return 0
    if _same_as(body, body.output[0].name) == body.input[1].name:
        return "it has no end" if limit is None else max(0, limit)
    cone = _Cone.of(graph, node, body, known)
    return cone if isinstance(cone, str) else cone.count(graph, most, limit)


def _same_as(body: GraphProto, name: str) -> str:
    """Returns the value that ``name`` is another name of."""
    makers = {
        proto.output[0]: proto for proto in body.node if proto.op_type == "Identity" and not proto.domain
    }
    while name in makers:
        name = makers[name].input[0]
    return name


@dataclass(frozen=True)
class _Cone:
    """The part of a Loop's body that its condition follows from, if that follows from constants."""

    body: GraphProto
    nodes: Sequence[Node]
    known: Mapping[str, Array]
    states: Mapping[str, Array]  # input of the body -> its first value
    becomes: Mapping[str, str]  # input of the body -> output that is its next value

    @staticmethod
    def of(graph: Graph, node: Node, body: GraphProto, known: Mapping[str, Array]) -> _Cone | str:
        """Returns the part, or why the condition is not known."""
        makers = {name: proto for proto in body.node for name in proto.output}
        own = {tensor.name: tensor for tensor in body.initializer}
        number, goes_on, *inputs = (value.name for value in body.input)
        outer = dict(zip(inputs, node.inputs[2:], strict=True))
        becomes = {name: value.name for name, value in zip(inputs, body.output[1:], strict=False)}
        constants, states, cone = dict[str, Array](), dict[str, Array](), dict[int, NodeProto]()
        todo, seen = [body.output[0].name], {number, goes_on, ""}
        while todo:
            name = todo.pop()
            if name in seen:
                continue
            seen.add(name)
            if name in makers:
                cone[id(makers[name])] = makers[name]
                todo += makers[name].input
            elif name in own:
                constants[name] = read_array(own[name])
            elif name in outer and outer[name] in known:
                states[name] = known[outer[name]]
                todo.append(becomes[name])
            elif name not in outer and name in known:
                constants[name] = known[name]
            else:
                return f"its condition depends on {outer.get(name, name)!r}, which is data"
        nodes = list[Node]()
        for proto in (proto for proto in body.node if id(proto) in cone):
            one = read_node(proto, graph.opsets, graph.ir_version)
            if not isinstance(one, Node):
                constants[proto.output[0]] = one
            elif may_evaluate(one):
                nodes.append(one)
            else:
                return f"its condition depends on {one.op_type}, which nothing computes before a run"
        return _Cone(body, nodes, constants, states, {name: becomes[name] for name in states})

    def count(self, graph: Graph, most: int, limit: int | None) -> int | str:
        """Returns the number of rounds, or why it is not known; more than ``most`` are not counted."""
        states, condition = dict(self.states), self.body.output[0].name
        number, goes_on = (value.name for value in self.body.input[:2])
        for at in range(most + 1):
            if limit is not None and at >= limit:
                return at
            known = {
                **self.known,
                **states,
                number: np.array(at),
                goes_on: np.array(True),
            }
            values = known | evaluate(graph, self.nodes, known)[0]
            if not {condition, *self.becomes.values()} <= set(values):
                return "its condition follows from sizes that are not known"
            if not bool(values[condition].reshape(())):
                return at + 1
            states = {name: values[result] for name, result in self.becomes.items()}
        return f"it has more than {counted(most, 'round')}"
