# SPDX-License-Identifier: Apache-2.0
"""CumSum and CumProd: what came together along an axis, from either end."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from onedispatch.operators.declarations import expressions as e
from onedispatch.operators.declarations.dtypes import FLOATS
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
from onedispatch.operators.declarations.registry import maps
from onedispatch.operators.families.convert import emit_converted
from onedispatch.operators.families.elementwise import Array, Eltwise, View, numpy_names
from onedispatch.operators.families.movement import Move, Part
from onedispatch.operators.families.reduce import Reduce, reshaped, word_of
from onedispatch.operators.families.rows import LENGTH, ROW_TENSOR, SIDEWAYS, middle_axis_nest
from onedispatch.operators.families.segments import emit_extended
from onedispatch.operators.interface.operator import Lowering, NodeSpec, Operator, TensorSpec, Unsupported
from onedispatch.operators.scheduling.index_space import OUTPUT, Access, Dim, Operand, contiguous_strides
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.operators.scheduling.resources import resources
from onedispatch.transactions import Device

TYPES = f"{FLOATS} i32 u32"


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
        # ASSUMPTION: 96 instructions: a loop across lines and one of shifted sums, for sums and products.
        code_bytes=1536,
        summary="out[o][n][i] = sum or product of x[o][0..n][i] in f32, int32 or uint32; integers wrap",
    )
)


LEAST, WIDE = 16, 32  # members of a line that make a vector, and that make a run of some bursts
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
        if short or x.element.per_word > 1 or beside < LEAST or self.output.size < everywhere * length:
            return 0
        blocks = -(-4 * length * WIDE // room)
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
        x = np.moveaxis(arrays[0].astype(word_of(self.inputs[0].element)), self.axis, 0)
        x = x[::-1] if reverse else x
        if exclusive:
            x = np.concatenate([np.full_like(x[:1], product or 0), x[:-1]])
        y = x.cumprod(axis=0, dtype=x.dtype) if product else x.cumsum(axis=0, dtype=x.dtype)
        y = np.moveaxis(y[::-1] if reverse else y, 0, self.axis)
        return np.ascontiguousarray(y).astype(self.output.dtype)


BLOCK = 1024  # elements of an axis that does not fit a core: so many of a word fit any


def emit_cumulative(
    name: str, x: TensorSpec, output: TensorSpec, axis: int, lowering: Lowering, **flags: int
) -> None:
    """``Cumulative``, or in blocks where the axis does not fit a core: in every block, over the blocks'
    totals, and both together."""
    try:
        lowering.emit(Cumulative(name, x, output, axis, lowering.device, **flags))
        return
    except Unsupported:
        if x.shape[axis] <= BLOCK:
            raise
    word, product = word_of(x.element), flags["product"]
    if x.element.per_word > 1:  # rounded once, and words lie without padding
        x = emit_converted(name, x, lowering.temp(word, x.shape), lowering)
    outer, length, inner = prod(x.shape[:axis]), x.shape[axis], prod(x.shape[axis + 1 :])
    blocks = -(-length // BLOCK)
    whole = blocks * BLOCK
    if whole != length:
        x = _padded(name, x, (outer, length, inner), whole, product, lowering)
    parts = reshaped(x, (outer, blocks, BLOCK, inner), lowering)
    inside, shifted = lowering.temp(word, parts.shape), {**flags, "exclusive": 1}
    totals, before = (lowering.temp(word, (outer, blocks, inner)) for _ in range(2))
    lowering.emit(Cumulative(name, parts, inside, 2, lowering.device, **flags))
    mode = "prod" if product else "sum"
    lowering.emit(Reduce(name, mode, parts, totals, (2, 3), lowering.device))
    emit_cumulative(name, totals, before, 1, lowering, **shifted)
    _joined(name, inside, before, output, length, lowering, "mul" if product else "add")


def _padded(
    name: str, x: TensorSpec, sizes: tuple[int, int, int], whole: int, neutral: int, lowering: Lowering
) -> TensorSpec:
    """``x`` with ``neutral`` elements behind its middle axis."""
    outer, length, inner = sizes
    made = lowering.temp(x.dtype, (outer, whole, inner))
    if x.value is not None:
        wide = np.full(made.shape, neutral, x.dtype)
        wide[:, :length] = x.value.reshape(sizes)
        return lowering.const(wide)
    emit_extended(name, x.reshaped(sizes), lowering.const(np.full((), neutral, x.dtype)), made, lowering)
    return made


def _joined(
    name: str,
    inside: TensorSpec,
    before: TensorSpec,
    output: TensorSpec,
    length: int,
    lowering: Lowering,
    func: str,
) -> None:
    """Sums inside of blocks beside those of the blocks before, cut to ``length``."""
    outer, blocks, block, inner = inside.shape
    whole = length == blocks * block
    target = output if whole and output.dtype == inside.dtype else lowering.temp(inside.dtype, inside.shape)
    over = View((blocks * inner, inner, 0, 1))
    views = [View(contiguous_strides(inside.shape)), over]
    lowering.emit(
        Eltwise(name, func, [inside, before], target, lowering.device, views=views, shape=inside.shape)
    )
    if not whole:
        cut = output if output.dtype == inside.dtype else lowering.temp(inside.dtype, output.shape)
        shape = outer, length, inner
        view = View(contiguous_strides((outer, blocks * block, inner)))
        parts = [Part(0, shape, view, View(contiguous_strides(shape)))]
        lowering.emit(Move(name, [target], cut, lowering.device, parts))
        target = cut
    if target.dtype != output.dtype:
        emit_converted(name, reshaped(target, output.shape, lowering), output, lowering)


@maps("CumSum", "CumProd", dtypes=numpy_names(TYPES), notes="axes of any length")
def map_cumulative(node: NodeSpec, lowering: Lowering) -> None:
    x, given, output = node.input(0), node.input(1), node.outputs[0]
    if x is None or given is None or output is None:
        raise Unsupported(f"{node.op_type} without its data, its axis or its result", "all of them")
    if str(x.dtype) not in numpy_names(TYPES):
        raise Unsupported(f"{node.op_type} of {x.dtype} ({x.name})", ", ".join(numpy_names(TYPES)))
    if given.value is None:
        raise Unsupported("an axis computed at run time", "a constant axis")
    axis, rank = int(np.asarray(given.value).reshape(())), len(x.shape)
    if not -rank <= axis < rank:
        raise Unsupported(f"{node.op_type} along axis {axis} of rank {rank}", f"{-rank} to {rank - 1}")
    flags: dict[str, Any] = {key: int(node.attr(key, 0)) for key in ("exclusive", "reverse")}
    product = int(node.op_type == "CumProd")
    emit_cumulative(node.name, x, output, axis % rank, lowering, product=product, **flags)
