# SPDX-License-Identifier: Apache-2.0
"""Selection by measuring: what no catalog knows is tried on the simulated device's clock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from onedispatch.dispatch.base import arguments
from onedispatch.dispatch.tuning.explore import OFFERS
from onedispatch.dispatch.tuning.measure import measure
from onedispatch.dispatch.tuning.moves import offers
from onedispatch.operators.catalog.catalog import Catalog
from onedispatch.operators.catalog.choice import NEAREST
from onedispatch.operators.catalog.layers import NONE, layers
from onedispatch.operators.catalog.selector import CatalogSearch
from onedispatch.operators.catalog.tree import SEARCH
from onedispatch.operators.scheduling.problem import Problem
from onedispatch.operators.scheduling.schedule import Schedule
from onedispatch.operators.scheduling.search import estimated
from onedispatch.operators.scheduling.solution import Solution
from onedispatch.transactions import Device
from onedispatch.transactions.base.errors import SolutionError

COUNTED = 4  # times as many as are measured
MOST_MEASURED = 1024


class MeasuredSearch(CatalogSearch):
    """A ``Selector`` that measures: of problems that no catalog has a row or rule for, several solutions that
    the cost model finds nearly the best run on the simulator's clock, and the fastest is taken.

    The same model gives the same choice in every process. Compiling takes longer, by some hundredths of a
    second for each solution; equal problems are measured once. Problems of custom kernels are searched.

    Args:
        count: solutions that are measured at most, beside the one that would be taken without measuring.
        catalog: files and folders, as of ``compile``; the environment's and the one that ships come behind.
        pins: names of solutions that are taken wherever a table has them and they fit.

    Raises ``InputError`` for another count, or for what are no paths or texts, ``CatalogError`` for a path
    that is no catalog's, ``SolutionError`` for a pin that is no name.
    """

    def __init__(
        self, count: int = OFFERS, catalog: Sequence[str] | None = None, pins: Sequence[str] = ()
    ) -> None:
        self._count = arguments.integer("count", count, 1, MOST_MEASURED)
        paths = None if catalog is None else arguments.paths("catalog", catalog)
        super().__init__([Catalog(path) for path in layers(paths)], arguments.names("pins", pins))

    def __reduce__(self) -> tuple[Any, ...]:
        paths = [*(one.path for one in self.catalogs), NONE]
        return type(self), (self._count, paths, tuple(sorted(self.pins)))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._count})"

    def solve(self, problem: Problem, device: Device) -> tuple[Solution, float]:
        """See ``CatalogSearch.solve``."""
        unmeasured, cost, how = self.solved(problem, device)
        if how not in (NEAREST, SEARCH):
            return unmeasured, cost
        tried = list(self._measured(problem, device, unmeasured))
        if not tried:
            return unmeasured, cost
        cycles, number, fastest = min(tried)
        self.keep_origin(problem, f"measured, {cycles:,} cycles, of {len(tried)} the fastest")
        if number == 0:
            return unmeasured, cost
        return fastest, estimated(Schedule(problem.nest, device, fastest))

    def _measured(
        self, problem: Problem, device: Device, unmeasured: Solution
    ) -> Iterator[tuple[int, int, Solution]]:
        """Yields cycles, number and solution of those that fit; the number breaks ties."""
        offered = offers(problem, device, COUNTED * self._count)
        others = (one for one in offered if one != unmeasured)
        for number, solution in enumerate((unmeasured, *islice(others, self._count))):
            try:
                yield measure(problem, solution, device), number, solution
            except SolutionError:  # it does not fit, or is a custom kernel's
                continue
