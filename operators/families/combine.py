# SPDX-License-Identifier: Apache-2.0
"""Sums and products of two quantised tensors: float operations in onnxruntime's order, so that not one bit
differs.

It adds ``a * (a_scale / y_scale)`` to ``b * (b_scale / y_scale)`` and what the zero points come to, by fused
multiply-adds; products of the differences from zero points get one factor. Results beyond int32 saturate;
there they wrap.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from onedispatch.operators.declarations import expressions as e
from onedispatch.operators.declarations.dtypes import saturated
from onedispatch.operators.declarations.formulas import either, mapped, vectors, words
from onedispatch.operators.declarations.kernel import Kernel, Scalar, Tensor, declare
from onedispatch.operators.declarations.registry import MICROSOFT, Inferred, maps
from onedispatch.operators.families.elementwise import Array, Eltwise
from onedispatch.operators.families.qlinear import (
    BYTES,
    SCALED,
    Scale,
    broadcast_shape,
    bytes_of,
    fused,
    result_of,
    scale_of,
)
from onedispatch.operators.interface.operator import Lowering, NodeSpec, TensorSpec
from onedispatch.transactions import Device

_BYTES = "i8 u8"


def _cost() -> e.Expr:
    """Operands are made words. A sum: both are made floats, two products, two sums. A product: differences,
    of 16 bits, their product, made a float, another product, a sum. Either is made an integer and narrow."""
    float_of = e.device("i32_convert_cycles") + e.device("f32_convert_cycles")
    times, plus = e.device("f32_mul_cycles"), e.device("f32_op_cycles")
    total = 2 * (float_of + times + plus)
    multiplied = 2 * e.device("i16_op_cycles") + e.device("i16_mul_cycles") + float_of + times + plus
    vector = either(e.scalar("product"), multiplied, total) + float_of + e.device("i32_convert_cycles")

    def rows_of(rows: e.Expr, run: e.Expr) -> e.Expr:
        wide = sum((vectors(run, x) * e.device("convert_cycles", x) for x in ("x0", "x1")), e.as_expr(0))
        return rows * (wide + words(run) * vector)

    return mapped(("x0", "x1"), rows_of)


COMBINE = declare(
    Kernel(
        "od::combine@1",
        inputs=tuple(Tensor(f"x{i}", "...", _BYTES, walk="affine", like="out") for i in range(2)),
        outputs=(Tensor("out", "...", _BYTES, walk="affine"),),
        scalars=(
            Scalar("product", high=1, default=0),
            Scalar("first", "f32"),
            Scalar("second", "f32", default=0.0),
            Scalar("shift", "f32", default=0.0),
            Scalar("zero0", "i32", -128, 255, default=0),
            Scalar("zero1", "i32", -128, 255, default=0),
        ),
        cost=_cost(),
        # ASSUMPTION: 96 instructions: a loop for sums and one for products.
        code_bytes=1536,
        summary="saturate(round(x0 * first + (x1 * second + shift))), or of a product "
        "saturate(round((x0 - zero0) * (x1 - zero1) * first + shift)), to even",
    )
)


class Combine(Eltwise):
    """``a + b`` or ``a * b`` of int8 or uint8 with these scales and zero points, broadcast."""

    kind = "combine"
    applies_activation = False
    kernel: ClassVar[Kernel] = COMBINE

    def __init__(
        self,
        name: str,
        product: bool,
        inputs: Sequence[TensorSpec],
        scales: Sequence[Scale],
        output: TensorSpec,
        device: Device,
    ) -> None:
        self.product, self.scales = product, tuple(scales)
        super().__init__(name, "", inputs, output, device)

    @property
    def scalars(self) -> dict[str, float | str]:
        a, b, made = self.scales
        with np.errstate(all="ignore"):  # what is beyond float32 is infinite there too
            if self.product:
                return {
                    "product": 1,
                    "first": float(a.scale * b.scale / made.scale),
                    "shift": made.zero,
                    "zero0": a.zero,
                    "zero1": b.zero,
                }
            first, second = a.scale / made.scale, b.scale / made.scale
            zeros = fused(first, np.float32(a.zero), second * np.float32(b.zero))
            return {
                "first": float(first),
                "second": float(second),
                "shift": float(np.float32(made.zero) - zeros),
            }

    def reference(self, *arrays: Array) -> Array:
        x, y = (np.broadcast_to(array, self.output.shape) for array in arrays)
        given = {name: np.float32(value) for name, value in self.scalars.items()}
        if self.product:
            zeros = [scale.zero for scale in self.scales]
            product = (x.astype(np.int32) - zeros[0]) * (y.astype(np.int32) - zeros[1])
            found = product.astype(np.float32) * given["first"] + given["shift"]
        else:
            found = fused(x, given["first"], fused(y, given["second"], given["shift"]))
        return saturated(np.rint(found), self.output.dtype)


# -- onnxruntime -------------------------------------------------------------------------------


def _broadcast(node: NodeSpec) -> Inferred:
    a, b = bytes_of(node, 0), bytes_of(node, 3)
    return [(a.dtype, broadcast_shape(node, a, b))]


@maps(
    "QLinearAdd",
    "QLinearMul",
    dtypes=BYTES,
    domain=MICROSOFT,
    infer=_broadcast,
    notes=f"broadcasting; {SCALED}",
)
def map_qlinear_binary(node: NodeSpec, lowering: Lowering) -> None:
    inputs, output = [bytes_of(node, 0), bytes_of(node, 3)], result_of(node)
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
