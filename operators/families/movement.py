# SPDX-License-Identifier: Apache-2.0
"""Operators that move data and change none: Concat, Transpose, Copy; and those that need no move."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from onedispatch.operators.declarations.registry import maps
from onedispatch.operators.families.elementwise import Eltwise, View
from onedispatch.operators.interface.operator import Lowering, NodeSpec, TensorSpec, Unsupported
from onedispatch.operators.scheduling.index_space import contiguous_strides
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.transactions import Device

Array = np.ndarray[Any, Any]
FOUR_BYTES = ("float32", "int32", "uint32")


@dataclass(frozen=True)
class Part:
    """Input ``tensor`` seen through ``view`` goes to ``out_view``, both over ``shape``."""

    tensor: int
    shape: tuple[int, ...]
    view: View
    out_view: View


class Move(Eltwise):
    """Copies strided views of its inputs into strided views of its output, one after the other."""

    kind = "move"
    applies_activation = False

    def __init__(
        self,
        name: str,
        inputs: Sequence[TensorSpec],
        output: TensorSpec,
        device: Device,
        parts: Sequence[Part],
    ) -> None:
        self.parts = [part for part in parts if prod(part.shape)]
        views = [View([0] * len(output.shape)) for _ in inputs]
        super().__init__(name, "copy", inputs, output, device, views=views)

    def nests(self) -> list[Nest]:
        return [
            nest for p in self.parts for nest in self.part_nests(p.shape, [p.view], p.out_view, [p.tensor])
        ]

    def reference(self, *arrays: Array) -> Array:
        out = np.zeros(self.output.size, self.output.dtype)
        size = out.itemsize
        for part in self.parts:
            flat = np.ascontiguousarray(arrays[part.tensor]).reshape(-1)[part.view.offset :]
            source = np.lib.stride_tricks.as_strided(flat, part.shape, [s * size for s in part.view.strides])
            target = np.lib.stride_tricks.as_strided(
                out[part.out_view.offset :], part.shape, [s * size for s in part.out_view.strides]
            )
            target[...] = source
        return out.reshape(self.output.shape)


def Copy(name: str, inputs: Sequence[TensorSpec], output: TensorSpec, device: Device) -> Move:
    """The one input as it is, under another name. Narrow types are moved as words, padding included."""
    source, target, whole = inputs[0], output, View((1,))
    if source.dtype.itemsize < 4 and source.value is None:
        words = (np.dtype(np.uint32), (source.device_bytes // 4,))
        source, target = TensorSpec(source.name, *words), TensorSpec(output.name, *words)
    return Move(name, [source], target, device, [Part(0, (source.size,), whole, whole)])


_MOST_INPUTS = 128  # of one Move; each is an argument of its transaction, which has 256


def _need_words(node: NodeSpec, *tensors: TensorSpec | None) -> None:
    for tensor in tensors:
        if tensor is not None and tensor.dtype.itemsize != 4:
            raise Unsupported(
                f"{node.op_type} of {tensor.dtype}", "4-byte elements: " + ", ".join(FOUR_BYTES)
            )


@maps("Concat", dtypes=FOUR_BYTES)
def map_concat(node: NodeSpec, lowering: Lowering) -> None:
    inputs = [x for x in node.inputs if x is not None]
    output = node.outputs[0]
    _need_words(node, *inputs, output)
    if output is None:
        raise Unsupported("Concat without output")
    axis = int(node.attr("axis", 1 if node.opset < 4 else 0)) % len(output.shape)
    while len(inputs) > _MOST_INPUTS:  # in groups, and those again
        inputs = [
            _concatenated(f"{node.name}//{i}", group, _joined_temp(group, axis, lowering), axis, lowering)
            for i, group in enumerate(_groups(inputs))
        ]
    _concatenated(node.name, inputs, output, axis, lowering)


def _groups(inputs: Sequence[TensorSpec]) -> list[Sequence[TensorSpec]]:
    return [inputs[i : i + _MOST_INPUTS] for i in range(0, len(inputs), _MOST_INPUTS)]


def _joined_temp(inputs: Sequence[TensorSpec], axis: int, lowering: Lowering) -> TensorSpec:
    shape = list(inputs[0].shape)
    shape[axis] = sum(tensor.shape[axis] for tensor in inputs)
    return lowering.temp(inputs[0].dtype, shape)


def _concatenated(
    name: str, inputs: Sequence[TensorSpec], output: TensorSpec, axis: int, lowering: Lowering
) -> TensorSpec:
    inner = prod(output.shape[axis + 1 :])
    outer, row = prod(output.shape[:axis]), output.shape[axis] * inner
    parts, at = [], 0
    for i, tensor in enumerate(inputs):
        length = tensor.shape[axis] * inner
        parts.append(Part(i, (outer, length), View((length, 1)), View((row, 1), at)))
        at += length
    lowering.emit(Move(name, inputs, output, lowering.device, parts))
    return output


@maps("Transpose", dtypes=FOUR_BYTES)
def map_transpose(node: NodeSpec, lowering: Lowering) -> None:
    x, output = node.input(0), node.outputs[0]
    _need_words(node, x, output)
    if x is None or output is None:
        raise Unsupported("Transpose without input or output")
    order = node.attr("perm") or list(reversed(range(len(x.shape))))
    own = contiguous_strides(x.shape)
    view = View([own[d] for d in order])
    part = Part(0, output.shape, view, View(contiguous_strides(output.shape)))
    lowering.emit(Move(node.name, [x], output, lowering.device, [part]))


@maps(
    "Reshape",
    "Flatten",
    "Squeeze",
    "Unsqueeze",
    "Identity",
    "Dropout",
    dtypes=("any",),
    notes="no data moves",
)
def map_alias(node: NodeSpec, lowering: Lowering) -> None:
    x, output = node.input(0), node.outputs[0]
    if x is None or output is None:
        raise Unsupported(f"{node.op_type} without input or output")
    if node.op_type == "Dropout" and len(node.outputs) > 1 and node.outputs[1] is not None:
        raise Unsupported("Dropout with its mask output", "the first output only")
    if node.op_type == "Dropout" and _trains(node):
        raise Unsupported("Dropout in training mode", "training_mode false")
    if x.dtype.itemsize not in (1, 2, 4):
        raise Unsupported(f"{node.op_type} of {x.dtype}", "elements of up to four bytes")
    if x.device_bytes != output.device_bytes or (x.dtype.itemsize < 4 and x.row_pitch != output.row_pitch):
        raise Unsupported(
            f"{node.op_type} of {x.dtype} from {list(x.shape)} to {list(output.shape)} moves row padding",
            "4-byte elements, or an unchanged last dimension",
        )
    lowering.alias(output, x)


def _trains(node: NodeSpec) -> bool:
    mode = node.input(2)
    if mode is None:
        return False
    return mode.value is None or bool(np.any(mode.value))
