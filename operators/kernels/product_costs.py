# SPDX-License-Identifier: Apache-2.0
"""What products of integers cost beside their multiplications: zero points, and what becomes of sums."""

from __future__ import annotations

from onedispatch.operators.declarations import expressions as e
from onedispatch.operators.declarations.formulas import (
    F32_SCALED,
    SPLIT,
    either,
    operations,
    summed,
    vectors,
    wide,
    words,
)


def finished(results: e.Expr) -> e.Expr:
    """Cycles of the last step for its ``results``: the bias, added to wide sums, and the activation."""
    bias = e.present("bias") * words(results) * operations("bias")
    return e.LAST * (bias + vectors(results, "out") * e.work("act", "out"))


def requantised_sums(sums: e.Expr, scales: e.Expr, x: str) -> e.Expr:
    """Cycles of making so many vectors of ``sums`` narrow, where there is a scale: so many vectors.

    Converted to f32, multiplied by the scale, rounded to i32 again, the zero point added, and saturated.
    ``scales`` are split into parts once. Of wide sums, which those of narrow ``x`` may be, both halves are
    converted, and added.
    """
    conversion = e.device("i32_convert_cycles") + e.device("f32_convert_cycles")
    narrowing = e.device("i32_convert_cycles")
    zero = e.present("out_zero") * e.device("i32_op_cycles")
    halves = wide(x, "out") * (conversion + e.device("f32_op_cycles"))
    per_vector = 2 * conversion + halves + F32_SCALED + zero + narrowing
    return e.named("requantised", e.present("scale") * (sums * per_vector + scales * SPLIT))


def finished_sums(sums: e.Expr, scales: e.Expr) -> e.Expr:
    """Cycles of making so many vectors of 32-bit ``sums`` narrow, or f32: those are converted once, and
    multiplied by the scale where there is one."""
    # No type of integers multiplies at the price of f32, so the price tells integers from floats.
    floats = 1 - e.differs(e.device("mul_cycles", "out"), e.device("f32_mul_cycles"))
    of_bytes = e.named("bytes as floats", floats * (1 - e.differs(e.item_bytes("a"), 1)))
    conversion = e.device("i32_convert_cycles") + e.device("f32_convert_cycles")
    scaled = e.present("scale") * (sums * F32_SCALED + scales * SPLIT)
    return either(of_bytes, sums * conversion + scaled, requantised_sums(sums, scales, "a"))


def corrected(m: e.Expr, k: e.Expr, n: e.Expr) -> e.Expr:
    """Cycles of zero points: sums of the other matrix, each times its zero point, taken from every output.

    Where one zero point is for all, so is one product per sum; one for each row (or column) of its own
    matrix takes a product per output. Of wide sums there are twice as many words.
    """

    def one(zero: str, axis: str, other: str, inner: e.Expr, sums: e.Expr) -> e.Expr:
        mul, op = e.device("i32_mul_cycles"), e.device("i32_op_cycles")
        each = e.differs(e.stride(zero, axis), 0)
        scaled = either(each, words(m * n), words(sums)) * mul
        added = vectors(inner * sums, other) * summed(other)
        return e.present(zero) * (added + scaled + words(m * n) * op)

    both = one("a_zero", "m", "b", k, n) + one("b_zero", "n", "a", k, m)
    return e.named("zero points", (1 + wide("a", "out")) * both)
