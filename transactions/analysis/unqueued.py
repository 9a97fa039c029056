# SPDX-License-Identifier: Apache-2.0
"""Buffer descriptors that a transaction writes and never queues: usually a push is missing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from onedispatch.transactions.analysis import effects
from onedispatch.transactions.analysis.effects import BdUse, Tile


class UnqueuedBd(NamedTuple):
    """A BD that operation ``op`` wrote and that no task ran before the next write or the end.

    ``spare``: the BD has no patched argument, and tasks ran an earlier content of it or other BDs of the same
    operation. Some of AMD's files write such BDs from a template.
    """

    op: int
    tile: Tile
    bd: int
    argument: int | None
    spare: bool

    def __str__(self) -> str:
        text = f"BD {self.bd} is written" + (f", with argument {self.argument}," if self.has_argument else "")
        return f"{text} and never queued" + (": spare, it seems" if self.spare else "")

    @property
    def has_argument(self) -> bool:
        return self.argument is not None


class UnqueuedBds:
    """Tracks the events of a transaction and reports the BDs that no task ran."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[Tile, int], UnqueuedBd] = {}
        self._overwritten: list[UnqueuedBd] = []  # written again before a task ran them
        self._queued: set[int] = set()  # operations that wrote BDs which tasks run
        self._run: set[tuple[Tile, int]] = set()
        self._endless: set[tuple[Tile, int]] = set()  # BDs of endless chains, which run whatever is written

    def observe(self, event: effects.Event) -> None:
        if isinstance(event, effects.BdWritten):
            self._written(event.op, event.tile, event.use, whole=event.whole)
        elif isinstance(event, effects.Patched):
            key = event.tile, event.bd
            if key in self._waiting:
                self._waiting[key] = self._waiting[key]._replace(argument=event.argument[0])
        elif isinstance(event, effects.Pushed):
            for use in event.chain:
                self._queued.add(use.op)
                self._run.add((event.tile, use.index))
                self._waiting.pop((event.tile, use.index), None)
            if event.end == "cycle":
                self._endless.update((event.tile, use.index) for use in event.chain)

    def _written(self, op: int, tile: Tile, use: BdUse, *, whole: bool) -> None:
        key = tile, use.index
        before = self._waiting.pop(key, None)
        if before is not None and whole:
            self._overwritten.append(before)
        if use.bd.valid and key not in self._endless:
            argument = use.argument[0] if use.argument else None
            self._waiting[key] = UnqueuedBd(op, tile, use.index, argument, spare=False)

    def end(self) -> Iterator[UnqueuedBd]:
        """Yields the unqueued BDs in the order of operations, after the last event."""
        for one in sorted((*self._overwritten, *self._waiting.values()), key=lambda one: (one.op, one.bd)):
            known = one.op in self._queued or (one.tile, one.bd) in self._run
            yield one._replace(spare=known and not one.has_argument)
