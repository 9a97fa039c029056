# SPDX-License-Identifier: Apache-2.0
"""Elements of one type as elements of another, for operators that compute in float32."""

from __future__ import annotations

from typing import Any

import numpy as np

from onedispatch.operators.declarations.dtypes import DTYPES, DType, dtype_of
from onedispatch.operators.declarations.registry import maps
from onedispatch.operators.families.elementwise import View
from onedispatch.operators.families.movement import Copy, Part, Repack
from onedispatch.operators.interface.operator import Lowering, NodeSpec, TensorSpec, Unsupported
from onedispatch.operators.scheduling.index_space import contiguous_strides

Array = np.ndarray[Any, Any]


class Convert(Repack):
    """A ``Move`` of values, each rounded to the output's type."""

    kind = "convert"

    def row_of(self, tensor: TensorSpec) -> DType:
        return tensor.element

    def bits(self, array: Array) -> Array:
        return array


def emit_converted(name: str, x: TensorSpec, output: TensorSpec, lowering: Lowering) -> TensorSpec:
    """``output``, of the shape of ``x``, with its values. One of the two has rows without padding."""
    laid = output.device_shape
    view = View(x.strides or (0,))
    part = Part(0, laid, view, View(contiguous_strides(laid)), output.row_pitch - output.row)
    lowering.emit(Convert(name, [x], output, lowering.device, [part]))
    return output


def in_float32(name: str, x: TensorSpec, lowering: Lowering) -> TensorSpec:
    """``x``, or its values as float32: constants at once."""
    if x.dtype == np.float32:
        return x
    if x.value is not None:
        return lowering.const(x.value.astype(np.float32))
    return emit_converted(name, x, lowering.temp(np.dtype(np.float32), x.shape), lowering)


# -- ONNX --------------------------------------------------------------------------------------

NAMES = tuple(str(row.numpy) for row in DTYPES.values())


@maps("Cast", "CastLike", dtypes=NAMES, notes="from and to these; floats are cut towards zero, integers wrap")
def map_cast(node: NodeSpec, lowering: Lowering) -> None:
    x, output = node.inputs[0], node.outputs[0]
    if x is None or output is None:
        raise Unsupported(f"{node.op_type} without its data or its result", "both")
    for end, tensor in (("of", x), ("to", output)):
        if dtype_of(tensor.dtype) is None:
            raise Unsupported(f"{node.op_type} {end} {tensor.dtype} ", ", ".join(NAMES))
    if x.dtype == output.dtype:
        lowering.emit(Copy(node.name, [x], output, lowering.device))
        return
    if x.row_pitch != x.row and output.row_pitch != output.row:  # words in between lie without padding
        between = np.int32 if x.dtype.kind in "iub" and output.dtype.kind in "iub" else np.float32
        x = emit_converted(node.name, x, lowering.temp(np.dtype(between), x.shape), lowering)
    emit_converted(node.name, x, output, lowering)
