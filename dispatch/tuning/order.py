# SPDX-License-Identifier: Apache-2.0
"""The order of tuning: which problem's tasks are done next, and what becomes of their answers."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from onedispatch.dispatch.tuning.explore import Answer, Measure, Measured, Steps, Task, Tuning
from onedispatch.dispatch.tuning.workers import Workers
from onedispatch.operators.scheduling.problem import Problem
from onedispatch.operators.scheduling.solution import Solution

Known = Mapping[tuple[Problem, Solution], Measured]
Rank = tuple[bool, float, int]


@dataclass(eq=False)
class Run:
    """A problem on its way: the batch of tasks that it waits for, and their answers so far."""

    number: int
    tuning: Tuning
    batches: int = 0
    tasks: Sequence[Task] = ()
    answers: dict[int, Answer] = field(default_factory=dict)
    ended: bool = False
    _steps: Steps | None = None

    @property
    def begun(self) -> bool:
        """Whether the search's solution was measured."""
        return self.ended or bool(self.tuning.tried)

    @property
    def is_answered(self) -> bool:
        return len(self.answers) == len(self.tasks)

    def rank(self) -> Rank:
        """What comes first: problems that were not begun, then those that cost most, each batch counting less
        than the one before."""
        cost = self.tuning.weight * (self.tuning.after or 0) / 2.0**self.batches
        return self.begun, -cost, self.number

    def advance(self, known: Known) -> None:
        """Makes the next batches until one has a task without an answer."""
        while self.is_answered and not self.ended:
            try:
                self.tasks = self._next()
            except StopIteration:
                self.ended = True
                self.tasks = ()
            self.batches += 1
            self.answers = {
                at: known[task.problem, task.solution]
                for at, task in enumerate(self.tasks)
                if isinstance(task, Measure) and (task.problem, task.solution) in known
            }

    def _next(self) -> Sequence[Task]:
        if self._steps is None:
            self._steps = self.tuning.steps()
            return next(self._steps)
        return self._steps.send([self.answers[at] for at in range(len(self.tasks))])

    def missing(self) -> list[int]:
        """Which tasks of its batch wait for an answer."""
        return [at for at in range(len(self.tasks)) if at not in self.answers]

    def settle(self) -> None:
        """Takes what was measured of a batch that is not to be done whole."""
        for at, answer in sorted(self.answers.items()):
            task = self.tasks[at]
            if isinstance(task, Measure) and task.solution not in self.tuning.tried:
                self.tuning.take(task.solution, answer)


@dataclass
class Order:
    """Gives the tasks of problems to workers and answers to their problems, until the clock says ``until``.

    ``known`` are measured already; ``notify`` is given every answer.
    """

    runs: Sequence[Run]
    workers: Workers
    known: Known
    until: float | None
    notify: Callable[[Sequence[tuple[Task, Answer]]], None]
    _flying: dict[int, tuple[Run, int]] = field(default_factory=dict)  # by numbers of tasks
    _ready: deque[tuple[Run, int]] = field(default_factory=deque)  # to be submitted
    _waiting: list[tuple[Rank, Run]] = field(default_factory=list)  # whose batch is answered: a heap
    _numbers: int = 0

    def go(self) -> None:
        """Returns when nothing is left to do, or no time."""
        self._waiting = [(run.rank(), run) for run in self.runs]
        heapify(self._waiting)
        while True:
            self._submit()
            if not self._flying:
                break
            for run in self._finished():
                heappush(self._waiting, (run.rank(), run))
        for run in self.runs:
            run.settle()

    def _submit(self) -> None:
        """Submits as much as workers take."""
        while len(self._flying) < self.workers.room:
            if not self._ready:
                run = self._next()
                if run is None:
                    return
                self._ready.extend((run, at) for at in run.missing())
            elif not self._late(self._ready[0][0]):
                run, at = self._ready.popleft()
                self._flying[self._numbers] = run, at
                self.workers.submit(self._numbers, run.tasks[at])
                self._numbers += 1
            else:
                self._ready.popleft()

    def _next(self) -> Run | None:
        """The run that comes first, with a batch that waits for answers."""
        while self._waiting:
            _, run = heappop(self._waiting)
            if not self._late(run):
                run.advance(self.known)
                if not run.ended:
                    return run
        return None

    def _late(self, run: Run) -> bool:
        return run.begun and self.until is not None and time.monotonic() >= self.until

    def _finished(self) -> list[Run]:
        """Takes what workers have done; the runs that this answers all tasks of."""
        answered: list[tuple[Task, Answer]] = []
        runs: list[Run] = []
        for number, answer in self.workers.finished():
            run, at = self._flying.pop(number)
            run.answers[at] = answer
            answered.append((run.tasks[at], answer))
            runs += [run] if not run.missing() else []
        self.notify(answered)
        return runs
