# SPDX-License-Identifier: Apache-2.0
"""MaxPool, AveragePool, LpPool and the global pools, over one to three spatial dimensions."""

from __future__ import annotations

import numpy as np

from onedispatch.operators.declarations.dtypes import FLOATS
from onedispatch.operators.declarations.functions import Activation
from onedispatch.operators.declarations.registry import maps
from onedispatch.operators.interface.operator import Lowering, NodeSpec, TensorSpec, Unsupported
from onedispatch.operators.kernels.elementwise import Eltwise, Layout, View, numpy_names
from onedispatch.operators.kernels.pool import Pool
from onedispatch.operators.kernels.pool_index import PoolIndex
from onedispatch.operators.kernels.reduce import word_of
from onedispatch.operators.kernels.window import WindowAxis, along_of, spatial, window
from onedispatch.operators.lowering.convert import emit_converted, in_float32
from onedispatch.operators.lowering.operands import inputs_of, operands_of
from onedispatch.operators.lowering.reduce import emit_reduce

# ONNX has no averages of integers, and of those the largest of bytes alone.
TAKEN = {
    "MaxPool": numpy_names(f"{FLOATS} i8 u8 i16 u16"),
    "AveragePool": numpy_names(FLOATS),
    "LpPool": numpy_names(FLOATS),
}


@maps("MaxPool", dtypes=TAKEN, notes="1-D to 3-D, dilations, ceil_mode; Indices over one or two dimensions")
def map_max_pool(node: NodeSpec, lowering: Lowering) -> None:
    index = node.outputs[1] if len(node.outputs) > 1 else None
    if index is None:
        (x,), output = operands_of(node, TAKEN["MaxPool"])
        _emit_pool(
            node.name, "max", x, along_of(node, x, node.attr("kernel_shape"), output), output, lowering
        )
        return
    (x,) = inputs_of(node, TAKEN["MaxPool"])
    _emit_with_index(node, lowering, x, along_of(node, x, node.attr("kernel_shape"), index), index)


@maps("AveragePool", dtypes=TAKEN, notes="1-D to 3-D, dilations, ceil_mode, count_include_pad")
def map_average_pool(node: NodeSpec, lowering: Lowering) -> None:
    (x,), output = operands_of(node, TAKEN["AveragePool"])
    along = along_of(node, x, node.attr("kernel_shape"), output)
    if output.size and output.shape[2:] == (1,) * len(along) and all(map(_whole, along, x.shape[2:])):
        emit_reduce(node.name, "mean", x, output, (2, len(x.shape)), lowering)
        return
    mode = "average_include_pad" if node.attr("count_include_pad", 0) else "average_exclude_pad"
    _emit_pool(node.name, mode, x, along, output, lowering)


def _whole(along: WindowAxis, extent: int) -> bool:
    """Whether the first window has all elements of the axis, and nothing else."""
    return (along.kernel, along.dilation, along.begin) == (extent, 1, 0)


def _emit_pool(
    name: str, mode: str, x: TensorSpec, along: list[WindowAxis], output: TensorSpec, lowering: Lowering
) -> None:
    """``output`` [N, C, ...], the pool of x over one to three dimensions.

    Over three, planes first, then what was made of them along the depth: largest values, sums and counts of
    cells are those of their parts. So it is over two whose windows do not fit a core: rows first. Elements
    narrower than words are pooled in those.
    """
    if len(along) < 3:
        whole = Pool(name, mode, x, output, window(along), lowering.device)
        try:
            lowering.emit(whole)
            return
        except Unsupported:
            if any(a.kernel == 1 for a in along) or len(along) == 1:
                raise
    if x.element.per_word > 1:
        wide = emit_converted(name, x, lowering.temp(word_of(x.element), x.shape), lowering)
        pooled = lowering.temp(wide.dtype, output.shape)
        _emit_pool(name, mode, wide, along, pooled, lowering)
        emit_converted(name, pooled, output, lowering)
        return
    (n, c, depth), (h, w) = x.shape[:3], spatial(x.shape[1:])
    frames, (oh, ow) = output.shape[2], spatial(output.shape[1:])
    planes = lowering.temp(x.dtype, (n, c * depth, oh, ow))
    inside = x.reshaped((n, c * depth, h, w))
    lowering.emit(Pool(name, mode, inside, planes, window(along[1:]), lowering.device))
    made, across = output.reshaped((n, c, frames, oh * ow)), window([along[0], WindowAxis(1)])
    ends = planes.reshaped((n, c, depth, oh * ow)), output, across, lowering.device
    lowering.emit(Pool(name, mode, *ends, made=made))


