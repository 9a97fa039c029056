# SPDX-License-Identifier: Apache-2.0
"""MaxUnpool: values at the positions that MaxPool took them from, zeros elsewhere."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from onedispatch.operators.declarations.dtypes import FLOATS
from onedispatch.operators.declarations.registry import maps
from onedispatch.operators.families.convert import emit_converted, in_float32
from onedispatch.operators.families.elementwise import View, numpy_names
from onedispatch.operators.families.movement import Move, Part
from onedispatch.operators.families.scatter import map_scatter_elements
from onedispatch.operators.families.window import reshaped
from onedispatch.operators.interface.operator import Lowering, NodeSpec, TensorSpec, Unsupported
from onedispatch.operators.scheduling.index_space import contiguous_strides


@maps(
    "MaxUnpool",
    dtypes=numpy_names(FLOATS),
    notes="any rank, output_shape; positions count within what was pooled",
)
def map_max_unpool(node: NodeSpec, lowering: Lowering) -> None:
    x, places, output = node.input(0), node.input(1), node.outputs[0]
    if x is None or places is None or output is None or str(x.dtype) not in numpy_names(FLOATS):
        raise Unsupported(f"MaxUnpool of {x.dtype if x else 'nothing'}", ", ".join(numpy_names(FLOATS)))
    wide = in_float32(node.name, x, lowering)
    pooled = _pooled_shape(node, x)
    if any(a > b for a, b in zip(pooled, output.shape, strict=True)):
        raise Unsupported(f"output_shape {list(output.shape)}", f"{list(pooled)} or more")
    whole = output.dtype == np.float32 and tuple(pooled) == output.shape
    zeros = lowering.const(np.zeros(prod(pooled), np.float32))
    filled = lowering.temp(np.dtype(np.float32), zeros.shape)
    inputs = [zeros, reshaped(places, (places.size,)), reshaped(wide, (wide.size,))]
    spread = replace(node, op_type="ScatterElements", inputs=inputs, outputs=[filled], attributes={"axis": 0})
    map_scatter_elements(spread, lowering)
    if whole:
        lowering.alias(output, filled)
        return
    made = reshaped(filled, pooled)
    if tuple(pooled) != output.shape:
        made = _in_corner(node.name, made, output, lowering)
    if made.dtype != output.dtype:
        emit_converted(node.name, made, output, lowering)


def _pooled_shape(node: NodeSpec, x: TensorSpec) -> list[int]:
    """The shape of what was pooled, as far as the window tells."""
    kernel = [int(k) for k in node.attr("kernel_shape")]
    rank = len(kernel)
    strides = [int(s) for s in node.attr("strides") or [1] * rank]
    pads = [int(p) for p in node.attr("pads") or [0] * (2 * rank)]
    sizes = [
        (n - 1) * s + k - pads[d] - pads[d + rank]
        for d, (n, s, k) in enumerate(zip(x.shape[2:], strides, kernel, strict=True))
    ]
    return [*x.shape[:2], *sizes]


def _in_corner(name: str, made: TensorSpec, output: TensorSpec, lowering: Lowering) -> TensorSpec:
    """``made`` in the first corner of a tensor of the output's shape, zeros behind it."""
    target = output if output.dtype == made.dtype else lowering.temp(made.dtype, output.shape)
    zero, shape = lowering.const(np.zeros(1, made.dtype)), made.shape
    strides = contiguous_strides(output.shape)
    parts = [Part(0, shape, View(contiguous_strides(shape)), View(strides))]
    for d, (size, whole) in enumerate(zip(shape, output.shape, strict=True)):
        rest = (*shape[:d], whole - size, *output.shape[d + 1 :])
        parts.append(Part(1, rest, View([0] * len(rest)), View(strides, size * strides[d])))
    lowering.emit(Move(name, [made, zero], target, lowering.device, parts))
    return target
