# SPDX-License-Identifier: Apache-2.0
"""Matches patterns against a graph, and finds why a near miss does not match."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations
from typing import Any

import numpy as np
import onnx

from onedispatch.dispatch.frontend.graph import Array, Graph, Node, Value
from onedispatch.dispatch.rules import pattern as p
from onedispatch.transactions.base.text import counted

_COMMUTE = frozenset("Add Mul Max Min AddV2 Maximum Minimum".split())  # the last three of TensorFlow
# Operators that may have more operands than the pattern, such as axes: conditions check those.
_STRUCTURED = frozenset("ReduceMean ReduceMax ReduceSum Slice Split Reshape Expand Squeeze Unsqueeze".split())
# Relative tolerance between a constant and the number in a rule: exporters round to the model's type, and
# some write six digits.
_PRECISION = {"float64": 1e-6, "float32": 1e-6, "float16": 1e-3, "bfloat16": 8e-3}


@dataclass(frozen=True)
class Index:
    """A graph indexed by values: the node that makes each, and the nodes that read it."""

    graph: Graph
    makers: Mapping[str, Node] = field(repr=False)
    readers: Mapping[str, Sequence[Node]] = field(repr=False)
    position: Mapping[str, int] = field(repr=False)  # of each node in topological order

    @classmethod
    def of(cls, graph: Graph) -> Index:
        readers: dict[str, list[Node]] = {}
        for node in graph.nodes:
            for name in node.reads:
                readers.setdefault(name, []).append(node)
        makers = {name: node for node in graph.nodes for name in node.writes}
        return cls(graph, makers, readers, {node.name: i for i, node in enumerate(graph.nodes)})


@dataclass
class Match:
    """One match: values by their names in the rule, and the nodes in order, the root last.

    ``beside`` are the nodes that it does not replace.
    """

    index: Index
    rule: p.Rule
    root: Node
    values: dict[str, str]
    nodes: list[Node]
    beside: tuple[Node, ...] = ()

    @property
    def graph(self) -> Graph:
        return self.index.graph

    def value(self, name: str) -> Value:
        """Returns what is known of a value."""
        return self.graph.value(self.values[name])

    def shape(self, name: str) -> tuple[int, ...]:
        """Returns the shape of a value; ``()`` if it is unknown."""
        return self.value(name).concrete_shape

    def constant(self, name: str) -> Array | None:
        """Returns the array of a constant value, None for any other."""
        return self.graph.constants.get(self.values.get(name, ""))

    def scalar(self, name: str) -> float:
        """Returns the number in a constant of one element."""
        return float(np.asarray(self.graph.constants[self.values[name]]).reshape(-1)[0])

    def maker(self, name: str) -> Node:
        """Returns the node that makes a value."""
        return self.index.makers[self.values[name]]


@dataclass
class _State:
    """A partial match; ``beside`` are names of nodes that it does not replace."""

    index: Index
    values: dict[str, str]
    nodes: list[Node]
    beside: frozenset[str] = frozenset()


def matches(index: Index, rule: p.Rule, root: Node) -> Iterator[Match]:
    """Yields the matches of the rule whose last node is ``root``, form by form."""
    for one in rule.patterns:
        for state in _fit(_State(index, {}, []), one, root.outputs[0]):
            nodes = sorted(dict.fromkeys(state.nodes), key=lambda node: index.position[node.name])
            beside = tuple(node for node in nodes if node.name in state.beside)
            yield Match(index, rule, root, state.values, [n for n in nodes if n not in beside], beside)


def fits(
    index: Index, patterns: Sequence[p.NodePattern], ends: Sequence[Sequence[str]]
) -> Iterator[tuple[Fit, tuple[str, ...]]]:
    """Yields how ``patterns`` match together, each at one of its values in ``ends``, and at which.

    The same names are the same values in all of them.
    """
    for state, roots in _together(_State(index, {}, []), patterns, ends):
        nodes = sorted(dict.fromkeys(state.nodes), key=lambda node: index.position[node.name])
        yield Fit(state.values, tuple(nodes)), roots


def _together(
    state: _State, patterns: Sequence[p.NodePattern], ends: Sequence[Sequence[str]]
) -> Iterator[tuple[_State, tuple[str, ...]]]:
    if not patterns:
        yield state, ()
        return
    for name in ends[0]:
        for one in _fit(state, patterns[0], name):
            for found, roots in _together(one, patterns[1:], ends[1:]):
                if name not in roots:
                    yield found, (name, *roots)


@dataclass(frozen=True)
class Fit:
    """Values by their names in several patterns that match together, and the nodes in order."""

    values: Mapping[str, str]
    nodes: tuple[Node, ...]


def _fit(state: _State, pattern: p.Pattern, name: str) -> Iterator[_State]:
    """Yields every extension of ``state`` in which ``pattern`` matches the value ``name``."""
    match pattern:
        case p.AnyOf(choices):
            for choice in choices:
                yield from _fit(state, choice, name)
        case p.NumberPattern(number):
            if is_number(state.index.graph, name, number):
                yield state
        case p.ValuePattern(own):
            if not _unfit(state.index.graph, pattern, name) and state.values.get(own, name) == name:
                yield replace(state, values={**state.values, own: name})
        case p.NodePattern():
            yield from _fit_op(state, pattern, name)


def _fit_op(state: _State, pattern: p.NodePattern, name: str) -> Iterator[_State]:
    node = state.index.makers.get(name)
    if node is None or refuses_op(state.index.graph, pattern, node, name):
        return
    values = {**state.values, pattern.name: name} if pattern.name else dict(state.values)
    if pattern.name and state.values.get(pattern.name, name) != name:
        return
    for order in orders(pattern):
        beside = state.beside | {node.name} if pattern.beside else state.beside
        states = iter([_State(state.index, values, [*state.nodes, node], beside)])
        for operand, given in zip(order, node.inputs, strict=False):
            states = _each(states, operand, given)
        yield from states


def _each(states: Iterator[_State], pattern: p.Pattern, name: str) -> Iterator[_State]:
    for state in states:
        yield from _fit(state, pattern, name)


def orders(pattern: p.NodePattern) -> list[tuple[p.Pattern, ...]]:
    """Returns the orders in which operands may stand: all for a commutative operator."""
    if pattern.op_type not in _COMMUTE:
        return [pattern.operands]
    return list(dict.fromkeys(permutations(pattern.operands)))


def refuses_op(graph: Graph, pattern: p.NodePattern, node: Node, made: str) -> str:
    """Returns why a node that makes ``made`` does not match, operands aside; "" if it matches."""
    if node.domain != pattern.domain or node.op_type != pattern.op_type:
        return f"{node.name} is {node.op_type}, not {pattern.op_type}"
    given = [name for name in node.inputs if name]
    if pattern.output >= 0 and node.outputs.index(made) != pattern.output:
        return f"{made} is output {node.outputs.index(made)} of {node.name}, not {pattern.output}"
    if pattern.output < 0 and len(node.writes) != 1:
        return f"{node.name} ({node.op_type}) makes {counted(len(node.writes), 'value')}, not 1"
    if len(given) < len(pattern.operands):
        return f"{node.name} ({node.op_type}) has {len(given)} operands, not {len(pattern.operands)}"
    if len(given) > len(pattern.operands) and node.op_type not in _STRUCTURED:
        return f"{node.name} ({node.op_type}) has {len(given)} operands, not {len(pattern.operands)}"
    for name, wanted in pattern.attributes.items():
        value = attribute(graph, node, name)
        same = isinstance(wanted, float) and isinstance(value, float) and abs(value - wanted) < 1e-6
        if not same and value != wanted:
            return f"{node.name} ({node.op_type}) has {name}={value}, not {wanted}"
    return ""


def attribute(graph: Graph, node: Node, name: str) -> Any:
    """Returns an attribute of a node, or its default; None if it has neither."""
    if name in node.attributes:
        return node.attributes[name]
    try:
        schema = onnx.defs.get_schema(node.op_type, graph.opset_of(node), node.domain)
    except onnx.defs.SchemaError:
        return None
    known = schema.attributes.get(name)
    if known is None or known.default_value.type == onnx.AttributeProto.UNDEFINED:
        return None
    value = onnx.helper.get_attribute_value(known.default_value)
    return value.decode() if isinstance(value, bytes) else value


def _single(graph: Graph, name: str) -> Array | None:
    constant = graph.constants.get(name)
    return constant if constant is not None and constant.size == 1 and constant.dtype.kind != "O" else None


def _unfit(graph: Graph, pattern: p.ValuePattern, name: str) -> str:
    """Returns why a value is not the constant that the pattern wants, "" if it is."""
    if not pattern.constant:
        return ""
    if pattern.single:
        return "" if is_single(graph, name) else f"{name} is not a constant of one element"
    return "" if name in graph.constants else f"{name} is not a constant"


def is_single(graph: Graph, name: str) -> bool:
    """True if a value is a constant of one element."""
    return _single(graph, name) is not None


def is_number(graph: Graph, name: str, number: float) -> bool:
    """True if a value is a constant of one element that equals ``number``, to its type's precision."""
    constant = _single(graph, name)
    if constant is None:
        return False
    near = _PRECISION.get(str(constant.dtype), 0.0)
    return abs(float(constant.reshape(-1)[0]) - number) <= near * abs(number)


