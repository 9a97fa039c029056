# SPDX-License-Identifier: Apache-2.0
"""Rules for shapes, and for tensors that are made from sizes.

Results are cast to the type that TensorFlow says: ONNX's Shape gives int64 where most graphs say int32.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from onedispatch.dispatch.sources.api import frontend
from onedispatch.dispatch.sources.builder import Builder
from onedispatch.dispatch.sources.node import SourceNode
from onedispatch.dispatch.tensorflow.rule_helpers import Array, constant, int64, numbers, rank

tf = frontend("tensorflow")

tf.op("Shape").ignore("out_type")
tf.op("Size").ignore("out_type")


@tf.expand("ShapeN", inherit=False)
def shapes(g: Builder, n: SourceNode) -> Any:
    n.ignore("N")
    return tuple(g.Shape(one) for one in n.inputs)


@tf.expand("Rank", inherit=False)
def rank_of(g: Builder, n: SourceNode) -> Any:
    known = n.inputs[0].rank
    return g.Size(g.Shape(n.inputs[0])) if known is None else g.constant(known, np.int32)


# -- other shapes for the same elements ------------------------------------------------------------


def _zeros_are_sizes(n: SourceNode) -> int | None:
    """A size of 0 is no elements in TensorFlow; in ONNX that of the input, unless an attribute says so."""
    sizes = n.inputs[1].constant
    return 1 if sizes is not None and 0 in sizes and -1 not in sizes else None


tf.op("Reshape").compute(allowzero=_zeros_are_sizes)
tf.op("ExpandDims", to="Unsqueeze")


@tf.expand("Squeeze", inherit=False)
def squeeze(g: Builder, n: SourceNode) -> Any:
    """Without dimensions all of one element go."""
    return g.Squeeze(n.inputs[0], list(n.attr("squeeze_dims")) or None)


tf.op("BroadcastTo", to="Expand")


@tf.expand("BroadcastArgs", inherit=False)
def broadcast_args(g: Builder, n: SourceNode) -> Any:
    """The shape of a tensor with one shape that is broadcast to the other."""
    one, other = (int64(g, x) for x in n.inputs)
    return g.Shape(g.Expand(g.ConstantOfShape(one, value=np.zeros(1, np.float32)), other))


# -- from sizes ------------------------------------------------------------------------------------

tf.op("Fill", to="Expand").reorder([1, 0])


@tf.expand("Range", inherit=False)
def range_(g: Builder, n: SourceNode) -> Any:
    """ONNX's takes no short floats; the result is cast to them."""
    short = n.inputs[0].dtype in (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))
    return g.Range(*(g.Cast(one, to=np.dtype(np.float32)) if short else one for one in n.inputs))


@tf.expand("ZerosLike", "OnesLike", inherit=False)
def filled_like(g: Builder, n: SourceNode) -> Any:
    value = np.array([n.op_type == "OnesLike"], n.inputs[0].dtype)
    return g.ConstantOfShape(g.Shape(n.inputs[0]), value=value)


@tf.expand("LinSpace", inherit=False)
def lin_space(g: Builder, n: SourceNode) -> Any:
    start, stop, _ = n.inputs
    (count,) = numbers(n, 2, "the number of steps")
    parts = np.arange(count) / max(count - 1, 1)
    return g.Add(g.Mul(g.Sub(stop, start), g.constant(parts, start.dtype)), start)


@tf.expand("OneHot", inherit=False)
def one_hot(g: Builder, n: SourceNode) -> Any:
    """Indices outside are off everywhere; those below zero count from the end in ONNX's OneHot."""
    indices, _, on, off = n.inputs
    (depth,) = numbers(n, 1, "the depth")
    axis = n.attr("axis")
    behind = 0 if axis == -1 else rank(indices, "indices") - axis
    places: Array = np.arange(depth, dtype=indices.dtype).reshape([-1, *[1] * behind])
    return g.Where(g.Equal(g.Unsqueeze(indices, [axis]), places), on, off)


@tf.expand("MatrixBandPart", inherit=False)
def matrix_band_part(g: Builder, n: SourceNode) -> Any:
    """A number of diagonals below and above the main one stays; negative: all."""
    made = n.inputs[0]
    (below,), (above,) = (numbers(n, i, "a number of diagonals") for i in (1, 2))
    if above >= 0:
        made = g.Trilu(made, g.constant(above, np.int64), upper=0)
    return g.Trilu(made, g.constant(-below, np.int64), upper=1) if below >= 0 else made


@tf.expand("MatrixDiag", inherit=False)
def matrix_diag(g: Builder, n: SourceNode) -> Any:
    (diagonal,) = n.inputs
    return _with_diagonal(g, g.constant(0, diagonal.dtype), diagonal, diagonal)


@tf.expand("MatrixSetDiag", inherit=False)
def matrix_set_diag(g: Builder, n: SourceNode) -> Any:
    matrix, diagonal = n.inputs
    return _with_diagonal(g, matrix, diagonal, matrix)


def _with_diagonal(g: Builder, matrix: Any, diagonal: Any, sized: Any) -> Any:
    """Each element of the diagonal in its row, where the number of the column is that of the row."""
    width, height = g.Shape(sized, start=-1), g.Shape(diagonal, start=-1)
    rows, columns = (g.Range(0, g.Squeeze(one, [0]), 1) for one in (height, width))
    return g.Where(g.Equal(g.Unsqueeze(rows, [1]), columns), g.Unsqueeze(diagonal, [-1]), matrix)


@tf.expand("MatrixDiagPart", inherit=False)
def matrix_diag_part(g: Builder, n: SourceNode) -> Any:
    """Element i of row i, for as many rows and columns as both are there."""
    (x,) = n.inputs
    sides = [g.Shape(x, start=-2, end=-1), g.Shape(x, start=-1)]
    least = g.Min(*sides)
    square = g.Slice(x, [0, 0], g.Concat(least, least, axis=0), [-2, -1])
    places = g.Unsqueeze(g.Range(0, g.Squeeze(least, [0]), 1), [1])
    shape = g.Concat(g.Shape(square, end=-1), [1], axis=0)
    return g.Squeeze(g.GatherElements(square, g.Expand(places, shape), axis=-1), [-1])


@tf.expand("InvertPermutation", inherit=False)
def invert_permutation(g: Builder, n: SourceNode) -> Any:
    (x,) = n.inputs
    if x.constant is not None:
        return g.constant(np.argsort(constant(n, 0, "the permutation")).astype(x.constant.dtype))
    places = g.Cast(g.Range(0, g.Size(x), 1), to=x.dtype)
    return g.ScatterElements(x, x, places)
