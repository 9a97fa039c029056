# SPDX-License-Identifier: Apache-2.0
"""Sums of chosen elements along one axis, by tables of places and weights: what Resize is made of."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from onedispatch.operators.declarations import expressions as e
from onedispatch.operators.declarations.dtypes import DTYPES, FLOATS
from onedispatch.operators.declarations.formulas import (
    ENTRY,
    ROW,
    WORD_BYTES,
    accesses,
    either,
    operations,
    scaled,
    vectors,
)
from onedispatch.operators.declarations.kernel import Kernel, Scalar, Tensor, declare
from onedispatch.operators.declarations.params import MAX_DENOMINATOR, MAX_NUMERATOR
from onedispatch.operators.interface.operator import Operator, TensorSpec, Unsupported
from onedispatch.operators.scheduling.index_space import F32, OUTPUT, Access, Dim, Operand
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.transactions import Device

Array = np.ndarray[Any, Any]

_WORDS = "f32 i32 u32"


def _cost() -> e.Expr:
    """A row of the output for every member of o and j, vectors along i; or, of one member i, along j.

    Along i a tap is a load and a multiplication by one weight, read and split before. Along j places
    and weights are loaded as vectors, and what lies apart takes a load and a shuffle for every vector of x
    that is touched. Narrower results are rounded once, vector by vector.
    """
    outer, j, i = e.tile("o"), e.tile("j"), e.tile("i")
    taps, weighted = e.count("index", "*taps"), e.present("weight")
    product = e.named("product", weighted * (e.device("mul_cycles", "x") + operations("x")))
    staying = weighted * (scaled("x") + operations("x"))
    load = 1 / e.device("loads_per_cycle")
    weight = 1 + weighted * (1 + e.device("pack_cycles", "x"))
    sideways = e.named("sideways", e.differs(i, 1))
    narrow = e.differs(e.item_bytes("out"), WORD_BYTES) * e.device("convert_cycles", "out")
    across = ROW + taps * weight + vectors(i, "x") * (1 + taps * e.largest(load, staying))
    across = outer * j * (across + vectors(i, "out") * narrow)
    touched = e.smallest(j, accesses(e.count("x", "j"), "x") + vectors(j, "x"))
    gathered = touched * e.device("gather_cycles") + vectors(j, "x") * ((1 + weighted) * load + product)
    along = outer * (ROW + vectors(j, "x") + taps * gathered + vectors(j, "out") * narrow)
    return ENTRY + e.named("rows", either(sideways, across, along))


RESAMPLE = declare(
    Kernel(
        "od::resample@1",
        dims=("o", "j", "i"),
        inputs=(
            Tensor("x", "o j i", _WORDS, walk="interval"),
            Tensor("index", "j *taps", "i32"),
            Tensor("weight", "j *taps", "f32", optional=True),
        ),
        outputs=(Tensor("out", "o j i", f"{FLOATS} i32 u32"),),
        types=(
            {"x": "f32", "index": "i32", "weight": "f32", "out": FLOATS},
            {"x": "f32", "index": "i32", "out": "f32"},
            {"x": "i32", "index": "i32", "out": "i32"},
            {"x": "u32", "index": "i32", "out": "u32"},
        ),
        scalars=(Scalar("outside"),),  # the bits of an element for which index -1 stands
        cost=_cost(),
        joins="tiles",
        # ASSUMPTION: 80 instructions: a loop along i, one along j with shuffles, and their edges.
        code_bytes=1280,
        summary="out[o][j][i] = sum over taps of weight[j][t] * x[o][index[j][t]][i], or that element itself",
    )
)


class Resample(Operator):
    """``out[o][j][i] = sum_t weight[j][t] * x[o][index[j][t]][i]`` of x [outer, length, inner].

    ``index`` int32 and ``weight`` float32, both [resized, taps], are constants; without weights (one tap)
    elements of 32 bits are copied. An index of -1 gives ``outside``. Sums of float32 are rounded where the
    output is narrower; rows of ``inner`` are then whole words.
    """

    kind = "resample"
    applies_activation = False

    def __init__(
        self,
        name: str,
        inputs: Sequence[TensorSpec],
        output: TensorSpec,
        sizes: tuple[int, int, int],
        device: Device,
        outside: float = 0.0,
    ) -> None:
        super().__init__(name, inputs, output, device)
        summed = np.dtype(np.float32) if len(inputs) > 2 else output.dtype
        words = summed if summed.itemsize == 4 else np.dtype(np.uint32)
        self.sizes, self.outside = sizes, np.asarray(outside).astype(words)

    @property
    def index(self) -> Array:
        value = self.inputs[1].value
        if value is None:
            raise Unsupported("places computed at run time", "constant ones")
        return value

    def nests(self) -> list[Nest]:
        outer, length, inner = self.sizes
        resized, taps = self.index.shape
        if 0 in (outer, length, inner, resized):
            return []
        row = DTYPES["f32" if self.outside.dtype == np.float32 else "u32"]
        made = self.output.element if row == F32 else row
        sizes, strides = (outer, length, inner), (length * inner, inner, 1)
        x = Operand("x", 0, row, sizes, strides, (Access(0), window(self.index, length), Access(2)))
        table = (resized, taps), (taps, 1), (Access(1), Access(None))
        operands = [x, Operand("index", 1, DTYPES["i32"], *table)]
        operands += [Operand("weight", 2, F32, *table)] if len(self.inputs) > 2 else []
        strides = (resized * inner, inner, 1)
        out = Operand(
            "out", OUTPUT, made, (outer, resized, inner), strides, tuple(Access(d) for d in range(3))
        )
        dims = (Dim("o", outer), Dim("j", resized), Dim("i", inner, multiple=made.per_word))
        roles, bits = {"o": 0, "j": 1, "i": 2}, int(self.outside.reshape(()).view(np.uint32))
        return [Nest(RESAMPLE, dims, tuple(operands), (out,), roles, {"outside": bits})]

    def reference(self, *arrays: Array) -> Array:
        x, index = np.ascontiguousarray(arrays[0]).view(self.outside.dtype).reshape(self.sizes), arrays[1]
        taken = x[:, np.maximum(index, 0)]  # outer, resized, taps, inner
        if len(arrays) > 2:
            y = (taken * arrays[2][:, :, None]).sum(axis=2, dtype=np.float32)
        else:
            y = taken[:, :, 0]
        y = np.where(index[:, 0, None] < 0, self.outside, y)
        words = np.ascontiguousarray(y, self.outside.dtype)
        if words.dtype == np.float32:
            return words.astype(self.output.dtype).reshape(self.output.shape)
        return words.view(self.output.dtype).reshape(self.output.shape)


def window(index: Array, length: int) -> Access:
    """The least interval ``[a*j/den + start, a*j/den + end]`` that holds the places of every row.

    The slope is that of all rows, as near as the fields of a parameter block come to it.
    """
    resized = len(index)
    rows = np.flatnonzero(index[:, 0] >= 0)
    low, high = index[rows].min(axis=1, initial=length), index[rows].max(axis=1, initial=0)
    whole = Access(1, 1, -resized, length)
    slope = _slope(rows, low + high)
    if slope is None:
        return whole
    base = slope.numerator * rows // slope.denominator
    start, end = int((low - base).min()), int((high - base).max())
    return Access(1, slope.numerator, start, end, den=slope.denominator)


def _slope(rows: Array, twice: Array) -> Fraction | None:
    """Places per row, from the first row inside to the last."""
    if len(rows) < 2 or twice[-1] <= twice[0]:
        return None
    slope = Fraction(int(twice[-1] - twice[0]), 2 * int(rows[-1] - rows[0])).limit_denominator(
        MAX_DENOMINATOR
    )
    return slope if 0 < slope.numerator <= MAX_NUMERATOR else None
