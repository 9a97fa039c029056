# SPDX-License-Identifier: Apache-2.0
"""Selection by catalogs: exact, then by rules, then the nearest sizes, else the search.

Layers of catalogs are asked stage by stage, the first of them first: an exact row of a later one comes before
a neighbour of an earlier one. The cost model must not find a neighbour's solution slower than the search's.
What does not fit is passed over; ties go to the name that sorts first.
"""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from onedispatch.operators.catalog.catalog import Asked, Catalog, CatalogWarning
from onedispatch.operators.catalog.choice import EXACT, NEAREST, STAGES, Candidate, plain_solution
from onedispatch.operators.catalog.features import Features
from onedispatch.operators.catalog.tree import PLAIN, SEARCH, MethodLeaf, Tell
from onedispatch.operators.declarations.tensor import Unsupported
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.operators.scheduling.problem import Problem
from onedispatch.operators.scheduling.schedule import Schedule
from onedispatch.operators.scheduling.search import estimated
from onedispatch.operators.scheduling.select import SOLUTIONS_KEPT, Search
from onedispatch.operators.scheduling.solution import Solution
from onedispatch.transactions import Device
from onedispatch.transactions.base.errors import SolutionError


@dataclass(frozen=True)
class Step:
    """A line of a walk: what was asked at a depth of the hierarchy, and what came of it."""

    depth: int
    asked: str
    outcome: str


@dataclass
class Walk:
    """How a problem's solution was found, level by level.

    Attributes:
        candidates: what tables offered, in the order of choice; those that do not fit, too.
        chosen: None where the search, or plain tiles on one core, answered.
        method: what answered then.
        cycles: of the search's solution, estimated: the runner-up, or the choice.
    """

    problem: str
    steps: list[Step] = field(default_factory=list)
    candidates: list[Candidate] = field(default_factory=list)
    chosen: Candidate | None = None
    method: str = ""
    solution: Solution | None = None
    searched: Solution | None = None
    searched_cycles: float | None = None

    def tell(self, depth: int, asked: str, outcome: str) -> None:
        self.steps.append(Step(depth, asked, outcome))


