# SPDX-License-Identifier: Apache-2.0
"""Expand: a view that repeats dimensions, copied. No kernel computes."""

from __future__ import annotations

from onedispatch.operators.declarations.registry import maps
from onedispatch.operators.interface.operator import Lowering, NodeSpec, TensorSpec, Unsupported
from onedispatch.operators.kernels.elementwise import View, broadcast
from onedispatch.operators.kernels.movement import Move, StridedCopy
from onedispatch.operators.lowering.movement import MOVED, Copy
from onedispatch.operators.scheduling.index_space import contiguous_strides


def emit_expanded(name: str, x: TensorSpec, output: TensorSpec, lowering: Lowering) -> None:
    """``output``, of the type of ``x``, which is broadcast to its shape."""
    if x.lies_as(output):
        lowering.emit(Copy(name, [x], output, lowering.device))
        return
    whole = View(contiguous_strides(output.device_shape))
    part = StridedCopy(0, output.device_shape, broadcast(x, output), whole)
    lowering.emit(Move(name, [x], output, lowering.device, [part]))


@maps("Expand", dtypes=MOVED, notes="broadcasting")
def map_expand(node: NodeSpec, lowering: Lowering) -> None:
    x, output = node.input(0), node.outputs[0]
    if x is None or output is None:
        raise Unsupported("Expand without its data or its result", "both")
    emit_expanded(node.name, x, output, lowering)
