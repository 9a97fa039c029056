# SPDX-License-Identifier: Apache-2.0
"""Arithmetic of ONNX: two operands or many, of plain numbers and of int64; bounds."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

import ml_dtypes
import numpy as np

from onedispatch.operators.declarations.dtypes import NUMBERS, WIDE
from onedispatch.operators.declarations.function_sets import BINARIES
from onedispatch.operators.declarations.functions import ACTIVATIONS, ELTWISE, Activation
from onedispatch.operators.declarations.registry import maps
from onedispatch.operators.interface.operator import Lowering, NodeSpec, TensorSpec
from onedispatch.operators.kernels.elementwise import numpy_names
from onedispatch.operators.kernels.logic import Binary
from onedispatch.operators.lowering.arithmetic import emit_arithmetic
from onedispatch.operators.lowering.movement import Copy
from onedispatch.operators.lowering.operands import function_dtypes, operands_of
from onedispatch.operators.mappings.elementwise import WIDE_TOO, emit_activation
from onedispatch.operators.mappings.logic import refuse_attribute_broadcast

BINARY = ELTWISE.by_onnx
UNARY = {op: ACTIVATIONS.by_onnx[op] for op in WIDE_TOO}
VARIADIC = {"Sum": "add", "Max": "max", "Min": "min"}


def _is_wide(op_type: str) -> bool:
    """Whether int64 has it."""
    return (BINARY | UNARY | VARIADIC)[op_type] in [row.name for row in BINARIES.rows if row.takes(WIDE)]


_NARROW = function_dtypes(ELTWISE, BINARY | VARIADIC) | function_dtypes(ACTIVATIONS, UNARY)
_WIDE = numpy_names(WIDE)
TAKEN = {
    **{op: (*dtypes, *(_WIDE if _is_wide(op) else ())) for op, dtypes in _NARROW.items()},
    "Clip": numpy_names(f"{NUMBERS} {WIDE}"),  # floats by an activation, integers by max and min
}


@maps(*BINARY, dtypes=TAKEN, notes="broadcasting; opset 7 or later")
def map_binary(node: NodeSpec, lowering: Lowering) -> None:
    inputs, output = operands_of(node, TAKEN[node.op_type])
    refuse_attribute_broadcast(node)
    emit_arithmetic(node.name, BINARY[node.op_type], inputs, output, lowering)


@maps(*UNARY, dtypes=TAKEN)
def map_sign(node: NodeSpec, lowering: Lowering) -> None:
    inputs, output = operands_of(node, TAKEN[node.op_type])
    if output.element.name == WIDE:
        lowering.emit(Binary(node.name, UNARY[node.op_type], inputs, output, lowering.device))
    else:
        emit_activation(node, lowering, Activation(UNARY[node.op_type]))


@maps(*VARIADIC, dtypes=TAKEN, notes="one input or more, broadcasting")
def map_variadic(node: NodeSpec, lowering: Lowering) -> None:
    inputs, output = operands_of(node, TAKEN[node.op_type])
    if len(inputs) == 1:
        lowering.emit(Copy(node.name, inputs, output, lowering.device))
        return
    total = inputs[0]
    for i, tensor in enumerate(inputs[1:]):
        last = i == len(inputs) - 2
        shape = np.broadcast_shapes(total.shape, tensor.shape)
        target = output if last else lowering.temp(output.dtype, shape)
        emit_arithmetic(node.name, VARIADIC[node.op_type], [total, tensor], target, lowering)
        total = target


@maps("Clip", dtypes=TAKEN, notes="bounds constant or computed")
def map_clip(node: NodeSpec, lowering: Lowering) -> None:
    _, output = operands_of(node, TAKEN["Clip"])
    low, high = _finite(output)
    if node.opset < 11:
        low, high = float(node.attr("min", low)), float(node.attr("max", high))
        emit_activation(node, lowering, Activation("clip", low, high))
        return
    bounds = [node.input(1), node.input(2)]
    # Bounds of integers are operands too: parameters are float32, which has not all of them.
    if not output.element.is_float or any(b is not None and b.value is None for b in bounds):
        _computed_bounds(node, lowering, bounds)
        return
    values = [
        d if b is None or b.value is None else float(b.value.reshape(()))
        for b, d in zip(bounds, (low, high), strict=True)
    ]
    emit_activation(node, lowering, Activation("clip", *values))


def _finite(tensor: TensorSpec) -> tuple[float, float]:
    """The smallest and the largest finite number of a tensor's type."""
    finfo: Any = ml_dtypes.finfo
    limits = finfo(tensor.dtype) if tensor.element.is_float else np.iinfo(tensor.dtype)
    return float(limits.min), float(limits.max)


def _computed_bounds(node: NodeSpec, lowering: Lowering, bounds: Sequence[TensorSpec | None]) -> None:
    """Bounds as operands: a maximum, then a minimum.

    The bound that is left out is the greatest or smallest finite number, as it is for constant ones.
    """
    inputs, output = operands_of(node, TAKEN["Clip"])
    value, (low, high) = inputs[0], _finite(output)
    steps = [(f, b) for f, b in zip(("max", "min"), bounds, strict=True) if b is not None]
    rest = None
    if len(steps) == 1 and output.element.is_float:
        only_high = bounds[0] is None
        rest = Activation("clip", low if only_high else -inf, inf if only_high else high)
    if not steps:
        lowering.emit(Copy(node.name, [value], output, lowering.device))
    for i, (func, bound) in enumerate(steps):
        target = output if i == len(steps) - 1 else lowering.temp(output.dtype, output.shape)
        emit_arithmetic(node.name, func, [value, bound], target, lowering, rest)
        value = target
