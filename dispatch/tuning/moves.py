# SPDX-License-Identifier: Apache-2.0
"""Which solutions are worth measuring: those that the cost model finds nearly the best, and those near one.

The cost model only ranks and rules out here. What it says of a solution that was measured shows how far it is
off for this problem; others are held to the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import permutations

import numpy as np

from onedispatch.operators.scheduling.candidates import candidates
from onedispatch.operators.scheduling.commands import controller_cycles
from onedispatch.operators.scheduling.cost_model import CostModel
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.operators.scheduling.problem import Problem
from onedispatch.operators.scheduling.schedule import Schedule
from onedispatch.operators.scheduling.search import every_mapping, shortlist
from onedispatch.operators.scheduling.solution import Mapping, Solution
from onedispatch.operators.scheduling.tilings import Tilings
from onedispatch.transactions import Device

OFFERED_UP_TO, OFFERED_MAPPINGS, OFFERED_EACH = 1.5, 16, 8  # of the least modelled cost
MOVES_UP_TO, MOVES = 1.5, 128  # of what the model says of the best that was measured


def offers(problem: Problem, device: Device, counted: int | None = None) -> list[Solution]:
    """What the search finds nearly the best, in many mappings and orders, cheapest first.

    ``counted``: of how many, the best guesses, commands are counted; None for all.
    """
    found = shortlist(problem.nest, device)
    limit = found.best[0] * OFFERED_UP_TO
    near = [
        offer
        for mapping in found.top(OFFERED_MAPPINGS, limit)
        for offer in found.model.near_optimal(mapping, limit, OFFERED_EACH)
    ]
    if counted is not None:
        near = sorted(near, key=lambda offer: offer.beside.guessed)[:counted]
    return _counted(found.model, [(offer.mapping, offer.at) for offer in near])


def moves(problem: Problem, device: Device, best: Solution) -> list[Solution]:
    """Solutions near ``best``, cheapest first as the model says: tiles half or twice as large and those of
    the search on both sides, in all dimensions at once, other numbers of columns, other dimensions over rows
    and columns, other broadcasts and loop orders."""
    nest = problem.nest
    *tiles, k_tiles = np.ix_(*_near(nest, best))
    model = CostModel(nest, device, Tilings(nest, device, tiles, k_tiles))
    limit = MOVES_UP_TO * _cost_of(model, best)
    ranked: list[tuple[float, int, Mapping, int]] = []
    for number, mapping in enumerate(_mappings_near(nest, device, best.mapping)):
        if model.work_bound(mapping) > limit:
            continue
        cost = model.cost(mapping, np.arange(len(model.k_tile)))
        kept = np.flatnonzero(cost <= limit)
        cheapest = kept[np.argsort(cost[kept], kind="stable")][:MOVES]
        ranked += [(float(cost[at]), number, mapping, int(at)) for at in cheapest]
    ranked.sort(key=lambda one: (one[0], one[1], one[3]))
    return [one for one in _counted(model, [(m, at) for _, _, m, at in ranked[:MOVES]]) if one != best]


def _counted(model: CostModel, candidates: Iterable[tuple[Mapping, int]]) -> list[Solution]:
    """These candidates, cheapest first when their commands are counted: guesses are off by half."""
    costs: dict[Solution, float] = {}
    for mapping, at in candidates:
        solution = model.solution(mapping, at)
        if solution not in costs:
            commands = controller_cycles(Schedule(model.nest, model.device, solution))
            costs[solution] = model.beside_commands(mapping, at).cost(commands)
    return sorted(costs, key=lambda one: costs[one])


def _cost_of(model: CostModel, solution: Solution) -> float:
    """What the model says of a solution that is among its candidates."""
    same = model.k_tile == solution.k_tile
    for tiles, tile in zip(model.tiles, solution.tiles, strict=True):
        same = same & (tiles == tile)
    return float(model.cost(solution.mapping, np.flatnonzero(same))[0])


def _near(nest: Nest, best: Solution) -> list[list[int]]:
    """Tiles of each dimension, and of the reduction, near those of ``best``."""
    axes, k_axis = candidates(nest)
    found = [
        [tile] if dim.whole else _beside(axis.ravel().tolist(), tile, dim.multiple, dim.extent, dim.max_tile)
        for dim, axis, tile in zip(nest.dims, axes, best.tiles, strict=True)
    ]
    fixed = not nest.reduces or not nest.k_extent or nest.k_whole or nest.k_step
    k_tile = best.k_tile
    k_near = _beside(k_axis.ravel().tolist(), k_tile, nest.k_multiple, nest.k_extent, nest.k_extent)
    return [*found, [k_tile] if fixed else k_near]


def _beside(axis: Sequence[int], tile: int, multiple: int, extent: int, largest: int) -> list[int]:
    """``tile``, half and twice it, as far as they may be, and its neighbours among those of ``axis``."""
    below = max((one for one in axis if one < tile), default=tile)
    above = min((one for one in axis if one > tile), default=tile)
    most = min(extent, max(largest, multiple))
    scaled = {min(max(1, -(-n // multiple)) * multiple, extent) for n in (tile // 2, 2 * tile)}
    return sorted({tile, below, above, *(one for one in scaled if one <= most)})


def _mappings_near(nest: Nest, device: Device, best: Mapping) -> Iterator[Mapping]:
    """Every mapping in its plain order and in that of ``best``; that of ``best`` in every order."""
    for order in permutations(nest.cut):
        yield replace(best, order=_with_cut(nest, order))
    for mapping in every_mapping(nest, device):
        for order in dict.fromkeys((mapping.order, best.order)):
            other = replace(mapping, order=order)
            if replace(other, order=best.order) != best:
                yield other


def _with_cut(nest: Nest, order: Sequence[int]) -> tuple[int, ...]:
    """The loop order of the dimensions that are cut; others have one tile, and come first."""
    return (*(d for d in range(len(nest.dims)) if d not in order), *order)
