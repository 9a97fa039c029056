# SPDX-License-Identifier: Apache-2.0
"""Boxes of tensors, moved: what Slice, Split, Pad, Tile and their kin are to the device.

A ``BoxCopy`` is said in coordinates of its tensors. How these lie in device memory is decided here, once: as
strided views of one ``Move`` where results are whole words, over a word per element where narrow rows begin
inside one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from onedispatch.operators.declarations.tensor import TensorSpec
from onedispatch.operators.interface.operator import Lowering
from onedispatch.operators.kernels.elementwise import View
from onedispatch.operators.kernels.movement import Move, Repack, StridedCopy, carried
from onedispatch.operators.lowering.movement import emit_narrow, emit_wide


@dataclass(frozen=True)
class CoordinateMap:
    """Coordinates of a tensor: from ``begin``, index dimension i goes ``steps[i]``: (dimension, step).

    A step of 0 stays where it is. None is negative: DMAs walk upwards.
    """

    begin: tuple[int, ...]
    steps: tuple[tuple[int, int], ...]

    def view(self, strides: Sequence[int]) -> View:
        """The same in elements of a memory where the tensor's dimensions are ``strides`` apart."""
        at = sum(b * s for b, s in zip(self.begin, strides, strict=True))
        return View([step * strides[d] if step else 0 for d, step in self.steps], at)


@dataclass(frozen=True)
class BoxCopy:
    """What lies along ``source`` in input ``tensor`` goes to ``target`` in the output, over ``shape``."""

    tensor: int
    shape: tuple[int, ...]
    source: CoordinateMap
    target: CoordinateMap


def along(begin: Sequence[int], steps: Sequence[int] | None = None) -> CoordinateMap:
    """Index dimensions that are the tensor's own, from ``begin`` in ``steps`` (1 if not said)."""
    return CoordinateMap(tuple(begin), tuple(enumerate(steps or [1] * len(begin))))


def filling(tensor: int, begin: Sequence[int], shape: Sequence[int]) -> BoxCopy:
    """The one element of the scalar input ``tensor``, everywhere in a region of the output."""
    return BoxCopy(tensor, tuple(shape), CoordinateMap((), ((0, 0),) * len(shape)), along(begin))


def emit_slab(name: str, x: TensorSpec, box: BoxCopy, output: TensorSpec, lowering: Lowering) -> None:
    """All of ``output`` from one ``box`` of ``x``: no copy where its bytes lie there one after the other."""
    steps = zip(box.shape, box.source.steps, x.strides, output.strides, strict=True)
    alike = all(n == 1 or (step == 1 and a == b) for n, (_, step), a, b in steps)
    offset = box.source.view(x.strides).offset * x.dtype.itemsize
    if alike and output.size and output.lies_in(x, offset):
        lowering.alias(output, x, offset)
    else:
        emit_boxes(name, [x], [box], output, lowering)


def emit_boxes(
    name: str, inputs: Sequence[TensorSpec], boxes: Sequence[BoxCopy], output: TensorSpec, lowering: Lowering
) -> None:
    """``output`` from ``boxes`` that cover it and do not overlap. All tensors have one element type.

    Raises ``Unsupported`` where a box has more dimensions than a few nests can walk.
    """
    boxes = [_walked(box) for box in boxes if prod(box.shape)]
    used = sorted({box.tensor for box in boxes})  # an input that is cropped as a whole is none
    inputs = [inputs[index] for index in used]
    boxes = [replace(box, tensor=used.index(box.tensor)) for box in boxes]
    unit = carried(output)[0].per_word
    read = all(_one_inside(box, inputs[box.tensor], unit) for box in boxes)
    if read and all(_whole_words(box, output, unit) for box in boxes):
        parts = [_part(box, inputs[box.tensor], output, unit) for box in boxes]
        lowering.emit(Move(name, inputs, output, lowering.device, parts))
        return
    wide = lowering.temp(np.dtype(np.uint32), output.shape)
    if not read:
        inputs = [emit_wide(f"{name}//wide{i}", x, lowering) for i, x in enumerate(inputs)]
    parts = [
        StridedCopy(b.tensor, b.shape, b.source.view(inputs[b.tensor].strides), b.target.view(wide.strides))
        for b in boxes
    ]
    lowering.emit((Repack if read else Move)(name, inputs, wide, lowering.device, parts))
    emit_narrow(f"{name}//narrow", wide, output, lowering)


def _walked(box: BoxCopy) -> BoxCopy:
    """``box`` with a dimension at least: one element is a walk over one."""
    if box.shape:
        return box
    source, target = (replace(one, steps=((0, 0),)) for one in (box.source, box.target))
    return replace(box, shape=(1,), source=source, target=target)


def _one_inside(box: BoxCopy, x: TensorSpec, unit: int) -> bool:
    """Whether at most one index dimension walks inside words, which is what a kernel can follow."""
    strides = box.source.view(x.strides).strides
    return sum(n > 1 and s % unit > 0 for n, s in zip(box.shape, strides, strict=True)) <= 1


def _whole_words(box: BoxCopy, output: TensorSpec, unit: int) -> bool:
    """Whether the box writes rows of whole words, or to their ends."""
    if unit == 1:
        return True
    target, last, members = box.target, len(output.shape) - 1, box.shape[-1]
    inner, outer = target.steps[-1], [step for d, step in target.steps[:-1] if d == last and step]
    if inner != (last, 1) or target.begin[last] % unit or any(step % unit for step in outer):
        return False
    return members % unit == 0 or (not outer and target.begin[last] + members == output.row)


def _part(box: BoxCopy, x: TensorSpec, output: TensorSpec, unit: int) -> StridedCopy:
    """The box over the padding of the output's rows too, where it reaches their ends."""
    shape, padding = box.shape, 0
    if unit > 1 and shape[-1] % unit:
        padding = output.row_pitch - output.row
        shape = (*shape[:-1], shape[-1] + padding)
    last = len(x.shape) - 1
    alike = box.source.steps[-1] == (last, 1) and box.source.begin[-1] == 0 and box.shape[-1] == x.row
    if alike and x.row == output.row:
        padding = 0  # both rows have it
    source = box.source.view(x.strides)
    return StridedCopy(box.tensor, shape, source, box.target.view(output.strides), padding)
