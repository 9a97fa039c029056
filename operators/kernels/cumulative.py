# SPDX-License-Identifier: Apache-2.0
"""CumSum and CumProd: what came together along an axis, from either end."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np

from onedispatch.operators.declarations import expressions as e
from onedispatch.operators.declarations.dtypes import FLOATS, WIDE
from onedispatch.operators.declarations.formulas import (
    ENTRY,
    ROW,
    accesses,
    either,
    moves,
    operations,
    vectors,
)
from onedispatch.operators.declarations.kernel import Kernel, Scalar, Tensor, declare
from onedispatch.operators.interface.operator import Operator, TensorSpec
from onedispatch.operators.kernels.elementwise import Array
from onedispatch.operators.kernels.reduce import word_of
from onedispatch.operators.kernels.rows import LENGTH, ROW_TENSOR, SIDEWAYS, middle_axis_nest
from onedispatch.operators.scheduling.index_space import OUTPUT, Access, Dim, Operand
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.operators.scheduling.resources import resources
from onedispatch.transactions import Device

TYPES = f"{FLOATS} i32 u32 {WIDE}"


def _cost() -> e.Expr:
    """Lines of neighbours along i: an operation for each. Along a row: every vector is shifted and combined
    as often as its lanes are halved, and what came before is combined with it. A line from elsewhere to begin
    with is read beside."""
    length = e.count("x", LENGTH)
    before = e.present("before") * e.tile("o") * (ROW + accesses(e.tile("i"), "before"))
    step = either(e.scalar("product"), e.device("mul_cycles", "x"), operations("x"))
    beside = vectors(e.tile("i"), "x") * length * step
    lanes = e.smallest(length, e.device("lanes", "x"))
    along = vectors(length, "x") * (e.halvings(lanes) * (moves("x") + step) + moves("x") + step)
    return ENTRY + before + e.tile("o") * (ROW + either(SIDEWAYS, beside, along))


CUMULATIVE = declare(
    Kernel(
        "od::cumulative@1",
        dims=("o", "i"),
        inputs=(
            Tensor("x", ROW_TENSOR, TYPES, like="out"),
            Tensor("before", "o i", TYPES, optional=True, like="out"),  # the line before the first
        ),
        outputs=(Tensor("out", ROW_TENSOR, TYPES),),
        scalars=(
            Scalar("product", high=1, default=0),
            Scalar("exclusive", high=1, default=0),  # without the element itself
            Scalar("reverse", high=1, default=0),  # from the last element on
            Scalar("length", default=0),  # members of the row; 0: all that the chunk has along it
        ),
        cost=_cost(),
        joins="tiles",
        # ASSUMPTION: 96 instructions: a loop across lines and one of shifted sums, for sums and products.
        code_bytes=1536,
        summary="out[o][n][i] = sum or product of x[o][0..n][i] in f32 or integers, which wrap",
    )
)


LEAST, LONG = 16, 32  # members of a line that make a vector, and that make a run of some bursts
NARROW = 8  # members of a line that are enough for one nest to be cheaper than several
MOST_BLOCKS = 64  # that follow one another; a nest costs as much as moving some 100 KB


class Cumulative(Operator):
    """Sums, or products, along ``axis``; rows that are summed along may have padding."""

    kind = "cumulative"
    applies_activation = False

    def __init__(
        self, name: str, x: TensorSpec, output: TensorSpec, axis: int, device: Device, **flags: int
    ) -> None:
        super().__init__(name, [x], output, device)
        self.axis, self.flags = axis, flags

    def nests(self) -> list[Nest]:
        if not self.output.size:
            return []
        if self._lines:
            return list(self._blocks())
        scalars: dict[str, float | str] = {**self.flags, "length": self.inputs[0].shape[self.axis]}
        return [middle_axis_nest(CUMULATIVE, self.inputs[0], (self.axis, self.axis + 1), scalars)]

    @property
    def _lines(self) -> int:
        """Lines of a block where blocks follow one another, 0 where whole columns do as well.

        A core that holds long columns has room for few of them: its vectors are not full, and descriptors
        fetch short runs. A block has wide lines, and goes on from the last one of the block before it.
        """
        x, room = self.inputs[0], resources(self.device).buffer_bytes // 4
        length, beside = x.shape[self.axis], prod(x.shape[self.axis + 1 :])
        everywhere = LEAST * self.device.columns * self.device.core_rows  # so that no core is without work
        short = 3 * length * NARROW <= room  # two chunks to read, one to write
        if short or x.element.itemsize != 4 or beside < LEAST or self.output.size < everywhere * length:
            return 0
        blocks = -(-4 * length * LONG // room)
        return -(-length // blocks) if blocks <= MOST_BLOCKS else 0

    def _blocks(self) -> Iterator[Nest]:
        """A nest for each block, in the order of the sums."""
        length, lines = self.inputs[0].shape[self.axis], self._lines
        reverse, exclusive = (self.flags.get(flag, 0) for flag in ("reverse", "exclusive"))
        firsts = range(0, length, lines)
        for n, first in enumerate(reversed(firsts) if reverse else firsts):
            count = min(lines, length - first)
            if n == 0:
                yield self._block(first, count, first, None, exclusive)
                continue
            # What an exclusive sum lacks, the last line of the block before it lacks too.
            begin = first + exclusive * (1 if reverse else -1)
            yield self._block(first, count, begin, first + count if reverse else first - 1, 0)

    def _block(self, first: int, count: int, begin: int, last: int | None, exclusive: int) -> Nest:
        """``count`` lines from ``first`` on, of x from ``begin`` on, behind line ``last`` of the result."""
        shape, row = self.inputs[0].shape, self.output.element
        outer, length, inner = prod(shape[: self.axis]), shape[self.axis], prod(shape[self.axis + 1 :])
        sizes, strides = (outer, count, inner), (length * inner, inner, 1)
        along = Access(0), Access(None), Access(1)
        inputs = [Operand("x", 0, row, sizes, strides, along, begin * inner)]
        if last is not None:
            line = (outer, inner), (strides[0], 1), (along[0], along[2])
            inputs.append(Operand("before", OUTPUT, row, *line, last * inner))
        out = Operand("out", OUTPUT, row, sizes, strides, along, first * inner)
        dims = Dim("o", outer), Dim("i", inner)
        scalars: dict[str, float | str] = {**self.flags, "exclusive": exclusive, "length": count}
        return Nest(CUMULATIVE, dims, tuple(inputs), (out,), {"o": 0, "i": 1}, scalars)

    def reference(self, *arrays: Array) -> Array:
        product, exclusive, reverse = (self.flags.get(f) for f in ("product", "exclusive", "reverse"))
        row = self.inputs[0].element
        word = row.numpy if row.name == WIDE else word_of(row)
        x = np.moveaxis(arrays[0].astype(word), self.axis, 0)
        x = x[::-1] if reverse else x
        if exclusive:
            x = np.concatenate([np.full_like(x[:1], product or 0), x[:-1]])
        y = x.cumprod(axis=0, dtype=x.dtype) if product else x.cumsum(axis=0, dtype=x.dtype)
        y = np.moveaxis(y[::-1] if reverse else y, 0, self.axis)
        return np.ascontiguousarray(y).astype(self.output.dtype)
