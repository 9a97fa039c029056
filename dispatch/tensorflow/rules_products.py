# SPDX-License-Identifier: Apache-2.0
"""Rules for products of matrices, reductions, orders, and sums along an axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from onedispatch.dispatch.sources.api import frontend
from onedispatch.dispatch.sources.builder import Builder
from onedispatch.dispatch.sources.node import Operand, SourceNode
from onedispatch.dispatch.tensorflow.rule_helpers import END, int64, rank, vector

tf = frontend("tensorflow")


@tf.expand("MatMul", inherit=False)
def matmul(g: Builder, n: SourceNode) -> Any:
    """Of two dimensions each; Gemm takes them transposed."""
    n.ignore("grad_a", "grad_b")
    across = [n.attr("transpose_a"), n.attr("transpose_b")]
    if not any(across):
        return g.MatMul(*n.inputs)
    return g.Gemm(*n.inputs, transA=across[0], transB=across[1])


@tf.expand("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", inherit=False)
def batch_matmul(g: Builder, n: SourceNode) -> Any:
    """The numbers are real, so that the adjoint is the transpose."""
    n.ignore("grad_x", "grad_y")
    x, y = (
        _transposed(g, one) if n.attr(adjoint) else one
        for one, adjoint in zip(n.inputs, ("adj_x", "adj_y"), strict=True)
    )
    wanted = n.attr("Tout", None)
    if wanted is not None:
        x, y = (one if one.dtype == wanted else g.Cast(one, to=wanted) for one in (x, y))
    return g.MatMul(x, y)


def _transposed(g: Builder, x: Operand) -> Any:
    """The last two dimensions the other way round."""
    order = list(range(rank(x, "a factor that is transposed")))
    order[-2:] = order[:-3:-1]
    array = g.known(x)
    return g.Transpose(x, perm=order) if array is None else g.constant(array.transpose(order))


tf.op("Einsum").auto().variadic("inputs", count="N")

# -- reductions ----------------------------------------------------------------------------------


def _unless_no_axes(n: SourceNode) -> int | None:
    """Without axes TensorFlow reduces nothing, ONNX everything unless an attribute says so."""
    axes = n.inputs[1].constant
    return 1 if axes is None or not axes.size else None


for name in "Max Mean Min Prod Sum".split():
    rule = tf.op(name, to=f"Reduce{name}").rename(keep_dims="keepdims")
    rule.compute(noop_with_empty_axes=_unless_no_axes)
tf.op("EuclideanNorm", to="ReduceL2").rename(keep_dims="keepdims").compute(
    noop_with_empty_axes=_unless_no_axes
)


@tf.expand("All", "Any", inherit=False)
def all_or_any(g: Builder, n: SourceNode) -> Any:
    """Of truth values as numbers the least, or the greatest."""
    x, axes = g.Cast(n.inputs[0], to=np.dtype(np.int32)), int64(g, n.inputs[1])
    reduce = g.ReduceMin if n.op_type == "All" else g.ReduceMax
    if axes.rank == 0:
        axes = g.Reshape(axes, [1])
    how = {"keepdims": n.attr("keep_dims"), "noop_with_empty_axes": _unless_no_axes(n)}
    return g.Cast(reduce(x, axes, **how), to=np.dtype(bool))


@tf.expand("L2Loss", inherit=False)
def l2_loss(g: Builder, n: SourceNode) -> Any:
    return g.Mul(g.ReduceSumSquare(n.inputs[0], keepdims=0), 0.5)


for name in ("ArgMax", "ArgMin"):
    tf.op(name).attr_from_input(1, "axis").default(keepdims=0).ignore("output_type")

tf.op("TopK").auto().input_from_attr("k", 1).default(largest=1, axis=-1)
tf.op("TopKV2", to="TopK").auto().default(largest=1, axis=-1)
tf.op("Cumsum", to="CumSum").auto()


# -- segments ------------------------------------------------------------------------------------


_REDUCTIONS = {"Max": "max", "Mean": "add", "Min": "min", "Prod": "mul", "Sum": "add"}


@tf.expand(*(f"Segment{name}" for name in _REDUCTIONS), inherit=False)
def segments(g: Builder, n: SourceNode) -> Any:
    """Segments are sorted, so that the last one has the greatest number; those without rows are 0, Prod 1."""
    data, ids = n.inputs
    name = n.op_type.removeprefix("Segment")
    last = g.Slice(int64(g, ids), [-1], [END])
    made = _scattered(g, data, ids, g.Add(last, 1), _REDUCTIONS[name], _neutral(name, data.dtype))
    if name in ("Sum", "Prod"):
        return made
    ones = g.Expand(g.constant(1, data.dtype), g.Shape(ids))
    rows = _scattered(g, ones, ids, g.Add(last, 1), "add", 0)
    rows = g.Unsqueeze(rows, list(range(1, rank(data, "data")))) if rank(data, "data") > 1 else rows
    return g.Div(made, g.Max(rows, 1)) if name == "Mean" else g.Where(g.Greater(rows, 0), made, 0)


def _neutral(name: str, dtype: np.dtype[Any] | None) -> Any:
    """What changes no result of a reduction."""
    if name not in ("Max", "Min"):
        return int(name == "Prod")
    if dtype is not None and dtype.kind in "iu":
        return np.iinfo(dtype).min if name == "Max" else np.iinfo(dtype).max
    return -np.inf if name == "Max" else np.inf


@tf.expand("UnsortedSegmentSum", inherit=False)
def unsorted_segment_sum(g: Builder, n: SourceNode) -> Any:
    """Rows with a negative number are left out: they go to a row behind the last, which is cut off."""
    data, ids, count = n.inputs
    total = g.Reshape(int64(g, count), [1])
    ids = int64(g, ids)
    ids = g.Where(g.Less(ids, 0), total, ids)
    return g.Slice(_scattered(g, data, ids, g.Add(total, 1), "add", 0), [0], total, [0])


def _scattered(
    g: Builder, data: Operand, ids: Operand, count: Operand, reduction: str, neutral: float
) -> Any:
    """Reduces each row with the row of its number."""
    row = g.Shape(data, start=rank(ids, "numbers of segments"))
    start = g.ConstantOfShape(vector(g, [count, row]), value=np.array([neutral], data.dtype))
    return g.ScatterND(start, g.Unsqueeze(int64(g, ids), [-1]), data, reduction=reduction)
