# SPDX-License-Identifier: Apache-2.0
"""Infers types and shapes of nodes of onnxruntime's own operators by onnxruntime.

A model of the node alone is opened, and not run. onnxruntime reports [] both for a scalar and for an unknown
shape; a Shape node behind each output distinguishes them by the shape of its own output.
"""

from __future__ import annotations

from collections.abc import Mapping

from onnx import helper

from onedispatch.dispatch.frontend.exporter import sub_model
from onedispatch.dispatch.frontend.graph import Array, Dimension, Graph, Node, Value
from onedispatch.dispatch.frontend.schemas import runtime_schema
from onedispatch.dispatch.host.engines import EngineRefused, Runtime
from onedispatch.transactions.base.errors import ModelError
from onedispatch.transactions.base.text import did_you_mean

_SMALL = 4096  # elements of the largest constant that is part of the model


def inferred_by_runtime(
    graph: Graph, node: Node, given: Mapping[str, Value], constants: Mapping[str, Array]
) -> dict[str, Value]:
    """Returns what onnxruntime infers about the outputs of ``node``, whose inputs are ``given``, by name.

    Returns nothing if the type of an input is unknown, or onnxruntime refuses the node. Raises ``ModelError``
    for an unknown attribute: the schemas do not say which operators of onnxruntime accept any attribute.
    """
    if node.has_subgraph or not all(value.type for value in given.values()):
        return {}
    small = {name: constants[name] for name in given if name in constants and constants[name].size <= _SMALL}
    inputs = [value for name, value in given.items() if name not in small]
    ranks = {name: f"{name}//shape" for name in node.writes}
    results = [Value(name) for name in (*ranks, *ranks.values())]
    try:
        model = sub_model(graph, [node], inputs, results, small)
        if not any(not one.domain for one in model.opset_import):
            model.opset_import.append(helper.make_opsetid("", 1))
        for name, rank in ranks.items():
            model.graph.node.append(helper.make_node("Shape", [name], [rank]))
        engine = Runtime(model.SerializeToString(), list(ranks), threads=1, touched=0, optimise=False)
    except EngineRefused as error:
        if "Unrecognized attribute" in str(error):
            raise _unknown_attribute(graph, node) from error
        return {}
    except ValueError:  # larger than a protobuf message may be
        return {}
    types, shapes = engine.types, engine.shapes
    return {
        name: Value(name, types[name], _shape(shapes[name], shapes[rank])) for name, rank in ranks.items()
    }


def _shape(shape: list[Dimension], of_shape: list[Dimension]) -> tuple[Dimension, ...] | None:
    return tuple(shape) if shape or of_shape == [0] else None


def _unknown_attribute(graph: Graph, node: Node) -> ModelError:
    schema = runtime_schema(node.op_type, node.domain, graph.opset_of(node))
    known = [] if schema is None else sorted(schema.attributes)
    unknown = [name for name in node.attributes if name not in known]
    return ModelError(
        f"node {node.name} ({node.op_type})",
        f"attribute {', '.join(map(repr, unknown))}",
        f"{', '.join(known) or 'no attributes'} ({node.op_type} of onnxruntime)",
        did_you_mean(unknown[0], known) if unknown else "",
    )
