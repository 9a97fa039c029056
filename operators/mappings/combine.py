# SPDX-License-Identifier: Apache-2.0
"""QLinearAdd and QLinearMul."""

from __future__ import annotations

from onedispatch.operators.declarations.registry import MICROSOFT, Inferred, maps
from onedispatch.operators.interface.operator import Lowering, NodeSpec
from onedispatch.operators.kernels.combine import Combine
from onedispatch.operators.lowering.qlinear import (
    NARROW,
    SCALED,
    broadcast_shape,
    bytes_of,
    result_of,
    scale_of,
)


def _broadcast(node: NodeSpec) -> Inferred:
    a, b = bytes_of(node, 0, NARROW), bytes_of(node, 3, NARROW)
    return [(a.dtype, broadcast_shape(node, a, b))]


@maps(
    "QLinearAdd",
    "QLinearMul",
    dtypes=NARROW,
    domain=MICROSOFT,
    infer=_broadcast,
    notes=f"broadcasting; {SCALED}",
)
def map_qlinear_binary(node: NodeSpec, lowering: Lowering) -> None:
    inputs, output = [bytes_of(node, index, NARROW) for index in (0, 3)], result_of(node, NARROW)
    scales = [scale_of(node, 1), scale_of(node, 4)]
    if _first_is_one(*(x.shape for x in inputs)):
        inputs.reverse()
        scales.reverse()
    product = node.op_type == "QLinearMul"
    op = Combine(node.name, product, inputs, [*scales, scale_of(node, 6)], output, lowering.device)
    lowering.emit(op)


def _first_is_one(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    """Whether ``a`` has one element for the innermost elements of ``b``: onnxruntime exchanges both then, and
    so the order in which they are added."""
    pairs = list(zip(reversed(a or (1,)), reversed(b or (1,)), strict=False))
    return next((left for left, right in pairs if max(left, right) > 1), 1) == 1
