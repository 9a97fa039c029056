# SPDX-License-Identifier: Apache-2.0
"""Who chooses solutions: one place to ask, whichever selector answers.

A ``Selector`` gives a solution for a problem. The search is one; a catalog of tuned solutions or a tuner is
another. What they answer is checked, so a wrong entry of a catalog is an error that says what would fit,
not a wrong transaction.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Protocol

from onedispatch.operators.declarations.tensor import Unsupported
from onedispatch.operators.scheduling.exact import exact
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.operators.scheduling.problem import Problem
from onedispatch.operators.scheduling.schedule import Schedule
from onedispatch.operators.scheduling.search import best_with_cost, counted_best, in_other_orders, search
from onedispatch.operators.scheduling.sketches import Sketches
from onedispatch.operators.scheduling.solution import Solution
from onedispatch.operators.scheduling.solution_rules import check_solution
from onedispatch.transactions import Device
from onedispatch.transactions.base.boundary import attributed_to, error_line
from onedispatch.transactions.base.errors import SolutionError

SOLUTIONS_KEPT = 4096


class Selector(Protocol):
    """Chooses how a problem is solved. It is asked once for every nest, in the order of the model, and then
    for those that tensors in memory tiles make other problems of (none with ``groups="off"``): where what it
    answers then does not fit, these tensors pass device memory.
    """

    def select(self, problem: Problem, device: Device) -> Solution:
        """A solution of ``problem`` on ``device``, the one that the problem names.

        Raises ``Unsupported`` where there is none: the node then goes to the host with that reason.
        """
        ...


class Search:
    """The best solution by the cost model; equal problems are searched once."""

    def __init__(self, kept: int = SOLUTIONS_KEPT) -> None:
        self._kept = kept
        self._found: OrderedDict[Problem, tuple[Solution, float]] = OrderedDict()
        self._sketches = Sketches(kept)

    def __getstate__(self) -> dict[str, Any]:
        """A copy, in another process too, begins without what this one has found: it finds it again."""
        fresh = {"_found": OrderedDict(), "_sketches": Sketches(self._kept)}
        return vars(self) | fresh

    def select(self, problem: Problem, device: Device) -> Solution:
        """Raises ``SolutionError`` for another device than the problem's, ``Unsupported`` where no tile
        fits."""
        found = self._found.get(problem)
        if found is None:
            problem.check_device(device)
            found = self._found[problem] = self.solve(problem, device)
            while len(self._found) > self._kept:
                self._found.popitem(last=False)
        return found[0]

    def solve(self, problem: Problem, device: Device) -> tuple[Solution, float]:
        """The solution of a problem that was not asked about before, and its modelled cycles."""
        listed = self._sketches.shortlist(problem)
        return counted_best(in_other_orders(listed)) if listed else best_with_cost(problem.nest, device)

    def sketch(self, nest: Nest, device: Device) -> tuple[Solution, float]:
        """A solution that is nearly the best, and its modelled cycles. Earlier searches do not change it, so
        that plans are the same in every process. Raises ``Unsupported`` where no tile fits.
        """
        return self._sketches.of(Problem.of(nest, device), nest, device)

    def origin_of(self, problem: Problem) -> str:
        """Where the solution of a problem that was asked about comes from; "" of the search's own."""
        return ""

    def cost_of(self, schedule: Schedule) -> float | None:
        """Modelled cycles of a schedule that it chose; None of others."""
        solution, cost = self._found.get(Problem.of(schedule.nest, schedule.device), (None, None))
        return cost if solution == schedule.solution else None


SEARCH = Search()


def select(nest: Nest, device: Device, selector: Selector = SEARCH) -> Schedule:
    """``nest`` as ``selector`` solves it.

    Raises ``SolutionError`` that names selector and problem where its answer does not fit, with a solution
    that would; ``InternalError`` where it raises something else; ``Unsupported`` where nothing fits.
    """
    problem, name = Problem.of(nest, device), f"solution for {nest.kernel.name} on {device.name}"
    try:
        # Rebuilt: what the selector does to its answer later changes nothing here.
        solution = exact(Solution, _answer(selector, problem, device, name), f"{name}, answer")
        origin = selector.origin_of(problem) if isinstance(selector, Search) else ""
        schedule = Schedule(nest, device, solution, origin)
        check_solution(schedule)
    except SolutionError as error:
        raise _with_fitting(error, nest, device, selector) from error
    return schedule


def _answer(selector: Selector, problem: Problem, device: Device, name: str) -> object:
    """What the selector answers. Raises ``SolutionError`` where it has no entry for the problem."""
    try:
        with attributed_to(type(selector), f"a {name}", (Unsupported, LookupError)):
            found: object = selector.select(problem, device)
    except LookupError as error:
        given, remedy = f"no entry ({error_line(error)})", "add an entry for this problem"
        raise SolutionError(f"{name}, answer", given, "a Solution", remedy) from error
    return found


def _with_fitting(error: SolutionError, nest: Nest, device: Device, selector: Selector) -> SolutionError:
    """The same, with who is to blame, for which problem, and what the search would answer."""
    problem = Problem.of(nest, device)  # afresh: the selector had the other one in its hands
    try:
        fits = search(problem.nest, device).to_data()
    except Unsupported as nothing:
        fits, hint = None, f"no solution fits: {nothing}"
    else:
        hint = f"this one fits: {fits}"
    return SolutionError(
        f"{type(selector).__name__}, problem {problem.digest}, {error.where}",
        error.given,
        error.accepted,
        f"{error.remedy}; {hint}" if error.remedy else hint,
        would_fit=fits,
    )
