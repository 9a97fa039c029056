# SPDX-License-Identifier: Apache-2.0
"""Quantisation by what a tensor holds: DynamicQuantizeLinear.

Scale and zero point are made as onnxruntime makes them: of the smallest and the greatest number, 0 among
them, in float32; of a tensor of zeros alone the scale is 1. A NaN anywhere makes the scale one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from onedispatch.operators.declarations import expressions as e
from onedispatch.operators.declarations.dtypes import DTYPES
from onedispatch.operators.declarations.formulas import (
    ENTRY,
    ROW,
    WORD_BYTES,
    accesses,
    busiest,
    combined,
    comparisons,
    operations,
    vectors,
)
from onedispatch.operators.declarations.kernel import Kernel, Tensor, declare
from onedispatch.operators.interface.operator import Operator, TensorSpec
from onedispatch.operators.scheduling.index_space import OUTPUT, Access, Dim, Operand
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.transactions import Device

Array = np.ndarray[Any, Any]
F = np.dtype(np.float32)


def _ends(members: e.Expr) -> e.Expr:
    """Cycles of finding the smallest and the greatest of ``members`` of x, each loaded once."""
    compared = vectors(members, "x") * 2 * comparisons("x")
    return busiest(accesses(members, "x"), e.as_expr(0), compared) + 2 * combined(
        members, "x", comparisons("x")
    )


def _extremes_cost() -> e.Expr:
    rows, k = e.tile("r"), e.count("x", "*k")
    return ENTRY + rows * (ROW + _ends(k) + accesses(e.as_expr(2), "out"))


EXTREMES = declare(
    Kernel(
        "od::extremes@1",
        dims=("r",),
        inputs=(Tensor("x", "r *k", "f32"),),
        outputs=(Tensor("out", "r *ends", "f32"),),
        cost=_extremes_cost(),
        # ASSUMPTION: 48 instructions: one loop with two comparisons, and their halves combined.
        code_bytes=768,
        summary="out[r] = the smallest and the greatest of x[r][k]; a NaN is both",
    )
)


def _quantisation_cost() -> e.Expr:
    """Both ends and 0, their difference, a quotient; of the zero point another one, rounded and bounded."""
    op, compare, divided = operations("x"), comparisons("x"), e.device("div_cycles", "x")
    conversion = e.device("i32_convert_cycles") + e.device("f32_convert_cycles")
    zero = e.named("zero point", e.differs(e.item_bytes("out"), WORD_BYTES))
    of_zero = divided + op + 2 * compare + conversion + e.device("i32_convert_cycles")
    whole = _ends(e.count("x", "*n")) + 2 * compare + op + divided + compare + zero * of_zero
    return ENTRY + ROW + whole + accesses(e.tile("j"), "out")


QUANTISATION = declare(
    Kernel(
        "od::quantisation@1",
        dims=("j",),
        inputs=(Tensor("x", "*n", "f32"),),
        outputs=(Tensor("out", "j", "f32 u8"),),
        cost=_quantisation_cost(),
        # ASSUMPTION: 80 instructions: as od::extremes@1, two divisions, a rounding.
        code_bytes=1280,
        summary="the scale (f32) or zero point (u8) of 256 steps around 0 and all that pairs x hold",
    )
)

# Elements of a line, of which a pair is made. Of 2,048 several lie in a core, and few pairs are left.
LINE = 2048


class Extremes(Operator):
    """The smallest and the greatest of every line of ``x``, whose rows are words; the last line begins where
    it ends with x, since elements may count twice."""

    kind = "extremes"
    applies_activation = False

    def __init__(self, name: str, x: TensorSpec, output: TensorSpec, device: Device) -> None:
        super().__init__(name, [x], output, device)

    @property
    def length(self) -> int:
        return min(self.inputs[0].size, LINE)

    def nests(self) -> list[Nest]:
        size, length = self.inputs[0].size, self.length
        if not size:
            return []
        found = [self._nest(size // length, 0, 0)]
        if size % length:
            found.append(self._nest(1, size - length, size // length))
        return found

    def _nest(self, lines: int, first: int, at: int) -> Nest:
        """Of ``lines`` from element ``first`` on, whose pairs are written from pair ``at`` on."""
        f32, access = DTYPES["f32"], (Access(0), Access(None))
        x, out = (
            Operand(name, number, f32, (lines, length), (length, 1), access, begin)
            for name, number, length, begin in (("x", 0, self.length, first), ("out", OUTPUT, 2, 2 * at))
        )
        return Nest(EXTREMES, (Dim("r", lines),), (x,), (out,), {"r": 0})

    @staticmethod
    def pairs(size: int) -> int:
        """Into how many lines ``size`` elements are parted."""
        return -(-size // LINE)

    def reference(self, *arrays: Array) -> Array:
        flat, length = arrays[0].reshape(-1), self.length
        whole = flat[: flat.size // length * length].reshape(-1, length)
        lines = [*whole, *([flat[-length:]] if flat.size % length else [])]
        return np.asarray([[line.min(), line.max()] for line in lines], np.float32).reshape(self.output.shape)


def quantisation_of(values: Array) -> tuple[Array, Array]:
    """Scale and zero point of uint8 for ``values``, as onnxruntime has them."""
    low, high = np.minimum(values.min(), F.type(0)), np.maximum(values.max(), F.type(0))
    with np.errstate(all="ignore"):
        scale = F.type(1) if low == high else (high - low) / F.type(255)
        zero = np.rint(np.clip(F.type(0) - low / scale, 0, 255))
    return np.asarray(scale, F), np.asarray(np.nan_to_num(zero), np.uint8)


class QuantisationOf(Operator):
    """The scale, or of an output of uint8 the zero point, of all that ``ends`` lie around."""

    kind = "quantisation"
    applies_activation = False

    def __init__(self, name: str, ends: TensorSpec, output: TensorSpec, device: Device) -> None:
        super().__init__(name, [ends], output, device)

    def nests(self) -> list[Nest]:
        ends, out = self.inputs[0], self.output
        x = Operand("x", 0, DTYPES["f32"], (ends.size,), (1,), (Access(None),))
        row = Operand("out", OUTPUT, out.element, (out.row_pitch,), (1,), (Access(0),))
        dim = Dim("j", out.row_pitch, multiple=out.element.per_word, padding=out.row_pitch - 1)
        return [Nest(QUANTISATION, (dim,), (x,), (row,), {"j": 0})]

    def reference(self, *arrays: Array) -> Array:
        scale, zero = quantisation_of(arrays[0])
        return (scale if self.output.dtype == F else zero).reshape(self.output.shape)
