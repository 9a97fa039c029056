# SPDX-License-Identifier: Apache-2.0
"""Concat, Transpose, and the operators that need no move, such as Reshape."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from onedispatch.operators.declarations.registry import maps
from onedispatch.operators.interface.operator import Lowering, NodeSpec, TensorSpec, Unsupported
from onedispatch.operators.kernels.elementwise import View
from onedispatch.operators.kernels.movement import Move, Repack, StridedCopy, carried
from onedispatch.operators.lowering.movement import MOVED, Copy, emit_narrow, emit_renamed
from onedispatch.operators.scheduling.index_space import contiguous_strides

MOST_INPUTS = 128  # of one Move; each is an argument of its transaction, which has 256


@maps("Concat", dtypes=MOVED)
def map_concat(node: NodeSpec, lowering: Lowering) -> None:
    inputs = [x for x in node.inputs if x is not None]
    output = node.outputs[0]
    if output is None:
        raise Unsupported("Concat without output")
    axis = int(node.attr("axis", 1 if node.opset < 4 else 0)) % len(output.shape)
    while len(inputs) > MOST_INPUTS:  # in groups, and those again
        inputs = [
            concatenated(f"{node.name}//{i}", group, _joined_temp(group, axis, lowering), axis, lowering)
            for i, group in enumerate(_groups(inputs))
        ]
    concatenated(node.name, inputs, output, axis, lowering)


def _groups(inputs: Sequence[TensorSpec]) -> list[Sequence[TensorSpec]]:
    return [inputs[i : i + MOST_INPUTS] for i in range(0, len(inputs), MOST_INPUTS)]


def _joined_temp(inputs: Sequence[TensorSpec], axis: int, lowering: Lowering) -> TensorSpec:
    shape = list(inputs[0].shape)
    shape[axis] = sum(tensor.shape[axis] for tensor in inputs)
    return lowering.temp(inputs[0].dtype, shape)


def concatenated(
    name: str, inputs: Sequence[TensorSpec], output: TensorSpec, axis: int, lowering: Lowering
) -> TensorSpec:
    begins = np.cumsum([0, *(x.shape[axis] for x in inputs)])[:-1]
    rows = axis == len(output.shape) - 1
    inside = any(at % carried(output)[0].per_word for at, x in zip(begins, inputs, strict=True) if x.size)
    if rows and inside:  # rows that begin inside a word
        wide = lowering.temp(np.dtype(np.uint32), output.shape)
        parts = [
            StridedCopy(i, x.shape, View(x.strides), View(wide.strides, int(at)))
            for i, (x, at) in enumerate(zip(inputs, begins, strict=True))
        ]
        lowering.emit(Repack(name, inputs, wide, lowering.device, parts))
        emit_narrow(name, wide, output, lowering)
        return output
    outer, step = prod(output.shape[:axis]), output.strides[axis]
    parts = []
    for i, (x, at) in enumerate(zip(inputs, begins, strict=True)):
        length = prod(x.device_shape[axis:])
        view = View((prod(output.device_shape[axis:]), 1), int(at) * step)
        parts.append(StridedCopy(i, (outer, length), View((length, 1)), view))
    lowering.emit(Move(name, inputs, output, lowering.device, parts))
    return output


@maps("Transpose", dtypes=MOVED)
def map_transpose(node: NodeSpec, lowering: Lowering) -> None:
    x, output = node.input(0), node.outputs[0]
    if x is None or output is None:
        raise Unsupported("Transpose without input or output")
    order = node.attr("perm") or list(reversed(range(len(x.shape))))
    if list(order) == list(range(len(x.shape))):
        lowering.emit(Copy(node.name, [x], output, lowering.device))
        return
    view = View([x.strides[d] for d in order])
    padding = output.row_pitch - output.row if order[-1] != len(order) - 1 else 0
    part = StridedCopy(0, output.device_shape, view, View(contiguous_strides(output.device_shape)), padding)
    lowering.emit(Move(node.name, [x], output, lowering.device, [part]))


@maps(
    "Reshape",
    "Flatten",
    "Squeeze",
    "Unsqueeze",
    "Identity",
    "Dropout",
    dtypes=("any",),
    notes="no data moves, unless narrow rows get another padding",
)
def map_alias(node: NodeSpec, lowering: Lowering) -> None:
    x, output = node.input(0), node.outputs[0]
    if x is None or output is None:
        raise Unsupported(f"{node.op_type} without input or output")
    if node.op_type == "Dropout" and len(node.outputs) > 1 and node.outputs[1] is not None:
        raise Unsupported("Dropout with its mask output", "the first output only")
    if node.op_type == "Dropout" and _trains(node):
        raise Unsupported("Dropout in training mode", "training_mode false")
    carried(x)
    if x.size != output.size:  # ONNX's body of LayerNormalization, of no elements
        raise Unsupported(f"{x} as {output}", "as many elements")
    emit_renamed(node.name, x, output, lowering)


def _trains(node: NodeSpec) -> bool:
    mode = node.input(2)
    if mode is None:
        return False
    return mode.value is None or bool(np.any(mode.value))
