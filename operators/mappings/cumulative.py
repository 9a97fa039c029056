# SPDX-License-Identifier: Apache-2.0
"""CumSum and CumProd."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from onedispatch.operators.declarations.dtypes import WIDE
from onedispatch.operators.declarations.registry import maps
from onedispatch.operators.interface.operator import Lowering, NodeSpec, TensorSpec, Unsupported
from onedispatch.operators.kernels.cumulative import TYPES, Cumulative
from onedispatch.operators.kernels.elementwise import Layout, View, numpy_names
from onedispatch.operators.kernels.movement import Move, StridedCopy
from onedispatch.operators.kernels.reduce import word_of
from onedispatch.operators.lowering.arithmetic import emit_arithmetic
from onedispatch.operators.lowering.convert import emit_converted
from onedispatch.operators.lowering.reduce import emit_reduction, reshaped
from onedispatch.operators.lowering.segments import emit_extended
from onedispatch.operators.scheduling.index_space import contiguous_strides

BLOCK = 1024  # elements of an axis that does not fit a core: so many of two words fit any


def emit_cumulative(
    name: str, x: TensorSpec, output: TensorSpec, axis: int, lowering: Lowering, **flags: int
) -> None:
    """``Cumulative``, or in blocks where the axis does not fit a core: in every block, over the blocks'
    totals, and both together."""
    try:
        lowering.emit(Cumulative(name, x, output, axis, lowering.device, **flags))
        return
    except Unsupported:
        if x.shape[axis] <= BLOCK:
            raise
    word, product = x.dtype if x.element.name == WIDE else word_of(x.element), flags["product"]
    if x.element.per_word > 1:  # rounded once, and words lie without padding
        x = emit_converted(name, x, lowering.temp(word, x.shape), lowering)
    outer, length, inner = prod(x.shape[:axis]), x.shape[axis], prod(x.shape[axis + 1 :])
    blocks = -(-length // BLOCK)
    whole = blocks * BLOCK
    if whole != length:
        x = _padded(name, x, (outer, length, inner), whole, product, lowering)
    parts = reshaped(x, (outer, blocks, BLOCK, inner), lowering)
    inside, shifted = lowering.temp(word, parts.shape), {**flags, "exclusive": 1}
    totals, before = (lowering.temp(word, (outer, blocks, inner)) for _ in range(2))
    lowering.emit(Cumulative(name, parts, inside, 2, lowering.device, **flags))
    mode = "prod" if product else "sum"
    emit_reduction(name, mode, parts, totals, [2], lowering)
    emit_cumulative(name, totals, before, 1, lowering, **shifted)
    _joined(name, inside, before, output, length, lowering, "mul" if product else "add")


def _padded(
    name: str, x: TensorSpec, sizes: tuple[int, int, int], whole: int, neutral: int, lowering: Lowering
) -> TensorSpec:
    """``x`` with ``neutral`` elements behind its middle axis."""
    outer, length, inner = sizes
    made = lowering.temp(x.dtype, (outer, whole, inner))
    if x.value is not None:
        wide = np.full(made.shape, neutral, x.dtype)
        wide[:, :length] = x.value.reshape(sizes)
        return lowering.const(wide)
    emit_extended(name, x.reshaped(sizes), lowering.const(np.full((), neutral, x.dtype)), made, lowering)
    return made


def _joined(
    name: str,
    inside: TensorSpec,
    before: TensorSpec,
    output: TensorSpec,
    length: int,
    lowering: Lowering,
    func: str,
) -> None:
    """Sums inside of blocks beside those of the blocks before, cut to ``length``."""
    outer, blocks, block, inner = inside.shape
    whole = length == blocks * block
    target = output if whole and output.dtype == inside.dtype else lowering.temp(inside.dtype, inside.shape)
    over = View((blocks * inner, inner, 0, 1))
    views = [View(contiguous_strides(inside.shape)), over]
    emit_arithmetic(name, func, [inside, before], target, lowering, layout=Layout(views, inside.shape))
    if not whole:
        cut = output if output.dtype == inside.dtype else lowering.temp(inside.dtype, output.shape)
        shape = outer, length, inner
        view = View(contiguous_strides((outer, blocks * block, inner)))
        parts = [StridedCopy(0, shape, view, View(contiguous_strides(shape)))]
        lowering.emit(Move(name, [target], cut, lowering.device, parts))
        target = cut
    if target.dtype != output.dtype:
        emit_converted(name, reshaped(target, output.shape, lowering), output, lowering)


@maps(
    "CumSum",
    "CumProd",
    dtypes=numpy_names(TYPES),
    notes="axes of any length",
)
def map_cumulative(node: NodeSpec, lowering: Lowering) -> None:
    x, given, output = node.input(0), node.input(1), node.outputs[0]
    if x is None or given is None or output is None:
        raise Unsupported(f"{node.op_type} without its data, its axis or its result", "all of them")
    if str(x.dtype) not in numpy_names(TYPES):
        raise Unsupported(f"{node.op_type} of {x.dtype} ({x.name})", ", ".join(numpy_names(TYPES)))
    if given.value is None:
        raise Unsupported("an axis computed at run time", "a constant axis")
    axis, rank = int(np.asarray(given.value).reshape(())), len(x.shape)
    if not -rank <= axis < rank:
        raise Unsupported(f"{node.op_type} along axis {axis} of rank {rank}", f"{-rank} to {rank - 1}")
    flags: dict[str, Any] = {key: int(node.attr(key, 0)) for key in ("exclusive", "reverse")}
    product = int(node.op_type == "CumProd")
    emit_cumulative(node.name, x, output, axis % rank, lowering, product=product, **flags)
