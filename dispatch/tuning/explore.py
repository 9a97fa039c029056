# SPDX-License-Identifier: Apache-2.0
"""How one problem is tuned: which tasks, one batch after the other, and when to stop.

Tasks are data, so that other processes and machines can do them. What is asked next depends on what earlier
tasks of this problem answered and on nothing else: the end is the same with any workers, in any order.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field

from onedispatch.dispatch.tuning.measure import measure
from onedispatch.dispatch.tuning.moves import moves, offers
from onedispatch.operators.declarations.tensor import Unsupported
from onedispatch.operators.scheduling.problem import Problem
from onedispatch.operators.scheduling.schedule import Schedule
from onedispatch.operators.scheduling.search import estimated
from onedispatch.operators.scheduling.select import SEARCH
from onedispatch.operators.scheduling.solution import Solution
from onedispatch.transactions import Device
from onedispatch.transactions.base.errors import OneDispatchError, SolutionError, statement_of

OFFERS, MOVES = 12, 12  # measured at a time
IN_VAIN = 3  # batches without a gain, before a problem is done


@dataclass(frozen=True)
class Measured:
    """What a solution costs, by the clock and by the cost model."""

    cycles: int
    estimated: float


@dataclass(frozen=True)
class Refused:
    """Why a solution cannot be measured. ``fits`` it did not, or else the device failed to run it."""

    reason: str
    fits: bool


@dataclass(frozen=True)
class Measure:
    """Measures a solution."""

    problem: Problem
    solution: Solution

    def done(self, device: Device) -> Measured | Refused:
        try:
            cycles = measure(self.problem, self.solution, device)
        except SolutionError as error:
            return Refused(statement_of(error), False)
        except OneDispatchError as error:
            return Refused(statement_of(error), True)
        return Measured(cycles, estimated(Schedule(self.problem.nest, device, self.solution)))


@dataclass(frozen=True)
class Choose:
    """Lists what the search chooses."""

    problem: Problem

    def done(self, device: Device) -> list[Solution]:
        try:
            return [SEARCH.select(self.problem, device)]
        except (Unsupported, SolutionError):
            return []  # no tile fits: a problem that no model poses


@dataclass(frozen=True)
class Propose:
    """Lists other solutions that are worth measuring: what the search offers, or those near one."""

    problem: Problem
    near: Solution | None = None

    def done(self, device: Device) -> list[Solution]:
        try:
            near = self.near
            return offers(self.problem, device) if near is None else moves(self.problem, device, near)
        except (Unsupported, SolutionError):
            return []


Task = Measure | Choose | Propose
Answer = Measured | Refused | list[Solution]
Steps = Generator[Sequence[Task], Sequence[Answer], None]


@dataclass
class Tuning:
    """What is known of a problem: every solution that was tried, with its cycles; None where it is refused.

    Attributes:
        start: what the search chooses; None before it was asked, and where nothing fits.
        best: the fastest that was measured, the first of several.
    """

    problem: Problem
    weight: int = 1
    start: Solution | None = None
    best: Solution | None = None
    tried: dict[Solution, int | None] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)  # of solutions that fit, and did not run

    @property
    def before(self) -> int | None:
        """Cycles of the search's solution."""
        return None if self.start is None else self.tried.get(self.start)

    @property
    def after(self) -> int | None:
        """Cycles of the best solution."""
        return None if self.best is None else self.tried[self.best]

    def steps(self) -> Steps:
        """Batches of tasks; each is answered before the next one is made."""
        chosen = yield from self._proposed(Choose(self.problem))
        if not chosen:
            return
        (self.start,) = chosen
        yield from self._measured(chosen)
        listed = yield from self._proposed(Propose(self.problem))
        yield from self._measured([one for one in listed if one != self.start][:OFFERS])
        in_vain, near = 0, list[Solution]()
        of: Solution | None = None
        while self.best is not None and in_vain < IN_VAIN:
            if of != self.best:
                of, near = self.best, (yield from self._proposed(Propose(self.problem, self.best)))
            new = [one for one in near if one not in self.tried][:MOVES]
            if not new:
                return
            yield from self._measured(new)
            in_vain = 0 if of != self.best else in_vain + 1

    def _proposed(
        self, task: Choose | Propose
    ) -> Generator[Sequence[Task], Sequence[Answer], list[Solution]]:
        (answer,) = yield [task]
        return answer if isinstance(answer, list) else []

    def _measured(self, solutions: Sequence[Solution]) -> Generator[Sequence[Task], Sequence[Answer], None]:
        answers = yield [Measure(self.problem, one) for one in solutions]
        for solution, answer in zip(solutions, answers, strict=True):
            self.take(solution, answer)

    def take(self, solution: Solution, answer: Answer) -> None:
        """Notes what a solution costs, or that it is refused."""
        if isinstance(answer, Measured):
            least = self.after
            self.tried[solution] = answer.cycles
            if least is None or answer.cycles < least:
                self.best = solution
            return
        self.tried[solution] = None
        if isinstance(answer, Refused) and answer.fits:
            self.failed.append(answer.reason)
