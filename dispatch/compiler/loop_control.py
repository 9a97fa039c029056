# SPDX-License-Identifier: Apache-2.0
"""What decides how often a Loop's body runs, and what runs in it: constants, or data of the run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from onnx import GraphProto, NodeProto

from onedispatch.dispatch.compiler.evaluate import may_evaluate
from onedispatch.dispatch.compiler.inline import is_constant
from onedispatch.dispatch.frontend.graph import Array, Graph, Node, Value, type_name_of
from onedispatch.dispatch.frontend.importer import read_array, read_node
from onedispatch.dispatch.frontend.walk import subgraphs
from onedispatch.dispatch.host.regions import HostRegion
from onedispatch.transactions.base.cached import cached_property
from onedispatch.transactions.base.errors import InputError, ModelError
from onedispatch.transactions.base.text import counted

_GUESSED = 16  # rounds of a loop inside, where a value of the round around it says how many
_DECIDING = {"If": 1, "Loop": 2}  # operator -> how many of its first operands say what runs


@dataclass(frozen=True)
class Surroundings:
    """What a body's inputs are in the graph around it.

    ``states`` are inputs by name with the values that they begin as; ``becomes`` the output of the body that
    is the next value of one; ``given`` the types of inputs that are known in every round.
    """

    graph: Graph
    body: GraphProto
    states: Mapping[str, str]
    becomes: Mapping[str, str]
    given: Mapping[str, str]

    @cached_property
    def known(self) -> dict[str, Array]:
        """Values of the graph around that are known."""
        return {**self.graph.decided, **self.graph.constants}


def numbered(body: GraphProto, at: int) -> Array:
    """Returns the number of a round in the shape that the body of a Loop declares for it, [] or [1]."""
    return np.full((1,) * len(body.input[0].type.tensor_type.shape.dim), at)


def nodes_of(body: GraphProto) -> list[NodeProto]:
    """Returns the nodes of a body that are no constants."""
    return [proto for proto in body.node if not is_constant(proto)]


def size_of(around: Surroundings) -> int:
    """Returns the nodes of one round; of loops inside with their own rounds, as far as these are known."""
    constants = around.known | {tensor.name: read_array(tensor) for tensor in around.body.initializer}
    return max(1, sum(_size(proto, constants) for proto in nodes_of(around.body)))


def _size(proto: NodeProto, constants: Mapping[str, Array]) -> int:
    inside = max(
        (sum(_size(one, constants) for one in nodes_of(body)) for body in subgraphs(proto)), default=0
    )
    if proto.op_type not in ("Loop", "Scan") or proto.domain:
        return 1 + inside
    limit = constants.get(proto.input[0]) if proto.op_type == "Loop" and proto.input else None
    return 1 + inside * (_GUESSED if limit is None or limit.size != 1 else max(0, int(limit.reshape(()))))


def decided_by_data(around: Surroundings) -> str:
    """Returns why the rounds of a node inside, or its branch, are known only at run time; "" if there is none
    such: then many nodes would stay on the host in place of one."""
    for proto in nodes_of(around.body):
        count = 0 if proto.domain else _DECIDING.get(proto.op_type, 0)
        for name in filter(None, proto.input[:count]):
            cone = cone_of(around, [name])
            if isinstance(cone, str):
                return f"its body has a node {proto.op_type}, and what that does {cone}"
    return ""


@dataclass(frozen=True)
class Cone:
    """The part of a body that some of its values follow from, where that is constants and known inputs.

    ``states`` are the first values of inputs, ``becomes`` the outputs that are their next ones.
    """

    graph: Graph
    nodes: Sequence[Node]
    known: Mapping[str, Array]
    states: Mapping[str, Array]
    becomes: Mapping[str, str]
    given: Mapping[str, str]

    def evaluator(self, wanted: Sequence[str]) -> Callable[[Mapping[str, Array]], Mapping[str, Array]]:
        """Returns what computes values of a round from those of states and known inputs, which it takes.

        It raises ``ModelError`` or ``InputError`` where they can't be computed.
        """
        types = {name: Value(name, type_name_of(array.dtype)) for name, array in self.states.items()}
        types |= {name: Value(name, kind) for name, kind in self.given.items()}
        made = {name for node in self.nodes for name in node.writes}
        outputs = [name for name in dict.fromkeys([*wanted, *self.becomes.values()]) if name in made]
        graph = replace(self.graph, constants=self.known, values=types, decided={})
        region = HostRegion(graph, self.nodes, outputs, threads=1, optimise=False)

        def evaluate(values: Mapping[str, Array]) -> Mapping[str, Array]:
            found = region.run({name: values[name] for name in region.inputs})
            return {**self.known, **values, **found}

        return evaluate


@dataclass
class _Search:
    """What is found on the way to the leaves."""

    constants: dict[str, Array] = field(default_factory=dict)
    states: dict[str, Array] = field(default_factory=dict)
    cone: dict[int, NodeProto] = field(default_factory=dict)


def cone_of(around: Surroundings, roots: Sequence[str]) -> Cone | str:
    """Returns the part of the body that ``roots`` follow from, or what of the run they depend on."""
    found = _Search()
    makers = {name: proto for proto in around.body.node for name in proto.output}
    own = {tensor.name: tensor for tensor in around.body.initializer}
    inputs, outer = {value.name for value in around.body.input}, around.known
    todo, seen = list(roots), {"", *around.given}
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        if name in makers:
            found.cone[id(makers[name])] = makers[name]
            todo += makers[name].input
        elif name in own:
            found.constants[name] = read_array(own[name])
        elif around.states.get(name) in outer:
            found.states[name] = outer[around.states[name]]
            todo.append(around.becomes[name])
        elif name not in inputs and name in outer:
            found.constants[name] = outer[name]
        else:
            return f"depends on {around.states.get(name, name)!r}, which is data"
    return _cone(around, found)


def _cone(around: Surroundings, found: _Search) -> Cone | str:
    nodes = list[Node]()
    for proto in (proto for proto in around.body.node if id(proto) in found.cone):
        one = read_node(proto, around.graph.opsets, around.graph.ir_version)
        if not isinstance(one, Node):
            found.constants[proto.output[0]] = one
        elif may_evaluate(one):
            nodes.append(one)
        else:
            return f"depends on {one.op_type}, which nothing computes before a run"
    becomes = {name: around.becomes[name] for name in found.states}
    return Cone(around.graph, nodes, found.constants, found.states, becomes, around.given)


def rounds_of(around: Surroundings, most: int, limit: int | None) -> int | str:
    """Returns after how many rounds the condition of a Loop fails, or why that is not known.

    ``limit`` is the number of its rounds otherwise; more than ``most`` are not counted.
    """
    number, goes_on = (value.name for value in around.body.input[:2])
    condition = _same_as(around.body, around.body.output[0].name)
    if condition == goes_on:
        return "it has no end" if limit is None else max(0, limit)
    cone = cone_of(around, [condition])
    if isinstance(cone, str):
        return f"its condition {cone}"
    if condition in cone.known:
        return _endless(cone.known[condition], limit)
    evaluate, states = cone.evaluator([condition]), dict(cone.states)
    for at in range(most + 1):
        if limit is not None and at >= limit:
            return at
        try:
            values = evaluate({**states, number: numbered(around.body, at), goes_on: np.array(True)})
            value = values[condition]
            states = {name: values[result] for name, result in cone.becomes.items()}
        except (InputError, ModelError, KeyError):
            return "its condition can't be computed before a run"
        if value.size != 1:
            return f"its condition has {counted(value.size, 'element')}"
        if not bool(value.reshape(())):
            return at + 1
    return f"it has more than {counted(most, 'round')}"


def _endless(condition: Array, limit: int | None) -> int | str:
    """Of a Loop whose condition is the same after every round."""
    if condition.size != 1:
        return f"its condition has {counted(condition.size, 'element')}"
    most = None if limit is None else max(0, limit)
    if not bool(condition.reshape(())):
        return 1 if most is None else min(1, most)
    return "it has no end" if most is None else most


def _same_as(body: GraphProto, name: str) -> str:
    """Returns the value that ``name`` is another name of."""
    makers = {
        proto.output[0]: proto for proto in body.node if proto.op_type == "Identity" and not proto.domain
    }
    while name in makers:
        name = makers[name].input[0]
    return name
