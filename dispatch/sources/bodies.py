# SPDX-License-Identifier: Apache-2.0
"""Bodies of If, Loop and Scan as graphs of their own, and back: rules map the nodes in them too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import onnx
from onnx import GraphProto, ModelProto, helper

from onedispatch.dispatch.frontend.exporter import sub_model, type_proto
from onedispatch.dispatch.frontend.graph import Graph, Value
from onedispatch.dispatch.frontend.importer import import_model


def opened(body: GraphProto, outer: Iterable[Value], opsets: Mapping[str, int], ir_version: int) -> Graph:
    """Returns a body as a graph; ``outer`` are the values that it reads from around it, inputs here."""
    model = ModelProto(ir_version=ir_version)
    model.opset_import.extend(helper.make_opsetid(domain, version) for domain, version in opsets.items())
    model.graph.CopyFrom(body)
    own = {value.name for value in body.input}
    for value in outer:
        if value.name not in own:
            info = model.graph.input.add(name=value.name)
            if value.type:
                info.type.CopyFrom(type_proto(value.type, value.shape))
    return import_model(model)


def closed(graph: Graph, body: GraphProto) -> GraphProto:
    """Returns the translated graph of ``body`` as a body, with its own inputs and outputs alone."""
    made = sub_model(graph, graph.nodes, (), (), graph.constants).graph
    for given, result in ((body.input, made.input), (body.output, made.output)):
        result.extend(given)
    made.name = body.name
    return made


def with_bodies(node: onnx.NodeProto, bodies: Iterable[GraphProto]) -> onnx.NodeProto:
    """Returns the node with other bodies, in the order of its attributes."""
    changed, rest = onnx.NodeProto(), iter(bodies)
    changed.CopyFrom(node)
    for attribute in changed.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            attribute.g.CopyFrom(next(rest))
    return changed


def bodies_of(node: onnx.NodeProto) -> list[GraphProto]:
    """Returns the bodies of a node."""
    return [one.g for one in node.attribute if one.type == onnx.AttributeProto.GRAPH]
