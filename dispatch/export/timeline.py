# SPDX-License-Identifier: Apache-2.0
"""A run over time, for any viewer: tracks of slices and counters, in cycles of the array's clock."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

Arg = int | float | str


@dataclass(frozen=True)
class Slice:
    """Something that took ``cycles`` from cycle ``start`` on."""

    name: str
    start: int
    cycles: int
    category: str = ""
    args: Mapping[str, Arg] = field(default_factory=dict)

    @property
    def end(self) -> int:
        return self.start + self.cycles


@dataclass(frozen=True)
class Track:
    """Slices of one actor, parents before the slices that lie in them; ``group``: what it is shown under."""

    name: str
    slices: Sequence[Slice]
    group: str = ""


@dataclass(frozen=True)
class Counter:
    """A number over time: it is what its last sample, (cycle, value), says."""

    name: str
    unit: str
    samples: Sequence[tuple[int, float]]


@dataclass(frozen=True)
class Timeline:
    """``process``: the name of it all; ``notes``: what a reader of the file should know."""

    process: str
    array_hz: float
    cycles: int
    tracks: Sequence[Track] = ()
    counters: Sequence[Counter] = ()
    notes: Mapping[str, Arg] = field(default_factory=dict)

    def groups(self) -> dict[str, list[Track]]:
        """Tracks by the group that they are shown under, in order."""
        found: dict[str, list[Track]] = {}
        for track in self.tracks:
            found.setdefault(track.group, []).append(track)
        return found


def nested(levels: Iterable[Iterable[Slice]]) -> list[Slice]:
    """Returns slices of several levels, parents first: by start, the longer ones before those inside them."""
    whole = [slice_ for level in levels for slice_ in level]
    return sorted(whole, key=lambda one: (one.start, -one.cycles))


def between(slices: Iterable[Slice], start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yields the (start, end) of what no slice covers from ``start`` to ``end``."""
    at = start
    for one in sorted(slices, key=lambda one: one.start):
        if one.start > at:
            yield at, min(one.start, end)
        at = max(at, one.end)
        if at >= end:
            return
    if at < end:
        yield at, end
