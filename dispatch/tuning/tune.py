# SPDX-License-Identifier: Apache-2.0
"""Tunes problems: looks for solutions that the simulated device runs faster than those of the search."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from onedispatch.dispatch.base import arguments
from onedispatch.dispatch.base.version import installed_version
from onedispatch.dispatch.tuning.explore import Answer, Measure, Measured, Task, Tuning
from onedispatch.dispatch.tuning.order import Known, Order, Run
from onedispatch.dispatch.tuning.workers import KINDS, workers_of
from onedispatch.operators.catalog import log as logs
from onedispatch.operators.catalog.log import Tuned
from onedispatch.operators.scheduling.problem import Problem
from onedispatch.transactions import Device, find_device
from onedispatch.transactions.base.boundary import attributed_to, public
from onedispatch.transactions.base.errors import InputError
from onedispatch.transactions.base.files import FilePath
from onedispatch.transactions.base.signature import bounded_repr
from onedispatch.transactions.machine.device import DeviceName

MOST_JOBS = 1024
MOST_WEIGHT = (1 << 63) - 1


@public
def tune(
    problems: Mapping[Problem, int],
    device: Device | DeviceName,
    budget_seconds: float | None = None,
    *,
    log: FilePath | None = None,
    jobs: int = 1,
    workers: str = "threads",
    scheduler: str = "",
    progress: Callable[[Sequence[Tuning]], None] | None = None,
) -> list[Tuning]:
    """Measures solutions of ``problems``, as long as that gains something, and returns the best of each.

    Each begins with the search's solution, which is measured in any case: what is returned is never
    slower. Then come those that the cost model finds nearly as good, and then those near the best so far,
    until three batches of these gain nothing. Without a budget the result is the same on every machine, with
    any number of workers. Problems that cost most, counted as often as they occur, come first.

    Args:
        problems: with their weights: how often each occurs.
        device: the one that the problems name, or its name.
        budget_seconds: after which nothing more is begun; None for no end.
        log: a tuner's log, which every measurement is appended to at once, made where it is not there. Its
            rows of this version of the package are not measured again.
        jobs: how many workers.
        workers: ``"threads"`` or ``"processes"``.
        scheduler: the address of a Dask scheduler, whose workers take their place.
        progress: is given all that is known after every measurement.

    Raises:
        InputError: a wrong argument, or no cluster at that address.
        SolutionError: a problem of another device, or of a kernel that is not declared.
        CatalogError: the log is no log, damaged, or cannot be written.
        ResourceError: workers end one after the other.
    """
    target = device if isinstance(device, Device) else find_device(device)
    arguments.integer("jobs", jobs, 1, MOST_JOBS)
    arguments.choice("workers", workers, KINDS)
    if budget_seconds is not None and not budget_seconds >= 0:
        raise InputError("budget_seconds", bounded_repr(budget_seconds), "seconds, 0 or more, or None")
    for problem, weight in problems.items():
        arguments.integer("problems, weight", weight, 0, MOST_WEIGHT)
        problem.check_device(target)
        _ = problem.nest  # raises for kernels that are not declared
    until = None if budget_seconds is None else time.monotonic() + budget_seconds
    tunings = [Tuning(problem, weight) for problem, weight in problems.items()]
    runs, kept = list(map(Run, range(len(tunings)), tunings)), _Log(log)

    def notify(answered: Sequence[tuple[Task, Answer]]) -> None:
        kept.append(answered)
        if progress is not None:
            with attributed_to(progress, "progress of tune"):
                progress(tunings)

    with workers_of(target, jobs, workers, scheduler) as those:
        Order(runs, those, kept.known, until, notify).go()
    return tunings


class _Log:
    """What is known of earlier measurements, and where new ones go."""

    def __init__(self, path: FilePath | None) -> None:
        self._path, self._version = path, installed_version()  # rows of a log name it
        if path is not None:
            logs.check_appendable(path)
        rows = logs.read(path) if path is not None and Path(path).exists() else []
        self.known: Known = {
            (row.problem, row.solution): Measured(row.cycles, row.estimated)
            for row in rows
            if row.version == self._version
        }

    def append(self, answered: Iterable[tuple[Task, Answer]]) -> None:
        rows = [
            Tuned(task.problem, task.solution, answer.cycles, answer.estimated, self._version)
            for task, answer in answered
            if isinstance(task, Measure) and isinstance(answer, Measured)
        ]
        if rows and self._path is not None:
            logs.append(self._path, rows)
