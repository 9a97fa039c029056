# SPDX-License-Identifier: Apache-2.0
"""Taking turns: in which step each item of a sequence runs, when two kinds of items alternate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Edges(Protocol):
    """Whatever reads and writes values by name."""

    @property
    def reads(self) -> tuple[str, ...]: ...

    @property
    def writes(self) -> tuple[str, ...]: ...


def levels(items: Sequence[Edges], odd: Sequence[bool], first: bool) -> list[int]:
    """The earliest step of every item, in topological order, when odd and other ones take turns.

    Items whose ``odd`` is ``first`` run in even steps, the others in odd ones.
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
