# SPDX-License-Identifier: Apache-2.0
"""How much of a dispatch's scratch holds a tensor while each operator runs.

A live range begins with an operator that writes a region, and ends with the last one that reads it before it
is written over. The arg maps of an executable, which reports show, name the regions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from onedispatch.dispatch.compiler.executable import DeviceStep, OpInfo

_REGION = re.compile(r"arg \d+ (\w+): scratch\[(\d+):(\d+)\]")


@dataclass
class _Live:
    """Bytes ``begin`` to ``end`` of scratch, from operator ``first`` to operator ``last``."""

    begin: int
    end: int
    first: int
    last: int

    def overlaps(self, begin: int, end: int) -> bool:
        return self.begin < end and begin < self.end


def alive(step: DeviceStep) -> list[int]:
    """Bytes of scratch that hold a tensor, by operator."""
    regions: list[list[tuple[int, int]]] = [[] for _ in step.ops]
    for one in _ranges(step)[0]:
        for at in range(one.first, one.last + 1):
            regions[at].append((one.begin, one.end))
    return [_union(those) for those in regions]


def readers(step: DeviceStep) -> list[tuple[int, int]]:
    """Operators of which one makes in scratch what the other reads, as indices."""
    return _ranges(step)[1]


def _ranges(step: DeviceStep) -> tuple[list[_Live], list[tuple[int, int]]]:
    """All live ranges, and who reads what whom made."""
    ranges: list[_Live] = []
    current: list[_Live] = []
    pairs: dict[tuple[int, int], None] = {}
    for at, op in enumerate(step.ops):
        for begin, end in _regions(op, writes=False):
            for one in current:
                if one.overlaps(begin, end):
                    one.last = at
                    pairs[one.first, at] = None
        for begin, end in _regions(op, writes=True):
            current = [one for one in current if one.first == at or not one.overlaps(begin, end)]
            current.append(_Live(begin, end, at, at))
            ranges.append(current[-1])
    return ranges, [pair for pair in pairs if pair[0] != pair[1]]


def _regions(op: OpInfo, *, writes: bool) -> Iterator[tuple[int, int]]:
    for line in op.arguments:
        found = _REGION.match(line)
        if found is not None and (found[1] != "INPUT") == writes:
            yield int(found[2]), int(found[3])


def _union(regions: Sequence[tuple[int, int]]) -> int:
    """Bytes that lie in one of the regions at least."""
    total = reached = 0
    for begin, end in sorted(regions):
        total += max(0, end - max(begin, reached))
        reached = max(reached, end)
    return total
