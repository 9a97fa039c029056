# SPDX-License-Identifier: Apache-2.0
"""Slices of a layer's tensors: what of an input a slice of the output needs, and what of the output follows
from a slice of an input. Both come from the access of its members.

A layer may say the same by hooks of its own (``backward_hslice`` and its kin). These are held to the access:
what they say is needed must cover what members touch, and ``forward(backward(s))`` must cover ``s``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

from onedispatch.operators.plugin.instance import Interval, KernelInstance
from onedispatch.operators.plugin.node import Node

MOST_SLICES = 64  # lengths and places that overrides are tried at, along a dimension


@dataclass(frozen=True)
class Slice:
    """Coordinates ``first`` to ``first + size - 1``; outside of a tensor lies its pad."""

    first: int
    size: int

    @property
    def end(self) -> int:
        return self.first + self.size

    def covers(self, other: Slice, extent: int) -> bool:
        """Whether it has what ``other`` has of a dimension of ``extent``."""
        low, high = max(other.first, 0), min(other.end, extent)
        return low >= high or (self.first <= low and high <= self.end)

    def __str__(self) -> str:
        return f"[{self.first}, {self.end - 1}]" if self.size else "nothing"


@dataclass(frozen=True)
class Along:
    """How a dimension of an input and one of the output follow the same index dimension."""

    source: Interval
    target: Interval
    members: int
    extent: int  # of the input
    out_extent: int

    def backward(self, out: Slice) -> Slice:
        """What members that write ``out`` touch of the input."""
        if self.source.whole or self.source.dim != self.target.dim:
            return Slice(0, self.extent)
        first, last = self._writers(out)
        ends = [self.source.first(m) for m in (first, last)]
        low = min(ends)
        return Slice(low, max(ends) + self.source.span - low)

    def forward(self, given: Slice) -> Slice:
        """What is written by members whose part of the input is in ``given``; pad is always there."""
        if self.source.whole or self.source.dim != self.target.dim:
            whole = given.first <= 0 and given.end >= self.extent
            return Slice(0, self.out_extent if whole else 0)
        ready = [given.covers(self._touched(m), self.extent) for m in range(self.members)]
        runs = [(a, b) for a, b in _runs(ready) if b > a]
        if not runs:
            return Slice(0, 0)
        # Members whose part is nothing but pad are ready, too: what lies in ``given`` is meant.
        first, last = max(runs, key=lambda run: max(self._shared(given, m) for m in range(*run)))
        low = min(self.target.first(m) for m in (first, last - 1))
        high = max(self.target.first(m) for m in (first, last - 1)) + self.target.span
        return Slice(low, high - low)

    def _shared(self, given: Slice, member: int) -> int:
        """Coordinates of ``given`` that a member touches, those of the pad among them."""
        touched = self._touched(member)
        return min(given.end, touched.end) - max(given.first, touched.first)

    def _touched(self, member: int) -> Slice:
        return Slice(self.source.first(member), self.source.span)

    def _writers(self, out: Slice) -> tuple[int, int]:
        """The first and the last member that write something of ``out``."""
        a = Fraction(self.target.a)
        if a <= 0:
            return 0, self.members - 1
        first = math.floor(Fraction(out.first - self.target.end) / a)
        last = math.ceil(Fraction(out.end - 1 - self.target.start) / a)
        return max(first, 0), min(max(last, 0), self.members - 1)


def _runs(marks: Sequence[bool]) -> list[tuple[int, int]]:
    """(first, end) of each run of marks that are set."""
    ends = [0, *(i + 1 for i, mark in enumerate(marks) if not mark), len(marks) + 1]
    return [(a, b - 1) for a, b in pairwise(ends)]


def along(
    instance: KernelInstance, source: str, shape: tuple[int, ...], target: str, dim: int
) -> Along | None:
    """Dimension ``dim`` of operand ``source`` (of ``shape``) beside that of output ``target``; None where the
    output's follows no index dimension, or one of them has no such dimension."""
    _, out_shape = instance.outputs[target]
    if dim >= min(len(shape), len(out_shape)):
        return None
    there, made = instance.intervals(source)[dim], instance.intervals(target)[dim]
    if made.dim is None:
        return None
    members = instance.index_space[made.dim]
    return Along(there, made, members, shape[dim], out_shape[dim])


def _tried(extent: int) -> Iterator[Slice]:
    """Slices of a dimension: at most ``MOST_SLICES`` lengths, at both ends and in between."""
    step = max(1, extent // MOST_SLICES)
    for size in {*range(1, extent + 1, step), extent}:
        for first in {0, (extent - size) // 2, extent - size}:
            yield Slice(first, size)


def check_backward(
    node: Node, where: Along, size_of: Callable[[int], Any], first_of: Callable[[int], Any], hook: str
) -> None:
    """Raises ``KernelAccessError`` where what the hooks say is less than members touch, or no whole number.

    ``size_of`` and ``first_of`` are the hooks for the length and the first coordinate of a slice.
    """
    for out in _tried(where.out_extent):
        said = Slice(_whole(node, f"{hook}idx", first_of(out.first)), _size(node, hook, size_of(out.size)))
        needed = where.backward(out)
        if not said.covers(needed, where.extent):
            given = f"{said} for rows or columns {out} of the output"
            raise node.refuse("access", f"{hook}slice, {hook}idx", given, f"{needed}, which members touch")
        back = where.forward(said)
        if not back.covers(out, where.out_extent):
            given = f"{said} for {out} of the output, from which {back} follows"
            raise node.refuse("access", f"{hook}slice, {hook}idx", given, f"what {out} follows from")


def check_forward(
    node: Node, where: Along, forward: Callable[[int], Any], backward: Callable[[int], Any]
) -> None:
    """Raises ``KernelAccessError`` unless all rows give all, and ``forward(backward(n))`` at least ``n``."""
    said = _size(node, "forward_height", forward(where.extent))
    if said != where.out_extent:
        accepted = f"{where.out_extent}, which shape says"
        raise node.refuse("access", f"forward_height({where.extent})", said, accepted)
    for out in _tried(where.out_extent):
        rows = _size(node, "backward_hslice", backward(out.size))
        back = _size(node, "forward_height", forward(rows))
        if back < out.size:
            given = f"{back} for {rows}, which backward_hslice says of {out.size}"
            raise node.refuse("access", "forward_height", given, f"at least {out.size}")


def _whole(node: Node, what: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise node.refuse("parameter_invalid", what, repr(value), "a whole number")
    return value


def _size(node: Node, what: str, value: Any) -> int:
    size = _whole(node, what, value)
    if size < 0:
        raise node.refuse("parameter_invalid", what, size, "0 or more")
    return size
