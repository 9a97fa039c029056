# SPDX-License-Identifier: Apache-2.0
"""Views of tensors whose bytes lie in another order: what a Transpose would write, read where it lies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from onedispatch.operators.scheduling.index_space import Operand, Packed
from onedispatch.operators.scheduling.nest import Nest


@dataclass(frozen=True)
class Order:
    """The order of a tensor's elements in memory, against the one that its views count by.

    Elements have ``itemsize`` bytes. Dimensions are those of the views: ``sizes``, what they count from a
    member to the next (``counted``, row-major but in any order), and how far apart these lie (``lie``).
    """

    itemsize: int
    sizes: tuple[int, ...]
    counted: tuple[int, ...]
    lie: tuple[int, ...]

    @property
    def reverse(self) -> Order:
        """From the other order to this one."""
        return Order(self.itemsize, self.sizes, self.lie, self.counted)

    def seen(self, operand: Operand) -> Operand | None:
        """The view of the elements where they lie; None where a dimension of it goes through several, or
        elements are others."""
        if (operand.itemsize, operand.dtype.words) != (self.itemsize, 1):
            return None
        firsts = [operand.offset // step % size for step, size in zip(self.counted, self.sizes, strict=True)]
        ends, strides = list(firsts), []
        for size, stride in zip(operand.shape, operand.strides, strict=True):
            if size == 1:
                strides.append(stride)
                continue
            at = self._dimension(stride)
            if at is None:
                return None
            times = stride // self.counted[at]
            ends[at] += (size - 1) * times
            strides.append(times * self.lie[at])
        inside = all(end < size for end, size in zip(ends, self.sizes, strict=True))
        offset = sum(first * step for first, step in zip(firsts, self.lie, strict=True))
        found = replace(operand, strides=tuple(strides), offset=offset)
        return found if inside and _in_whole_words(operand, found) else None

    def _dimension(self, stride: int) -> int | None:
        """The dimension that a stride of a view steps along."""
        within = (
            at
            for at, (size, step) in enumerate(zip(self.sizes, self.counted, strict=True))
            if stride % step == 0 and step <= stride < step * size
        )
        return next(within, None)


def _in_whole_words(before: Operand, after: Operand) -> bool:
    """Whether narrow elements lie in words as they did: side by side, rows in whole words."""
    unit = before.dtype.per_word
    return unit == 1 or (
        after.strides[-1] == before.strides[-1]
        and after.offset % unit == before.offset % unit
        and not any(stride % unit for stride in after.strides[:-1])
    )


def reordered(nest: Nest, orders: Mapping[int, Order]) -> Nest | None:
    """``nest`` with views of the tensors that lie in another order, by their numbers; None where a view
    cannot walk them so."""

    def seen(operand: Operand | Packed) -> Operand | Packed | None:
        if isinstance(operand, Packed) or operand.tensor not in orders:
            return operand
        return orders[operand.tensor].seen(operand)

    inputs, outputs = ([seen(x) for x in side] for side in (nest.inputs, nest.outputs))
    if None in inputs or None in outputs:
        return None
    return replace(nest, inputs=tuple(inputs), outputs=tuple(outputs))  # type: ignore[arg-type]
