# SPDX-License-Identifier: Apache-2.0
"""What a match becomes: one standard node between values of the match, checked against what it replaces."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from onnx import helper

from onedispatch.dispatch.frontend.exporter import infer_values
from onedispatch.dispatch.frontend.graph import Array, Graph, Node
from onedispatch.dispatch.frontend.importer import read_node
from onedispatch.dispatch.rules.match import Match
from onedispatch.transactions.base.errors import ModelError


def failed(match: Match) -> str:
    """The condition of the rule that a match does not meet; "" where it meets all."""
    graph, inside = match.graph, {id(node) for node in match.nodes}
    for node in match.nodes[:-1]:
        for name in node.writes:
            if name in graph.output_names:
                return f"{name} (of {node.name}) is an output of the model"
            others = [one.name for one in match.index.readers.get(name, ()) if id(one) not in inside]
            if others:
                return f"{name} (of {node.name}) is read by {others[0]} too"
    if not match.graph.value(match.root.outputs[0]).is_concrete or not match.value("x").is_concrete:
        return "shapes that are known"
    return next((one.name for one in match.rule.where if not one.holds(match)), "")


def replacement(match: Match) -> Graph | str:
    """The graph of the one node; or why ONNX does not allow it, or it would not give the same shape."""
    rule, graph = match.rule, match.graph
    op_type, operands, keywords = rule.target
    made = {name: derive(match) for name, derive in rule.derive.items()}
    constants: dict[str, Array] = {}
    inputs = [_operand(match, name, made.get(name), constants) for name in operands]
    attributes = {name: _literal(value, made) for name, value in keywords.items()}
    opset = max(graph.opsets.get("", 1), rule.opset)
    opsets = {**graph.opsets, "": opset}
    output = match.root.outputs[0]
    proto = helper.make_node(op_type, inputs, [output], name=op_type, **attributes)
    try:
        node = read_node(proto, opsets, graph.ir_version)
    except ModelError as error:
        return str(error)
    assert isinstance(node, Node)
    node = replace(node, opset=opset if opset != graph.opsets.get("", 1) else 0)
    known = {name: graph.constants[name] for name in inputs if name in graph.constants}
    piece = replace(
        graph,
        nodes=(node,),
        inputs=tuple(graph.value(name) for name in node.reads if name not in constants and name not in known),
        outputs=(graph.value(output),),
        constants={**constants, **known},
        values={name: graph.value(name) for name in (*node.reads, output) if name not in constants},
        opsets=opsets,
        decided={},
    )
    return _same(piece, output)


def _same(piece: Graph, output: str) -> Graph | str:
    """``piece``, where its output is what the model has."""
    wanted = piece.value(output)
    try:
        found = infer_values(replace(piece, values={}, outputs=()), {}, {})[output]
    except ModelError as error:
        return str(error)
    if found.type != wanted.type or (found.is_concrete and found.shape != wanted.shape):
        return f"{found} in place of {wanted}"
    return piece


def _operand(match: Match, name: str, made: Any, constants: dict[str, Array]) -> str:
    if made is None:
        return match.values[name]
    own = f"{match.root.name}/{name}"
    array = np.asarray(made)
    array.flags.writeable = False
    constants[own] = array
    return own


def _literal(value: ast.expr, made: Mapping[str, Any]) -> Any:
    return made[value.id] if isinstance(value, ast.Name) else ast.literal_eval(value)
