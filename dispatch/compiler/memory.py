# SPDX-License-Identifier: Apache-2.0
"""Where tensors live: offsets in a fused buffer, storage reused once its last reader is done.

Ops run one after the other, so a tensor is alive from the op that writes it to the last op
that reads it, both included. Offsets are chosen greedily in several orders; the best plan
wins, and none can be better than the most bytes alive at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from onedispatch.transactions.base.errors import OneDispatchError

ALIGNMENT = 64  # bytes; a cache line and a multiple of every DMA word


@dataclass(frozen=True)
class Interval:
    """A tensor of ``size`` bytes, alive from op ``first`` to op ``last`` (both included)."""

    name: str
    size: int
    first: int
    last: int

    def overlaps(self, other: Interval) -> bool:
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True)
class MemoryPlan:
    """Byte offsets by tensor, the buffer's size, and the least any plan could need."""

    offsets: dict[str, int]
    size: int
    lower_bound: int


def aligned(size: int) -> int:
    """``size`` rounded up to the alignment."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def pack(sizes: Iterable[tuple[str, int]]) -> MemoryPlan:
    """One after the other, nothing shared."""
    offsets, at = {}, 0
    for name, size in sizes:
        offsets[name] = at
        at += aligned(size)
    return MemoryPlan(offsets, at, at)


def plan(intervals: Sequence[Interval]) -> MemoryPlan:
    """Offsets such that tensors alive at the same time never share a byte.

    Raises ``OneDispatchError`` if the result fails its own overlap check.
    """
    bound = most_alive(intervals)
    best: MemoryPlan | None = None
    for key in _ORDERS:
        offsets, size = _place(sorted(intervals, key=key))
        if best is None or size < best.size:
            best = MemoryPlan(offsets, size, bound)
        if size <= bound:
            break
    if best is None:
        return MemoryPlan({}, 0, 0)
    check(intervals, best.offsets)
    return best


def most_alive(intervals: Sequence[Interval]) -> int:
    """The most bytes (each tensor aligned) alive during any one op."""
    changes: dict[int, int] = {}
    for interval in intervals:
        changes[interval.first] = changes.get(interval.first, 0) + aligned(interval.size)
        changes[interval.last + 1] = changes.get(interval.last + 1, 0) - aligned(interval.size)
    alive = most = 0
    for op in sorted(changes):
        alive += changes[op]
        most = max(most, alive)
    return most


_ORDERS: tuple[Callable[[Interval], tuple[int, ...]], ...] = (
    lambda i: (-i.size, i.first),
    lambda i: (-i.size * (i.last - i.first + 1), i.first),
    lambda i: (i.first, -i.size),
    lambda i: (-(i.last - i.first), -i.size),
    lambda i: (i.last, -i.size),
)


def _place(ordered: Sequence[Interval]) -> tuple[dict[str, int], int]:
    """Each tensor into the tightest gap between those alive with it that are placed already."""
    placed: list[tuple[int, int, Interval]] = []  # (start, end, interval), by start
    offsets: dict[str, int] = {}
    total = 0
    for interval in ordered:
        size = aligned(interval.size)
        at = _best_gap([(s, e) for s, e, other in placed if interval.overlaps(other)], size)
        offsets[interval.name] = at
        total = max(total, at + size)
        placed.append((at, at + size, interval))
        placed.sort(key=lambda item: item[0])
    return offsets, total


def _best_gap(taken: Sequence[tuple[int, int]], size: int) -> int:
    best: tuple[int, int] | None = None  # (gap, offset)
    end = 0
    for start, stop in taken:
        gap = start - end
        if gap >= size and (best is None or gap < best[0]):
            best = (gap, end)
        end = max(end, stop)
    return end if best is None else best[1]


def check(intervals: Sequence[Interval], offsets: dict[str, int]) -> None:
    """Pairwise: alive together means apart in memory."""
    spans = sorted(intervals, key=lambda i: offsets[i.name])
    for index, one in enumerate(spans):
        start, end = offsets[one.name], offsets[one.name] + one.size
        if start % ALIGNMENT:
            raise OneDispatchError("memory plan", f"{one.name} at {start}", f"multiples of {ALIGNMENT}")
        for other in spans[index + 1 :]:
            if offsets[other.name] >= end:
                break
            if other.size and one.overlaps(other):
                raise OneDispatchError(
                    "memory plan", f"{one.name} and {other.name} in the same bytes", "separate storage"
                )
