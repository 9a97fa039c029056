# SPDX-License-Identifier: Apache-2.0
"""Nodes that do not map as they are, but whose function bodies do: they become the body's nodes.

A graph that goes in comes out with more, and smaller, nodes. The body is specialised as a model is: shapes
are inferred, constants and shape arithmetic folded; nothing that depends on data of the run is computed
here. An operator's own mapping goes first, and a node of which a part would not map stays whole.
"""

from __future__ import annotations

from dataclasses import replace

from onedispatch.dispatch.bodies.function_bodies import body_of, has_body
from onedispatch.dispatch.compiler.fold import specialise
from onedispatch.dispatch.compiler.mapping import refusals_of
from onedispatch.dispatch.compiler.splice import Splice
from onedispatch.dispatch.frontend.graph import Graph, Node
from onedispatch.dispatch.frontend.shape_operands import shape_operands
from onedispatch.transactions import Device
from onedispatch.transactions.base.errors import ModelError

BY_BODY = "by its function body"
_DEPTH = 8  # of bodies in bodies; ONNX's are three deep


def expand_bodies(graph: Graph, device: Device) -> Graph:
    """``graph`` with the nodes expanded that map by their function bodies alone.

    ``origins`` of the result says which nodes stand for which; ``remarks`` why a body does not do.
    """
    splice = Splice(graph)
    candidates = [node for node in graph.nodes if has_body(node, graph.opset_of(node))]
    refused, wanted = refusals_of(graph, candidates, device), _wanted(graph)
    for node in (node for node in candidates if node.name in refused):
        body = _mapped_body(graph, node, wanted, device, _DEPTH)
        if isinstance(body, Graph):
            splice.put([node], _of_opset(body, node.opset), BY_BODY)
        else:
            splice.remark(node, f"its function body: {body}")
    return splice.result()


def _of_opset(body: Graph, opset: int) -> Graph:
    """The body of a node that is of an operator set of its own, which its nodes are of too."""
    if not opset:
        return body
    return replace(body, nodes=tuple(one if one.domain else replace(one, opset=opset) for one in body.nodes))


def _wanted(graph: Graph) -> frozenset[str]:
    """Values that a node reads, or that are outputs."""
    return graph.output_names.union(name for one in graph.nodes for name in one.reads)


def _mapped_body(graph: Graph, node: Node, wanted: frozenset[str], device: Device, depth: int) -> Graph | str:
    """The body of ``node``, whose nodes all map, bodies in it expanded; or the first node that does not.

    ``wanted`` are the values of ``graph`` that are read.
    """
    try:
        body = body_of(graph, node, wanted)
        if body is None:
            return "ONNX has none for these types in this operator set"
        shapes = {v.name: v.concrete_shape for v in body.inputs if v.is_concrete}
        deciding = {name: graph.decided[name] for name in shape_operands(node) if name in graph.decided}
        body = specialise(body, shapes, deciding)
    except ModelError as error:
        return error.statement()
    splice = Splice(body)
    refused, inside = refusals_of(body, body.nodes, device), _wanted(body)
    for inner in (inner for inner in body.nodes if inner.name in refused):
        deeper: Graph | str = ""
        if depth and has_body(inner, body.opset_of(inner)):
            deeper = _mapped_body(body, inner, inside, device, depth - 1)
        if not isinstance(deeper, Graph):
            reason = f"{inner.op_type}: {refused[inner.name]}"
            return f"{reason}; its function body: {deeper}" if deeper else reason
        splice.put([inner], deeper, BY_BODY)
    return splice.result()
