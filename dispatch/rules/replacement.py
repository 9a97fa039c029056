# SPDX-License-Identifier: Apache-2.0
"""Builds the replacement of a match: standard nodes, checked against the type and shape they replace."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from onnx import helper

from onedispatch.dispatch.frontend.exporter import infer_values, node_proto
from onedispatch.dispatch.frontend.graph import Array, Graph, Node, runtime_opsets
from onedispatch.dispatch.frontend.importer import read_node
from onedispatch.dispatch.rules.diagnostics import an_output, read_elsewhere
from onedispatch.dispatch.rules.match import Match
from onedispatch.dispatch.rules.pattern import NodeTemplate
from onedispatch.transactions.base.errors import ModelError


def failed(match: Match) -> str:
    """Returns the first condition that a match does not meet, "" if it meets all."""
    graph, inside = match.graph, {id(node) for node in match.nodes}
    outputs = graph.output_names
    for node in match.nodes[:-1]:
        for name in node.writes:
            if name in outputs:
                return an_output(name, node.name)
            others = [one.name for one in match.index.readers.get(name, ()) if id(one) not in inside]
            if others:
                return read_elsewhere(name, node.name, others[0])
    if not match.graph.value(match.root.outputs[0]).is_concrete or not match.value("x").is_concrete:
        return "shapes that are known"
    return next((one.failed(match) for one in match.rule.where if not one.holds(match)), "")


def replacement(match: Match) -> Graph | str:
    """Returns the new nodes as a graph, or why they are invalid or of another type or shape."""
    graph = match.graph
    opset = max(graph.opsets.get("", 1), match.rule.opset)
    output = match.root.outputs[0]
    writer = _Writer(match, opset, {name: derive(match) for name, derive in match.rule.derive.items()})
    try:
        writer.write(match.rule.target, output)
    except ModelError as error:
        return error.statement()
    made = {name for node in writer.nodes for name in node.writes}
    reads = dict.fromkeys(n for node in writer.nodes for n in node.reads if n not in made)
    known = {name: graph.constants[name] for name in reads if name in graph.constants}
    piece = replace(
        graph,
        nodes=tuple(writer.nodes),
        inputs=tuple(graph.value(n) for n in reads if n not in writer.constants and n not in known),
        outputs=(graph.value(output),),
        constants={**writer.constants, **known},
        values={name: graph.value(name) for name in (*reads, output) if name not in writer.constants},
        opsets={**runtime_opsets(graph), "": opset},
        decided={},
    )
    return _same(piece, output)


@dataclass
class _Writer:
    """Writes the templates of a rule as nodes; ``derived`` has the values that the rule derives."""

    match: Match
    opset: int
    derived: Mapping[str, Any]
    nodes: list[Node] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)

    def write(self, call: NodeTemplate, output: str) -> None:
        """Writes the nodes of a template. Raises ``ModelError`` for an invalid node."""
        graph = self.match.graph
        inputs = [self._operand(one) for one in call.operands]
        while inputs and not inputs[-1]:  # optional operands that the matched form lacks
            inputs.pop()
        attributes = {name: _literal(value, self.derived) for name, value in call.attributes.items()}
        name = call.op_type if output == self.match.root.outputs[0] else output
        proto = helper.make_node(call.op_type, inputs, [output], name=name, domain=call.domain, **attributes)
        if self.match.rule.like:
            proto.attribute.extend(node_proto(self.match.maker(self.match.rule.like)).attribute)
        node = read_node(proto, {**runtime_opsets(graph), "": self.opset}, graph.ir_version)
        assert isinstance(node, Node)
        own = self.opset if not call.domain and self.opset != graph.opsets.get("", 1) else 0
        self.nodes.append(replace(node, opset=own))

    def _operand(self, operand: str | NodeTemplate) -> str:
        if isinstance(operand, NodeTemplate):
            name = f"{self.match.root.name}/{operand.op_type}_{len(self.nodes)}"
            self.write(operand, name)
            return name
        array = self.derived.get(operand)
        if array is None:
            return self.match.values.get(operand, "")
        own = f"{self.match.root.name}/{operand}"
        array = np.asarray(array)
        array.flags.writeable = False
        self.constants[own] = array
        return own


def _same(piece: Graph, output: str) -> Graph | str:
    """Returns ``piece`` with inferred values if its output has the model's type and shape, else why not."""
    wanted = piece.value(output)
    try:
        found = infer_values(replace(piece, values={}, outputs=()), {}, {})
    except ModelError as error:
        return error.statement()
    given = found.get(output, wanted)  # of other domains inference knows only some operators
    if given.type != wanted.type or (given.is_concrete and given.shape != wanted.shape):
        return f"{given} in place of {wanted}"
    return replace(piece, values={**found, **piece.values})


def _literal(value: ast.expr, derived: Mapping[str, Any]) -> Any:
    return derived[value.id] if isinstance(value, ast.Name) else ast.literal_eval(value)
