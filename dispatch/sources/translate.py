# SPDX-License-Identifier: Apache-2.0
"""Translates a graph to ONNX: fusions first, then each node by the rule for its operator.

What a rule writes is translated again where a rule is for that, and as ONNX knows it otherwise. Every node of
another framework needs a rule; ONNX nodes without one stay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from onnx import helper

from onedispatch.dispatch.frontend.exporter import node_proto, rewired
from onedispatch.dispatch.frontend.graph import Array, Graph, Node, Step, Value, sort_nodes, type_name_of
from onedispatch.dispatch.frontend.importer import read_node
from onedispatch.dispatch.sources import bodies, writing
from onedispatch.dispatch.sources.builder import Builder, Call
from onedispatch.dispatch.sources.facts import Refused
from onedispatch.dispatch.sources.fusions import FUSED, Group, enabled, grouped
from onedispatch.dispatch.sources.node import SourceNode
from onedispatch.dispatch.sources.registry import Rules
from onedispatch.dispatch.sources.reports import Untranslated, refuse_foreign, report_unmentioned
from onedispatch.dispatch.sources.rule import Fusion, Place, Rule
from onedispatch.dispatch.sources.tensors import Tensors
from onedispatch.operators.plugin.watchdog import watched
from onedispatch.transactions.base.boundary import error_line
from onedispatch.transactions.base.errors import (
    ModelError,
    OneDispatchError,
    RuleError,
)
from onedispatch.transactions.base.handlers import reraise_from_handler
from onedispatch.transactions.base.host import kernel_seconds
from onedispatch.transactions.base.signature import bounded_repr
from onedispatch.transactions.base.text import counted

Defaults = Callable[[str], Mapping[str, Any] | None]
"""Attributes of an operator with their defaults, None of an operator that is unknown."""


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
    chosen = _chosen(framework, fusions)
    rules = Rules()
    if framework is ONNX and not _applies(graph, rules, chosen):
        return graph
    work = _Translation(graph, framework, rules)
    work.run(chosen)
    where = f"model {graph.name}"
    refuse_foreign(where, framework.name, work.unmapped.values(), work.refused.values())
    report_unmentioned(where, work.unmentioned, strict=strict)
    return work.result()


@dataclass(frozen=True)
class Examination:
    """What a translation would do: every step, and by name each node that it could not translate.

    ``nodes`` are those that it wrote or left; ``unmentioned`` has a line for each node with attributes that
    its rule says nothing of.
    """

    nodes: tuple[Node, ...]
    steps: tuple[Step, ...]
    unmapped: Mapping[str, Untranslated]
    refused: Mapping[str, Untranslated]
    unmentioned: tuple[str, ...]


def examine(graph: Graph, framework: Framework, fusions: Sequence[str] = ()) -> Examination:
    """Translates the graph as far as its rules go, and says what it did. Raises as ``translate`` does."""
    work = _Translation(graph, framework, Rules())
    work.run(_chosen(framework, fusions))
    unmapped, refused = dict(work.unmapped), dict(work.refused)
    return Examination(tuple(work.nodes), tuple(work.steps), unmapped, refused, tuple(work.unmentioned))


def _chosen(framework: Framework, fusions: Sequence[str]) -> list[Fusion]:
    return [one for one in enabled(fusions) if one.framework in (None, framework.name)]


def _applies(graph: Graph, rules: Rules, fusions: Sequence[Fusion]) -> bool:
    operators = ((node.domain, node.op_type) for node in graph.nodes)
    inner = (one for node in graph.nodes for one in node.inner)
    if any(rules.any_for("onnx", *one) for one in (*operators, *inner)):
        return True
    there = {node.op_type for node in graph.nodes}
    return any(one.op_type in there for fusion in fusions for root in fusion.roots for one in root)


@dataclass
class _Translation:
    """One translation; it is the ``Writer`` of the builders that callbacks get."""

    graph: Graph
    framework: Framework
    rules: Rules
    nodes: list[Node] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    layouts: dict[str, tuple[str, str]] = field(default_factory=dict)
    unmapped: dict[str, Untranslated] = field(default_factory=dict)
    refused: dict[str, Untranslated] = field(default_factory=dict)
    unmentioned: list[str] = field(default_factory=list)
    outer: Mapping[str, Array] = field(default_factory=dict)  # constants around a body that it reads
    _taken: set[str] = field(default_factory=set)
    _passed: set[str] = field(default_factory=set)  # what nodes of the source write that have been translated
    _wanted: dict[str, np.dtype[Any]] = field(default_factory=dict)  # types that the source says
    _calls: list[Call] = field(default_factory=list)  # that the rule at work has written

    def __post_init__(self) -> None:
        graph = self.graph
        self.tensors = Tensors(graph)
        self.opsets, self.constants = self.tensors.opsets, self.tensors.constants
        self._taken = {*graph.constants, *graph.order, *(node.name for node in graph.nodes)}
        self._taken.update(name for node in graph.nodes for name in (*node.reads, *node.writes))
        self._captured = {name for node in graph.nodes for name in node.captured}

    def run(self, fusions: Sequence[Fusion]) -> None:
        """Translates all of the graph."""
        domain = self.framework.domain
        graph, groups, steps = grouped(self.graph, fusions, domain, self)
        self.steps += steps
        for node in graph.nodes:
            self._outer(node, groups)
            self._passed.update(node.writes)

    # -- what callbacks read and write -----------------------------------------------------------

    def value(self, name: str) -> Value:
        return self.tensors.value(name)

    def constant(self, name: str) -> Array | None:
        found = self.tensors.constant(name)
        return self.outer.get(self.tensors.resolved(name)) if found is None else found

    def elements(self, name: str) -> Array | None:
        return self.tensors.elements(name)

    def write(self, call: Call) -> None:
        call = replace(call, inputs=tuple(self.tensors.resolved(one) for one in call.inputs))
        written = {name for one in self._calls for name in one.outputs}
        for name in filter(None, call.inputs):
            if name not in written and name not in self.constants and not self._exists(name):
                given = f"the operand {name!r}, which nothing writes"
                raise RuleError(str(call.target), given, "results of g, inputs of the node")
        self._calls.append(call)
        try:
            proto = call.node(self.opsets)
        except (TypeError, ValueError, OverflowError):
            return  # said when the node is put into the graph
        self.tensors.infer(call.target.schema(call.version(self.opsets)), proto)

    def add_constant(self, name: str, array: Array) -> None:
        self.constants[name] = array

    def unique(self, name: str) -> str:
        candidate, count = name, 1
        while candidate in self._taken:
            candidate, count = f"{name}_{count}", count + 1
        self._taken.add(candidate)
        return candidate

    # -- nodes -----------------------------------------------------------------------------------

    def _outer(self, node: Node, groups: Mapping[str, Group]) -> None:
        """Translates a node of the source graph, or what a fusion found."""
        inputs = tuple(self.tensors.resolved(name) for name in node.inputs)
        fused = node.domain == FUSED and node.name in groups  # a model may have this domain too
        if fused or self._is_foreign(node) or self.framework is ONNX:
            for name in node.writes:
                known = self.graph.values.get(name)
                if known is not None and known.dtype is not None:
                    self._wanted[name] = known.dtype
        if fused:
            self._fused(node, groups[node.name])
            return
        if inputs != node.inputs:
            node = rewired(node, inputs, node.outputs) if node.proto else replace(node, inputs=inputs)
        self._node(node, ())

    def _with_bodies(self, node: Node) -> Node:
        """The node with its bodies translated; new names in them are unlike all names around them."""
        proto, found = node_proto(node), []
        outer = [self.value(name) for name in node.captured]
        known = [(name, self.constant(name)) for name in node.captured]
        for body in bodies.bodies_of(proto):
            graph = bodies.opened(body, outer, self.opsets, self.graph.ir_version)
            own = {value.name for value in body.input}
            inner = _Translation(graph, ONNX, self.rules)
            inner.outer = {name: array for name, array in known if array is not None and name not in own}
            inner._taken |= self._taken
            inner.run(())
            found.append(bodies.closed(inner.result(), body))
            self._taken |= inner._taken
            self.opsets |= {domain: v for domain, v in inner.opsets.items() if domain not in self.opsets}
            self.steps += inner.steps
            self.unmentioned += inner.unmentioned
        read = read_node(bodies.with_bodies(proto, found), self.opsets, self.graph.ir_version)
        return replace(read, name=node.name) if isinstance(read, Node) else node

    def _is_foreign(self, node: Node) -> bool:
        """Whether a node is of a framework that is not ONNX."""
        return self.framework is not ONNX and node.domain == self.framework.domain

    def _node(self, node: Node, trail: tuple[tuple[str, str], ...]) -> None:
        key = (node.domain, node.op_type)
        foreign = self._is_foreign(node)
        space = self.framework.name if foreign else "onnx"
        version = self.opsets.get(node.domain, 1)
        rule = self.rules.find(space, node.domain, node.op_type, version)
        if rule is not None and key in trail:
            if node.domain:
                circle = " -> ".join(".".join(one) for one in (*trail, key))
                raise self._failed(
                    rule.place,
                    rule.name,
                    node,
                    f"rules that lead in a circle: {circle}",
                    "rules that end in ONNX",
                )
            rule = None
        if rule is None:
            self._kept(node, space, version, foreign)
        else:
            self._ruled(node, rule, version, (*trail, key))

    def _kept(self, node: Node, space: str, version: int, foreign: bool) -> None:
        """A node without rule: ONNX's stay, others are reported."""
        if foreign:
            reason = f"{space}::{node.op_type} version {version}"
            near = tuple(self.rules.nearest(space, node.domain, node.op_type))
            self.unmapped[node.name] = Untranslated(node.name, reason, near)
            return
        for name in node.captured:  # a body that a rule wrote reads what is another value by now
            if name in self.tensors.same:
                source = self.tensors.resolved(name)
                del self.tensors.same[name]
                self._identity(source, name)
        if self.framework is ONNX and any(self.rules.any_for("onnx", *one) for one in node.inner):
            node = self._with_bodies(node)
        self._add(node)

    def _add(self, node: Node) -> None:
        self.nodes.append(node)
        if node.proto:
            schema = writing.target_of(node).schema(self.opsets.get(node.domain, 1))
            self.tensors.infer(schema, node_proto(node))

    def _ruled(self, node: Node, rule: Rule, version: int, trail: tuple[tuple[str, str], ...]) -> None:
        foreign = self._is_foreign(node)
        defaults = self.framework.defaults(node.op_type) if foreign else None
        source = SourceNode(node, version, self, defaults)
        before = len(self._calls)
        try:
            results = self._results(rule, source, node)
        except Refused as error:
            for call in self._calls[before:]:
                for name in call.outputs:
                    self.tensors.values.pop(name, None)
            del self._calls[before:]
            self.steps.append(Step(node.name, node.op_type, str(rule), refused=str(error)))
            if foreign:
                reason = f"{error}; {rule}"
                self.refused[node.name] = Untranslated(f"{node.name} ({node.op_type})", reason)
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
        """Calls the rule, and returns a name for each result of the node. Raises ``Refused``."""
        inherited = source if rule.function is not None and rule.inherit else None
        builder = Builder(node.name, self, self.opsets[""], inherited)
        call = partial(writing.one_to_one, rule) if rule.function is None else rule.function
        try:
            return self._called(rule.place, rule.name, node, call, builder, source)
        except RuleError as error:
            if rule.ours and error.__cause__ is not None:
                # An attribute that lacks, a list too short: defects of the model.
                said = isinstance(error.__cause__, RuleError)
                raise Refused(error.given if said else f"a node that is not valid: {error.given}") from error
            raise

    def _fused(self, node: Node, group: Group) -> None:
        fusion, before = group.fusion, len(self._calls)
        builder, what = Builder(node.name, self, self.opsets[""]), f"fusion {fusion.name}"
        results = self._called(fusion.place, what, node, fusion.build, builder, group.match)
        self._placed(node, fusion.place, str(fusion), results, self._calls[before:], ())
        took = tuple(one.name for one in group.match.nodes)
        self.steps[-1] = replace(self.steps[-1], took=took)

    def _called(
        self, place: Place, what: str, node: Node, function: Any, builder: Builder, asked: Any
    ) -> list[str]:
        """Calls what writes nodes, under the clock of callbacks, and returns a name for each result.

        Raises ``RuleError`` that names the rule and the node, ``Refused`` as it is.
        """
        try:
            made = watched(function, kernel_seconds(), builder, asked, what=f"{what}, node {node.name}")
        except Refused:
            raise
        except RuleError as error:
            raise self._failed(place, what, node, error.statement(), remedy=error.remedy) from error
        except OneDispatchError:
            raise
        except (Exception, SystemExit) as error:  # code of others
            reraise_from_handler(error)
            accepted = "a callback that gives what the rule needs"
            raise self._failed(place, what, node, error_line(error), accepted) from error
        return self._checked(place, what, node, made)

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
            there = self.tensors.resolved(str(name))
            if there not in known and there not in self.constants and not self._exists(there):
                given = f"the result {str(name)!r}, which nothing writes"
                raise self._failed(place, what, node, given, "results of g, or inputs of the node")
        return [str(name) for name in several]

    def _exists(self, name: str) -> bool:
        return name in self.tensors.values or name in self._passed or name in self.outer

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
            elif cast is None and output in self._captured:  # a body reads it by this name
                source = names.get(result, result)
                calls = [*calls, Call(writing.IDENTITY, (source,), (output,), {})]
            elif cast is None:
                self.tensors.same[output] = names.get(result, result)
            else:
                calls = [*calls, Call(writing.CAST, (result,), (output,), {"to": cast})]
        self.tensors.same.update(names)  # a callback may have kept what it wrote, or named it in a body
        # The node's name goes to what computes, not to a Transpose or Cast behind it.
        computing = [call for call in calls if call.layout is None and call.target != writing.CAST]
        main = next(reversed([*calls, *computing]), None)
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
        inputs = [self.tensors.resolved(names.get(one, one)) for one in call.inputs]
        outputs = [names.get(one, one) for one in call.outputs]
        try:
            proto = replace(call, inputs=tuple(inputs), outputs=tuple(outputs)).node(self.opsets, name)
            read = read_node(proto, self.opsets, self.graph.ir_version)
        except (ModelError, TypeError, ValueError, OverflowError) as error:
            text = error.statement() if isinstance(error, ModelError) else error_line(error)
            what = rule.removesuffix(f" ({place})")
            raise self._failed(place, what, node, text, f"a node {call.target} that is valid") from error
        if isinstance(read, Node):
            before = len(self.nodes)
            self._node(read, trail)
            # A rule for Transpose itself may have written something else.
            if call.layout is not None and self.nodes[before:] == [read]:
                self.layouts[name] = call.layout
        else:  # a Constant
            self.constants[outputs[0]] = read

    def _cast(self, result: str, wanted: np.dtype[Any] | None) -> int | None:
        """Returns the type to cast a result to, None if it has the type that the source says."""
        dtype = self.value(result).dtype
        if wanted is None or dtype is None or dtype == wanted:
            return None
        return int(helper.np_dtype_to_tensor_dtype(wanted))

    def _note_unmentioned(self, rule: Rule, source: SourceNode) -> None:
        names = source.unmentioned()
        if names:
            said = ", ".join(f"{name}={bounded_repr(source.attributes[name])}" for name in names)
            self.unmentioned.append(f"{source.name} ({source.spelled}): {said}; {rule}")

    def result(self) -> Graph:
        """Returns the translated graph."""
        graph = self.graph
        made = {name for node in self.nodes for name in node.writes}
        for output in graph.outputs:
            source = self.tensors.resolved(output.name)
            if output.name not in made and output.name not in self.constants:
                self._identity(source, output.name)
        known = [*(value.name for value in graph.inputs), *self.constants]
        opsets = {
            domain: v for domain, v in self.opsets.items() if domain != self.framework.domain or not domain
        }
        if self.framework is ONNX:
            opsets = dict(self.opsets)
        values = {**graph.values, **self.tensors.values}
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
            aliases={
                name: (self.tensors.resolved(name), ()) for name in self.tensors.same if name in self._passed
            },
        ).with_nodes(sort_nodes(nodes, known), constants=self.constants)

    def _stale(self, node: Node) -> bool:
        return any(name in self.tensors.same for name in node.inputs)

    def _renamed(self, node: Node) -> tuple[list[str], Sequence[str]]:
        return [self.tensors.resolved(name) for name in node.inputs], node.outputs

    def _identity(self, source: str, output: str) -> None:
        """An output that is another value under its own name."""
        if source == output:
            return  # an input of the model, or what nothing writes, which the import reports
        name = self.unique(f"{output}/Identity")
        proto = helper.make_node("Identity", [source], [output], name=name)
        read = read_node(proto, self.opsets, self.graph.ir_version)
        if isinstance(read, Node):
            self._add(read)

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
