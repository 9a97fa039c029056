# SPDX-License-Identifier: Apache-2.0
"""Lower bounds on the progress of an actor: tasks as steps that consume and produce tokens.

An actor is a DMA channel or a core. Tokens are units of a lock's value or words of a stream. A step of a
DMA channel is one run of a BD: it acquires from its lock when it begins, moves words, and releases its lock
when it ends. A step of a core is all that the core does for one parameter block.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from onedispatch.transactions.analysis.effects import BdUse

Resource: TypeAlias = tuple[tuple[int, int], str, int]
"""(tile, "lock" or "words into", lock or S2MM channel)"""
Amounts: TypeAlias = tuple[tuple[Resource, int], ...]

_TASKS_KEPT = 256
"""Completed tasks that stay available: the sources of parameter blocks are looked up in them."""


class Step(NamedTuple):
    """One step of an actor.

    Attributes:
        use: the BD; None for a core.
        acquires: tokens consumed when the step begins.
        receives: tokens consumed by the time it ends.
        sends: tokens produced one by one; once all are produced, the step has ended.
        releases: tokens produced when the step ends.
        last: the resources of ``sends`` whose last token implies the end of the step; None for all.
    """

    use: BdUse | None
    acquires: Amounts
    receives: Amounts
    sends: Amounts
    releases: Amounts
    last: frozenset[Resource] | None = None


@dataclass(slots=True)
class Task:
    """A task runs its ``steps`` ``passes`` times; its first step is number ``first`` of the actor.

    Attributes:
        consumes, produces: tokens of one pass.
        consumed_before, produced_before: tokens of the actor's earlier tasks, for the same resources.
    """

    first: int
    passes: int
    steps: tuple[Step, ...]
    consumes: Mapping[Resource, int]
    produces: Mapping[Resource, int]
    consumed_before: Mapping[Resource, int]
    produced_before: Mapping[Resource, int]

    @property
    def end(self) -> int:
        return self.first + self.passes * len(self.steps)


def _sum(*all_amounts: Amounts) -> dict[Resource, int]:
    total: dict[Resource, int] = {}
    for amounts in all_amounts:
        for key, amount in amounts:
            total[key] = total.get(key, 0) + amount
    return total


def _add(total: dict[Resource, int], key: Resource, amount: int) -> int:
    """Adds ``amount`` and returns the total before it."""
    before = total.get(key, 0)
    total[key] = before + amount
    return before


def _of(amounts: Amounts, key: Resource) -> int:
    return sum(amount for other, amount in amounts if other == key)


def _consumed(step: Step, key: Resource) -> int:
    return _of(step.acquires, key) + _of(step.receives, key)


def _produced(step: Step, key: Resource) -> int:
    return _of(step.sends, key) + _of(step.releases, key)


def _min_held(step: Step, key: Resource) -> int:
    """Returns the minimum tokens of ``key`` held at once by a completed step that also releases some."""
    consumed = _consumed(step, key)
    return max(min(consumed, 1), consumed - _produced(step, key))


@dataclass(slots=True, eq=False)
class Actor:
    """A DMA channel or a core, which runs its steps in order.

    Attributes:
        head: index of the first task that may not have ended.
        steps: steps of all tasks.
        done: steps that must have ended.
        begun: steps that must have begun: as many as ``done``, or one more.
        total_consumed, total_produced: tokens of all tasks.
    """

    tasks: list[Task] = field(default_factory=list)
    head: int = 0
    steps: int = 0
    done: int = 0
    begun: int = 0
    total_consumed: dict[Resource, int] = field(default_factory=dict)
    total_produced: dict[Resource, int] = field(default_factory=dict)
    _consumed: dict[Resource, int] = field(default_factory=dict)
    """Tokens consumed by the tasks before ``head``."""
    _produced: dict[Resource, int] = field(default_factory=dict)
    """Tokens produced by the tasks before ``head``."""
    _held: dict[Resource, int] = field(default_factory=dict)
    """Minimum of the tokens held at once, since ``reset_held``, by the tasks before ``head``."""
    _sums: dict[int, tuple[tuple[Step, ...], dict[Resource, int], dict[Resource, int]]] = field(
        default_factory=dict
    )

    def push(self, steps: tuple[Step, ...], passes: int) -> Task:
        """Appends a task."""
        known = self._sums.get(id(steps))
        if known is None or known[0] is not steps:
            consumes = _sum(*(s.acquires for s in steps), *(s.receives for s in steps))
            produces = _sum(*(s.sends for s in steps), *(s.releases for s in steps))
            self._sums.clear()
            known = self._sums[id(steps)] = (steps, consumes, produces)
        _, consumes, produces = known
        before = [
            {key: _add(total, key, amount * passes) for key, amount in amounts.items()}
            for total, amounts in ((self.total_consumed, consumes), (self.total_produced, produces))
        ]
        task = Task(self.steps, passes, steps, consumes, produces, *before)
        self.tasks.append(task)
        self.steps = task.end
        return task

    def advance(self, done: int, begun: int) -> set[Resource]:
        """Raises the lower bounds of ``done`` and ``begun``; returns the resources consumed on the way."""
        begun = max(begun, done)
        done = max(done, begun - 1)
        consumed: set[Resource] = set()
        if done <= self.done and begun <= self.begun:
            return consumed
        self.done, self.begun = max(self.done, done), max(self.begun, begun)
        while self.head < len(self.tasks):
            task = self.tasks[self.head]
            consumed.update(task.consumes)
            if task.end > self.done:
                break
            for key in task.consumes:
                if key in self.total_produced:
                    held = self._balance(key) + _min_held(task.steps[0], key)
                    self._held[key] = max(self._held.get(key, 0), held)
            for total, amounts in ((self._consumed, task.consumes), (self._produced, task.produces)):
                for key, amount in amounts.items():
                    _add(total, key, amount * task.passes)
            self.head += 1
        if self.head > 2 * _TASKS_KEPT:
            del self.tasks[: self.head - _TASKS_KEPT]
            self.head = _TASKS_KEPT
        return consumed

    def consumed(self, key: Resource) -> int:
        """Returns the minimum tokens that the actor has consumed."""
        total = self._consumed.get(key, 0)
        if self.head == len(self.tasks) or key not in self.tasks[self.head].consumes:
            return total
        task = self.tasks[self.head]
        passes, steps = divmod(self.done - task.first, len(task.steps))
        total += passes * task.consumes[key] + sum(_consumed(step, key) for step in task.steps[:steps])
        if self.begun > self.done:
            total += _of(task.steps[steps].acquires, key)
        return total

    def _balance(self, key: Resource) -> int:
        """Returns consumed minus produced tokens of the tasks before ``head``."""
        return self._consumed.get(key, 0) - self._produced.get(key, 0)

    def max_held(self, key: Resource) -> int:
        """Returns the lower bound on the most tokens held at once, of a resource consumed and produced."""
        most = max(self._held.get(key, 0), self._balance(key))
        if self.head == len(self.tasks) or self.begun <= self.tasks[self.head].first:
            return most
        return max(most, self._balance(key) + _of(self.tasks[self.head].steps[0].acquires, key))

    def reset_held(self, key: Resource) -> None:
        """Forgets the tokens held before; all tasks must have ended."""
        self._held[key] = self._balance(key)

    def produced(self, key: Resource) -> int:
        """Returns the minimum tokens that the actor has produced, by whole steps."""
        total = self._produced.get(key, 0)
        if self.head == len(self.tasks) or key not in self.tasks[self.head].produces:
            return total
        task = self.tasks[self.head]
        passes, steps = divmod(self.done - task.first, len(task.steps))
        return total + passes * task.produces[key] + sum(_produced(s, key) for s in task.steps[:steps])

    def steps_to_produce(self, key: Resource, wanted: int) -> tuple[int, int]:
        """Returns (done, begun) at the point where ``wanted`` tokens are produced; 0, 0 if already passed."""
        if wanted <= self._produced.get(key, 0):
            return 0, 0
        for index in range(self.head, len(self.tasks)):
            task = self.tasks[index]
            per_pass = task.produces.get(key, 0)
            if not per_pass or not 0 < (left := wanted - task.produced_before[key]) <= per_pass * task.passes:
                continue
            passes = (left - 1) // per_pass
            left -= passes * per_pass
            at = task.first + passes * len(task.steps)
            return self._in_pass(task.steps, key, left, at)
        return 0, 0

    @staticmethod
    def _in_pass(steps: tuple[Step, ...], key: Resource, left: int, at: int) -> tuple[int, int]:
        for number, step in enumerate(steps, at):
            sent, released = _of(step.sends, key), _of(step.releases, key)
            if left <= sent:
                ended = left == sent and not released and (step.last is None or key in step.last)
                return number + ended, number + 1
            left -= sent + released
            if left <= 0:
                return number + 1, number + 1
        return 0, 0

    def producer_at(self, key: Resource, begins: int) -> tuple[Step, Task, int] | None:
        """Returns the step whose first token follows ``begins`` produced tokens: (step, task, pass)."""
        for task in reversed(self.tasks):
            before, per_pass = task.produced_before.get(key, 0), task.produces.get(key, 0)
            if not before <= begins < before + per_pass * task.passes:
                continue
            passes, left = divmod(begins - before, per_pass)
            for step in task.steps:
                amount = _produced(step, key)
                if not left and amount:
                    return step, task, passes
                left -= amount
            return None
        return None

    def consumed_before(self, key: Resource, task: Task, passes: int, step: Step) -> int:
        """Returns the tokens consumed before a step of a task."""
        total = task.consumed_before.get(key, 0) + passes * task.consumes.get(key, 0)
        for other in task.steps:
            if other is step:
                break
            total += _consumed(other, key)
        return total