class CatalogSearch(Search):
    """A ``Selector``: layers of catalogs before the search, whose plans and estimates it shares.

    Args:
        catalogs: asked in this order.
        pins: names of solutions that are taken wherever a table has them and they fit.
    """

    def __init__(
        self, catalogs: Sequence[Catalog] = (), pins: Sequence[str] = (), kept: int = SOLUTIONS_KEPT
    ) -> None:
        check_pins(pins)
        super().__init__(kept)
        self.catalogs = tuple(catalogs)
        self.pins = frozenset(pins)
        self.counts: dict[str, int] = {}  # problems by what answered them
        self._origins: OrderedDict[Problem, str] = OrderedDict()
        known = {name for one in self.catalogs for name in one.names()} if self.pins else self.pins
        for name in sorted(self.pins - known):
            text = f"pin {name}: no catalog has it. `onedispatch catalog explain` shows solutions' names."
            warnings.warn(text, CatalogWarning, stacklevel=2)

    def __reduce__(self) -> tuple[Any, ...]:
        return _opened, (tuple(one.path for one in self.catalogs), tuple(sorted(self.pins)))

    def origin_of(self, problem: Problem) -> str:
        """The row of a catalog that answered, or what was measured; "" where the search did."""
        return self._origins.get(problem, "")

    def solve(self, problem: Problem, device: Device) -> tuple[Solution, float]:
        """See ``Search.solve``; what a catalog has comes first."""
        return self.solved(problem, device)[:2]

    def solved(self, problem: Problem, device: Device) -> tuple[Solution, float, str]:
        """The same, and what answered: a stage of catalogs, or a method."""
        seen, searched = Features(problem, device), _Searched(partial(super().solve, problem, device))
        asked, method = self._asked(seen, None)
        found = _first_fitting(self._candidates(asked, seen, searched))
        how = method if found is None else found.how
        self.counts[how] = self.counts.get(how, 0) + 1
        if found is not None:
            self.keep_origin(problem, f"{found}, of {found.table}")
            return found.solution, _estimate(found, problem, device), how
        if method != PLAIN:
            return *searched(), how
        solution = plain_solution(problem, device)
        return solution, estimated(Schedule(problem.nest, device, solution)), how

    def sketch(self, nest: Nest, device: Device) -> tuple[Solution, float]:
        """See ``Search.sketch``; of problems that a catalog has, the row is taken instead."""
        problem = Problem.of(nest, device)
        seen = Features(problem, device)
        asked, _ = self._asked(seen, None)
        rows = (one for catalog, leaves in asked for one in catalog.offers(leaves, seen, EXACT, self.pins))
        found = _first_fitting(rows)
        if found is None:
            return super().sketch(nest, device)
        return found.solution, _estimate(found, problem, device)

    def keep_origin(self, problem: Problem, origin: str) -> None:
        """Notes where a solution comes from, for ``origin_of``."""
        self._origins[problem] = origin
        while len(self._origins) > self._kept:
            self._origins.popitem(last=False)

    def _asked(self, seen: Features, tell: Tell | None) -> tuple[list[tuple[Catalog, list[Asked]]], str]:
        """What the walks through all layers lead to, and the first method among it."""
        asked = [(one, one.asked(seen, tell)) for one in self.catalogs]
        leaves = (one.leaf for _, found in asked for one in found)
        return asked, next((leaf.method for leaf in leaves if isinstance(leaf, MethodLeaf)), SEARCH)

    def _candidates(
        self, asked: Sequence[tuple[Catalog, list[Asked]]], seen: Features, searched: _Searched
    ) -> Iterator[Candidate]:
        """What tables offer, in the order of choice; those that do not fit, too."""
        for stage in STAGES:
            for catalog, leaves in asked:
                offered = catalog.offers(leaves, seen, stage, self.pins)
                yield from (_beside(one, searched) for one in offered) if stage == NEAREST else offered

    def explain(self, problem: Problem, device: Device) -> Walk:
        """The walk to a problem's solution, with all candidates, and what the search would take.

        Raises ``SolutionError`` for another device than the problem's, ``Unsupported`` where nothing fits.
        """
        problem.check_device(device)
        walk, seen = Walk(problem.digest), Features(problem, device)
        searched = _Searched(partial(super().solve, problem, device))
        asked, walk.method = self._asked(seen, walk.tell)
        walk.candidates = list(self._candidates(asked, seen, searched))
        walk.chosen = _first_fitting(walk.candidates)
        if searched.cycles is not None or walk.chosen is None:
            walk.searched, walk.searched_cycles = searched()
        walk.solution = walk.chosen.solution if walk.chosen else walk.searched
        if walk.chosen is None and walk.method == PLAIN:
            walk.solution = plain_solution(problem, device)
        return walk


def _first_fitting(candidates: Iterable[Candidate]) -> Candidate | None:
    return next((one for one in candidates if not one.refusal), None)


class _Searched:
    """What the search answers, asked once."""

    def __init__(self, solve: Callable[[], tuple[Solution, float]]) -> None:
        self._solve = solve
        self._answer: tuple[Solution, float] | None = None

    def __call__(self) -> tuple[Solution, float]:
        """Raises ``Unsupported`` where no tile fits."""
        if self._answer is None:
            self._answer = self._solve()
        return self._answer

    @property
    def cycles(self) -> float | None:
        """Estimated; None where no tile fits."""
        try:
            return self()[1]
        except Unsupported:
            return None


def _beside(neighbour: Candidate, searched: _Searched) -> Candidate:
    """A neighbour's solution, refused where the cost model finds it slower than the search's: sizes differ in
    what matters then. Of the others `tests/bench/catalog_choice.py` finds few that are slower."""
    if neighbour.refusal or neighbour.estimated is None or searched.cycles is None:
        return neighbour
    if neighbour.estimated <= searched.cycles:
        return neighbour
    refusal = f"estimated at {neighbour.estimated:,.0f} cycles, the search's at {searched.cycles:,.0f}"
    return replace(neighbour, refusal=refusal)


def _opened(paths: Sequence[str], pins: Sequence[str]) -> CatalogSearch:
    return CatalogSearch([Catalog(path) for path in paths], pins)


def _estimate(found: Candidate, problem: Problem, device: Device) -> float:
    """The cost model's cycles of what was chosen: plans compare estimates with estimates."""
    known = found.estimated if found.least is None else found.least
    if known is not None:
        return known
    return estimated(Schedule(problem.nest, device, found.solution))


def check_pins(pins: Sequence[str]) -> None:
    """Raises ``SolutionError`` for what is no name of a solution."""
    for name in pins:
        if len(name) != 16 or set(name) - set("0123456789abcdef"):
            raise SolutionError("pin", repr(name), "16 hexadecimal digits, a solution's name")
