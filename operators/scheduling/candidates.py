# SPDX-License-Identifier: Apache-2.0
"""Tile sizes that a nest may be cut into, and which of them fit a core.

Whether a nest can run at all is decided here, without judging what is best: an operator is refused where
it is made, and whatever chooses later has something to choose from.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, isqrt, lcm, prod
from typing import Any

import numpy as np

from onedispatch.operators.declarations.params import LIMITS
from onedispatch.operators.declarations.tensor import Unsupported
from onedispatch.operators.scheduling.call_cost import scratch_words, sums_words
from onedispatch.operators.scheduling.index_space import Dim, IntArray, Operand, Split
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.operators.scheduling.resources import resources
from onedispatch.transactions import Device
from onedispatch.transactions.base.text import counted

Array = np.ndarray[Any, Any]

MAX_CANDIDATES = 200_000


def smallest(nest: Nest) -> tuple[list[int], int]:
    """The smallest tile of every dimension, and of the reduction."""
    tiles = [d.extent if d.whole else min(d.multiple, d.extent) for d in nest.dims]
    if not nest.reduces or not nest.k_extent:
        return tiles, 1
    return tiles, nest.k_step or (nest.k_extent if nest.k_whole else min(nest.k_multiple, nest.k_extent))


def check_fits(nest: Nest, device: Device) -> None:
    """Raises ``Unsupported`` where no tile of ``nest`` fits a core of ``device``."""
    limits = resources(device)
    tiles, k_tile = smallest(nest)
    fits = limits.core_holds(
        slot_words(nest, tiles, k_tile), extra_scratch_words(nest, device, tiles, k_tile)
    )
    if not fits or covered(nest, tiles) > LIMITS["window_plane"]:
        mesh = candidates(nest)  # alignment may make a larger tile take less
        fitting(nest, device, *mesh, extra_scratch_words(nest, device, *mesh))


def _tile_choices(extent: int, whole: bool, multiple: int, max_tile: int, many: int) -> list[int]:
    """Candidate tile sizes: the extent, its even shares, and powers of two."""
    if whole or extent <= multiple:
        return [extent]
    wanted = {extent // s + (extent % s > 0) for s in (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 64)}
    wanted |= {1 << b for b in range(17)} | {48, 96}
    limit = min(extent, max_tile)
    rounded = {min(-(-w // multiple) * multiple, extent) for w in wanted}
    choices = sorted(w for w in rounded if w <= limit)
    if len(choices) > many:
        picks = sorted({int(at) for at in np.linspace(0, len(choices) - 1, many)})
        choices = [choices[i] for i in picks]
    return choices or [min(multiple, extent)]


def _even_shares(split: Split, dim: Dim) -> list[int]:
    """Tiles that cut what each column has of a dimension into equal parts."""
    members, multiple = gcd(split.members, dim.extent), lcm(dim.multiple, split.multiple)
    most = min(members, max(dim.max_tile, multiple))
    low = [n for n in range(1, isqrt(members) + 1) if members % n == 0]
    return [n for n in sorted({*low, *(members // n for n in low)}) if n <= most and n % multiple == 0]


def one_tile(tiles: Sequence[int], k_tile: int) -> tuple[list[Array], Array]:
    """The mesh of a single candidate."""
    axes = np.ix_(*([size] for size in (*tiles, k_tile)))
    return list(axes[:-1]), axes[-1]


def candidates(nest: Nest) -> tuple[list[Array], Array]:
    """Tile sizes of every dimension and of the reduction, as axes of one mesh (``np.ix_``)."""
    many = {0: 30, 1: 30, 2: 24, 3: 14, 4: 10, 5: 8}[len(nest.cut)]
    per_dim = [_tile_choices(d.extent, d.whole, d.multiple, d.max_tile, many) for d in nest.dims]
    split = nest.split
    if split is not None:
        per_dim[split.dim] = _even_shares(split, nest.dims[split.dim]) or per_dim[split.dim]
    k_choices = [1]
    if nest.reduces and nest.k_extent > 0:
        k_choices = _tile_choices(nest.k_extent, nest.k_whole, nest.k_multiple, 1 << 30, 14)
        k_choices = [nest.k_step] if nest.k_step else k_choices
    while prod(map(len, per_dim)) * len(k_choices) > MAX_CANDIDATES:
        longest = max(per_dim, key=len)
        del longest[1:-1:2]
    axes = np.ix_(*[np.array(c, np.int64) for c in [*per_dim, k_choices]])
    return list(axes[:-1]), axes[-1]


def slot_words(nest: Nest, tiles: Sequence[IntArray], k_tile: IntArray) -> IntArray:
    """Slots of the leanest form, inputs doubled where others follow and the output not, and what its block
    takes before them."""
    slots = 1 if nest.resident_operands else 2
    inputs: IntArray = sum(x.chunk_words(nest, tiles, k_tile) for x in nest.inputs)
    return slots * inputs + nest.out_words(tiles, k_tile) + nest.longer_block


def extra_scratch_words(nest: Nest, device: Device, tiles: Sequence[IntArray], k_tile: IntArray) -> IntArray:
    """Words of scratch beside the slots of the leanest form, where sums lie in the slot of their results."""
    scratch, sums = (words(nest, device, tiles, k_tile) for words in (scratch_words, sums_words))
    return beside_slots(scratch, sums, nest.out_words(tiles, k_tile))


def beside_slots(scratch: IntArray, sums: IntArray, out: IntArray) -> IntArray:
    """The same, of the words of scratch, of sums and of an out chunk."""
    return scratch - np.greater(sums, 0) * out


def covered(nest: Nest, tiles: Sequence[IntArray]) -> IntArray:
    """Elements of a channel that the windows of a tile cover, padding included; 0 without windows."""
    most: IntArray = 0
    if nest.kernel.members:  # what its calls walk is its own business
        return most
    for operand in nest.strided_inputs:
        if nest.kernel.tensor(operand.name).walk == "interval":
            rows, columns = (_span(nest, tiles, operand, axis) for axis in (-2, -1))
            step = operand.access[-1].a
            most = np.maximum(most, rows * (-(-columns // step) * step))
    return most


def _span(nest: Nest, tiles: Sequence[IntArray], operand: Operand, axis: int) -> IntArray:
    """Coordinates from the first to the last that a tile's windows cover, inside the tensor or not."""
    access = operand.access[axis]
    if access.dim is None or access.dim < 0:
        return operand.shape[axis]
    return (tiles[access.dim] - 1) * access.a + access.end - access.start + 1


