# SPDX-License-Identifier: Apache-2.0
"""Boxes of members, and memory that holds exactly what they declare of a tensor.

What a box may touch lies between margins on all sides, so that a read or write beside it stays in memory
whose coordinates are known: the margins hold filler numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from onedispatch.operators.declarations.dtypes import DType
from onedispatch.operators.declarations.kernel import MAX_DIMS
from onedispatch.operators.plugin.instance import Interval

MARGIN = 4  # elements on each side; rows then begin at multiples of four bytes

Array = np.ndarray[Any, Any]
Point = tuple[int, ...]


@dataclass(frozen=True)
class MemberBox:
    """``count`` members from ``first`` on, along each index dimension."""

    first: Point
    count: Point

    @classmethod
    def all_of(cls, space: Point) -> MemberBox:
        return cls((0,) * len(space), space)

    @property
    def is_one(self) -> bool:
        return all(size == 1 for size in self.count)

    @property
    def size(self) -> int:
        return math.prod(self.count)

    def __str__(self) -> str:
        if self.is_one:
            return f"member {list(self.first)}"
        last = [first + size - 1 for first, size in zip(self.first, self.count, strict=True)]
        return f"members {list(self.first)} to {last}"

    def padded(self) -> tuple[list[int], list[int]]:
        """First and count of all ``MAX_DIMS`` dimensions."""
        more = MAX_DIMS - len(self.first)
        return [*self.first, *[0] * more], [*self.count, *[1] * more]


def singles(space: Point, most: int, rng: np.random.Generator) -> list[MemberBox]:
    """Members alone, in shuffled order: all, or the corners and others that ``rng`` draws."""
    total = math.prod(space)
    one = (1,) * len(space)
    if total <= most:
        points = list(product(*map(range, space)))
    else:
        corners = dict.fromkeys(product(*({0, 1 % size, size // 2, size - 1} for size in space)))
        drawn = (tuple(int(rng.integers(size)) for size in space) for _ in range(4 * most))
        points = list(dict.fromkeys([*list(corners)[: most // 2], *drawn]))[:most]
    return [MemberBox(points[i], one) for i in rng.permutation(len(points))]


def partitions(space: Point, most: int, steps: Point) -> list[MemberBox]:
    """The index space in up to ``most`` boxes; each begins at a multiple of ``steps``."""
    cuts = [1] * len(space)
    while True:
        order = sorted(range(len(space)), key=lambda d: -(space[d] / cuts[d]))
        grown = [
            d
            for d in order
            if cuts[d] * steps[d] < space[d] and math.prod(cuts) // cuts[d] * (cuts[d] + 1) <= most
        ]
        if not grown:
            break
        cuts[grown[0]] += 1
    parts = product(*(_parts(*row) for row in zip(space, cuts, steps, strict=True)))
    return [MemberBox(tuple(first for first, _ in part), tuple(count for _, count in part)) for part in parts]


def _parts(size: int, cuts: int, step: int) -> list[tuple[int, int]]:
    """(first, count) of the parts of a dimension."""
    length = -(-size // cuts)
    length = -(-length // step) * step
    return [(first, min(length, size - first)) for first in range(0, size, length)]


def touched(it: Interval, size: int, first: int, count: int) -> tuple[int, int]:
    """The coordinates that members touch along a dimension of ``size``, ends included; not clipped to it."""
    if it.whole:
        return 0, size - 1
    ends = (it.first(first), it.first(first + count - 1))
    return min(ends), max(ends) + it.span - 1


def declared_range(intervals: Sequence[Interval], shape: Point, box: MemberBox) -> tuple[Point, Point]:
    """The declared coordinates of a tensor for a box, ends included; they may lie outside of the tensor."""
    ranges = []
    for it, size in zip(intervals, shape, strict=True):
        first, count = (0, 1) if it.dim is None else (box.first[it.dim], box.count[it.dim])
        ranges.append(touched(it, size, first, count))
    return tuple(low for low, _ in ranges), tuple(high for _, high in ranges)


def range_text(low: Point, high: Point) -> str:
    """``[0..3, 2..2]``."""
    return "[" + ", ".join(f"{a}..{b}" for a, b in zip(low, high, strict=True)) + "]"


class Chunk:
    """Memory of one operand for one box. ``cells`` has margins around what the engine would hand over."""

    def __init__(self, shape: Point, row: DType, intervals: Sequence[Interval], box: MemberBox) -> None:
        self.shape, self.row, self.intervals, self.box = shape, row, tuple(intervals), box
        self.low, self.high = declared_range(intervals, shape, box)
        self.begin: list[int] = []
        self.count: list[int] = []
        for it, size, low, high in zip(intervals, shape, self.low, self.high, strict=True):
            backwards = not it.whole and it.a < 0  # chunks of such dimensions are whole
            begin, end = (0, size) if backwards else (max(low, 0), min(high + 1, size))
            if end <= begin:  # nothing of it lies in the tensor: a chunk has one coordinate all the same
                begin = min(max(low, 0), size - 1)
                end = begin + 1
            self.begin.append(begin)
            self.count.append(end - begin)
        sizes = [count + 2 * MARGIN for count in self.count] or [1 + 2 * MARGIN]
        sizes[-1] = -(-sizes[-1] // row.per_word) * row.per_word
        self.sizes = tuple(sizes)

    # -- what lies where ---------------------------------------------------------------------

    @property
    def inside(self) -> tuple[slice, ...]:
        """The cells that the box may touch and that are in the tensor; may be empty."""
        if not self.shape:
            return (slice(MARGIN, MARGIN + 1),)
        return tuple(
            slice(MARGIN + low - begin, MARGIN + high + 1 - begin) for low, high, begin in self._clipped()
        )

    @property
    def part(self) -> tuple[slice, ...]:
        """The same, in the tensor."""
        return tuple(slice(low, high + 1) for low, high, _ in self._clipped())

    def _clipped(self) -> Iterator[tuple[int, int, int]]:
        for low, high, size, begin in zip(self.low, self.high, self.shape, self.begin, strict=True):
            low, high = max(low, 0), min(high, size - 1)
            yield (low, high, begin) if low <= high else (begin, begin - 1, begin)

    @property
    def at(self) -> int:
        """The byte that the chunk begins at."""
        strides = self.strides
        return MARGIN * sum(strides) * self.row.itemsize

    @property
    def strides(self) -> tuple[int, ...]:
        """In elements."""
        found = [1]
        for size in reversed(self.sizes[1:]):
            found.append(found[-1] * size)
        return tuple(reversed(found))

    def coordinate(self, cell: Sequence[int]) -> Point:
        """The coordinate of the tensor that a cell stands for; it may lie outside of it."""
        if not self.shape:
            return tuple(int(at) - MARGIN for at in cell)
        return tuple(int(at) - MARGIN + begin for at, begin in zip(cell, self.begin, strict=True))

    def coordinate_of_byte(self, byte: int) -> Point:
        """The same of a byte of the memory, also of one before or behind it."""
        element = byte // self.row.itemsize
        cell = []
        for stride in self.strides:
            cell.append(element // stride)
            element -= cell[-1] * stride
        return self.coordinate(cell)

    def axes(self) -> list[tuple[int, ...]]:
        """The fields of ``od_axis``, per dimension."""
        rows: list[tuple[int, ...]] = []
        for d, it in enumerate(self.intervals):
            first = 0 if it.dim is None else self.box.first[it.dim]
            rows.append(it.axis(self.shape[d], first).fields(self.count[d], self.strides[d], self.begin[d]))
        return rows

    # -- contents ----------------------------------------------------------------------------

    def filled(self, rng: np.random.Generator, high: bool, tensor: Array | None = None) -> Array:
        """Cells that hold ``noise``, and ``tensor`` where the box may touch it."""
        cells = noise(self.row, self.sizes, rng, high)
        if tensor is not None:
            cells[self.inside] = tensor[self.part] if self.shape else tensor.reshape(1)
        return cells

    def beside(self) -> Array:
        """A mask of the cells that hold filler."""
        mask = np.ones(self.sizes, bool)
        mask[self.inside] = False
        return mask


def noise(row: DType, shape: Point, rng: np.random.Generator, high: bool) -> Array:
    """Numbers that stand out: large and positive, or large and negative; any of integers."""
    if row.numpy.kind == "b":
        return np.full(shape, high)
    if row.is_float:
        values = rng.uniform(1e3, 2e3, shape)
        return (values if high else -values).astype(row.numpy)
    info = np.iinfo(row.numpy)
    middle = (int(info.min) + int(info.max) + 1) // 2
    bounds = (middle, int(info.max)) if high else (int(info.min), middle - 1)
    return rng.integers(*bounds, shape, endpoint=True).astype(row.numpy)


def bits(values: Array) -> Array:
    """Elements as unsigned numbers of their width: equal where all bits are."""
    return np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}")


def first_differing(one: Array, other: Array) -> Point | None:
    """The first place where two arrays do not have the same bits."""
    differs = bits(one) != bits(other)
    return tuple(int(at) for at in np.argwhere(differs)[0]) if differs.any() else None
