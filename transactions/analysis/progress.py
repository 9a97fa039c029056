# SPDX-License-Identifier: Apache-2.0
"""How far a channel or a core must have come: tasks as steps that take and give.

A step of a DMA channel is one run of a BD: it takes from its lock when it begins, moves words, and
gives to its lock when it ends. A step of a core is all that it does for one parameter block.
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
"""Of those that are known to have ended: parameter blocks are looked up in them."""


class Step(NamedTuple):
    """One step.

    Attributes:
        use: the BD; None for a core.
        acquires: taken when it begins.
        receives: taken by the time it ends.
        sends: given one by one; when all of it has been given, the step has ended.
        gives: given when it ends.
        last: those of ``sends`` that say that it has ended; None for all.
    """

    use: BdUse | None
    acquires: Amounts
    receives: Amounts
    sends: Amounts
    gives: Amounts
    last: frozenset[Resource] | None = None


@dataclass(slots=True)
class Task:
    """``passes`` times the ``steps``, the first of which is number ``first`` of the actor."""

    first: int
    passes: int
    steps: tuple[Step, ...]
    takes: Mapping[Resource, int]
    """Of one pass."""
    gives: Mapping[Resource, int]
    taken_before: Mapping[Resource, int]
    """What the actor took before, of what the task takes."""
    given_before: Mapping[Resource, int]

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
    """Adds; what it was before."""
    before = total.get(key, 0)
    total[key] = before + amount
    return before


def _of(amounts: Amounts, key: Resource) -> int:
    return sum(amount for other, amount in amounts if other == key)


def _beyond(step: Step, key: Resource) -> int:
    """What a step that has ended must have had at a time of what it takes, some of which it gives back."""
    taken = _of(step.acquires, key) + _of(step.receives, key)
    given = _of(step.sends, key) + _of(step.gives, key)
    return max(min(taken, 1), taken - given)


@dataclass(slots=True, eq=False)
class Actor:
    """Somebody who does one step after the other.

    Attributes:
        done: steps that must have ended.
        begun: steps that must have begun: as many, or one more.
        all_taken: what all tasks so far take, and ``all_given`` give.
    """

    tasks: list[Task] = field(default_factory=list)
    head: int = 0
    """The first task that may not have ended."""
    steps: int = 0
    done: int = 0
    begun: int = 0
    all_taken: dict[Resource, int] = field(default_factory=dict)
    all_given: dict[Resource, int] = field(default_factory=dict)
    _taken: dict[Resource, int] = field(default_factory=dict)
    """By the tasks before ``head``."""
    _given: dict[Resource, int] = field(default_factory=dict)
    _held: dict[Resource, int] = field(default_factory=dict)
    """The most that it must have had, since its balance was last known, of what it took and had not given
    back, by the tasks before ``head``."""
    _sums: dict[int, tuple[tuple[Step, ...], dict[Resource, int], dict[Resource, int]]] = field(
        default_factory=dict
    )

    def push(self, steps: tuple[Step, ...], passes: int) -> Task:
        known = self._sums.get(id(steps))
        if known is None or known[0] is not steps:
            takes = _sum(*(s.acquires for s in steps), *(s.receives for s in steps))
            gives = _sum(*(s.sends for s in steps), *(s.gives for s in steps))
            self._sums.clear()
            known = self._sums[id(steps)] = (steps, takes, gives)
        _, takes, gives = known
        before = [
            {key: _add(total, key, amount * passes) for key, amount in amounts.items()}
            for total, amounts in ((self.all_taken, takes), (self.all_given, gives))
        ]
        task = Task(self.steps, passes, steps, takes, gives, *before)
        self.tasks.append(task)
        self.steps = task.end
        return task

    def advance(self, done: int, begun: int) -> set[Resource]:
        """It must have come at least so far; what it may have taken on the way."""
        begun = max(begun, done)
        done = max(done, begun - 1)
        taken: set[Resource] = set()
        if done <= self.done and begun <= self.begun:
            return taken
        self.done, self.begun = max(self.done, done), max(self.begun, begun)
        while self.head < len(self.tasks):
            task = self.tasks[self.head]
            taken.update(task.takes)
            if task.end > self.done:
                break
            for key in task.takes:
                if key in self.all_given:
                    held = self._kept(key) + _beyond(task.steps[0], key)
                    self._held[key] = max(self._held.get(key, 0), held)
            for total, amounts in ((self._taken, task.takes), (self._given, task.gives)):
                for key, amount in amounts.items():
                    _add(total, key, amount * task.passes)
            self.head += 1
        if self.head > 2 * _TASKS_KEPT:
            del self.tasks[: self.head - _TASKS_KEPT]
            self.head = _TASKS_KEPT
        return taken

    def taken(self, key: Resource) -> int:
        """What it must have taken."""
        total = self._taken.get(key, 0)
        if self.head == len(self.tasks) or key not in self.tasks[self.head].takes:
            return total
        task = self.tasks[self.head]
        passes, steps = divmod(self.done - task.first, len(task.steps))
        total += passes * task.takes[key]
        for step in task.steps[:steps]:
            total += _of(step.acquires, key) + _of(step.receives, key)
        if self.begun > self.done:
            total += _of(task.steps[steps].acquires, key)
        return total

    def _kept(self, key: Resource) -> int:
        """What it took and has not given back, by the tasks before ``head``."""
        return self._taken.get(key, 0) - self._given.get(key, 0)

    def held(self, key: Resource) -> int:
        """The most that it must have had at a time, of what it takes and gives back step by step."""
        most = max(self._held.get(key, 0), self._kept(key))
        if self.head == len(self.tasks) or self.begun <= self.tasks[self.head].first:
            return most
        return max(most, self._kept(key) + _of(self.tasks[self.head].steps[0].acquires, key))

    def begin_anew(self, key: Resource) -> None:
        """All of its tasks have ended, and what it had before counts no longer."""
        self._held[key] = self._kept(key)

    def given(self, key: Resource) -> int:
        """What it must have given by whole steps."""
        total = self._given.get(key, 0)
        if self.head == len(self.tasks) or key not in self.tasks[self.head].gives:
            return total
        task = self.tasks[self.head]
        passes, steps = divmod(self.done - task.first, len(task.steps))
        total += passes * task.gives[key]
        return total + sum(_of(s.sends, key) + _of(s.gives, key) for s in task.steps[:steps])

    def steps_for(self, key: Resource, wanted: int) -> tuple[int, int]:
        """(done, begun) when ``wanted`` of it has been given; 0, 0 if that was long ago."""
        if wanted <= self._given.get(key, 0):
            return 0, 0
        for index in range(self.head, len(self.tasks)):
            task = self.tasks[index]
            per_pass = task.gives.get(key, 0)
            if not per_pass or not 0 < (left := wanted - task.given_before[key]) <= per_pass * task.passes:
                continue
            passes = (left - 1) // per_pass
            left -= passes * per_pass
            at = task.first + passes * len(task.steps)
            return self._in_pass(task.steps, key, left, at)
        return 0, 0

    @staticmethod
    def _in_pass(steps: tuple[Step, ...], key: Resource, left: int, at: int) -> tuple[int, int]:
        for number, step in enumerate(steps, at):
            sent, given = _of(step.sends, key), _of(step.gives, key)
            if left <= sent:
                ended = left == sent and not given and (step.last is None or key in step.last)
                return number + ended, number + 1
            left -= sent + given
            if left <= 0:
                return number + 1, number + 1
        return 0, 0

    def sender_of(self, key: Resource, begins: int) -> tuple[Step, Task, int] | None:
        """The step that begins to give when ``begins`` has been given: (step, task, pass)."""
        for task in reversed(self.tasks):
            before, per_pass = task.given_before.get(key, 0), task.gives.get(key, 0)
            if not before <= begins < before + per_pass * task.passes:
                continue
            passes, left = divmod(begins - before, per_pass)
            for step in task.steps:
                if not left and _of(step.sends, key) + _of(step.gives, key):
                    return step, task, passes
                left -= _of(step.sends, key) + _of(step.gives, key)
            return None
        return None

    def taken_before(self, key: Resource, task: Task, passes: int, step: Step) -> int:
        """What it has taken before a step of a task."""
        total = task.taken_before.get(key, 0) + passes * task.takes.get(key, 0)
        for other in task.steps:
            if other is step:
                break
            total += _of(other.acquires, key) + _of(other.receives, key)
        return total
