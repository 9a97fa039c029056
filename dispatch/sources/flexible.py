# SPDX-License-Identifier: Apache-2.0
"""Nodes that compute the same in any order of dimensions, once their axes and constants follow it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onedispatch.dispatch.frontend.graph import Array, Graph, Node
from onedispatch.dispatch.rules.match import attribute

Perm = Sequence[int]  # of the Transpose from the old order to the new one

ELEMENTWISE = frozenset(
    "Abs Acos Acosh Add And Asin Asinh Atan Atanh Cast Ceil Celu Clip Cos Cosh Div Dropout Elu Equal Erf Exp "
    "Floor Gelu Greater GreaterOrEqual HardSigmoid HardSwish Identity IsInf IsNaN LeakyRelu Less LessOrEqual "
    "Log Max Mean Min Mish Mod Mul Neg Not Or PRelu Pow Reciprocal Relu Round Selu Sigmoid Sign Sin Sinh "
    "Softplus Softsign Sqrt Sub Sum Swish Tan Tanh ThresholdedRelu Where Xor".split()
)
# Before operator set 13 they take everything from an axis on as one dimension: the order matters.
_FLATTENING = frozenset("Softmax LogSoftmax Hardmax".split())
_AXIS = frozenset("Concat Split Softmax LogSoftmax Hardmax ArgMax ArgMin".split())
_AXES = frozenset(
    "ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp "
    "ReduceSumSquare Squeeze".split()
)


@dataclass(frozen=True)
class Flexible:
    """``moving`` are the values in the format, by name; ``follow`` gives what changes with the order.

    ``follow`` returns attributes by name, and constants by the position of the input.
    """

    node: Node
    moving: tuple[str, ...]
    follow: Callable[[Perm], tuple[Mapping[str, Any], Mapping[int, Array]]]


def flexible(graph: Graph, node: Node, rank: int) -> Flexible | None:
    """Returns how a node follows the order of its values with this rank, None if it does not."""
    if node.domain or node.has_subgraph:
        return None
    if node.op_type in ELEMENTWISE:
        return _elementwise(graph, node, rank)
    if node.op_type in _FLATTENING and graph.opset_of(node) < 13:
        return None
    if node.op_type in _AXIS:
        return _along_axis(graph, node, rank)
    if node.op_type in _AXES:
        return _over_axes(graph, node, rank)
    if node.op_type == "Pad":
        return _pad(graph, node, rank)
    return None


def rank_of(graph: Graph, name: str) -> int | None:
    """Returns how many dimensions a value has, None if that is unknown."""
    shape = graph.value(name).shape
    return None if shape is None else len(shape)


def _elementwise(graph: Graph, node: Node, rank: int) -> Flexible | None:
    moving, broadcast = [], list[int]()
    for index, name in enumerate(node.inputs):
        own = rank_of(graph, name) if name else 0
        if own is None or own > rank:
            return None
        if name in graph.constants:
            broadcast += [index] if graph.constants[name].size > 1 else []
        elif own == rank:
            moving.append(name)
        elif own:
            return None  # a value that is broadcast from its last dimensions
    if not moving:
        return None

    def follow(perm: Perm) -> tuple[Mapping[str, Any], Mapping[int, Array]]:
        found = {}
        for index in broadcast:
            array = graph.constants[node.inputs[index]]
            whole = array.reshape((1,) * (rank - array.ndim) + array.shape)
            found[index] = np.ascontiguousarray(whole.transpose(perm))
        return {}, found

    return Flexible(node, (*moving, *node.writes), follow)


def _along_axis(graph: Graph, node: Node, rank: int) -> Flexible | None:
    data = node.inputs if node.op_type == "Concat" else node.inputs[:1]
    if any(rank_of(graph, name) != rank or name in graph.constants for name in data):
        return None
    if node.op_type.startswith("Arg") and not attribute(graph, node, "keepdims"):
        return None
    axis = attribute(graph, node, "axis")

    def follow(perm: Perm) -> tuple[Mapping[str, Any], Mapping[int, Array]]:
        return {"axis": list(perm).index(int(axis or 0) % rank)}, {}

    return Flexible(node, (*data, *node.writes), follow)


def _over_axes(graph: Graph, node: Node, rank: int) -> Flexible | None:
    data = node.inputs[0]
    if rank_of(graph, data) != rank or data in graph.constants or len(node.inputs) < 2:
        return None
    axes = graph.constants.get(node.inputs[1])
    if axes is None or not axes.size:
        return None
    over = [int(axis) % rank for axis in axes.reshape(-1)]
    keeps = node.op_type != "Squeeze" and bool(attribute(graph, node, "keepdims"))
    moving = (data, *node.writes) if keeps else (data,)
    left = [axis for axis in range(rank) if axis not in over]

    def follow(perm: Perm) -> tuple[Mapping[str, Any], Mapping[int, Array]]:
        return {}, {1: np.array(sorted(list(perm).index(axis) for axis in over), np.int64)}

    # Without the dimensions that go, what is left has to stand in the same order either way.
    return Flexible(node, moving, follow) if keeps or _same_order(left, rank) else None


def _same_order(left: Sequence[int], rank: int) -> bool:
    """Whether dimensions stand in one order with channels last and with channels first."""
    last_to_first = [0, rank - 1, *range(1, rank - 1)]
    first_to_last = [0, *range(2, rank), 1]
    return all(sorted(left, key=order.index) == list(left) for order in (last_to_first, first_to_last))


def _pad(graph: Graph, node: Node, rank: int) -> Flexible | None:
    data = node.inputs[0]
    pads = graph.constants.get(node.inputs[1]) if len(node.inputs) > 1 else None
    if rank_of(graph, data) != rank or data in graph.constants or pads is None or pads.size != 2 * rank:
        return None
    if len(node.inputs) > 3 and node.inputs[3]:
        return None

    def follow(perm: Perm) -> tuple[Mapping[str, Any], Mapping[int, Array]]:
        return {}, {1: np.concatenate([pads[:rank][list(perm)], pads[rank:][list(perm)]])}

    return Flexible(node, (data, *node.writes), follow)
