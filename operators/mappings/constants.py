# SPDX-License-Identifier: Apache-2.0
"""Results that no element of an operand enters: ConstantOfShape, EyeLike, Shape, Size; and Range.

They follow from shapes, for which a program is made. The values are constants of the transaction, which moves
them to where they are read. Range computes: its first two operands are data.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from onedispatch.operators.declarations.registry import maps
from onedispatch.operators.declarations.tensor import NodeSpec, TensorSpec, Unsupported
from onedispatch.operators.interface.operator import Lowering
from onedispatch.operators.lowering.arithmetic import emit_arithmetic
from onedispatch.operators.lowering.boxes import emit_boxes, filling
from onedispatch.operators.lowering.convert import emit_converted, in_float32
from onedispatch.operators.lowering.movement import MOVED, Copy
from onedispatch.operators.lowering.operands import operands_of

Array = np.ndarray[Any, Any]


def _result(node: NodeSpec) -> TensorSpec:
    output = node.outputs[0]
    if output is None:
        raise Unsupported(f"{node.op_type} without its result", "one")
    return output


def _emit_constant(node: NodeSpec, value: Array, output: TensorSpec, lowering: Lowering) -> None:
    lowering.emit(Copy(node.name, [lowering.const(value.astype(output.dtype))], output, lowering.device))


@maps("ConstantOfShape", dtypes=("int64",), notes="values of every type that moves")
def map_constant_of_shape(node: NodeSpec, lowering: Lowering) -> None:
    output = _result(node)
    value = np.asarray(node.attr("value", np.zeros(1, np.float32))).reshape(()).astype(output.dtype)
    if not output.shape:
        _emit_constant(node, value, output, lowering)
        return
    box = filling(0, [0] * len(output.shape), output.shape)
    emit_boxes(node.name, [lowering.const(value)], [box], output, lowering)


@maps("EyeLike", dtypes=MOVED, notes="any diagonal")
def map_eye_like(node: NodeSpec, lowering: Lowering) -> None:
    output = _result(node)
    eye = np.eye(output.shape[0], output.shape[1], int(node.attr("k", 0)))
    _emit_constant(node, eye, output, lowering)


@maps("Shape", "Size", dtypes=("any",), notes="a constant of the program, which is made for these shapes")
def map_shape(node: NodeSpec, lowering: Lowering) -> None:
    x, output = node.input(0), _result(node)
    if x is None:
        raise Unsupported(f"{node.op_type} without its operand", "a tensor")
    value = np.asarray(x.size)
    if node.op_type == "Shape":
        start, end = node.attr("start", 0), node.attr("end", len(x.shape))
        value = np.asarray(x.shape[slice(start, end)])
    _emit_constant(node, value, output, lowering)


_COUNTED = 1 << 24
RANGES = ("float32", "float16", "bfloat16", "int16", "int32", "int64")


@maps("Range", dtypes=RANGES, notes="start and delta are operands, in float32 where they are shorter floats")
def map_range(node: NodeSpec, lowering: Lowering) -> None:
    """``start + i * delta``: the numbers 0, 1, ... are constants, start and delta operands."""
    (start, _, delta), output = operands_of(node, RANGES)
    (count,) = output.shape
    if count > _COUNTED and output.element.is_float:
        raise Unsupported(
            f"Range of {count} numbers", f"at most {_COUNTED}, which float32 counts without a gap"
        )
    stash = output.dtype
    if output.element.is_float and node.attr("stash_type", 1) == 1:
        stash = np.dtype(np.float32)
        start, delta = (in_float32(f"{node.name}//{x.name}", x, lowering) for x in (start, delta))
    numbers = output if stash == output.dtype else lowering.temp(stash, output.shape)
    steps = lowering.const(np.arange(count).astype(stash))
    if delta.value is None or delta.value.item() != 1:
        scaled = lowering.temp(stash, output.shape)
        emit_arithmetic(f"{node.name}//steps", "mul", [steps, delta], scaled, lowering)
        steps = scaled
    emit_arithmetic(node.name, "add", [steps, start], numbers, lowering)
    if numbers is not output:
        emit_converted(f"{node.name}//narrow", numbers, output, lowering)
