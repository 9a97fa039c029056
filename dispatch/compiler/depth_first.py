# SPDX-License-Identifier: Apache-2.0
"""Layer groups, first of whole tensors, then of bands of them: depth-first where memory tiles are too small.

A result that several operators around it would keep, if memory tiles had room for it, fits in bands. Of the
chains that run past such a tensor those run in bands of which the model says that they cost less so.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from operator import itemgetter

from onedispatch.dispatch.compiler.chains import Chain, chain_of, check_sums
from onedispatch.dispatch.compiler.grouping import Banded, Grouping
from onedispatch.dispatch.compiler.groups import Plan, Planner, refusal
from onedispatch.dispatch.compiler.mapping import Unit
from onedispatch.operators.declarations.tensor import Unsupported
from onedispatch.operators.interface.operator import Operator
from onedispatch.operators.scheduling.bands import BandedNest
from onedispatch.operators.scheduling.resources import resources
from onedispatch.operators.scheduling.schedule import Schedule
from onedispatch.operators.scheduling.select import Selector
from onedispatch.transactions import Device
from onedispatch.transactions.base.cached import cached_property
from onedispatch.transactions.base.errors import OperatorError, SolutionError

ROOM = 0.65  # of memory tiles that bands may take: rings and panels need some, too
LONGEST, FARTHEST = 6, 24  # operators of a chain, and units from its first to its last
LEAST_GAIN = 0.05  # of the cycles of a chain's operators: models are not that near to what runs cost


def group(
    units: Sequence[Unit], outputs: frozenset[str], device: Device, selector: Selector
) -> tuple[tuple[Unit, ...], Grouping]:
    """The units with tensors kept in memory tiles where that costs less, and what was grouped."""
    refused = refusal(units, resources(device))
    if refused:
        return tuple(units), Grouping(reason=refused)
    planner = Planner(units, outputs, resources(device), selector)
    plan = planner.best()
    chosen = _Bands(planner, plan).chosen()
    if chosen:
        banded = Planner(_replaced(units, chosen), outputs, planner.limits, selector)
        best = banded.best()
        if _cost_less(banded.cycles(best), planner.cycles(plan)):
            return banded.grouped(best), _grouping(banded.grouping(best), chosen)
    return planner.grouped(plan), planner.grouping(plan)


def _grouping(grouping: Grouping, chosen: Sequence[_InBands]) -> Grouping:
    """What was grouped, and which chains run in bands, whose results are parts of one that is named."""
    parts = {name for one in chosen for name in one.units[-1].reads}
    passed = tuple(one for one in grouping.passed if one.tensor not in parts)
    return replace(grouping, passed=passed, banded=tuple(one.said for one in chosen))


def _cost_less(banded: float, whole: float) -> bool:
    return banded < whole


@dataclass(frozen=True)
class _InBands:
    """A chain in bands, and the modelled cycles that it takes less so."""

    chain: Chain
    bands: Sequence[BandedNest]
    units: tuple[Unit, ...]
    gain: float

    @property
    def said(self) -> Banded:
        names = tuple(one.name for one in self.chain.operators)
        return Banded(names, len(self.bands), round(self.gain))


@dataclass
class _Bands:
    """Looks for chains that cost less in bands, beside a plan for whole tensors."""

    planner: Planner
    plan: Plan
    _known: dict[Hashable, tuple[int, int, float] | None] = field(default_factory=dict)

    def chosen(self) -> tuple[_InBands, ...]:
        """Chains that do not overlap and gain most together, in order."""
        best: list[tuple[float, tuple[_InBands, ...]]] = [(0.0, ())]  # with units up to one
        ending: dict[int, list[_InBands]] = {}
        for one in self._gaining():
            ending.setdefault(one.chain.last, []).append(one)
        for last in range(len(self.planner.units)):
            with_one = (
                (best[one.chain.first][0] + one.gain, (*best[one.chain.first][1], one))
                for one in ending.get(last, ())
            )
            best.append(max([best[-1], *with_one], key=itemgetter(0)))
        return best[-1][1]

    def _gaining(self) -> Iterator[_InBands]:
        """Chains that cost less in bands: from the maker of a tensor that is too large to its last reader,
        several of these in a row, and what gains with the operator behind it."""
        spans = [(i, self._last_reader(i)) for i in self._too_large]
        found = {span: self._tried(*span) for span in spans}
        for at, (first, last) in enumerate(spans):
            gains = found[first, last] is not None
            for begin, end in spans[at + 1 :]:
                if begin > last or end - first > FARTHEST:
                    break
                gains = gains or found[begin, end] is not None
                last = max(last, end)
                if gains and (first, last) not in found:
                    found[first, last] = self._tried(first, last)
        for (first, last), one in [*found.items()]:
            if one is not None and self._operators[last].output.name in self.planner.readers:
                span = first, self._last_reader(last)
                if span not in found:
                    found[span] = self._tried(*span)
        return (one for one in found.values() if one is not None)

    def _tried(self, first: int, last: int) -> _InBands | None:
        chain = self._chain(first, last)
        return None if chain is None or len(chain.operators) > LONGEST else self._best(chain)

    def _last_reader(self, i: int) -> int:
        return self.planner.readers[self._operators[i].output.name][-1]

    @cached_property
    def _too_large(self) -> list[int]:
        """Units whose results do not stay for want of room."""
        planner, columns = self.planner, self.planner.limits.device.columns
        kept = {one.tensor.name for one in self.plan.kept}
        found = []
        for i, operator in planner.costs.operators.items():
            name = operator.output.name
            if (
                name in kept
                or name in planner.elsewhere
                or name not in planner.readers
                or len(operator.outputs) > 1
            ):
                continue
            large = -(-operator.output.device_bytes // (4 * columns)) >= planner.limits.mem_words
            if large or planner.lacks_room(self.plan, i):
                found.append(i)
        return found

    @property
    def _operators(self) -> dict[int, Operator]:
        return self.planner.costs.operators

    def _chain(self, first: int, last: int) -> Chain | None:
        planner = self.planner

        def is_read_outside(name: str) -> bool:
            return name in planner.elsewhere or planner.readers.get(name, [last + 1])[-1] > last

        made = (self._operators[i].output.name for i in range(first, last + 1) if i in self._operators)
        return chain_of(
            planner.units, first, last, planner.costs.roots, frozenset(filter(is_read_outside, made))
        )

    def _best(self, chain: Chain) -> _InBands | None:
        """The chain in bands as it costs least; None where that is no less than it does now."""
        kinds = self.planner.costs.kinds
        members = [i for i in range(chain.first, chain.last + 1) if self.planner.units[i] in chain.members]
        now = self._now(chain, members)
        key = tuple(kinds[i] for i in members), chain.links
        if key not in self._known:
            self._known[key] = self._cheapest(chain, now)
        found = self._known[key]
        if found is None:
            return None
        period, number, cycles = found
        gain = now - cycles
        if gain < LEAST_GAIN * now:
            return None
        try:
            bands = chain.bands(period, number)
            units = tuple(map(self._solved, chain.in_bands(bands)))
            check_sums(units)
        except (Unsupported, OperatorError, SolutionError):
            return None  # the first or the last cannot what those between can
        return _InBands(chain, bands, units, gain)

    def _now(self, chain: Chain, members: Sequence[int]) -> float:
        """What the chain costs as it is, with what others save by tensors that they share with it."""
        planner, plan, names = self.planner, self.plan, set(chain.between)
        cycles = planner.cycles(plan, members)
        crossing = [one for one in plan.kept if one.tensor.name not in names]
        for one in crossing:
            users = {one.maker, *planner.readers[one.tensor.name]}
            if users.isdisjoint(members):
                continue
            without = replace(plan, kept=tuple(other for other in plan.kept if other is not one))
            others = users.difference(members)
            cycles -= planner.cycles(without, others) - planner.cycles(plan, others)
        return cycles

    def _cheapest(self, chain: Chain, now: float) -> tuple[int, int, float] | None:
        """Period, number of bands, and modelled cycles."""
        limits = self.planner.limits
        room = ROOM * 4 * limits.mem_words * limits.device.columns
        least = max(2, -(-chain.bytes_at_once // int(room)))
        best: tuple[int, int, float] | None = None
        for period in chain.periods():
            for number in (least, least + 1, 2 * least):
                if number == 2 * least and best is not None and best[2] > now:
                    break
                try:
                    cycles = self._cycles(chain, chain.bands(period, number))
                except (Unsupported, OperatorError, SolutionError):
                    break
                if cycles < (inf if best is None else best[2]):
                    best = period, number, cycles
            if best is not None:
                break
        return best

    def _cycles(self, chain: Chain, bands: Sequence[BandedNest]) -> float:
        """Modelled cycles of a chain in bands, as many times those of one in between."""
        number = (len(bands) - 1) // 2
        made = chain.units_of(number, bands[number])
        outputs = frozenset(made[-1].writes)
        planner = Planner(made, outputs, self.planner.limits, self.planner.costs.search)
        whole = bands[-1].end / (bands[number].end - bands[number].begin)
        return whole * planner.cycles_if_all_stay()

    def _sketched(self, unit: Unit) -> Unit:
        """A unit of a band with solutions for tensors in device memory, nearly the best."""
        operator, search, device = unit.operator, self.planner.costs.search, self.planner.limits.device
        assert operator is not None
        nests = operator.plain_nests
        found = [Schedule(nest, device, search.sketch(nest, device)[0]) for nest in nests]
        return replace(unit, operator=operator.replaced(schedules=found, _nests=nests, plain_nests=nests))

    def _solved(self, unit: Unit) -> Unit:
        """The same as it is to run where nothing of it stays: another selector than the search is asked."""
        selector = self.planner.selector
        if selector is self.planner.costs.search or unit.operator is None:
            return self._sketched(unit)
        return replace(unit, operator=unit.operator.selected(selector))


def _replaced(units: Sequence[Unit], banded: Sequence[_InBands]) -> tuple[Unit, ...]:
    """The units with chains in bands."""
    found: list[Unit] = []
    at = 0
    for one in banded:
        found += [*units[at : one.chain.first], *one.chain.beside, *one.units]
        at = one.chain.last + 1
    return (*found, *units[at:])
