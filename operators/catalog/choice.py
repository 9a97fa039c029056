# SPDX-License-Identifier: Apache-2.0
"""What tables offer for a problem: exact rows, rules, and the nearest sizes, held to what fits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import isfinite

from onedispatch.operators.catalog.features import Features
from onedispatch.operators.catalog.table import Found, Table
from onedispatch.operators.scheduling.candidates import smallest
from onedispatch.operators.scheduling.index_space import K
from onedispatch.operators.scheduling.problem import Problem
from onedispatch.operators.scheduling.schedule import Schedule
from onedispatch.operators.scheduling.search import estimated
from onedispatch.operators.scheduling.solution import Mapping, Solution
from onedispatch.operators.scheduling.solution_rules import check_solution
from onedispatch.transactions import Device
from onedispatch.transactions.base.errors import SolutionError

PINNED, EXACT, RULE, NEAREST = "pinned", "exact", "rule", "nearest"
STAGES = (PINNED, EXACT, RULE, NEAREST)

RADIUS = 1.0  # doublings of sizes, in all: what is tuned farther away says less than the search
NEIGHBOURS = 4
FAR_TOO_MUCH = 8  # times the cycles where it was tuned: no neighbour costs that, so it is not counted on


@dataclass(frozen=True)
class Candidate:
    """A solution that a table has for a problem.

    Attributes:
        how: ``pinned``, ``exact``, ``rule`` or ``nearest``.
        table: its name.
        refusal: why it does not fit; "" where it does.
        cycles: measured for this very problem, else expected: estimated, and corrected as the neighbour was.
        estimated, least: see ``Entry``.
        measured: whether ``cycles`` are a measurement.
        distance: of the problem that it was tuned for, in doublings of sizes.
    """

    solution: Solution
    how: str
    table: str
    refusal: str = ""
    cycles: float | None = None
    measured: bool = False
    distance: float = 0.0
    estimated: float | None = None
    least: float | None = None

    def __str__(self) -> str:
        said = [f"{self.how} {self.solution.name}"]
        if self.distance:
            said.append(f"{self.distance:.2f} doublings away")
        if self.cycles is not None:
            said.append(f"{self.cycles:,.0f} cycles {'measured' if self.measured else 'expected'}")
        if self.refusal:
            said.append(f"does not fit: {self.refusal}")
        return ", ".join(said)


def offers(table: Table, seen: Features, stage: str, pins: frozenset[str]) -> Iterator[Candidate]:
    """What a table offers at a stage, the best first; those that do not fit, too.

    Raises ``CatalogError`` where the table is damaged.
    """
    if stage == PINNED:
        yield from _pinned(table, seen, pins)
    elif stage == EXACT:
        row = table.exact(bytes.fromhex(seen.problem.digest))
        if row is not None:
            yield _tuned(table, seen, row)
    elif stage == RULE:
        for when, number, _ in table.rules:
            if when.holds(seen):
                yield _candidate(table, seen, table.solution(number), RULE)
    elif not seen.is_kept:
        yield from sorted(_neighbours(table, seen), key=_expected)


def _expected(one: Candidate) -> tuple[bool, float, str]:
    return bool(one.refusal), one.cycles or 0.0, one.solution.name


def _pinned(table: Table, seen: Features, pins: frozenset[str]) -> Iterator[Candidate]:
    for number in range(table.solutions if pins else 0):
        solution = table.solution(number)
        if solution.name in pins:
            yield _candidate(table, seen, solution, PINNED)


def _tuned(table: Table, seen: Features, row: Found) -> Candidate:
    found = _candidate(table, seen, table.solution(row.solution), EXACT)
    return replace(found, cycles=row.cycles, measured=True, estimated=row.estimated, least=row.least)


def _candidate(table: Table, seen: Features, solution: Solution, how: str) -> Candidate:
    return Candidate(solution, how, table.name, refusal_of(seen, solution))


def _neighbours(table: Table, seen: Features) -> Iterator[Candidate]:
    """The nearest tuned solutions, adapted, with the cycles that the cost model expects of each."""
    for row in table.nearest(seen, NEIGHBOURS, RADIUS):
        solution = adapted(table.solution(row.solution), row.extents, seen.problem)
        found = replace(_candidate(table, seen, solution, NEAREST), distance=row.distance)
        if not found.refusal:
            most = FAR_TOO_MUCH * row.estimated
            guess = estimated(Schedule(seen.problem.nest, seen.device, solution), most=most)
            if isfinite(guess):
                found = replace(found, cycles=guess * row.cycles / row.estimated, estimated=guess)
            else:
                found = replace(found, refusal=f"estimated at more than {most:,.0f} cycles")
        yield found


def refusal_of(seen: Features, solution: Solution) -> str:
    """Why a solution does not fit the problem; "" where it does."""
    try:
        check_solution(Schedule(seen.problem.nest, seen.device, solution))
    except SolutionError as error:
        return error.statement()
    return ""


def adapted(solution: Solution, tuned_for: tuple[int, ...], problem: Problem) -> Solution:
    """A solution for a neighbour's sizes with tiles for those of ``problem``: whole dimensions stay whole,
    other tiles stay as they are where they fit."""
    *extents, k_extent = tuned_for
    if len(solution.tiles) != len(problem.dims) or len(extents) != len(problem.dims):
        return solution  # which does not fit, and says why
    tiles = tuple(
        _tile(tile, old, dim.extent, dim.multiple, dim.max_tile, dim.whole)
        for tile, old, dim in zip(solution.tiles, extents, problem.dims, strict=True)
    )
    k_tile = solution.k_tile
    if problem.k_extent:
        k_tile = _tile(
            k_tile, k_extent, problem.k_extent, problem.k_multiple, problem.k_extent, problem.k_whole
        )
    return replace(solution, tiles=tiles, k_tile=k_tile)


def _tile(tile: int, old: int, extent: int, multiple: int, most: int, whole: bool) -> int:
    if whole or (tile == old and extent <= max(most, multiple)):
        return extent
    least = min(multiple, extent)
    return max(least, min(tile, extent, most) // multiple * multiple)


def plain_solution(problem: Problem, device: Device) -> Solution:
    """One core, and tiles that are doubled in one dimension after the other, as long as they fit."""
    tiles, k_tile = smallest(problem.nest)
    order = tuple(range(len(tiles)))
    found = Solution(problem.kernel, Mapping(None, None, 1, frozenset(), False, order), tuple(tiles), k_tile)
    seen, growing = Features(problem, device), [K, *reversed(order)]
    while growing:
        d = growing.pop(0)
        larger = _doubled(found, d, problem)
        if larger != found and not refusal_of(seen, larger):
            found = larger
            growing.append(d)
    return found


def _doubled(solution: Solution, d: int, problem: Problem) -> Solution:
    """With a tile of ``d`` twice as large, or all of it."""
    if d == K:
        return replace(solution, k_tile=max(1, min(2 * solution.k_tile, problem.k_extent)))
    tiles = list(solution.tiles)
    tiles[d] = min(2 * tiles[d], problem.dims[d].extent)
    return replace(solution, tiles=tuple(tiles))
