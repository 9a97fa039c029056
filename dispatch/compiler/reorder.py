# SPDX-License-Identifier: Apache-2.0
"""Transposes that move nothing: readers read the elements where they lie, or their maker writes them in the
other order, where the views of all of these can and that costs less. What a Transpose made is then another
name for the bytes of what it read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from operator import itemgetter

from onedispatch.dispatch.compiler.mapping import Unit, alias_unit, elsewhere, roots_of
from onedispatch.operators.declarations.tensor import Unsupported
from onedispatch.operators.interface.operator import Alias, Operator
from onedispatch.operators.scheduling.index_space import OUTPUT
from onedispatch.operators.scheduling.problem import Problem
from onedispatch.operators.scheduling.reordered import Order
from onedispatch.operators.scheduling.schedule import Schedule
from onedispatch.operators.scheduling.search import estimated
from onedispatch.operators.scheduling.select import Selector
from onedispatch.operators.scheduling.solution import Solution
from onedispatch.transactions.base.errors import SolutionError

_Users = list[tuple[int, int, Order]]  # unit, number of its tensor, and in which order that lies
_Changed = dict[int, Operator]  # operators in another form, by the numbers of their units


def reorder(units: Sequence[Unit], outputs: frozenset[str], selector: Selector) -> tuple[Unit, ...]:
    """The units, with solutions, without transpositions that cost more than other views of their data."""
    planner = _Planner(list(units), outputs, selector)
    for number in range(len(units)):
        planner.settle(number)
    return tuple(planner.units)


@dataclass
class _Planner:
    units: list[Unit]
    outputs: frozenset[str]
    selector: Selector
    costs: dict[tuple[Problem, Solution], float] = field(default_factory=dict)  # layers of a network repeat

    def settle(self, number: int) -> None:
        """Leaves a unit out, if it is a transposition and that costs less."""
        move = self.units[number].operator
        order = None if move is None else move.transposition
        if move is None or order is None:
            return
        ways = filter(None, map(self._changed, self._users(number, move, order)))
        cost, best = min(((self._more(way), way) for way in ways), key=itemgetter(0), default=(inf, {}))
        if cost < self._cycles(move):
            for at, operator in best.items():
                self.units[at] = replace(self.units[at], operator=operator)
            alias = Alias(move.output, move.inputs[0])
            self.units[number] = alias_unit(self.units[number].nodes, alias)

    def _users(self, number: int, move: Operator, order: Order) -> Iterator[_Users]:
        """Those that would see the tensor in another order: readers of the result, or the maker."""
        roots = roots_of(self.units)
        fixed = elsewhere(self.units, self.outputs, roots)
        made, read = (roots.get(tensor.name, tensor.name) for tensor in (move.output, move.inputs[0]))
        if made in fixed:
            return
        yield [(at, n, order) for at, n in self._reading(made, roots)]
        makers = [
            (at, OUTPUT - n, order.reverse)
            for at, unit in enumerate(self.units)
            for n, tensor in enumerate(unit.operator.outputs if unit.operator is not None else ())
            if tensor.name == read
        ]
        if read not in fixed and [at for at, _ in self._reading(read, roots)] == [number]:
            yield makers

    def _reading(self, root: str, roots: Mapping[str, str]) -> Iterator[tuple[int, int]]:
        """The units that read a tensor, by any of its names, and as which of their inputs."""
        for at, unit in enumerate(self.units):
            for n, tensor in enumerate(unit.operator.inputs if unit.operator is not None else ()):
                if roots.get(tensor.name, tensor.name) == root:
                    yield at, n

    def _changed(self, users: _Users) -> _Changed:
        """The operators that see their tensors in another order; none where one of them cannot."""
        changed: _Changed = {}
        for at, number, order in users:
            operator = changed.get(at, self.units[at].operator)
            assert operator is not None
            answers = operator.may_keep and not operator.in_place and not operator.actual_sizes
            if not answers or number in operator.orders:
                return {}
            changed[at] = operator.replaced(orders={**operator.orders, number: order})
        try:
            return {at: operator.selected(self.selector) for at, operator in changed.items()}
        except (Unsupported, SolutionError):
            return {}

    def _more(self, changed: _Changed) -> float:
        """Modelled cycles that operators take beyond what they do now."""
        now = (self.units[at].operator for at in changed)
        before = sum(self._cycles(one) for one in now if one is not None)
        return sum(map(self._cycles, changed.values())) - before

    def _cycles(self, operator: Operator) -> float:
        return sum(map(self._estimated, operator.schedules))

    def _estimated(self, schedule: Schedule) -> float:
        key = Problem.of(schedule.nest, schedule.device), schedule.solution
        if key not in self.costs:
            self.costs[key] = estimated(schedule)
        return self.costs[key]
