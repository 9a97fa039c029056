# SPDX-License-Identifier: Apache-2.0
"""Memory as a value: where a tensor is that stays in memory tiles between operators.

A tensor that no operand says a ``Buffer`` of lies in device memory. A buffer has the same tensor in memory
tiles: every ``period`` of its elements, as they lie in device memory, is cut into equal shares, one for each
column from the first on; that of the last column may be smaller. A column's shares lie one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Buffer:
    """A tensor in memory tiles.

    Attributes:
        period: elements of the tensor, as they lie in device memory, that all columns have a share of.
        share: elements of a period that one column has; the last may have fewer.
        words: what it takes of every column's memory tile.
        at: the byte of a memory tile where it begins; no choice depends on it.
    """

    period: int
    share: int
    words: int
    at: int = 0

    @property
    def columns(self) -> int:
        return -(-self.period // self.share)

    @property
    def is_even(self) -> bool:
        """Whether the last column's share is as large as the others."""
        return self.period % self.share == 0

    def strides(self, strides: Sequence[int]) -> tuple[int, ...]:
        """Steps between elements of one column's shares, of ``strides`` between those of the tensor."""
        return tuple(s // self.period * self.share if s >= self.period else s for s in strides)

    def split_axis(self, shape: Sequence[int], strides: Sequence[int]) -> int | None:
        """The dimension of a view that the columns share, or None where none is cut into whole members.

        Dimensions within a period must walk all of it, and those beyond it whole periods.
        """
        inner = [d for d, stride in enumerate(strides) if stride < self.period and shape[d] > 1]
        outer = [d for d, stride in enumerate(strides) if stride >= self.period and shape[d] > 1]
        if not inner or any(strides[d] % self.period for d in outer):
            return None
        widest = max(inner, key=lambda d: strides[d])
        whole = strides[widest] * shape[widest] == self.period
        return widest if whole and self.share % strides[widest] == 0 else None
