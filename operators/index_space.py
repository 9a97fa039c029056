# SPDX-License-Identifier: Apache-2.0
"""Index spaces: what a loop nest iterates over, and what of each tensor a tile of it touches.

A ``Nest`` has up to five parallel dimensions and at most one reduction dimension. Each
operand says, per dimension of its tensor view, which interval member ``i`` of an index
dimension touches: ``[a*i + start, a*i + end]``. From that the scheduler derives tiles,
chunks, halos and DMA patterns. Edges need no special cases: a tile that would overhang is
shifted back (and redone), a chunk that would overhang is shifted into its tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from onedispatch.operators.nest_rules import check_nest
from onedispatch.operators.params import Axis
from onedispatch.transactions.errors import OperatorError
from onedispatch.transactions.phrases import counted

if TYPE_CHECKING:
    from onedispatch.operators.schedule import Schedule

MAX_DIMS = 5  # parallel dimensions of the super kernel's loop
K = -1  # names the reduction dimension in ``Access.dim``
OUTPUT = -1  # names the output in ``Operand.tensor``

IntArray = Any  # an int, or an integer ndarray while many tilings are judged at once


@dataclass(frozen=True)
class Dim:
    """One parallel index dimension. ``whole``: never cut. ``multiple``: tiles are multiples of it."""

    name: str
    extent: int
    whole: bool = False
    multiple: int = 1
    max_tile: int = 1 << 30


@dataclass(frozen=True)
class Access:
    """What index member ``i`` touches along one tensor dimension: ``[a*i + start, a*i + end]``.

    ``dim`` is an index dimension, ``K`` for the reduction, or None for the whole extent.
    ``align``: chunks begin at multiples of it (4 for bytes that lie side by side).
    """

    dim: int | None = None
    a: int = 1
    start: int = 0
    end: int = 0
    align: int = 1

    def chunk(self, extent: int, tile: IntArray, index_extent: int) -> IntArray:
        """Coordinates that a chunk holds for a tile of ``tile`` members."""
        if self.dim is None:
            return extent
        span = self.a * (tile - 1) + self.end - self.start + 1
        if self.align > 1:
            exact = (np.asarray(tile) % self.align == 0) & (index_extent % self.align == 0)
            padded = -(-span // self.align) * self.align + (0 if self.dim == K else self.align)
            span = np.where(exact, span, padded)
        return np.minimum(span, extent)


@dataclass(frozen=True)
class Operand:
    """A tensor view in device memory: shape, element strides, offset, and its access per dimension."""

    name: str
    tensor: int  # index of the operator's input, or OUTPUT
    itemsize: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    access: tuple[Access, ...]
    offset: int = 0  # elements

    def depends_on(self) -> frozenset[int]:
        return frozenset(access.dim for access in self.access if access.dim is not None)

    def chunk_shape(self, nest: Nest, tiles: Sequence[IntArray], k_tile: IntArray) -> list[IntArray]:
        shape = []
        for access, extent in zip(self.access, self.shape, strict=True):
            tile, index_extent = nest.tile_of(access.dim, tiles, k_tile)
            shape.append(access.chunk(extent, tile, index_extent))
        return shape

    def chunk_words(self, nest: Nest, tiles: Sequence[IntArray], k_tile: IntArray) -> IntArray:
        elements: IntArray = 1
        for count in self.chunk_shape(nest, tiles, k_tile):
            elements = elements * count
        return -(-(elements * self.itemsize) // 4)

    def axes(self, nest: Nest, tiles: Sequence[int], k_tile: int) -> list[Axis]:
        """One ``Axis`` per view dimension, strides those of the packed chunk."""
        shape = [int(n) for n in self.chunk_shape(nest, tiles, k_tile)]
        axes = []
        for d, access in enumerate(self.access):
            a = 0 if access.dim is None else access.a
            axes.append(Axis(self.shape[d], shape[d], prod(shape[d + 1 :]), a, access.start, access.align))
        return axes


@dataclass(frozen=True)
class Packed:
    """A constant that ``Operator.pack`` lays out chunk after chunk: ``dims`` (K too) it depends on.

    ``elements(tiles, k_tile)`` is the length of a chunk in 4-byte words.
    """

    name: str
    dims: tuple[int, ...]
    words: Callable[[Sequence[IntArray], IntArray], IntArray]

    def depends_on(self) -> frozenset[int]:
        return frozenset(self.dims)

    def chunk_words(self, nest: Nest, tiles: Sequence[IntArray], k_tile: IntArray) -> IntArray:
        return self.words(tiles, k_tile)


@dataclass(frozen=True)
class Nest:
    """A loop nest: one kernel called for every tile of an index space.

    ``args`` gives the kernel's named arguments once a schedule is chosen; ``cycles`` a
    vectorised estimate of core cycles for one call with (tiles, k tile).

    Raises ``OperatorError`` for accesses that the kernel would take for others: see ``nest_rules``.
    """

    kernel: str
    dims: tuple[Dim, ...]
    inputs: tuple[Operand | Packed, ...]
    output: Operand
    args: Callable[[Schedule], Mapping[str, int | list[int]]]
    cycles: Callable[[Sequence[IntArray], IntArray], IntArray]
    k_extent: int = 0
    k_multiple: int = 1
    reduces: bool = False
    k_whole: bool = False

    def __post_init__(self) -> None:
        if len(self.dims) > MAX_DIMS:
            raise OperatorError(
                f"nest {self.kernel}", counted(len(self.dims), "dimension"), f"{MAX_DIMS} at most"
            )
        if not self.is_empty:
            check_nest(self)

    @property
    def is_empty(self) -> bool:
        return any(dim.extent == 0 for dim in self.dims)

    @property
    def strided_inputs(self) -> list[Operand]:
        return [x for x in self.inputs if isinstance(x, Operand)]

    def tile_of(self, dim: int | None, tiles: Sequence[IntArray], k_tile: IntArray) -> tuple[IntArray, int]:
        """(tile, extent) of an index dimension, the reduction, or neither."""
        if dim is None:
            return 1, 1
        if dim == K:
            return k_tile, self.k_extent
        return tiles[dim], self.dims[dim].extent


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major element strides."""
    return tuple(prod(shape[d + 1 :]) for d in range(len(shape)))


def strided_operand(
    name: str, tensor: int, itemsize: int, dims: Sequence[tuple[int, int, Access]], offset: int = 0
) -> Operand:
    """An operand from (extent, stride, access) triples, ordered as its elements lie in memory.

    Broadcast dimensions (stride 0) are left out.
    """
    walked = sorted((d for d in dims if d[1]), key=lambda d: -d[1])
    walked = walked or [(1, 1, Access(None))]
    extents, strides, access = zip(*walked, strict=True)
    return Operand(name, tensor, itemsize, extents, strides, access, offset)
