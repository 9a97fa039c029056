# SPDX-License-Identifier: Apache-2.0
"""Softmax and LogSoftmax, of rows that a core holds and of longer ones."""

from __future__ import annotations

from math import prod

import numpy as np

from onedispatch.operators.declarations.dtypes import FLOATS
from onedispatch.operators.declarations.functions import Activation
from onedispatch.operators.declarations.registry import maps
from onedispatch.operators.interface.operator import Lowering, NodeSpec, TensorSpec, Unsupported
from onedispatch.operators.kernels.elementwise import numpy_names
from onedispatch.operators.kernels.reduce import Reduce
from onedispatch.operators.kernels.softmax import Softmax
from onedispatch.operators.lowering.convert import emit_converted, in_float32
from onedispatch.operators.lowering.operands import operands_of
from onedispatch.operators.lowering.reduce import emit_each, reshaped


def normalised_axes(node: NodeSpec, rank: int) -> tuple[int, int]:
    """First and stop of the axes of Softmax and its kin: before opset 13 everything from one on."""
    flat = node.opset < 13
    axis = int(node.attr("axis", 1 if flat else -1))
    axis += rank if axis < 0 else 0
    return axis, rank if flat else axis + 1


@maps("Softmax", "LogSoftmax", dtypes=numpy_names(FLOATS), notes="any axis, any length")
def map_softmax(node: NodeSpec, lowering: Lowering) -> None:
    (x,), output = operands_of(node, numpy_names(FLOATS))
    rank = len(x.shape)
    axes = normalised_axes(node, rank)
    log = node.op_type == "LogSoftmax"
    if axes[1] < rank or axes[0] == rank - 1 or x.row_pitch == x.row:
        try:
            lowering.emit(Softmax(node.name, x, output, axes, lowering.device, log))
            return
        except Unsupported:
            pass  # rows longer than a core holds
    _softmax_in_steps(node.name, x, output, axes, log, lowering)


def _softmax_in_steps(
    name: str, x: TensorSpec, output: TensorSpec, axes: tuple[int, int], log: bool, lowering: Lowering
) -> None:
    """Where no core holds a row, or padding lies inside: max, exp(x - max), sum, and the quotient.

    In float32, whose rows have no padding; of half types what ``Softmax`` rounds is rounded in between.
    """
    f32, dtype, (first, stop) = np.dtype(np.float32), x.dtype, axes
    sizes = outer, _, inner = prod(x.shape[:first]), prod(x.shape[first:stop]), prod(x.shape[stop:])

    def each(func: str, *tensors: TensorSpec, act: str = "none") -> TensorSpec:
        return emit_each(name, func, tensors, lowering, activation=Activation(act))

    def of_rows(mode: str, tensor: TensorSpec, act: str = "none") -> TensorSpec:
        target = lowering.temp(f32, (outer, 1, inner))
        lowering.emit(Reduce(name, mode, tensor, target, (1, 2), lowering.device, Activation(act)))
        return target

    def rounded(tensor: TensorSpec) -> TensorSpec:
        flat = reshaped(tensor, (tensor.size,), lowering)
        narrow = emit_converted(name, flat, lowering.temp(dtype, flat.shape), lowering)
        return reshaped(in_float32(name, narrow, lowering), tensor.shape, lowering)

    wide = reshaped(in_float32(name, x, lowering), sizes, lowering)
    largest = of_rows("max", wide)
    if log:
        shifted = each("sub", wide, largest)
        powers = each("sub", wide, largest, act="exp")
        last = "sub", shifted, of_rows("sum", powers, "log")
    elif dtype == f32:
        powers = each("sub", wide, largest, act="exp")
        last = "div", powers, of_rows("sum", powers)
    else:
        powers = rounded(each("copy", rounded(each("sub", wide, largest)), act="exp"))
        last = "div", powers, rounded(of_rows("sum", powers))
    result = output if dtype == f32 else lowering.temp(f32, output.shape)
    emit_each(name, last[0], last[1:], lowering, result)
    if result is not output:
        emit_converted(name, result, output, lowering)
