# SPDX-License-Identifier: Apache-2.0
"""What ``groups="on"`` came to, as data for reports: what stays in memory tiles, why the rest does not."""

from __future__ import annotations

from dataclasses import dataclass

from onedispatch.transactions.base.text import counted


@dataclass(frozen=True)
class Group:
    """Operators in a row, from the first that makes a kept tensor to the last that reads one.

    At every border between two of them a tensor stays in memory tiles.
    """

    operators: tuple[str, ...]
    tensors: tuple[str, ...]  # that stay
    saved_bytes: int  # of device memory: every tensor written once, and read once by each reader
    tile_bytes: int  # of every memory tile that they take, at most at a time
    saved_cycles: int  # estimated, as solutions are chosen by


@dataclass(frozen=True)
class Passed:
    """A tensor that passes device memory, and why."""

    tensor: str
    nbytes: int
    reason: str


@dataclass(frozen=True)
class Banded:
    """Operators that run in ``bands``, all of them for some rows of the last result, then for the next."""

    operators: tuple[str, ...]
    bands: int
    saved_cycles: int  # estimated, as solutions are chosen by


@dataclass(frozen=True)
class Grouping:
    """The groups of an executable. ``reason`` says why there can be none, where no tensor was asked about."""

    groups: tuple[Group, ...] = ()
    passed: tuple[Passed, ...] = ()
    reason: str = ""
    banded: tuple[Banded, ...] = ()

    def __str__(self) -> str:
        count = sum(len(one.tensors) for one in self.groups)
        if not count:
            return f"no tensor kept{f': {self.reason}' if self.reason else ''}"
        kept = f"{counted(count, 'tensor')} kept, in {counted(len(self.groups), 'group')}"
        return f"{kept}; {counted(len(self.banded), 'chain')} in bands" if self.banded else kept
