# SPDX-License-Identifier: Apache-2.0
"""How packed constants lie in device memory, as data: strided copies of the arrays that they are made of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np

from onedispatch.operators.scheduling.index_space import K, Packed, PackedPart
from onedispatch.operators.scheduling.schedule import Schedule
from onedispatch.transactions.base.text import counted

Array = np.ndarray[Any, Any]
MOST_STEPS = 24  # of a copy: NumPy 1 has arrays of up to 32 dimensions


class Step(NamedTuple):
    """Elements, or runs of them, so many ``times``, and the bytes from one to the next."""

    times: int
    source: int
    target: int


@dataclass(frozen=True)
class ByteCopy:
    """Elements of ``itemsize`` bytes that go from byte ``source`` of an array, and those that ``steps`` (the
    outermost first) reach from there, to byte ``target`` of a buffer. A source step of 0 repeats."""

    itemsize: int
    source: int
    target: int
    steps: tuple[Step, ...]

    @property
    def nbytes(self) -> int:
        """What it writes."""
        return self.itemsize * prod(step.times for step in self.steps)

    @property
    def reach(self) -> int:
        """Bytes of the source from its first element to the end of its last."""
        return self.itemsize + sum((step.times - 1) * step.source for step in self.steps)

    def run(self, source: Array, target: Array) -> None:
        """Copies from the bytes of ``source`` into those of ``target`` (uint8, one-dimensional both).

        Raises ``ValueError`` where it would go beyond one of them.
        """
        self._seen(target, target=True)[...] = self._seen(source)

    def agrees(self, source: Array, target: Array) -> bool:
        """Whether ``target`` holds what ``run`` would write. Raises as it does."""
        return np.array_equal(self._seen(source), self._seen(target, target=True))

    def clear(self, target: Array) -> None:
        """Writes zeros where ``run`` writes. Raises as it does."""
        self._seen(target, target=True)[...] = 0

    def _seen(self, array: Array, *, target: bool = False) -> Array:
        """What of an array it reads, or writes."""
        at = self.target if target else self.source
        strides = [step.target if target else step.source for step in self.steps]
        counts = [step.times for step in self.steps]
        # Python's integers: NumPy's own look at strides overflows.
        last = at + sum((times - 1) * stride for times, stride in zip(counts, strides, strict=True))
        if min((at, *strides, *(times - 1 for times in counts))) < 0 or last + self.itemsize > array.nbytes:
            raise ValueError(f"{self} goes beyond {counted(array.nbytes, 'byte')}")
        # A step that is taken once goes nowhere, however long it is.
        strides = [stride if times > 1 else 0 for times, stride in zip(counts, strides, strict=True)]
        seen: Array = np.ndarray(counts, np.dtype(f"u{self.itemsize}"), array.data, at, strides)
        return seen


class PackedCopy(NamedTuple):
    """A copy, and the array whose bytes (uint8, one-dimensional) it reads."""

    source: Array
    copy: ByteCopy

    def run(self, target: Array) -> None:
        self.copy.run(self.source, target)

    def moved(self, further: int) -> PackedCopy:
        """The same to ``further`` bytes behind."""
        return self._replace(copy=replace(self.copy, target=self.copy.target + further))


def whole_copy(array: Array) -> PackedCopy:
    """All of an array."""
    copy = ByteCopy(1, 0, 0, (Step(array.nbytes, 1, 1),))
    return PackedCopy(np.ascontiguousarray(array).reshape(-1).view(np.uint8), copy)


def packed_copies(
    schedule: Schedule, operand: Packed, sources: Sequence[Array], at: int = 0
) -> Iterator[PackedCopy]:
    """What lays out a packed operand from byte ``at`` of a zeroed buffer on.

    ``sources`` are its parts: arrays of the parts' element types with their axes, and before these, where an
    array has more, with one for every dimension of the operand that the part has no axis of (their tiles
    have one member). Without these all chunks along such a dimension hold the same.
    """
    pitch = 4 * schedule.words(operand)
    for part, source in zip(operand.parts, sources, strict=True):
        yield from _Part(schedule, operand, part, source, pitch).copies(at)
        at += 4 * int(part.words(schedule.nest, schedule.tiles, schedule.k_tile))


class _Segment(NamedTuple):
    """Members of an axis whose places are a progression: byte offsets of the first, and steps."""

    source: int
    target: int
    steps: tuple[Step, ...]


class _Part:
    """One part of every chunk of a packed operand."""

    def __init__(
        self, schedule: Schedule, operand: Packed, part: PackedPart, source: Array, pitch: int
    ) -> None:
        self.schedule, self.operand, self.part, self.pitch = schedule, operand, part, pitch
        self.source = source
        self.dims = [d for d in operand.dims if d != K]

    def copies(self, at: int) -> Iterator[PackedCopy]:
        buffer, first = _bytes_behind(self.source)
        for segments in product(*self._axes()):
            begin, place = sum(s.source for s in segments), sum(s.target for s in segments)
            steps = tuple(step for segment in segments for step in segment.steps if step.times > 1)
            steps = steps or (Step(1, 0, 0),)
            yield PackedCopy(buffer, ByteCopy(self.source.itemsize, first + begin, at + place, steps))

    def _axes(self) -> Iterator[list[_Segment]]:
        """Of each axis, what covers all its members."""
        nest, schedule = self.schedule.nest, self.schedule
        extents = list(self.part.extents(nest, schedule.tiles, schedule.k_tile))
        walked = {dim for dim, size in self.part.axes if not size}
        missing = [d for d in self.operand.dims if d not in walked and (d != K or schedule.inner_steps > 1)]
        own = self.source.ndim - len(extents)
        sizes, strides = self.source.shape, self.source.strides
        leading = iter(strides[:own])
        for dim in missing:
            yield list(self._tiles(dim, self._grid(dim), next(leading) if own and dim != K else 0))
        for axis, (of, count, inner) in enumerate(extents, own):
            size, stride, step = sizes[axis], strides[axis], inner * self.source.itemsize
            if of is None or of not in walked:
                yield [_Segment(0, 0, (Step(min(count, size), stride, step),))]
            else:
                yield list(self._tiled(of, count, size, stride, step))

    def _grid(self, dim: int) -> int:
        return self.schedule.inner_steps if dim == K else self.schedule.grid[dim]

    def _tiled(self, dim: int, tile: int, size: int, stride: int, step: int) -> Iterator[_Segment]:
        """The tiles of ``size`` members, those behind which are padding; the last ones may overlap."""
        grid, whole = self._grid(dim), size // tile
        member = Step(tile, stride, step)
        for found in self._tiles(dim, min(whole, grid), tile * stride):
            yield found._replace(steps=(*found.steps, member))
        for index in range(whole, grid):
            last = grid * tile if dim == K else self.schedule.nest.dims[dim].extent
            first = min(index * tile, last - tile)
            count = min(tile, size - first)
            if count > 0:
                yield _Segment(first * stride, self._place(dim, index), (member._replace(times=count),))

    def _tiles(self, dim: int, count: int, stride: int) -> Iterator[_Segment]:
        """The first ``count`` tiles of a dimension: rows of cores take them in turns."""
        rows = self.schedule.limits.rows if dim == self.schedule.mapping.row_dim else 1
        rounds, rest = divmod(count, rows)
        turn = Step(rows, stride, self._place(dim, 1))
        if rounds:
            steps = (Step(rounds, rows * stride, self._place(dim, rows)), turn)
            yield _Segment(0, 0, steps if rows > 1 else steps[:1])
        if rest:
            first = rounds * rows
            yield _Segment(first * stride, self._place(dim, first), (turn._replace(times=rest),))

    def _place(self, dim: int, index: int) -> int:
        """Bytes from the chunk of a dimension's first tile to another."""
        if dim == K:
            at, none = (self.schedule.slot(self.operand, [0] * len(self.dims), step) for step in (index, 0))
        else:
            at = self.schedule.slot(self.operand, [index if d == dim else 0 for d in self.dims])
            none = 0
        return self.pitch * int(at - none)


def _bytes_behind(array: Array) -> tuple[Array, int]:
    """The bytes of what ``array`` is a view of, of a copy where they are not contiguous; where it begins."""
    base: Any = array
    whole: Array | None = None
    while isinstance(base, np.ndarray):
        whole, base = base if base.flags.c_contiguous else whole, base.base
    if whole is None or min((*array.strides, 0)) < 0:
        array = whole = np.ascontiguousarray(array)
    return whole.reshape(-1).view(np.uint8), address_of(array) - address_of(whole)


def address_of(array: Array) -> int:
    """Where the first byte of an array is in memory."""
    return int(array.__array_interface__["data"][0])
