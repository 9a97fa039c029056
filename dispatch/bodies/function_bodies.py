# SPDX-License-Identifier: Apache-2.0
"""Function bodies: graphs of other operators by which ONNX, or one of our files, defines an operator.

onnx's inliner selects the body for the model's operator set, builds bodies that depend on types and on which
operands are given, and substitutes attributes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache

import onnx
from onnx import inliner

from onedispatch.dispatch.bodies import plain, sampled, spectra  # noqa: F401 - what they register
from onedispatch.dispatch.bodies.writer import has_written_body, write_body
from onedispatch.dispatch.frontend.exporter import sub_model
from onedispatch.dispatch.frontend.graph import Graph, Node, Value
from onedispatch.dispatch.frontend.importer import import_model
from onedispatch.transactions.base.errors import ModelError
from onedispatch.transactions.base.handlers import reraise_from_handler

# Raised, depending on onnx's version, for bodies that it cannot build for the given operands.
_INLINER_ERRORS = (RuntimeError, ValueError, TypeError, onnx.shape_inference.InferenceError)


def has_body(node: Node, opset: int) -> bool:
    """True if a function body defines the operator of ``node`` in this version of its domain."""
    return has_operator_body(node.op_type, node.domain, opset)


@cache
def has_operator_body(op_type: str, domain: str, opset: int) -> bool:
    """True if ONNX, or a body of ours, defines this operator of this domain ("": ONNX's own)."""
    if has_written_body(op_type, domain, opset):
        return True
    try:
        schema = onnx.defs.get_schema(op_type, opset, domain)
    except onnx.defs.SchemaError:
        return False
    # The second kind is built for operands and types; onnx's type stubs lack these properties.
    kinds = ("has_function", "has_context_dependent_function")
    return any(getattr(schema, kind) for kind in kinds)


def body_of(graph: Graph, node: Node, wanted: Iterable[str]) -> Graph | None:
    """Returns the function body of ``node`` as a graph from its inputs to those of its outputs in ``wanted``.

    Constants that the node reads are constants there; nodes and values of the body have names of their own.
    Returns None if ONNX has no body for these types and operands. Raises ``ModelError`` if the body cannot be
    imported.
    """
    given = [graph.value(name) for name in node.reads]
    outputs = [graph.value(name) for name in node.writes if name in wanted]
    opset = graph.opset_of(node)
    own = replace(graph, opsets={**graph.opsets, node.domain: opset})
    model = sub_model(own, [node], given, outputs, {})
    _take_defaults(model.graph.node[0], opset)
    if has_written_body(node.op_type, node.domain, opset):
        write_body(own, model)
        return _with_constants(import_model(model), graph, given)
    try:
        inlined = inliner.inline_selected_functions(
            model, [(node.domain, node.op_type)], exclude=False, inline_schema_functions=True
        )
    except _INLINER_ERRORS as error:
        reraise_from_handler(error)
        return None
    if any(one.op_type == node.op_type and one.domain == node.domain for one in inlined.graph.node):
        return None
    if node.op_type == "AffineGrid" and not node.domain:
        _squeeze_rows_alone(inlined.graph)
    return _with_constants(import_model(inlined), graph, given)


def _squeeze_rows_alone(body: onnx.GraphProto) -> None:
    """In ONNX's body of AffineGrid rows of theta are squeezed without axes, and a batch of one with them."""
    for node in body.node:
        for branch in (attribute.g for attribute in node.attribute if attribute.HasField("g")):
            for inner in [one for one in branch.node if one.op_type == "Squeeze" and len(one.input) == 1]:
                axes = f"{inner.output[0]}//axes"
                inner.input.append(axes)
                branch.node.insert(0, onnx.helper.make_node("Constant", [], [axes], value_ints=[1]))


def _take_defaults(node: onnx.NodeProto, opset: int) -> None:
    """Adds default attributes that the node omits: the inliner substitutes only those that are present."""
    known = onnx.defs.get_schema(node.op_type, opset, node.domain).attributes
    given = {attribute.name for attribute in node.attribute}
    for name, attribute in known.items():
        if name not in given and attribute.default_value.type != onnx.AttributeProto.UNDEFINED:
            node.attribute.append(attribute.default_value)


def _with_constants(body: Graph, graph: Graph, given: Iterable[Value]) -> Graph:
    known = {v.name: graph.constants[v.name] for v in given if v.name in graph.constants}
    if not body.nodes:
        raise ModelError("a function body", "no nodes", "nodes")
    inputs = tuple(value for value in body.inputs if value.name not in known)
    return replace(body, inputs=inputs, constants={**body.constants, **known}, ir_version=graph.ir_version)