# -- near misses -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Miss:
    """A near miss: the nodes that match a pattern, and the first mismatch."""

    nodes: tuple[Node, ...]
    reason: str

    @property
    def score(self) -> int:
        """The number of nodes that match."""
        return len(self.nodes)


def nearest(index: Index, rule: p.Rule, root: Node) -> Miss:
    """Returns the nearest miss of all forms at ``root``; names of values are not compared."""
    found = [_miss(index, one, root.outputs[0]) for one in rule.patterns]
    return max(found, key=lambda miss: miss.score)


def _miss(index: Index, pattern: p.Pattern, name: str) -> Miss:
    match pattern:
        case p.AnyOf(choices):
            return max((_miss(index, one, name) for one in choices), key=lambda m: (m.score, not m.reason))
        case p.NumberPattern(number):
            if is_number(index.graph, name, number):
                return Miss((), "")
            constant = _single(index.graph, name)
            given = f"{float(constant.reshape(-1)[0]):g}" if constant is not None else "no constant number"
            return Miss((), f"{name} is {given}, not {number:g}")
        case p.ValuePattern():
            return Miss((), _unfit(index.graph, pattern, name))
    node = index.makers.get(name)
    reason = f"{name} is made by no {pattern.op_type}" if node is None else ""
    reason = reason or refuses_op(index.graph, pattern, node, name)  # type: ignore[arg-type]
    if reason or node is None:
        return Miss((), reason)
    tries = []
    for order in orders(pattern):
        parts = [_miss(index, one, given) for one, given in zip(order, node.inputs, strict=False)]
        nodes = (node, *(inner for part in parts for inner in part.nodes))
        tries.append(Miss(nodes, next((part.reason for part in parts if part.reason), "")))
    return max(tries, key=lambda m: (m.score, not m.reason))
