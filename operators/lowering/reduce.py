# SPDX-License-Identifier: Apache-2.0
"""Emits reductions over any axes."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from onedispatch.operators.declarations.dtypes import WIDE
from onedispatch.operators.declarations.functions import Activation
from onedispatch.operators.interface.operator import Lowering, TensorSpec
from onedispatch.operators.kernels.elementwise import Eltwise, Layout, View, broadcast
from onedispatch.operators.kernels.reduce import Reduce, word_of
from onedispatch.operators.lowering.arithmetic import emit_arithmetic
from onedispatch.operators.lowering.convert import emit_converted
from onedispatch.operators.lowering.movement import Copy
from onedispatch.operators.lowering.segments import emit_extended
from onedispatch.transactions import Device

# How results of a function are reduced further: what is added up is added up as it is.
FURTHER = {"sum_square": "sum", "sum_abs": "sum"}


def emit_reduce(
    name: str,
    mode: str,
    x: TensorSpec,
    output: TensorSpec,
    axes: tuple[int, int],
    lowering: Lowering,
    activation: Activation | None = None,
) -> None:
    """A ``Reduce``, or two of them where rows have padding and more than rows is reduced, or where the
    results alone would keep few of the cores busy.

    What lies between the two is as wide as the kernel computes, so that results are rounded once.
    """
    if not x.shape:
        axes = (0, 0)
    first, stop = axes
    last, parts = len(x.shape) - 1, _parts(x, axes, lowering.device)
    if stop == last + 1 and last > first and x.row_pitch != x.row:
        rows = lowering.temp(word_of(x.element), x.shape[:-1])
        lowering.emit(Reduce(name, mode, x, rows, (last, stop), lowering.device))
        x, axes, mode = rows, (first, last), FURTHER.get(mode, mode)
    elif parts > 1 and not (mode == "mean" and x.dtype.kind in "iu"):
        outer, inner = x.shape[:first], x.shape[stop:]
        split = reshaped(x, (*outer, parts, prod(x.shape[first:stop]) // parts, *inner), lowering)
        sums = lowering.temp(word_of(x.element), (*outer, parts, *inner))
        lowering.emit(Reduce(name, mode, split, sums, (first + 1, first + 2), lowering.device))
        x, axes, mode = sums, (first, first + 1), FURTHER.get(mode, mode)
    lowering.emit(Reduce(name, mode, x, output, axes, lowering.device, activation))


# Elements per result from which a second reduction pays: both pass them by the same ports, and the second
# costs about as much as a core takes for so many.
PARTED = 16_384


def _parts(x: TensorSpec, axes: tuple[int, int], device: Device) -> int:
    """Into how many partial results a reduction is parted; 1 where its results keep the cores busy.

    As many as cores are idle, and even ones, whose elements begin with words.
    """
    first, stop = axes
    count, results = prod(x.shape[first:stop]), prod(x.shape[:first]) * prod(x.shape[stop:])
    most = device.columns * device.core_rows // max(results, 1)
    if count < PARTED or most < 2 or x.row_pitch != x.row:
        return 1
    unit = x.element.per_word if stop == len(x.shape) else 1
    return next((n for n in range(most, 1, -1) if count % (n * unit) == 0), 1)


def reshaped(x: TensorSpec, shape: Sequence[int], lowering: Lowering) -> TensorSpec:
    """``x``, whose rows have no padding, with another shape: the same bytes."""
    if x.value is not None:
        return lowering.const(np.ascontiguousarray(x.value).reshape(shape))
    if x.shape == tuple(shape):
        return x
    view = lowering.temp(x.dtype, shape)
    lowering.alias(view, x)
    return view


def emit_each(
    name: str,
    func: str,
    tensors: Sequence[TensorSpec],
    lowering: Lowering,
    output: TensorSpec | None = None,
    **more: Any,
) -> TensorSpec:
    """An element-wise function of float32 tensors that broadcast, into ``output``, which has as many
    elements, or into a new tensor."""
    shape = np.broadcast_shapes(*(t.shape for t in tensors))
    made = lowering.temp(np.dtype(np.float32), shape)
    views = [broadcast(t, made) for t in tensors]
    target = output or made
    lowering.emit(Eltwise(name, func, tensors, target, lowering.device, layout=Layout(views, shape), **more))
    return target


def groups(shape: Sequence[int], axes: Sequence[int]) -> list[tuple[int, int]]:
    """The reduced ``axes`` as ranges (first, stop) of neighbours. An axis of one element is no gap."""
    found: list[tuple[int, int]] = []
    for axis in sorted(axes):
        if found and prod(shape[found[-1][1] : axis]) == 1:
            found[-1] = found[-1][0], axis + 1
        else:
            found.append((axis, axis + 1))
    return found


# How int64 is reduced: the function of two members, and its neutral element. All are exact in any order.
_WIDE_FUNCTIONS = {
    "sum": ("add", 0),
    "prod": ("mul", 1),
    "max": ("max", np.iinfo(np.int64).min),
    "min": ("min", np.iinfo(np.int64).max),
}


def _emit_wide(
    name: str,
    function: tuple[str, int],
    x: TensorSpec,
    output: TensorSpec,
    axes: Sequence[int],
    lowering: Lowering,
) -> None:
    """A reduction of int64, which wraps: each range of axes is halved until one member is left."""
    func, neutral = function
    for first, stop in reversed(groups(x.shape, axes)):
        outer, inner = prod(x.shape[:first]), prod(x.shape[stop:])
        left = (*x.shape[:first], *(1 for _ in range(first, stop)), *x.shape[stop:])
        x = reshaped(x, (outer, prod(x.shape[first:stop]), inner), lowering)
        even = 1 << (x.shape[1] - 1).bit_length()
        if even != x.shape[1]:
            whole = lowering.temp(x.dtype, (outer, even, inner))
            emit_extended(name, x, lowering.const(np.full((), neutral, x.dtype)), whole, lowering)
            x = whole
        while x.shape[1] > 1:
            half = x.shape[1] // 2
            views = [View((2 * half * inner, inner, 1), at) for at in (0, half * inner)]
            made = lowering.temp(x.dtype, (outer, half, inner))
            emit_arithmetic(name, func, [x, x], made, lowering, layout=Layout(views))
            x = made
        x = reshaped(x, left, lowering)
    lowering.emit(Copy(name, [x], output, lowering.device))


def emit_reduction(
    name: str,
    mode: str,
    x: TensorSpec,
    output: TensorSpec,
    axes: Sequence[int],
    lowering: Lowering,
    activation: Activation | None = None,
) -> None:
    """``act(reduce(x))`` over any ``axes``: a reduction per range of neighbours.

    The one that leaves least goes first, so that the others have least to read. What lies between is as wide
    as the kernel computes. ``output`` has one element per remaining coordinate, whatever its shape.
    """
    if x.element.name == WIDE:
        return _emit_wide(name, _WIDE_FUNCTIONS[mode], x, output, axes, lowering)
    waiting = groups(x.shape, axes) or [(0, 0)]
    whole = mode == "mean" and x.dtype.kind in "iu" and len(waiting) > 1
    if len(waiting) == 1:
        emit_reduce(name, mode, x, output, waiting[0], lowering, activation)
        return
    count = prod(x.shape[a] for a in axes)
    mode = "sum" if whole else mode  # integers are divided once
    if x.row_pitch != x.row:  # words lie without padding
        x = emit_converted(name, x, lowering.temp(word_of(x.element), x.shape), lowering)
    target = output
    if whole or output.element.per_word > 1:
        target = lowering.temp(word_of(x.element), output.shape)
    while waiting:
        first, stop = max(waiting, key=lambda r: prod(x.shape[r[0] : r[1]]))
        waiting.remove((first, stop))
        rest = lowering.temp(word_of(x.element), (*x.shape[:first], *x.shape[stop:])) if waiting else target
        emit_reduce(name, mode, x, rest, (first, stop), lowering, None if waiting else activation)
        waiting = [(a - stop + first, b - stop + first) if a >= stop else (a, b) for a, b in waiting]
        x, mode = rest, FURTHER.get(mode, mode)
    if whole:
        divisor = lowering.const(np.full(1, count, target.dtype))
        quotient = output if output.dtype == target.dtype else lowering.temp(target.dtype, output.shape)
        layout = Layout([View(target.strides or (1,)), View([0] * max(len(target.shape), 1))])
        lowering.emit(Eltwise(name, "div", [target, divisor], quotient, lowering.device, layout=layout))
        target = quotient
    if target is not output:
        emit_converted(name, target, output, lowering)
