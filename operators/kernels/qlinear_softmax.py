# SPDX-License-Identifier: Apache-2.0
"""QLinearSoftmax: softmax of bytes, whose powers are looked up, to the bit of what onnxruntime computes.

A scale has 256 powers of e, taken below the row's maximum, in float32: as large as sums of so long a row
allow. Their sum is float32 in the order of the row. A result is a power by that sum, times the whole part
of 1 / scale, rounded once to even; then the zero point is added.
"""

from __future__ import annotations

import math
from math import prod

import numpy as np

from onedispatch.operators.declarations import expressions as e
from onedispatch.operators.declarations.dtypes import saturated
from onedispatch.operators.declarations.formulas import (
    ENTRY,
    F32_SCALED,
    ROW,
    SPLIT,
    combined,
    comparisons,
    either,
    moves,
    operations,
    vectors,
    words,
)
from onedispatch.operators.declarations.kernel import Kernel, Scalar, Tensor, declare
from onedispatch.operators.interface.operator import Operator, TensorSpec
from onedispatch.operators.kernels.elementwise import Array
from onedispatch.operators.kernels.quant_params import QuantParams
from onedispatch.operators.kernels.rows import LENGTH, ROW_TENSOR, SIDEWAYS, middle_axis_nest
from onedispatch.operators.kernels.table import COPIES, ENTRIES, LOOKED_UP, laid_out
from onedispatch.operators.scheduling.index_space import F32, Access, Operand
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.transactions import Device

LAST = ENTRIES - 1  # the entry of the row's maximum
SPARE = 5.0  # of the logarithm of the largest float32, beside the row's length


def _quotients(results: e.Expr) -> e.Expr:
    """Cycles of so many vectors of words, each the exact quotient of two products, rounded to even.

    It is estimated in float32, rounded, and corrected by one where whole numbers say so: power times factor,
    and the sum times twice the estimate and one, above and below, have 48 bits. The zero point is added, and
    both ends of the type are kept to.
    """
    halves = e.device("i32_lanes") / e.device("i64_lanes")
    exact = (
        2 * e.device("i64_mul_cycles") + 2 * e.device("i64_compare_cycles") + 2 * e.device("i64_move_cycles")
    )
    ends = 2 * (e.device("i32_op_cycles") + e.device("i32_compare_cycles"))
    estimate = F32_SCALED + 2 * e.device("i32_convert_cycles")
    return results * (estimate + halves * exact + ends)


def _cost() -> e.Expr:
    """Powers are laid out as tables are; every line is walked for its maximum, its sum and its results.

    Beside one another along i, lines are added up in vectors. The members of a row are added one after the
    other, as they come: each is moved to its place and added. A row that is longer than the table has no more
    results than that: they are computed once, laid out and looked up.
    """
    length, outer, i = e.count("x", LENGTH), e.tile("o"), e.tile("i")
    lines = e.named("lines", either(SIDEWAYS, words(i), 1))
    narrow = e.named("narrow", either(SIDEWAYS, length * vectors(i, "x"), vectors(length, "x")))
    wide = e.named("wide", either(SIDEWAYS, length * words(i), words(length)))
    results = e.named("results", either(SIDEWAYS, wide, words(e.smallest(length, ENTRIES))))
    long = e.named("long", (1 - SIDEWAYS) * e.differs(e.largest(length, ENTRIES), ENTRIES))
    maximum = narrow * comparisons("x") + (1 - SIDEWAYS) * combined(length, "x", comparisons("x"))
    indices = narrow * (operations("x") + 2 * e.device("convert_cycles", "x"))
    total = either(SIDEWAYS, wide, length) * operations("powers") + (1 - SIDEWAYS) * length * moves("powers")
    per_line = lines * (3 * ROW + e.device("div_cycles", "powers") + SPLIT)  # of the factor by the sum
    again = long * (ROW + laid_out("out"))
    walks = maximum + indices + 2 * wide * LOOKED_UP + total + _quotients(results)
    return ENTRY + laid_out("powers") + outer * (per_line + walks + again)


SOFTMAX_BYTES = declare(
    Kernel(
        "od::softmax_bytes@1",
        dims=("o", "i"),
        inputs=(
            Tensor("x", ROW_TENSOR, "i8 u8", like="out"),
            Tensor("powers", "*entries"),
        ),
        outputs=(Tensor("out", ROW_TENSOR, "i8 u8"),),
        scalars=(
            Scalar("factor", "f32", low=0.0),
            Scalar("zero", "i32", low=-128, high=255, default=0),
            Scalar("length", default=0),  # members of the row; 0: all that the chunk has along it
        ),
        cost=_cost(),
        scratch=e.as_expr(COPIES * ENTRIES * (F32.itemsize + 1)),
        joins="tiles",
        # ASSUMPTION: 160 instructions: copies of the table, maximum, look-ups and sum, quotients of 64 bits.
        code_bytes=2560,
        summary=(
            "softmax of bytes along the middle axis of [o, length, i]: of p = powers[255 - maximum + x], "
            "p * factor / sum of p, rounded to even, + zero"
        ),
    )
)


class SoftmaxOfBytes(Operator):
    """Over axes ``first`` to before ``stop`` of bytes, as integers of ``written``; inputs x, and the powers
    of its scale. Several axes with the rows among them need rows without padding."""

    kind = "softmax of bytes"
    runs_in_bands = True
    applies_activation = False

    def __init__(
        self,
        name: str,
        inputs: list[TensorSpec],
        output: TensorSpec,
        device: Device,
        axes: tuple[int, int],
        written: QuantParams,
    ) -> None:
        super().__init__(name, inputs, output, device)
        self.axes, self.written = axes, written
        shape, (first, stop) = output.shape, axes
        self.sizes = prod(shape[:first]), prod(shape[first:stop]), prod(shape[stop:])

    def nests(self) -> list[Nest]:
        if not self.output.size:
            return []
        scalars = {"factor": factor(self.written), "zero": self.written.zero, "length": self.sizes[1]}
        table = Operand("powers", 1, F32, (ENTRIES,), (1,), (Access(None),))
        return [middle_axis_nest(SOFTMAX_BYTES, self.inputs[0], self.axes, scalars, table)]

    def reference(self, *arrays: Array) -> Array:
        if not self.output.size:
            return np.empty(self.output.shape, self.output.dtype)
        x, table = arrays[0].astype(np.int32).reshape(self.sizes), arrays[1]
        powers = table[LAST - x.max(axis=1, keepdims=True) + x]
        total = np.add.accumulate(powers, axis=1, dtype=np.float32)[:, -1:]
        quotients = powers.astype(np.float64) * factor(self.written) / total
        found = saturated(np.rint(quotients) + self.written.zero, self.output.dtype)
        return found.reshape(self.output.shape)


def powers(scale: np.float32, length: int) -> Array:
    """Powers of e, float32 [256]: of ``scale`` times the places below the last, all times what keeps the sum
    of ``length`` of them finite."""
    shift = np.float32(math.log(np.finfo(np.float32).max) - math.log(length) - SPARE)
    found = [math.exp((i - LAST) * float(scale) + float(shift)) for i in range(ENTRIES)]
    return np.array(found, np.float32)


def factor(written: QuantParams) -> float:
    """The whole part of 1 / scale: what quotients are multiplied by."""
    with np.errstate(over="ignore"):
        return float(np.floor(np.float32(1) / written.scale))
