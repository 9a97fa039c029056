# SPDX-License-Identifier: Apache-2.0
"""Walks ONNX models to any depth: graphs inside nodes, tensors inside attributes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    SparseTensorProto,
    TensorProto,
)

from onedispatch.dispatch.base import limits

Body = GraphProto | FunctionProto


def subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    """Yields the graphs in a node's attributes, whatever type the attributes declare."""
    for attribute in node.attribute:
        yield from _graphs(attribute)


def _graphs(attribute: AttributeProto) -> Iterator[GraphProto]:
    if attribute.HasField("g"):
        yield attribute.g
    yield from attribute.graphs


def bodies(model: ModelProto) -> Iterator[tuple[Body, int]]:
    """Yields the model's graph, its functions, and all graphs inside them, each with its depth."""
    return bodies_of([model.graph, *model.functions])


def bodies_of(roots: Iterable[Body]) -> Iterator[tuple[Body, int]]:
    """Yields the given graphs and all graphs inside them, each with its depth.

    Raises:
        ModelError: graphs nested deeper than ``limits.SUBGRAPH_DEPTH``.
    """
    pending: list[tuple[Body, int]] = [(root, 0) for root in roots]
    while pending:
        body, depth = pending.pop()
        limits.SUBGRAPH_DEPTH.check(f"a subgraph of {body.name or 'the model'}", depth)
        yield body, depth
        for attribute in attributes(body):
            pending += [(graph, depth + 1) for graph in _graphs(attribute)]


def attributes(body: Body) -> Iterator[AttributeProto]:
    """Yields the attributes of all nodes of one graph, and a function's default attributes."""
    for node in body.node:
        yield from node.attribute
    if isinstance(body, FunctionProto):
        yield from body.attribute_proto


def tensors(body: Body, *, initializers: bool = True) -> Iterator[TensorProto]:
    """Yields the tensors of one graph: initializers, attributes, and the parts of sparse tensors."""
    if initializers and isinstance(body, GraphProto):
        yield from body.initializer
    for attribute in attributes(body):
        if attribute.HasField("t"):
            yield attribute.t
        yield from attribute.tensors
    for sparse in sparse_tensors(body):
        yield sparse.values
        yield sparse.indices


def sparse_tensors(body: Body) -> Iterator[SparseTensorProto]:
    """Yields the sparse tensors of one graph: initializers, and attributes of its nodes."""
    if isinstance(body, GraphProto):
        yield from body.sparse_initializer
    for attribute in attributes(body):
        if attribute.HasField("sparse_tensor"):
            yield attribute.sparse_tensor
        yield from attribute.sparse_tensors
