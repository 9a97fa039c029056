# SPDX-License-Identifier: Apache-2.0
"""Which problems a model poses, and how often."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from onedispatch.dispatch.compiler.passes import Pass, observed
from onedispatch.dispatch.compiler.phases import EmittedGraph
from onedispatch.operators.catalog.catalog import Catalog
from onedispatch.operators.catalog.selector import CatalogSearch
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.operators.scheduling.problem import Problem
from onedispatch.operators.scheduling.select import Search
from onedispatch.operators.scheduling.solution import Solution
from onedispatch.transactions import Device


class Recording(CatalogSearch):
    """The search, behind catalogs, which records what it is asked."""

    def __init__(self, catalogs: Sequence[Catalog]) -> None:
        super().__init__(catalogs)
        self.asked: dict[Problem, None] = {}

    def select(self, problem: Problem, device: Device) -> Solution:
        self.asked[problem] = None
        return super().select(problem, device)

    def sketch(self, nest: Nest, device: Device) -> tuple[Solution, float]:
        found = super().sketch(nest, device)  # raises where nothing fits: no problem that a tuner could solve
        self.asked[Problem.of(nest, device)] = None
        return found


@dataclass
class _Placed:
    """An observer of passes that counts the problems of the operators that were emitted."""

    counts: Counter[Problem] = field(default_factory=Counter)

    def after(self, ran: Pass, before: Any, result: Any, seconds: float) -> None:
        if isinstance(result, EmittedGraph):
            operators = [op for op in result.operators if not op.owns_transaction]
            schedules = [schedule for op in operators for schedule in op.schedules]
            self.counts.update(Problem.of(one.nest, one.device) for one in schedules)


def problems_of(
    compile: Callable[[Search], object], catalogs: Sequence[Catalog] = ()
) -> Mapping[Problem, int]:
    """The problems of what ``compile`` compiles with the selector that it is given, with how many nests of
    the result are each. That selector asks ``catalogs`` first: what stays in memory tiles depends on how its
    makers and readers are solved. Problems that were solved on the way to it alone count 0 times: a plan of
    what stays in memory tiles may need them. Those of custom kernels are left out.
    """
    selector, placed = Recording(catalogs), _Placed()
    with observed(placed):
        compile(selector)
    every = dict.fromkeys((*selector.asked, *placed.counts), 0) | placed.counts
    return {problem: count for problem, count in every.items() if not problem.nest.kernel.members}
