# SPDX-License-Identifier: Apache-2.0
"""QLinearSoftmax of onnxruntime."""

from __future__ import annotations

import math
from math import prod

from onedispatch.operators.declarations.registry import MICROSOFT, maps
from onedispatch.operators.interface.operator import Lowering, NodeSpec, Unsupported
from onedispatch.operators.kernels.qlinear_softmax import SoftmaxOfBytes, factor, powers
from onedispatch.operators.lowering.movement import emit_narrow, emit_wide
from onedispatch.operators.lowering.qlinear import BYTES, SCALED, unary_of


def _axes(node: NodeSpec, rank: int) -> tuple[int, int]:
    """First and stop of the axes: before opset 13, of which an attribute tells, all from one on."""
    axis = int(node.attr("axis", -1))
    if not -rank <= axis < rank:
        raise Unsupported(f"QLinearSoftmax along axis {axis} of rank {rank}", "one of its dimensions")
    axis %= rank
    return axis, rank if int(node.attr("opset", 0)) < 13 else axis + 1


@maps(
    "QLinearSoftmax",
    dtypes=BYTES,
    domain=MICROSOFT,
    like=0,
    notes=f"any axis, rows that a core holds; {SCALED}",
)
def map_qlinear_softmax(node: NodeSpec, lowering: Lowering) -> None:
    x, output, read, written = unary_of(node)
    first, stop = axes = _axes(node, len(x.shape))
    length = prod(x.shape[first:stop])
    if not math.isfinite(factor(written)):
        raise Unsupported(f"QLinearSoftmax to a scale of {written.scale}", "one whose inverse is a float32")
    table = lowering.const(powers(read.scale, max(length, 1)))
    if stop < len(x.shape) or first == len(x.shape) - 1 or x.row_pitch == x.row:
        lowering.emit(SoftmaxOfBytes(node.name, [x, table], output, lowering.device, axes, written))
        return
    rows, made = (lowering.temp(x.dtype, (prod(x.shape[:first]), length)) for _ in range(2))
    emit_narrow(node.name, emit_wide(node.name, x, lowering), rows, lowering)
    lowering.emit(SoftmaxOfBytes(node.name, [rows, table], made, lowering.device, (1, 2), written))
    emit_narrow(node.name, emit_wide(node.name, made, lowering), output, lowering)