def _emit_with_index(
    node: NodeSpec, lowering: Lowering, x: TensorSpec, along: list[WindowAxis], index: TensorSpec
) -> None:
    """Values and positions, of elements and indices in words."""
    if len(along) > 2:
        raise Unsupported("MaxPool over three dimensions with its Indices output", "one or two dimensions")
    output, words = node.outputs[0], np.dtype(word_of(x.element))
    wide = x if x.dtype == words else emit_converted(node.name, x, lowering.temp(words, x.shape), lowering)
    values = output if output is not None and output.dtype == words else lowering.temp(words, index.shape)
    places = lowering.temp(np.dtype(np.int32), index.shape)
    by_columns = bool(node.attr("storage_order", 0))
    ends = wide, values, places, window(along), lowering.device
    lowering.emit(PoolIndex(node.name, *ends, by_columns=by_columns))
    emit_converted(node.name, places, index, lowering)
    if output is not None and values is not output:
        emit_converted(node.name, values, output, lowering)


@maps("LpPool", dtypes=TAKEN, notes="1-D to 3-D, dilations, ceil_mode, any p; sums in float32")
def map_lp_pool(node: NodeSpec, lowering: Lowering) -> None:
    (x,), output = operands_of(node, TAKEN["LpPool"])
    along, p = along_of(node, x, node.attr("kernel_shape"), output), _norm_of(node)
    powers = _powers(node.name, x, p, lowering)
    sums = lowering.temp(powers.dtype, output.shape)
    _emit_pool(node.name, "sum", powers, along, sums, lowering)
    _emit_roots(node.name, sums, p, output, lowering)


@maps("GlobalLpPool", dtypes=numpy_names(FLOATS), notes="any p; sums in float32")
def map_global_lp_pool(node: NodeSpec, lowering: Lowering) -> None:
    (x,), output = operands_of(node, numpy_names(FLOATS))
    p, axes = _norm_of(node), (2, len(x.shape))
    if 0 in x.shape[2:] and output.size:
        raise Unsupported("pooling over an empty extent", "at least one element")
    wide = in_float32(node.name, x, lowering)
    sums = lowering.temp(wide.dtype, output.shape)
    if p == 2:
        emit_reduce(node.name, "sum_square", wide, sums, axes, lowering)
    else:
        emit_reduce(node.name, "sum", _powers(node.name, wide, p, lowering), sums, axes, lowering)
    _emit_roots(node.name, sums, p, output, lowering)


def _norm_of(node: NodeSpec) -> float:
    p = float(node.attr("p", 2))
    if not p > 0:
        raise Unsupported(f"{node.op_type} with p {p:g}", "a number above zero")
    return p


def _powers(name: str, x: TensorSpec, p: float, lowering: Lowering) -> TensorSpec:
    """|x| ** p in float32."""
    x, device = in_float32(name, x, lowering), lowering.device
    powers = lowering.temp(x.dtype, x.shape)
    if p == 2:
        lowering.emit(Eltwise(name, "mul", [x, x], powers, device))
        return powers
    sizes = lowering.temp(x.dtype, x.shape) if p != 1 else powers
    lowering.emit(Eltwise(name, "copy", [x], sizes, device, activation=Activation("abs")))
    if p != 1:
        lowering.emit(_power(name, sizes, p, powers, lowering))
    return powers


def _emit_roots(name: str, sums: TensorSpec, p: float, output: TensorSpec, lowering: Lowering) -> None:
    """``output``: sums ** (1/p), rounded to its type once."""
    narrow = output.dtype != sums.dtype
    roots = lowering.temp(sums.dtype, sums.shape) if narrow else output
    if p in (1, 2):
        root = Activation("sqrt" if p == 2 else "none")
        lowering.emit(Eltwise(name, "copy", [sums], roots, lowering.device, activation=root))
    else:
        lowering.emit(_power(name, sums, 1 / p, roots, lowering))
    if narrow:
        emit_converted(name, roots, output, lowering)


def _power(name: str, x: TensorSpec, exponent: float, output: TensorSpec, lowering: Lowering) -> Eltwise:
    value = lowering.const(np.full(1, exponent, np.float32))
    views = [View(x.strides), View([0] * len(x.shape))]
    return Eltwise(name, "pow", [x, value], output, lowering.device, layout=Layout(views))


_POOLED = {"GlobalAveragePool": "mean", "GlobalMaxPool": "max"}


@maps(*_POOLED, dtypes=numpy_names(FLOATS))
def map_global_pool(node: NodeSpec, lowering: Lowering) -> None:
    (x,), output = operands_of(node, numpy_names(FLOATS))
    if 0 in x.shape[2:] and 0 not in output.shape:
        raise Unsupported("pooling over an empty extent", "at least one element")
    emit_reduce(node.name, _POOLED[node.op_type], x, output, (2, len(x.shape)), lowering)
