# SPDX-License-Identifier: Apache-2.0
"""Solutions that are nearly the best, for a part of the work: plans ask about many nests and take few.

Nests that differ in nothing but what stays in memory tiles share what no mapping changes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Any

from onedispatch.operators.scheduling.candidates import candidates
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.operators.scheduling.problem import Problem
from onedispatch.operators.scheduling.search import Shortlist, checked, counted_cheapest, in_plain_order
from onedispatch.operators.scheduling.solution import Solution
from onedispatch.operators.scheduling.tilings import Tilings
from onedispatch.transactions import Device

RECENT = 512  # shortlists and meshes that are kept


class Sketches:
    """The cheapest of shortlists in plain loop order; equal problems are sketched once."""

    def __init__(self, kept: int) -> None:
        self._kept = kept
        self._found: OrderedDict[Problem, tuple[Solution, float]] = OrderedDict()
        self._shortlists: OrderedDict[Problem, Shortlist] = OrderedDict()
        self._tilings: OrderedDict[Hashable, Tilings] = OrderedDict()

    def of(self, problem: Problem, nest: Nest, device: Device) -> tuple[Solution, float]:
        """A solution and its modelled cycles. Raises ``Unsupported`` where no tile fits."""
        found = self._found.get(problem)
        if found is None:
            listed = checked(in_plain_order(nest, device, self._tilings_of(problem, nest, device)))
            found = counted_cheapest(listed)
            _keep(self._shortlists, problem, listed, RECENT)
            _keep(self._found, problem, found, self._kept)
        return found

    def shortlist(self, problem: Problem) -> Shortlist | None:
        """What a problem was sketched by, if that was lately."""
        return self._shortlists.pop(problem, None)

    def _tilings_of(self, problem: Problem, nest: Nest, device: Device) -> Tilings:
        alike = problem.in_device_memory, nest.split
        found = self._tilings.get(alike)
        if found is None:
            found = Tilings(nest, device, *candidates(nest))
            _keep(self._tilings, alike, found, RECENT)
        return found


def _keep(kept: OrderedDict[Any, Any], key: Hashable, value: object, most: int) -> None:
    kept[key] = value
    while len(kept) > most:
        kept.popitem(last=False)
