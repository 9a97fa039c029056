# SPDX-License-Identifier: Apache-2.0
"""Sums and products of two quantised tensors: float operations in onnxruntime's order, so that not one bit
differs.

It adds ``a * (a_scale / y_scale)`` to ``b * (b_scale / y_scale)`` and what the zero points come to, by fused
multiply-adds; products of the differences from zero points get one factor. Results beyond int32 saturate;
there they wrap. Integers of 16 bits, which it has no such operators for, are rounded before the zero point of
the result is added: it would take the last bits of a float.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from onedispatch.operators.declarations import expressions as e
from onedispatch.operators.declarations.dtypes import nearest
from onedispatch.operators.declarations.formulas import (
    F32_SCALED,
    PAIR,
    SPLIT,
    either,
    many,
    mapped,
    scaled,
    vectors,
    words,
)
from onedispatch.operators.declarations.kernel import Kernel, Scalar, Tensor, declare
from onedispatch.operators.interface.operator import TensorSpec, Unsupported
from onedispatch.operators.kernels.elementwise import Array, Eltwise
from onedispatch.operators.kernels.quant_params import QuantParams, fused
from onedispatch.transactions import Device

_NARROW = "i8 u8 i16 u16"


def _cost() -> e.Expr:
    """Operands are made words. A sum: both are made floats; two products, added before they are rounded. A
    product: differences, of 16 bits, their product, of as many and a sign, made a float, another product, a
    sum. Either is made an integer and narrow. Of 16-bit integers, both have differences, of words, which are
    made floats; two products, of a sum that as well; and the zero point is added to integers.

    Scales stay, and are split into parts once. A byte times the greatest part of a scale, and times the rest,
    are float32 to the last bit: a sum with both that is rounded once is a pair, the rest added to its lower
    part, and both parts together. Accumulators that begin with the sum would round it for every product.
    Products of 16 bits have no such halves: the one that is rounded with a sum is charged as any two floats.
    """
    float_of = e.device("i32_convert_cycles") + e.device("f32_convert_cycles")
    product, plus = e.scalar("product"), e.device("f32_op_cycles")
    total = 2 * (float_of + scaled("x0") + (PAIR + 1) * plus)
    of_both = e.device("i16_scale_cycles")
    multiplied = 2 * e.device("i16_op_cycles") + e.device("i16_mul_cycles") + float_of + of_both + plus
    times = e.device("f32_mul_cycles") + either(product, F32_SCALED, scaled("x1") + plus)
    wide = 2 * (e.device("i32_op_cycles") + float_of) + times + e.device("i32_op_cycles")
    bytes_ = either(product, multiplied, total)
    vector = either(many(e.item_bytes("out")), wide, bytes_) + float_of + e.device("i32_convert_cycles")

    def rows_of(rows: e.Expr, run: e.Expr) -> e.Expr:
        wide = sum((vectors(run, x) * e.device("convert_cycles", x) for x in ("x0", "x1")), e.as_expr(0))
        return (2 - product) * SPLIT + rows * (wide + words(run) * vector)

    return mapped(("x0", "x1"), rows_of)


COMBINE = declare(
    Kernel(
        "od::combine@1",
        inputs=tuple(Tensor(f"x{i}", "...", _NARROW, walk="affine", like="out") for i in range(2)),
        outputs=(Tensor("out", "...", _NARROW, walk="affine"),),
        scalars=(
            Scalar("product", high=1, default=0),
            Scalar("first", "f32"),
            Scalar("second", "f32", default=0.0),
            Scalar("shift", "f32", default=0.0),
            Scalar("zero0", "i32", -(1 << 15), (1 << 16) - 1, default=0),
            Scalar("zero1", "i32", -(1 << 15), (1 << 16) - 1, default=0),
        ),
        cost=_cost(),
        joins="tiles",
        # ASSUMPTION: 96 instructions: a loop for sums and one for products.
        code_bytes=1536,
        summary="saturate(round(x0 * first + (x1 * second + shift))), or of a product "
        "saturate(round((x0 - zero0) * (x1 - zero1) * first + shift)), to even; of 16 bits "
        "saturate(round((x0 - zero0) * first + (x1 - zero1) * second) + shift), or of their product",
    )
)


class Combine(Eltwise):
    """``a + b`` or ``a * b`` of integers of 8 or 16 bits with these scales and zero points, broadcast."""

    kind = "combine"
    applies_activation = False
    tabulates = True
    kernel: ClassVar[Kernel] = COMBINE

    def __init__(
        self,
        name: str,
        product: bool,
        inputs: Sequence[TensorSpec],
        scales: Sequence[QuantParams],
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
            if self._wide:
                sums = {"first": float(first), "second": float(second), "shift": made.zero}
                return {**sums, "zero0": a.zero, "zero1": b.zero}
            zeros = fused(first, np.float32(a.zero), second * np.float32(b.zero))
            return {
                "first": float(first),
                "second": float(second),
                "shift": float(np.float32(made.zero) - zeros),
            }

    @property
    def _wide(self) -> bool:
        """Whether the integers have 16 bits."""
        return self.output.element.itemsize == 2

    def tabulated(self, of: Mapping[str, Array]) -> Array:
        x, y = (_known(tensor, of) for tensor in self.inputs)
        with np.errstate(all="ignore"):
            return self.of(*np.broadcast_arrays(x, y))

    def reference(self, *arrays: Array) -> Array:
        return self.of(*(np.broadcast_to(array, self.output.shape) for array in arrays))

    def of(self, x: Array, y: Array) -> Array:
        """What becomes of two elements, in NumPy."""
        given = {name: np.float32(value) for name, value in self.scalars.items()}
        zeros = [scale.zero for scale in self.scales]
        p, q = (one.astype(np.int32) - zero for one, zero in zip((x, y), zeros, strict=False))
        if self._wide:
            p, q = p.astype(np.float32), q.astype(np.float32)
            added = fused(p, given["first"], q * given.get("second", np.float32(0)))
            found = p * q * given["first"] if self.product else added
            return nearest(found, zeros[2], self.output.dtype)
        if self.product:
            found = (p * q).astype(np.float32) * given["first"] + given["shift"]
        else:
            found = fused(x, given["first"], fused(y, given["second"], given["shift"]))
        return nearest(found, 0, self.output.dtype)


def _known(tensor: TensorSpec, of: Mapping[str, Array]) -> Array:
    """What ``of`` says of a tensor, or the one number that it is."""
    if tensor.value is not None and tensor.size != 1:
        raise Unsupported(f"{tensor} beside bytes", "one number")
    return np.asarray(of[tensor.name] if tensor.value is None else tensor.value).reshape(-1)
