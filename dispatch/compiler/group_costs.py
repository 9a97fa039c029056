# SPDX-License-Identifier: Apache-2.0
"""What operators cost where tensors stay in memory tiles, for the planner of groups.

Operators that are the same problem are asked about once. What was chosen beside less in memory tiles stays
the choice beside more, as long as its rings and panels fit: with less room, no other solution gets cheaper.
Plans go by the search. Another selector is asked about the nests that are to run so; where it has no answer
that fits, they do not.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from onedispatch.dispatch.compiler.mapping import Unit, roots_of
from onedispatch.operators.declarations.tensor import TensorSpec, Unsupported
from onedispatch.operators.emission.mem_tile import MemTile
from onedispatch.operators.interface.operator import Operator
from onedispatch.operators.scheduling.buffer import Buffer
from onedispatch.operators.scheduling.feeds import Feeds
from onedispatch.operators.scheduling.index_space import OUTPUT
from onedispatch.operators.scheduling.keeping import (
    beside,
    check_order,
    column_kind,
    in_buffers,
    steps_of,
    with_less_room,
)
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.operators.scheduling.problem import Problem
from onedispatch.operators.scheduling.schedule import Schedule
from onedispatch.operators.scheduling.search import estimated
from onedispatch.operators.scheduling.select import SEARCH, Search, Selector, select
from onedispatch.transactions import Device
from onedispatch.transactions.base.cached import cached_property
from onedispatch.transactions.base.errors import SolutionError

Shapes = tuple[tuple[int, Buffer], ...]  # buffers of an operator's tensors, by the numbers of its nest
_Key = tuple[int, Shapes]

NO_SINGLE_NEST = "is no single loop nest"
OWN_ANSWERS = "has a class with arguments, schedules or a transaction of its own"


@dataclass(frozen=True)
class Solved:
    """How the nests of an operator run beside what stays in memory tiles, and their modelled cycles."""

    schedules: tuple[Schedule, ...]
    cycles: float
    beside: int  # the words of memory tiles that were taken when it was chosen

    def of(self, nests: Sequence[Nest]) -> tuple[Schedule, ...]:
        """The same for nests that are the same problems."""
        return tuple(replace(one, nest=nest) for nest, one in zip(nests, self.schedules, strict=True))


_Known = dict[int, Solved | None]  # by the words of memory tiles that are taken; None: it cannot run so
_Choose = Callable[[Nest], tuple[Schedule, float | None]]


@dataclass
class OperatorCosts:
    """Answers what the operators of ``units`` cost with buffers; where they cannot run so, why not."""

    units: Sequence[Unit]
    device: Device
    selector: Selector
    _nests: dict[_Key, tuple[Nest, ...] | str] = field(default_factory=dict)
    _sketched: dict[_Key, _Known] = field(default_factory=dict)
    _best: dict[_Key, _Known] = field(default_factory=dict)
    _settled: dict[tuple[int, Shapes, int], Solved | None] = field(default_factory=dict)

    @cached_property
    def operators(self) -> dict[int, Operator]:
        return {i: unit.operator for i, unit in enumerate(self.units) if unit.operator is not None}

    @property
    def search(self) -> Search:
        """The search that plans go by: the selector, if it is one."""
        return self.selector if isinstance(self.selector, Search) else SEARCH

    @property
    def _others_select(self) -> bool:
        return self.search is not self.selector

    @cached_property
    def roots(self) -> dict[str, str]:
        return roots_of(self.units)

    def root(self, tensor: TensorSpec) -> str:
        """The tensor whose bytes an operator reads or writes as ``tensor``."""
        return self.roots.get(tensor.name, tensor.name)

    @cached_property
    def numbers(self) -> dict[int, tuple[tuple[str, int], ...]]:
        """The tensors of every unit's operator, with the numbers that its nest calls them by."""
        return {
            i: (
                *((self.root(t), n) for n, t in enumerate(op.inputs)),
                *((t.name, OUTPUT - n) for n, t in enumerate(op.outputs)),
            )
            for i, op in self.operators.items()
        }

    @cached_property
    def kinds(self) -> dict[int, int]:
        """Numbers of units; those of the same problems, whose views begin alike, have one. Operators that
        answer themselves have their own."""
        kinds: dict[Hashable, int] = {}
        found: dict[int, int] = {}
        for i, operator in self.operators.items():
            nests = operator.plain_nests if operator.may_keep else ()
            problems = tuple(Problem.of(nest, self.device) for nest in nests) or i
            named = tuple(self.root(t) == self.root(operator.inputs[0]) for t in operator.inputs)
            begins = tuple(x.offset for nest in nests for x in nest.strided)
            found[i] = kinds.setdefault((problems, named, begins), i)
        return found

    def cycles(self, i: int, shapes: Shapes, occupied: int) -> float:
        """Modelled cycles of unit ``i`` with buffers of these ``shapes`` while ``occupied`` words of memory
        tiles are taken, nearly as it will run; infinity where it cannot run so."""
        known = self._known(self._sketched, i, shapes)
        if occupied not in known:
            known[occupied] = self._solve(i, shapes, occupied, known, self._sketch)
        solved = known[occupied]
        return inf if solved is None else solved.cycles

    def settled(
        self, i: int, shapes: Shapes, occupied: int, buffers: Mapping[int, Buffer]
    ) -> tuple[Schedule, ...] | None:
        """How unit ``i`` runs so, with ``buffers`` in their places. None where memory tiles have too few
        descriptors for it: it costs infinity from here on."""
        nests, key = self._nests_of(i, buffers, occupied), (self.kinds[i], shapes, occupied)
        if key not in self._settled:
            self._settled[key] = self._settle(i, shapes, occupied, nests)
        solved = self._settled[key]
        if solved is None:
            known = self._known(self._sketched, i, shapes)
            if shapes and self._others_select:  # nor with less room
                known.clear()
                known[0] = None
            known[occupied] = None
            return None
        return solved.of(nests)

    def _settle(self, i: int, shapes: Shapes, occupied: int, nests: Sequence[Nest]) -> Solved | None:
        """The best for unit ``i``, or what was nearly the best, as far as memory tiles have descriptors."""
        known = self._known(self._best, i, shapes)
        sketch = self._known(self._sketched, i, shapes).get(occupied)
        for words in (occupied,) if sketch is None else (sketch.beside, occupied):
            if words not in known:
                known[words] = self._solve(i, shapes, words, known, self._select)
        tried = (one for one in (known[occupied], None if self._others_select else sketch) if one is not None)
        return next((one for one in tried if all(map(_has_descriptors, one.of(nests)))), None)

    def _known(self, which: dict[_Key, _Known], i: int, shapes: Shapes) -> _Known:
        """What is known of a unit with such buffers; without any, how it runs beside nothing."""
        key = self.kinds[i], shapes
        if key not in which:
            which[key] = {} if shapes else {0: self._plain(i)}
        return which[key]

    def _plain(self, i: int) -> Solved:
        schedules = tuple(self.operators[i].schedules)
        return Solved(schedules, sum(_cycles(one, self._known_cycles(one)) for one in schedules), 0)

    def refusal(self, i: int, shapes: Shapes) -> str:
        """Why the loop nest of a unit's operator cannot be cut as buffers are; "" where it can."""
        operator, nests = self.operators[i], self._cut(i, shapes)
        if operator.may_keep and len(operator.plain_nests) != 1:
            nests = NO_SINGLE_NEST
        return f"{operator.name} {nests}" if isinstance(nests, str) else ""

    def takes_of_neighbours(self, i: int, shapes: Shapes) -> bool:
        """Whether columns of a unit with such buffers take what their neighbours have, too."""
        nests = self._cut(i, shapes)
        return not isinstance(nests, str) and any(nest.halo is not None for nest in nests)

    def _solve(self, i: int, shapes: Shapes, occupied: int, known: _Known, choose: _Choose) -> Solved | None:
        """How unit ``i`` runs so: as beside less, where that still fits, else as ``choose`` says."""
        nests = self._cut(i, shapes)
        less = max((words for words in known if words < occupied), default=None)
        before = None if less is None else known[less]
        if isinstance(nests, str) or (less is not None and before is None):
            return None
        nests = tuple(beside(nest, occupied) for nest in nests)
        if before is not None:
            same = [with_less_room(*one) for one in zip(nests, before.schedules, strict=True)]
            if None not in same:
                return replace(before, schedules=tuple(one for one in same if one is not None))
        try:
            found = [choose(nest) for nest in nests]
            for plain, (schedule, _) in zip(self.operators[i].schedules, found, strict=True):
                check_order(plain, schedule)
        except (Unsupported, SolutionError):
            return None
        return Solved(tuple(one for one, _ in found), sum(_cycles(*one) for one in found), occupied)

    def _cut(self, i: int, shapes: Shapes) -> tuple[Nest, ...] | str:
        """The nests of an operator that is the same problems as a unit's, or why they cannot be cut so."""
        key = self.kinds[i], shapes
        if key not in self._nests:
            self._nests[key] = self._cut_anew(i, shapes)
        return self._nests[key]

    def _cut_anew(self, i: int, shapes: Shapes) -> tuple[Nest, ...] | str:
        operator = self.operators[i]
        if not operator.may_keep:
            return OWN_ANSWERS
        if shapes and len(operator.plain_nests) != 1:
            return NO_SINGLE_NEST
        try:
            return self._nests_of(i, dict(shapes), 0)
        except Unsupported as error:
            return f"cuts it otherwise: {error.reason}"

    def _nests_of(self, i: int, buffers: Mapping[int, Buffer], occupied: int) -> tuple[Nest, ...]:
        """The nests of a unit's own operator. Raises ``Unsupported`` where they cannot be cut so."""
        nests = zip(self.operators[i].plain_nests, self.operators[i].schedules, strict=True)
        return tuple(in_buffers(nest, buffers, occupied, steps_of(schedule)) for nest, schedule in nests)

    def _select(self, nest: Nest) -> tuple[Schedule, float | None]:
        """A nest as the selector solves it, and what that costs where it knows."""
        schedule = select(nest, self.device, self.selector)
        return schedule, self._known_cycles(schedule)

    def _sketch(self, nest: Nest) -> tuple[Schedule, float | None]:
        """The same, nearly, as the search solves it."""
        solution, cycles = self.search.sketch(nest, self.device)
        return Schedule(nest, self.device, solution), cycles

    def _known_cycles(self, schedule: Schedule) -> float | None:
        return None if self._others_select else self.search.cost_of(schedule)


def _cycles(schedule: Schedule, known: float | None) -> float:
    return estimated(schedule) if known is None else known


def _has_descriptors(schedule: Schedule) -> bool:
    """Whether memory tiles have as many descriptors as a schedule needs, and those of cores say how."""
    if any(schedule.kept):
        feeds = Feeds(schedule)
        try:
            _ = schedule.arrival
            for column, rows in _columns_apart(schedule, feeds):
                MemTile(schedule, rows, feeds, column)
        except SolutionError:
            return False
    return True


def _columns_apart(schedule: Schedule, feeds: Feeds) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Columns whose memory tiles differ, with the core rows that each serves."""
    last = schedule.mapping.columns - 1
    served = {column: tuple(feeds.rows_served(column)) for column in range(last + 1)}
    kinds = {column_kind(schedule, column): column for column in (0, min(1, last), last)}
    for column in sorted({*{rows: column for column, rows in served.items()}.values(), *kinds.values()}):
        yield column, served[column]