def fitting(nest: Nest, device: Device, tiles: Sequence[Array], k_tile: Array, scratch: IntArray) -> Array:
    """Which candidates of the mesh fit with their scratch ``extra_scratch_words``, as flat indices.

    Raises ``Unsupported`` where none does.
    """
    shape = np.broadcast_shapes(*(t.shape for t in (*tiles, k_tile)))
    limits = resources(device)
    slots = slot_words(nest, tiles, k_tile)
    cover = np.broadcast_to(covered(nest, tiles), shape).reshape(-1)
    small = np.broadcast_to(limits.core_holds(slots, scratch), shape).reshape(-1)
    fits: Array = np.flatnonzero(small & (cover <= LIMITS["window_plane"]))
    if len(fits):
        return fits
    if small.any():
        raise Unsupported(
            f"windows that cover {counted(int(cover[0]), 'element')} of a channel, padding included",
            f"at most {LIMITS['window_plane']} in one tile",
        )
    need, most = 4 * int(np.ravel(slots + scratch)[0]), limits.buffer_bytes
    if need <= most:
        need, most = 4 * int(np.ravel(slots)[0]), limits.slot_bytes
    raise Unsupported(
        f"the smallest tile needs {counted(need, 'byte')} of a core's {most} byte data memory",
        "a smaller innermost extent or window",
    )
