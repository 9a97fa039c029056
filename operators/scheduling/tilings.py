# SPDX-License-Identifier: Apache-2.0
"""What no mapping to the array changes of the candidate tilings of a nest, for all of them at once.

Candidates are points of a mesh of tile sizes (``np.ix_``): what does not depend on all of a mesh is computed
over some of its axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np

from onedispatch.operators.scheduling.call_cost import (
    op_cycles,
    reduction_cycles,
    scratch_words,
    sums_words,
)
from onedispatch.operators.scheduling.candidates import beside_slots, fitting
from onedispatch.operators.scheduling.index_space import IntArray, Operand, Packed
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.transactions import Device

Array = np.ndarray[Any, Any]


class Tilings:
    """The candidates of a mesh that fit a core. Raises ``Unsupported`` where none does."""

    def __init__(self, nest: Nest, device: Device, tiles: Sequence[Array], k_tile: Array) -> None:
        scratch, sums = (words(nest, device, tiles, k_tile) for words in (scratch_words, sums_words))
        out = nest.out_words(tiles, k_tile)
        self._axes, self._extents = tiles, [dim.extent for dim in nest.dims]
        self._shape = np.broadcast_shapes(*(t.shape for t in (*tiles, k_tile)))
        self._fits = fitting(nest, device, tiles, k_tile, beside_slots(scratch, sums, out))
        self._counts: dict[tuple[int, int], Array] = {}
        spread = self._spread
        self.tiles, self.k_tile = [spread(t) for t in tiles], spread(k_tile)
        words = {x.name: x.chunk_words(nest, tiles, k_tile) for x in nest.inputs}
        self.words = {name: spread(count) for name, count in words.items()}
        # What device memory spends on a chunk, short runs counted as whole bursts.
        burst = device.constant("ddr.burst_bytes")
        self.fetched = {
            x.name: spread(words[x.name] * _burst_factor(x, nest, tiles, k_tile, burst)) for x in nest.inputs
        }
        self.out, self.out_factor = spread(out), spread(_out_factor(nest, tiles, k_tile, burst))
        ones = np.ones_like(k_tile)
        inner = np.maximum(ones, -(-nest.k_extent // k_tile)) if nest.reduces else ones
        self.op_cycles = op_cycles(nest, device)
        self.cycles, self.inner = spread(reduction_cycles(nest, device, tiles, k_tile)), spread(inner)
        self.ragged = (
            spread(nest.k_extent % k_tile != 0 if nest.reduces else np.zeros(k_tile.shape, bool)) > 0
        )
        # Of other dimensions there is one tile.
        self.walked = [d for d, extent in enumerate(self._extents) if tiles[d].min() < extent]
        self._even: Tilings | None = None

    def of(self, nest: Nest) -> Tilings:
        """Those that ``nest`` may take, the one that they were made for but for what stays in memory tiles:
        each word of results that do is in one tile alone."""
        return self._whole_words() if nest.out_kept else self

    def count(self, dim: int, cores: int) -> Array:
        """Tiles of a dimension that one of ``cores`` along it visits, for every candidate."""
        found = self._counts.get((dim, cores))
        if found is None:
            counts = -(-self._extents[dim] // (self._axes[dim] * cores))
            found = self._counts[dim, cores] = self._spread(counts)
        return found

    def _spread(self, values: IntArray) -> Array:
        return np.broadcast_to(values, self._shape).reshape(-1)[self._fits].astype(np.float64)

    def _whole_words(self) -> Tilings:
        if self._even is None:
            even = [self._extents[d] % self.tiles[d] == 0 for d in self.walked]
            at = np.flatnonzero(np.logical_and.reduce(even)) if even else np.arange(len(self.k_tile))
            self._even = self if len(at) in (0, len(self.k_tile)) else self._only(at)
        return self._even

    def _only(self, at: Array) -> Tilings:
        """The candidates ``at``."""
        other = copy(self)
        other._fits, other._counts, other._even = self._fits[at], {}, other
        for name in ("k_tile", "out", "out_factor", "cycles", "inner", "ragged"):
            setattr(other, name, getattr(self, name)[at])
        other.tiles = [t[at] for t in self.tiles]
        other.words = {name: words[at] for name, words in self.words.items()}
        other.fetched = {name: words[at] for name, words in self.fetched.items()}
        return other


def _out_factor(nest: Nest, tiles: Sequence[IntArray], k_tile: IntArray, burst: float) -> IntArray:
    """``_burst_factor`` of all outputs together."""
    factors = [_burst_factor(x, nest, tiles, k_tile, burst) for x in nest.outputs]
    if len(factors) == 1:
        return factors[0]
    words = [x.chunk_words(nest, tiles, k_tile) for x in nest.outputs]
    weighted = sum(count * factor for count, factor in zip(words, factors, strict=True))
    return weighted / np.maximum(sum(words), 1)


def _burst_factor(
    operand: Operand | Packed, nest: Nest, tiles: Sequence[IntArray], k_tile: IntArray, burst: float
) -> IntArray:
    """How much more device memory spends on a chunk than its bytes: it serves whole bursts.

    Runs begin at multiples of ``apart`` bytes behind a first one, each as often as the others. So on average
    one takes its bytes, rounded up to ``apart``, and what lies before and behind it in its bursts, of
    ``burst`` bytes each.
    """
    if isinstance(operand, Packed) or not operand.shape:
        return 1.0
    run: IntArray = operand.itemsize
    apart: IntArray = int(burst)
    expected, inside = 1, True
    whole: IntArray = True
    shape = operand.chunk_shape(nest, tiles, k_tile)
    for access, count, extent, stride in zip(
        reversed(operand.access),
        reversed(shape),
        reversed(operand.shape),
        reversed(operand.strides),
        strict=True,
    ):
        step = stride * operand.itemsize
        inside = inside and stride == expected
        if inside:
            tile, _ = nest.tile_of(access.dim, tiles, k_tile)
            cut = np.gcd(apart, access.a * tile // access.den * step)  # where tiles begin
            run = np.where(whole, run * count, run)
            outside = np.gcd(apart, step) if extent > 1 else apart
            here = np.asarray(count) == extent
            apart = np.where(whole, np.where(here, apart, cut), outside)
            whole = whole & here
            expected = stride * extent
        elif extent > 1:
            apart = np.gcd(apart, step)
    first = operand.offset * operand.itemsize % apart
    return (-(-(first + run) // apart) * apart + burst - apart) / run
