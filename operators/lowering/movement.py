# SPDX-License-Identifier: Apache-2.0
"""Operators that move data and change none: Concat, Transpose, Copy; and those that need no move.

Elements of any width move. Those that no kernel computes on go as unsigned numbers of their width, those
of eight bytes and more as words. Where a result cannot be written in whole words (narrow rows that begin
inside a word, rows with other padding than before), the data takes a detour over a word per element.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onedispatch.operators.declarations.dtypes import EVERY
from onedispatch.operators.interface.operator import Lowering, TensorSpec
from onedispatch.operators.kernels.elementwise import View, numpy_names
from onedispatch.operators.kernels.movement import Joined, Move, Repack, StridedCopy
from onedispatch.operators.scheduling.index_space import contiguous_strides
from onedispatch.transactions import Device


def Copy(name: str, inputs: Sequence[TensorSpec], output: TensorSpec, device: Device) -> Move:
    """The one input as it is, row padding included, under another name."""
    whole = View((1,))
    elements = output.device_bytes // output.dtype.itemsize
    return Move(name, inputs, output, device, [StridedCopy(0, (elements,), whole, whole)])


def emit_wide(name: str, x: TensorSpec, lowering: Lowering) -> TensorSpec:
    """``x`` as words, one for each of its elements: no row of it has padding."""
    wide = lowering.temp(np.dtype(np.uint32), x.shape)
    part = StridedCopy(0, x.shape, View(x.strides), View(wide.strides))
    lowering.emit(Repack(name, [x], wide, lowering.device, [part]))
    return wide


def emit_narrow(name: str, wide: TensorSpec, output: TensorSpec, lowering: Lowering) -> None:
    """``output``, of whatever shape, from the same elements in words."""
    rows, laid = (View(contiguous_strides(x)) for x in (output.shape or (1,), output.device_shape))
    padding = output.row_pitch - output.row
    part = StridedCopy(0, output.device_shape, rows, laid, padding)
    lowering.emit(Repack(name, [wide], output, lowering.device, [part]))


def emit_renamed(name: str, x: TensorSpec, output: TensorSpec, lowering: Lowering) -> None:
    """``output``: the elements of ``x`` under another shape. They move where their rows get other padding."""
    if x.lies_as(output):
        lowering.alias(output, x)
    elif x.row == 1 and output.row_pitch == output.row:
        lowering.emit(Joined(name, x, output, lowering.device))
    else:
        emit_narrow(name, emit_wide(name, x, lowering), output, lowering)


MOVED = (*numpy_names(EVERY), "int64", "uint64", "float64")
