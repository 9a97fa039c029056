# SPDX-License-Identifier: Apache-2.0
"""Translates a graph to ONNX: fusions first, then each node by the rule for its operator.

What a rule writes is translated again where a rule is for that, and as ONNX knows it otherwise. Every node of
another framework needs a rule; ONNX nodes without one stay.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
from onnx import helper

from onedispatch.dispatch.frontend.exporter import node_proto, rewired, type_proto
from onedispatch.dispatch.frontend.graph import Array, Graph, Node, Step, Value, sort_nodes, type_name_of
from onedispatch.dispatch.frontend.importer import read_node, value_of
from onedispatch.dispatch.sources import writing
from onedispatch.dispatch.sources.builder import Builder, Call
from onedispatch.dispatch.sources.elements import LIMIT, Elements, elements_of, shape_from
from onedispatch.dispatch.sources.facts import Refused
from onedispatch.dispatch.sources.fusions import FUSED, Group, enabled, grouped
from onedispatch.dispatch.sources.node import SourceNode
from onedispatch.dispatch.sources.registry import Rules
from onedispatch.dispatch.sources.rule import Fusion, Place, Rule
from onedispatch.operators.plugin.watchdog import watched
from onedispatch.transactions.base.boundary import error_line
from onedispatch.transactions.base.errors import (
    ModelError,
    OneDispatchError,
    RuleError,
    UnknownOperatorError,
    UnsupportedModelError,
)
from onedispatch.transactions.base.handlers import reraise_from_handler
from onedispatch.transactions.base.host import kernel_seconds
from onedispatch.transactions.base.text import counted

Defaults = Callable[[str], Mapping[str, Any] | None]
"""Attributes of an operator with their defaults, None of an operator that is unknown."""
_SMALL = 1024  # elements of whole numbers up to which a constant takes part in shape inference


class RuleWarning(UserWarning):
    """A node has attributes that its rule says nothing of; in strict mode that is an error."""


@dataclass(frozen=True)
class Framework:
    """What the translation knows of a source framework."""

    name: str
    domain: str  # of its nodes; of ONNX any
    defaults: Defaults = lambda _: None


ONNX = Framework("onnx", "")


def translate(
    graph: Graph, framework: Framework, fusions: Sequence[str] = (), *, strict: bool = False
) -> Graph:
    """Returns the graph in ONNX's operators, and in those that neither a rule nor ONNX knows.

    Raises:
        UnknownOperatorError: nodes of another framework that no rule maps; all of them are named.
        RuleError: a rule or fusion, or its callback, does what it may not.
        UnsupportedModelError: in strict mode, attributes that no rule mentions.
        InputError: a fusion that there is not.
    """
    chosen = [one for one in enabled(fusions) if one.framework in (None, framework.name)]
    rules = Rules()
    if framework is ONNX and not _applies(graph, rules, chosen):
        return graph
    return _Translation(graph, framework, rules, strict).run(chosen)


def _applies(graph: Graph, rules: Rules, fusions: Sequence[Fusion]) -> bool:
    if any(rules.any_for("onnx", node.domain, node.op_type) for node in graph.nodes):
        return True
    there = {node.op_type for node in graph.nodes}
    return any(one.op_type in there for fusion in fusions for root in fusion.roots for one in root)


@dataclass
class _Translation:
    """One translation; it is the ``Writer`` of the builders that callbacks get."""

    graph: Graph
    framework: Framework
    rules: Rules
    strict: bool
    nodes: list[Node] = field(default_factory=list)
    values: dict[str, Value] = field(default_factory=dict)
    constants: dict[str, Array] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    layouts: dict[str, tuple[str, str]] = field(default_factory=dict)
    _same: dict[str, str] = field(default_factory=dict)  # a result that is another value -> that value
    _taken: set[str] = field(default_factory=set)
    _elements: dict[str, Elements] = field(default_factory=dict)  # of what is computed from shapes
    _wanted: dict[str, np.dtype[Any]] = field(default_factory=dict)  # types that the source says
    _unmapped: list[str] = field(default_factory=list)
    _refused: list[str] = field(default_factory=list)
    _unmentioned: list[str] = field(default_factory=list)
    _calls: list[Call] = field(default_factory=list)  # that the rule at work has written

    def __post_init__(self) -> None:
        graph = self.graph
        self.constants = dict(graph.constants)
        self.values = {value.name: value for value in graph.inputs}
        self._taken = {*graph.constants, *graph.order, *(node.name for node in graph.nodes)}
        self._taken.update(name for node in graph.nodes for name in (*node.reads, *node.writes))
        self.opsets = dict(graph.opsets)
        self.opset = self.opsets.setdefault("", 21)

    def run(self, fusions: Sequence[Fusion]) -> Graph:
        """Translates all of the graph."""
        domain = self.framework.domain
        graph, groups, steps = grouped(self.graph, fusions, domain, self)
        self.steps += steps
        for node in graph.nodes:
            self._outer(node, groups)
        self._report()
        return self._result()

    # -- what callbacks read and write -----------------------------------------------------------

    def value(self, name: str) -> Value:
        name = self.resolved(name)
        array = self.constants.get(name)
        if array is not None:
            return Value(name, type_name_of(array.dtype), array.shape)
        return self.values.get(name) or self.graph.value(name)

    def constant(self, name: str) -> Array | None:
        """The values of a constant, and of what is computed from sizes that are all known."""
        name = self.resolved(name)
        found, dtype = self._elements.get(name), self.value(name).dtype
        if found is None or dtype is None or None in found.ravel().tolist():
            return self.constants.get(name)
        return found.astype(dtype)

    def elements(self, name: str) -> Elements | None:
        name = self.resolved(name)
        array = self.constants.get(name)
        if array is None:
            return self._elements.get(name)
        return array.astype(object) if array.dtype.kind in "iub" and array.size <= LIMIT else None

    def write(self, call: Call) -> None:
        self._calls.append(replace(call, inputs=tuple(self.resolved(one) for one in call.inputs)))
        self._infer(self._calls[-1])

    def add_constant(self, name: str, array: Array) -> None:
        self.constants[name] = array

    def unique(self, name: str) -> str:
        candidate, count = name, 1
        while candidate in self._taken:
            candidate, count = f"{name}_{count}", count + 1
        self._taken.add(candidate)
        return candidate

    def resolved(self, name: str) -> str:
        """Returns the value that a name stands for."""
        while name in self._same:
            name = self._same[name]
        return name

    # -- nodes -----------------------------------------------------------------------------------

    def _outer(self, node: Node, groups: Mapping[str, Group]) -> None:
        """Translates a node of the source graph, or what a fusion found."""
        inputs = [self.resolved(name) for name in node.inputs]
        if node.domain == FUSED:
            self._fused(node, groups[node.name])
            return
        if node.domain == self.framework.domain or self.framework is ONNX:
            for name in node.writes:
                known = self.graph.values.get(name)
                if known is not None and known.dtype is not None:
                    self._wanted[name] = known.dtype
        self._node(replace(node, inputs=tuple(inputs)), ())

    def _node(self, node: Node, trail: tuple[tuple[str, str], ...]) -> None:
        key = (node.domain, node.op_type)
        foreign = self.framework is not ONNX and node.domain == self.framework.domain
        space = self.framework.name if foreign else "onnx"
        version = self.opsets.get(node.domain, 1)
        rule = self.rules.find(space, node.domain, node.op_type, version)
        if rule is not None and key in trail:
            if node.domain:
                circle = " -> ".join(".".join(one) for one in (*trail, key))
                raise self._wrong(
                    rule, node, f"rules that lead in a circle: {circle}", "rules that end in ONNX"
                )
            rule = None
        if rule is None:
            self._kept(node, space, version, foreign)
        else:
            self._ruled(node, rule, version, (*trail, key))

    def _kept(self, node: Node, space: str, version: int, foreign: bool) -> None:
        """A node without rule: ONNX's stay, others are reported."""
        if foreign:
            near = self.rules.nearest(space, node.domain, node.op_type)
            hint = f" (nearest: {', '.join(near)})" if near else ""
            self._unmapped.append(
                f"{node.name}: {self.framework.name}::{node.op_type} version {version}{hint}"
            )
            return
        if node.proto and node.inputs != tuple(node_proto(node).input):
            node = rewired(node, node.inputs, node.outputs)
        self.nodes.append(node)
        self._infer_node(node)

    def _ruled(self, node: Node, rule: Rule, version: int, trail: tuple[tuple[str, str], ...]) -> None:
        foreign = node.domain == self.framework.domain and self.framework is not ONNX
        defaults = self.framework.defaults(node.op_type) if foreign else None
        if foreign and defaults is not None:
            defaults = {name: value for name, value in defaults.items() if value is not None}
        source = SourceNode(node, version, self, defaults)
        before = len(self._calls)
        try:
            results = self._results(rule, source, node)
        except Refused as error:
            del self._calls[before:]
            self.steps.append(Step(node.name, node.op_type, str(rule), refused=str(error)))
            if foreign:
                self._refused.append(f"{node.name} ({node.op_type}): {error}; {rule}")
            else:
                self._kept(node, "onnx", version, False)
            return
        self._note_unmentioned(rule, source)
        try:
            self._placed(node, rule.place, str(rule), results, self._calls[before:], trail)
        except RuleError as error:
            if not rule.ours or error.file != rule.place.file:
                raise
            # Our rule wrote what ONNX does not take: the model has values that no node may have.
            where = f"node {node.name} ({node.op_type})"
            raise ModelError(where, error.given, "a node that is valid") from error

    def _results(self, rule: Rule, source: SourceNode, node: Node) -> list[str]:
        """Calls the rule, and returns a name for each result of the node."""
        inherited = source.attributes if rule.function is not None and rule.inherit else None
        builder = Builder(node.name, self, self.opset, inherited)
        try:
            made = watched(
                writing.one_to_one if rule.function is None else rule.function,
                kernel_seconds(),
                *((rule, builder, source) if rule.function is None else (builder, source)),
                what=f"{rule.name}, node {node.name}",
            )
        except Refused:
            raise
        except RuleError as error:
            if rule.ours:
                raise Refused(error.statement()) from error
            raise self._wrong(rule, node, error.statement(), remedy=error.remedy) from error
        except OneDispatchError:
            raise
        except (Exception, SystemExit) as error:  # code of others
            reraise_from_handler(error)
            if rule.ours:  # an attribute that lacks, a list too short: defects of the model
                raise Refused(f"a node that is not valid: {error_line(error)}") from error
            raise self._wrong(
                rule, node, error_line(error), "a callback that gives what the rule needs"
            ) from error
        return self._checked(rule.place, rule.name, node, made)

    def _fused(self, node: Node, group: Group) -> None:
        fusion, before = group.fusion, len(self._calls)
        builder = Builder(node.name, self, self.opset)
        try:
            made = watched(
                fusion.build,  # type: ignore[arg-type]
                kernel_seconds(),
                builder,
                group.match,
                what=f"fusion {fusion.name}, node {node.name}",
            )
        except RuleError as error:
            raise self._failed(fusion.place, f"fusion {fusion.name}", node, error.statement()) from error
        except OneDispatchError:
            raise
        except (Exception, SystemExit) as error:  # code of others
            reraise_from_handler(error)
            raise self._failed(fusion.place, f"fusion {fusion.name}", node, error_line(error)) from error
        results = self._checked(fusion.place, f"fusion {fusion.name}", node, made)
        taken = ", ".join(one.name for one in group.match.nodes)
        rule = f"fusion {fusion.name} ({fusion.place}), with {taken}"
        self._placed(node, fusion.place, rule, results, self._calls[before:], ())

    def _checked(self, place: Place, what: str, node: Node, made: Any) -> list[str]:
        """Returns the results as names. Raises ``RuleError`` for other things, and another number of them."""
        several = list(made) if isinstance(made, tuple | list) else [made]
        count = len(node.outputs)
        if made is None or not all(isinstance(one, str) for one in several):
            wrong = next((one for one in several if not isinstance(one, str)), made)
            given = f"{type(wrong).__name__} as a result"
            raise self._failed(place, what, node, given, "results of g, or inputs of the node: return them")
        if len(several) < count:
            given = f"{counted(len(several), 'result')} of a node with {counted(count, 'output')}"
            raise self._failed(place, what, node, given, "one result for each output, in order")
        known = {name for call in self._calls for name in call.outputs}
        for name in several[:count]:
            there = self.resolved(str(name))
            if there not in known and there not in self.constants and not self._exists(there):
                given = f"the result {str(name)!r}, which nothing writes"
                raise self._failed(place, what, node, given, "results of g, or inputs of the node")
        return [str(name) for name in several]

    def _exists(self, name: str) -> bool:
        return name in self.values or any(name == value.name for value in self.graph.inputs)

    def _placed(
        self,
        node: Node,
        place: Place,
        rule: str,
        results: Sequence[str],
        calls: Sequence[Call],
        trail: tuple[tuple[str, str], ...],
    ) -> None:
        """Puts what a rule wrote into the graph, under the names of the node and its outputs."""
        del self._calls[len(self._calls) - len(calls) :]
        made = {name for call in calls for name in call.outputs}
        names: dict[str, str] = {}
        for output, result in zip(node.outputs, results, strict=False):
            if not output:
                continue
            cast = self._cast(result, self._wanted.get(output))
            if cast is None and result in made and result not in names:
                names[result] = output
            elif cast is None:
                self._same[output] = names.get(result, result)
            else:
                calls = [*calls, Call(writing.CAST, (result,), (output,), {"to": cast})]
        main = next((call for call in reversed(calls) if set(call.outputs) & names.keys()), None)
        rows = []
        for call in calls:
            own = node.name if call is main else self.unique(f"{node.name}/{call.target.op_type}")
            rows.append((own, str(call.target)))
            self._append(own, call, names, node, place, rule, trail)
        self.steps.append(Step(node.name, node.op_type, rule, tuple(rows)))

    def _append(
        self,
        name: str,
        call: Call,
        names: Mapping[str, str],
        node: Node,
        place: Place,
        rule: str,
        trail: tuple[tuple[str, str], ...],
    ) -> None:
        self.opsets.setdefault(call.target.domain, 1)
        inputs = [self.resolved(names.get(one, one)) for one in call.inputs]
        outputs = [names.get(one, one) for one in call.outputs]
        try:
            proto = helper.make_node(
                call.target.op_type, inputs, outputs, name=name, domain=call.target.domain
            )
            proto.attribute.extend(writing.attribute(*item) for item in call.attributes.items())
            read = read_node(proto, self.opsets, self.graph.ir_version)
        except (ModelError, TypeError, ValueError, OverflowError) as error:
            text = error.statement() if isinstance(error, ModelError) else error_line(error)
            raise self._failed(place, rule, node, text, f"a node {call.target} that is valid") from error
        if isinstance(read, Node):
            self._node(read, trail)
            if call.layout is not None:
                self.layouts[name] = call.layout
        else:  # a Constant
            self.constants[outputs[0]] = read

    def _cast(self, result: str, wanted: np.dtype[Any] | None) -> int | None:
        """Returns the type to cast a result to, None if it has the type that the source says."""
        dtype = self.value(result).dtype
        if wanted is None or dtype is None or dtype == wanted:
            return None
        return int(helper.np_dtype_to_tensor_dtype(wanted))

    # -- shapes ----------------------------------------------------------------------------------

    def _infer(self, call: Call) -> None:
        schema = call.target.schema(
            self.opset if not call.target.domain else self.opsets.get(call.target.domain, 1)
        )
        proto = helper.make_node(call.target.op_type, call.inputs, call.outputs, domain=call.target.domain)
        try:
            proto.attribute.extend(writing.attribute(*item) for item in call.attributes.items())
        except (TypeError, ValueError, OverflowError):
            return  # told when the node is written
        self._inferred(schema, proto)
        self._follow_sizes(proto)

    def _infer_node(self, node: Node) -> None:
        if not node.proto:
            return
        proto = onnx.NodeProto.FromString(node.proto)
        if not all(self.values.get(name, Value(name)).is_concrete for name in node.writes):
            schema = writing.target_of(node).schema(self.opsets.get(node.domain, 1))
            self._inferred(schema, proto)
        self._follow_sizes(proto)

    def _follow_sizes(self, proto: onnx.NodeProto) -> None:
        """Notes what is known of numbers that a node computes from shapes, and of a shape that these are."""
        if not proto.output or not proto.input:
            return
        made = self.values.get(proto.output[0], Value(proto.output[0]))
        given = [self.elements(name) if name else None for name in proto.input]
        found = elements_of(proto, given, [self.value(name).shape for name in proto.input])
        if found is not None and made.dtype is not None and made.dtype.kind in "iu":
            self._elements[made.name] = found
        shape = shape_from(proto, given, self.value(proto.input[0]).shape)
        if shape is not None and not made.is_concrete:
            self.values[made.name] = replace(made, shape=tuple(shape))

    def _inferred(self, schema: Any, proto: onnx.NodeProto) -> None:
        """Notes types and shapes of a node's results, as far as ONNX's inference knows them."""
        for name in proto.output:
            known = self.graph.values.get(name)
            self.values.setdefault(name, known if known is not None else Value(name))
        if schema is None:
            return
        types, data = {}, {}
        for name in proto.input:
            value = self.value(name)
            if name and not value.type:
                return
            if name:
                types[name] = type_proto(value.type, value.shape)
                array = self.constant(name)
                if array is not None and array.dtype.kind in "iuf" and array.size <= _SMALL:
                    data[name] = onnx.numpy_helper.from_array(array, name)
        opsets = [helper.make_opsetid(domain, version) for domain, version in self.opsets.items()]
        try:
            found = onnx.shape_inference.infer_node_outputs(
                schema, proto, types, data, opset_imports=opsets, ir_version=self.graph.ir_version
            )
        except (onnx.shape_inference.InferenceError, RuntimeError, ValueError, TypeError, KeyError):
            return  # what is wrong with the node is said when it is checked with all shapes
        for name, kind in found.items():
            info = onnx.ValueInfoProto(name=name)
            info.type.CopyFrom(kind)
            self.values[name] = value_of(info)

    # -- reports ---------------------------------------------------------------------------------

    def _note_unmentioned(self, rule: Rule, source: SourceNode) -> None:
        names = source.unmentioned()
        if names:
            said = ", ".join(f"{name}={source.attributes[name]!r}" for name in names)
            self._unmentioned.append(f"{source.name} ({source.spelled}): {said}; {rule}")

    def _report(self) -> None:
        """Raises what no rule maps, all at once, and what strict mode refuses."""
        where = f"model {self.graph.name}"
        if self._unmapped:
            raise UnknownOperatorError(
                where,
                f"{counted(len(self._unmapped), 'node')} of {self.framework.name} that no rule maps",
                "operators of `onedispatch ops map`",
                f'map them in a plug-in: od.frontend("{self.framework.name}").op(...)',
                nodes=[*self._unmapped, *self._refused],
            )
        if self._refused:
            raise UnsupportedModelError(
                where,
                f"{counted(len(self._refused), 'node')} that their rules do not take",
                "what the rules say",
                nodes=self._refused,
            )
        if not self._unmentioned:
            return
        if self.strict:
            raise UnsupportedModelError(
                where,
                f"attributes that no rule mentions, of {counted(len(self._unmentioned), 'node')}",
                "in strict mode, attributes that their rule maps",
                "map them, or say that they mean nothing: .ignore(name)",
                nodes=self._unmentioned,
            )
        lines = "; ".join(self._unmentioned[:5]) + ("; ..." if len(self._unmentioned) > 5 else "")
        warnings.warn(f"attributes that no rule mentions: {lines}", RuleWarning, stacklevel=2)

    def _result(self) -> Graph:
        graph = self.graph
        made = {name for node in self.nodes for name in node.writes}
        for output in graph.outputs:
            source = self.resolved(output.name)
            if output.name not in made and output.name not in self.constants:
                self._identity(source, output.name)
        known = [*(value.name for value in graph.inputs), *self.constants]
        opsets = {
            domain: v for domain, v in self.opsets.items() if domain != self.framework.domain or not domain
        }
        if self.framework is ONNX:
            opsets = dict(self.opsets)
        values = {**graph.values, **self.values}
        outputs = tuple(_typed(value, values, self.constants) for value in graph.outputs)
        values |= {value.name: value for value in outputs}
        nodes = [rewired(n, *self._renamed(n)) if self._stale(n) else n for n in self.nodes]
        return replace(
            graph,
            outputs=outputs,
            values=values,
            opsets=opsets,
            steps=(*graph.steps, *self.steps),
            layouts=self.layouts,
        ).with_nodes(sort_nodes(nodes, known), constants=self.constants)

    def _stale(self, node: Node) -> bool:
        return any(name in self._same for name in node.inputs)

    def _renamed(self, node: Node) -> tuple[list[str], Sequence[str]]:
        return [self.resolved(name) for name in node.inputs], node.outputs

    def _identity(self, source: str, output: str) -> None:
        """An output that is another value under its own name."""
        if source == output:
            return  # an input of the model, or what nothing writes: told by the import
        name = self.unique(f"{output}/Identity")
        proto = helper.make_node("Identity", [source], [output], name=name)
        read = read_node(proto, self.opsets, self.graph.ir_version)
        if isinstance(read, Node):
            self.nodes.append(read)
            self._infer_node(read)

    def _wrong(self, rule: Rule, node: Node, given: str, accepted: str = "", remedy: str = "") -> RuleError:
        return self._failed(rule.place, rule.name, node, given, accepted, remedy)

    def _failed(
        self, place: Place, what: str, node: Node, given: str, accepted: str = "", remedy: str = ""
    ) -> RuleError:
        where = f"node {node.name} ({node.op_type}), {what}"
        return RuleError(where, given, accepted, remedy, file=place.file, line=place.line)


def _typed(value: Value, values: Mapping[str, Value], constants: Mapping[str, Array]) -> Value:
    """An output with the type and shape that are known by now, where it says none."""
    known = values.get(value.name)
    if known is None and value.name in constants:
        array = constants[value.name]
        known = Value(value.name, type_name_of(array.dtype), array.shape)
    if known is None:
        return value
    return Value(
        value.name, value.type or known.type, value.shape if value.shape is not None else known.shape
    )
