# SPDX-License-Identifier: Apache-2.0
"""Alternating schedule levels: items of one kind get even levels, those of the other kind odd ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Edges(Protocol):
    """An item that reads and writes values by name."""

    @property
    def reads(self) -> tuple[str, ...]: ...

    @property
    def writes(self) -> tuple[str, ...]: ...


def levels(items: Sequence[Edges], odd: Sequence[bool], first: bool) -> list[int]:
    """Returns the earliest level of every item; ``items`` are in topological order.

    This is two-colour levelling: items whose ``odd`` equals ``first`` get even levels, the others odd ones,
    and an item's level is not below that of any item it reads from.
    """
    made_at: dict[str, int] = {}
    found = []
    for item, is_odd in zip(items, odd, strict=True):
        level = max((made_at[name] for name in item.reads if name in made_at), default=0)
        parity = 0 if is_odd == first else 1
        if level % 2 != parity:
            level += 1
        made_at.update(dict.fromkeys(item.writes, level))
        found.append(level)
    return found
