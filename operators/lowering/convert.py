# SPDX-License-Identifier: Apache-2.0
"""Emits conversions between element types, for operators that compute in float32."""

from __future__ import annotations

import numpy as np

from onedispatch.operators.interface.operator import Lowering, TensorSpec
from onedispatch.operators.kernels.convert import Convert
from onedispatch.operators.kernels.elementwise import View
from onedispatch.operators.kernels.movement import StridedCopy
from onedispatch.operators.scheduling.index_space import contiguous_strides


def emit_converted(name: str, x: TensorSpec, output: TensorSpec, lowering: Lowering) -> TensorSpec:
    """``output``, of the shape of ``x``, with its values. One of the two has rows without padding."""
    laid = output.device_shape
    view = View(x.strides or (0,))
    part = StridedCopy(0, laid, view, View(contiguous_strides(laid)), output.row_pitch - output.row)
    lowering.emit(Convert(name, [x], output, lowering.device, [part]))
    return output


def in_float32(name: str, x: TensorSpec, lowering: Lowering) -> TensorSpec:
    """``x``, or its values as float32: constants at once."""
    if x.dtype == np.float32:
        return x
    if x.value is not None:
        return lowering.const(x.value.astype(np.float32))
    return emit_converted(name, x, lowering.temp(np.dtype(np.float32), x.shape), lowering)
