# SPDX-License-Identifier: Apache-2.0
"""The shared scheduler's choice: which tiles, which mapping to the array, which loop order.

All tilings of a nest are judged at once (NumPy arrays of candidates), for every way of
laying index dimensions over the columns and rows of the array, by a simple model of the
slowest resource.
"""

from __future__ import annotations

from bisect import insort
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from math import prod
from typing import Any

import numpy as np

from onedispatch.operators.scheduling.index_space import Operand
from onedispatch.operators.scheduling.judge import Judge
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.operators.scheduling.schedule import Mapping, Schedule
from onedispatch.transactions import Device

Array = np.ndarray[Any, Any]

MAX_CANDIDATES = 200_000
ORDERED_MAPPINGS = 6

_CHOICES: OrderedDict[Hashable, tuple[Mapping, tuple[int, ...], int, int]] = OrderedDict()
_CHOICES_KEPT = 4096


def schedule_nest(nest: Nest, device: Device) -> Schedule:
    """The best schedule of ``nest`` on ``device``; equal nests are searched once per process.

    Raises ``Unsupported`` when not even the smallest tile fits into a core's memory.
    """
    key = (_signature(nest), device)
    choice = _CHOICES.get(key)
    if choice is None:
        choice = _search(nest, device)
        _CHOICES[key] = choice
        if len(_CHOICES) > _CHOICES_KEPT:
            _CHOICES.popitem(last=False)
    mapping, tiles, k_tile, estimate = choice
    return Schedule(nest, device, mapping, tiles, k_tile, estimate)


def _signature(nest: Nest) -> Hashable:
    """The nest as a key: where its tensors lie in device memory and which input they are does not matter."""
    operands = tuple(
        replace(x, tensor=0, offset=0) if isinstance(x, Operand) else x for x in (*nest.inputs, *nest.outputs)
    )
    roles = tuple(sorted(nest.roles.items()))
    reduction = (nest.k_extent, nest.k_multiple, nest.k_whole)
    return nest.kernel.name, nest.dims, operands, roles, nest.priced, reduction


def _search(nest: Nest, device: Device) -> tuple[Mapping, tuple[int, ...], int, int]:
    tiles, k_tile = _candidates(nest)
    judge = Judge(nest, device, tiles, k_tile)
    judged = Judged(judge, list(_mappings(nest, device)))
    # Other loop orders only pay where the plain one already does well.
    for mapping in judged.leaders(ORDERED_MAPPINGS):
        for order in _orders(nest):
            judged.try_order(mapping, order)
    estimate, mapping, at = judged.best
    return mapping, tuple(int(t[at]) for t in judge.tiles), int(judge.k_tile[at]), int(estimate)


class Judged:
    """The best candidate of every mapping that may matter: others are left out by a bound.

    A mapping and a candidate are judged only where ``Judge.bound``, which is cheap and never above the
    cost, does not already say that others are better. What is chosen is what judging all would choose.
    """

    def __init__(self, judge: Judge, mappings: Sequence[Mapping]) -> None:
        self.judge = judge
        self.found: list[tuple[float, int, Mapping, int]] = []  # (cost, number, mapping, candidate)
        self.tried = len(mappings)
        floors = sorted((judge.floor(mapping), i) for i, mapping in enumerate(mappings))
        for floor, i in floors:
            limit = self._limit(ORDERED_MAPPINGS)
            if floor > limit:
                break
            self._judge(i, mappings[i], limit)

    def _limit(self, places: int) -> float:
        """The cost that a mapping must not exceed to be among the best ``places``."""
        return self.found[places - 1][0] if len(self.found) >= places else float("inf")

    def _judge(self, number: int, mapping: Mapping, limit: float) -> None:
        cost, at = self.judge.best(mapping, limit)
        if at is not None:
            insort(self.found, (cost, number, mapping, at), key=lambda found: found[:2])

    def leaders(self, places: int) -> list[Mapping]:
        """The best mappings, best first."""
        return [mapping for _, _, mapping, _ in self.found[:places]]

    def try_order(self, mapping: Mapping, order: tuple[int, ...]) -> None:
        self._judge(self.tried, replace(mapping, order=order), self._limit(1))
        self.tried += 1

    @property
    def best(self) -> tuple[float, Mapping, int]:
        cost, _, mapping, at = self.found[0]
        return cost, mapping, at


def _orders(nest: Nest) -> Iterator[tuple[int, ...]]:
    """Loop orders other than the plain one: each dimension that is cut, made innermost."""
    plain = tuple(range(len(nest.dims)))
    cut = [d for d in plain if nest.dims[d].extent > 1 and not nest.dims[d].whole]
    for d in cut[:-1]:
        yield (*(other for other in plain if other != d), d)


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
        picks = np.unique(np.linspace(0, len(choices) - 1, many).astype(int))
        choices = [choices[i] for i in picks]
    return choices or [min(multiple, extent)]


def _candidates(nest: Nest) -> tuple[list[Array], Array]:
    """Tile sizes of every dimension and of the reduction, as axes of one mesh (``np.ix_``)."""
    many = {0: 30, 1: 30, 2: 24, 3: 14, 4: 10, 5: 8}[sum(d.extent > 1 and not d.whole for d in nest.dims)]
    per_dim = [_tile_choices(d.extent, d.whole, d.multiple, d.max_tile, many) for d in nest.dims]
    k_choices = [1]
    if nest.reduces and nest.k_extent > 0:
        k_choices = _tile_choices(nest.k_extent, nest.k_whole, nest.k_multiple, 1 << 30, 14)
    while prod(map(len, per_dim)) * len(k_choices) > MAX_CANDIDATES:
        longest = max(per_dim, key=len)
        del longest[1:-1:2]
    axes = np.ix_(*[np.array(c, np.int64) for c in [*per_dim, k_choices]])
    return list(axes[:-1]), axes[-1]


def _mappings(nest: Nest, device: Device) -> Iterator[Mapping]:
    """Every way of laying dimensions over the array that the overlay's routes can serve."""
    cut = [d for d, dim in enumerate(nest.dims) if dim.extent > 1 and not dim.whole]
    axes: list[int | None] = [None, *cut]
    widths = sorted({c for c in (1, 2, 4, 8, device.columns) if c <= device.columns})
    for row_dim, col_dim, columns in product(axes, axes, widths):
        if (col_dim is None) != (columns == 1):
            continue
        shared = [x for x in nest.inputs if row_dim is None or row_dim not in x.depends_on()]
        for in1 in dict.fromkeys((frozenset[str](), frozenset(x.name for x in shared))):
            if row_dim is None and in1:
                continue  # one row works: nothing to broadcast
            in0 = [x for x in nest.inputs if x.name not in in1]
            apart = row_dim != col_dim and columns == device.columns > 1
            rowcast = apart and bool(in0) and not any(col_dim in x.depends_on() for x in in0)
            yield Mapping(row_dim, col_dim, columns, in1, rowcast, tuple(range(len(nest.dims))))
