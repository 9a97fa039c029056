# SPDX-License-Identifier: Apache-2.0
"""Checks a model's sizes against ``limits`` before anything is built from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto
from onnx.helper import tensor_dtype_to_np_dtype

from onedispatch.dispatch.base import limits
from onedispatch.dispatch.frontend.schemas import domain_of
from onedispatch.dispatch.frontend.walk import Body, bodies, bodies_of, sparse_tensors, subgraphs, tensors
from onedispatch.transactions.base.errors import ModelError

_WINDOWS = frozenset("dilations kernel_shape output_padding output_shape pads strides".split())
_Key = tuple[str, str, str]  # domain, name, overload


def check_model(model: ModelProto) -> None:
    """Raises ``ModelError`` for any size in the model that is above its limit."""
    nodes = weights = 0
    for body, _ in bodies(model):
        nodes += len(body.node)
        limits.NODES.check("the model", nodes)
        for node in body.node:
            _check_node(node)
        for tensor in tensors(body):
            weights += _check_tensor(tensor)
            limits.WEIGHT_BYTES.check("the model", weights)
        for sparse in sparse_tensors(body):
            where = f"sparse tensor {sparse.values.name!r}"
            dense = _dims_bytes(where, sparse.values.data_type, sparse.dims)
            limits.TENSOR_BYTES.check(where, dense, f"shape {list(sparse.dims)}")
        if isinstance(body, GraphProto):
            for info in (*body.input, *body.output, *body.value_info):
                _check_info(info)
    if model.functions:
        _check_calls(model)


def _check_node(node: NodeProto) -> None:
    for text in (node.name, node.op_type, node.domain, *node.input, *node.output):
        limits.NAME_LENGTH.check(f"the name {text[:40]!r}...", len(text))
    for attribute in node.attribute:
        if attribute.name in _WINDOWS:
            most = max((abs(v) for v in attribute.ints), default=0)
            limits.WINDOW.check(f"node {node.name} ({node.op_type}), {attribute.name}", most)


def _check_info(info: ValueInfoProto) -> None:
    limits.NAME_LENGTH.check(f"the name {info.name[:40]!r}...", len(info.name))
    kind, depth = info.type, 0
    while kind.WhichOneof("value") not in (None, "tensor_type", "sparse_tensor_type", "opaque_type"):
        depth += 1
        limits.TYPE_DEPTH.check(f"the type of {info.name!r}", depth)
        holder = getattr(kind, kind.WhichOneof("value") or "")
        kind = holder.value_type if kind.HasField("map_type") else holder.elem_type
    for holder in (kind.tensor_type, kind.sparse_tensor_type):
        limits.RANK.check(f"value {info.name!r}", len(holder.shape.dim))


def _check_tensor(tensor: TensorProto) -> int:
    """Returns the tensor's bytes once read; one tensor may take up the limit of all weights."""
    where = f"tensor {tensor.name!r}"
    limits.NAME_LENGTH.check(f"the name {tensor.name[:40]!r}...", len(tensor.name))
    return _dims_bytes(where, tensor.data_type, tensor.dims)


def _dims_bytes(where: str, data_type: int, dims: Iterable[int]) -> int:
    shape = tuple(dims)
    limits.RANK.check(where, len(shape))
    if any(d < 0 for d in shape):
        raise ModelError(where, f"dimensions {list(shape)}", "sizes from 0 on")
    size = 1
    for d in shape:
        size *= d
    try:
        itemsize = tensor_dtype_to_np_dtype(data_type).itemsize
    except (KeyError, ValueError, TypeError) as error:
        raise ModelError(where, f"element type {data_type}", "one that ONNX has") from error
    return size * itemsize


# -- functions -------------------------------------------------------------------------------


class _Cost:
    """The size of a function with all calls inlined."""

    def __init__(self) -> None:
        self.nodes = 0
        self.size = 0  # bytes
        self.references = 0  # attributes that refer to the caller's


def _check_calls(model: ModelProto) -> None:
    """Checks the size of the model with its functions inlined, computed without inlining."""
    functions = {(domain_of(f.domain), f.name, f.overload): f for f in model.functions}
    costs: dict[_Key, _Cost] = {}
    for key in _callees_first(functions):
        costs[key] = _cost(functions[key], functions, costs)
        costs[key].size += sum(
            one.ByteSize() for one in functions[key].attribute_proto
        )  # each call repeats the defaults
    whole = _cost(model.graph, functions, costs)
    arguments = [
        attribute.ByteSize()
        for body, _ in bodies(model)
        for node in body.node
        if _key(node) in functions
        for attribute in node.attribute
    ]
    arguments += [one.ByteSize() for function in model.functions for one in function.attribute_proto]
    where = "the model with its functions inlined"
    limits.NODES.check(where, whole.nodes)
    limits.EXPANDED_BYTES.check(where, whole.size + whole.references * max(arguments, default=0))


def _cost(body: Body, functions: Mapping[_Key, FunctionProto], costs: Mapping[_Key, _Cost]) -> _Cost:
    total = _Cost()
    for inner, _ in bodies_of([body]):
        for node in inner.node:
            called = costs[_key(node)] if _key(node) in functions else None
            total.nodes += called.nodes if called else 1
            total.size += _own_size(node) + (called.size if called else 0)
            total.references += sum(bool(a.ref_attr_name) for a in node.attribute)
            total.references += called.references if called else 0
    return total


def _own_size(node: NodeProto) -> int:
    """Returns the bytes of a node without its subgraphs, whose nodes are counted separately."""
    return int(node.ByteSize()) - sum(int(graph.ByteSize()) for graph in subgraphs(node))


def _callees_first(functions: Mapping[_Key, FunctionProto]) -> list[_Key]:
    """Returns the functions, each after those that it calls. Raises ``ModelError`` for a recursion."""
    order: list[_Key] = []
    state: dict[_Key, bool] = {}  # False while a function's callees are visited
    for root in functions:
        stack = [root]
        while stack:
            key = stack[-1]
            if state.get(key):
                stack.pop()
                continue
            calls = {_key(n) for body, _ in bodies_of([functions[key]]) for n in body.node} & functions.keys()
            if key not in state:
                state[key] = False
                running = [c for c in calls if state.get(c) is False]
                if running:
                    raise ModelError(f"function {key[1]!r}", "a call of itself", "functions that end")
                stack += [c for c in calls if c not in state]
                continue
            state[key] = True
            order.append(key)
            stack.pop()
    return order


def _key(node: NodeProto) -> _Key:
    return domain_of(node.domain), node.op_type, node.overload
