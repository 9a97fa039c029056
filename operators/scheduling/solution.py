# SPDX-License-Identifier: Apache-2.0
"""How a problem is solved: a frozen value that files, processes and people can exchange.

What a solution must keep to stands in ``solution_rules``; a search, a catalog or a tuner is held to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from onedispatch.operators.scheduling.plain import digest_of, plain, read

NAME_BYTES = 8


@dataclass(frozen=True)
class Mapping:
    """Which index dimensions the rows and the columns of the array run over."""

    row_dim: int | None
    col_dim: int | None
    columns: int
    in1: frozenset[str]  # operands that arrive by column broadcast
    rowcast: bool  # in0 arrives by row broadcast
    order: tuple[int, ...] = ()  # loop order, outermost first

    def cores_along(self, dim: int, rows: int) -> int:
        """Cores that share the members of ``dim``, of an array with so many rows of cores."""
        along = rows if dim == self.row_dim else 1
        return along * (self.columns if dim == self.col_dim else 1)


@dataclass(frozen=True)
class Solution:
    """Which kernel runs, how its index space lies over the array, and in which tiles.

    ``kernel`` is the variant that runs (namespace::name@version). ``tiles`` holds members per tile for
    every dimension, ``k_tile`` members of the reduction per step (1 where there is none).
    """

    kernel: str
    mapping: Mapping
    tiles: tuple[int, ...]
    k_tile: int

    def to_data(self) -> dict[str, Any]:
        """The solution as dictionaries, lists, strings and numbers."""
        return dict(plain(self))

    @classmethod
    def from_data(cls, data: Any) -> Solution:
        """What ``to_data`` made. Raises ``SolutionError`` for whatever else it may be."""
        return read(cls, data, "solution")

    @property
    def name(self) -> str:
        """16 hexadecimal digits that stay the same as long as the solution does."""
        return digest_of(self, NAME_BYTES)
