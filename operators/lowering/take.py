# SPDX-License-Identifier: Apache-2.0
"""Emits reads by index."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from onedispatch.operators.interface.operator import Lowering, TensorSpec, Unsupported
from onedispatch.operators.kernels.elementwise import View
from onedispatch.operators.kernels.movement import Move, StridedCopy, carried
from onedispatch.operators.kernels.take import Array, IndexedLayout, Take


def emit_take(
    name: str,
    x: TensorSpec,
    indices: TensorSpec,
    axis: int,
    output: TensorSpec,
    lowering: Lowering,
    fill: Any = None,
) -> None:
    """``output[..., j..., ...] = x[..., indices[j...], ...]`` along ``axis``; ``indices`` of any rank.

    They are int32 or int64, constant or computed; below zero they count from the end. Constant ones that
    are the extent of the axis stand for ``fill`` (a scalar), where there is one. Others outside are
    ``Unsupported`` where they are constant; computed ones end the run with ``KernelIndexError``.
    """
    extent = x.shape[axis]
    if indices.value is not None:
        at = checked(indices, extent, name, fill is not None)
        if fill is None and _emit_steps(name, x, at, axis, output, lowering):
            return
        indices = lowering.const(at.astype(np.int32))
    elif not extent and output.size:
        raise Unsupported(f"indices of {name} along an axis of no elements", "an axis of 1 element or more")
    value = None if fill is None else np.asarray(fill, x.dtype)
    walk = _walk(x, indices, axis, output)
    lowering.emit(Take(name, (x, indices), output, walk, lowering.device, value))


def checked(indices: TensorSpec, extent: int, name: str, filled: bool = False) -> Array:
    """Constant indices, none below zero. Raises ``Unsupported`` where one is outside of the axis."""
    at = np.asarray(indices.value).astype(np.int64)
    wrong = at[(at < -extent) | (at >= extent + filled)]
    if wrong.size:
        what = f"index {wrong.flat[0]} of {name} along an axis of {extent}"
        raise Unsupported(what, f"{-extent} to {extent - 1}")
    return np.where(at < 0, at + extent, at)


def _emit_steps(
    name: str, x: TensorSpec, at: Array, axis: int, output: TensorSpec, lowering: Lowering
) -> bool:
    """The same as a strided copy, where constant indices are steps forwards: no kernel looks at them."""
    flat = at.reshape(-1)
    step = int(flat[1] - flat[0]) if flat.size > 1 else 1
    rows = axis == len(x.shape) - 1 and carried(x)[0].per_word > 1  # inside words: descriptors do not reach
    if not flat.size or step < 1 or rows or np.any(np.diff(flat) != step):
        return False
    inner = prod(x.device_shape[axis + 1 :])
    outer, pitch = prod(x.shape[:axis]), x.shape[axis] * inner
    view = View((pitch, step * inner, 1), int(flat[0]) * inner)
    part = StridedCopy(0, (outer, flat.size, inner), view, View((flat.size * inner, inner, 1)))
    lowering.emit(Move(name, [x], output, lowering.device, [part]))
    return True


def _walk(x: TensorSpec, indices: TensorSpec, axis: int, output: TensorSpec) -> IndexedLayout:
    behind = x.shape[axis + 1 :]
    inner = prod(x.device_shape[axis + 1 :]) if behind else None
    return rows_walk(x, x.shape[:axis], x.shape[axis], inner, indices, False, output)


def rows_walk(
    x: TensorSpec,
    outer: tuple[int, ...],
    extent: int,
    inner: int | None,
    indices: TensorSpec,
    each: bool,
    output: TensorSpec,
) -> IndexedLayout:
    """``x`` as [outer, extent, inner], where one index names all that lies behind the axis.

    ``inner`` counts elements of device memory; None where the axis ends the rows. ``each``: indices are
    [outer, ...], or else the same for all of outer.
    """
    row, count = carried(x)
    own = indices.shape[len(outer) :] if each else indices.shape
    number, many = prod(own), prod(outer)
    sizes = {"o": many, "k": extent, "j": number, "i": 1, "w": 1}
    lead = {"o": number} if each else {}
    if inner is not None or count > 1:
        wide = (1 if inner is None else inner) * count
        strides = {
            "x": {"o": extent * wide, "k": wide, "w": 1},
            "index": {**lead, "j": 1},
            "out": {"o": number * wide, "j": wide, "w": 1},
        }
        return IndexedLayout(sizes | {"w": wide}, strides, {"w": max(row.per_word, count)}, extent=extent)
    pitch = -(-extent // row.per_word) * row.per_word
    last, wide = (output.shape[-1] if output.shape else 1), output.row_pitch
    if own:
        sizes |= {"j": prod(own[:-1]), "w": wide}
        steps = {"x": {"o": pitch, "k": 1}, "index": {**lead, "j": last, "w": 1}}
        out = {"o": sizes["j"] * wide, "j": wide, "w": 1}
    else:  # the rows of what lies before the axis are those of the result
        sizes |= {"o": output.rows, "w": wide}
        index = {"o": last, "w": 1} if each else {}
        steps = {"x": {"o": last * pitch, "w": pitch, "k": 1}, "index": index}
        out = {"o": wide, "w": 1}
    return IndexedLayout(sizes, {**steps, "out": out}, {"w": row.per_word}, wide - last, extent)
