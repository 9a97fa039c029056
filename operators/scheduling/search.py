# SPDX-License-Identifier: Apache-2.0
"""The shared scheduler's choice: which tiles, which mapping to the array, which loop order.

All tilings of a nest are evaluated at once (NumPy arrays of candidates), for every way of laying index
dimensions over the columns and rows of the array, by a model of the stages that data passes through; of those
that may be the best, what they ask of the controller is counted.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush
from itertools import product
from math import inf, isfinite

from onedispatch.operators.declarations.tensor import Unsupported
from onedispatch.operators.scheduling.candidates import Array, candidates, one_tile
from onedispatch.operators.scheduling.commands import controller_cycles
from onedispatch.operators.scheduling.cost_model import FEWER_CALLS, CostModel, Offer
from onedispatch.operators.scheduling.keeping import in_shares
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.operators.scheduling.schedule import Schedule
from onedispatch.operators.scheduling.solution import Mapping, Solution
from onedispatch.operators.scheduling.tilings import Tilings
from onedispatch.transactions import Device

Mesh = tuple[list[Array], Array]  # axes of tile sizes: of every dimension, and of the reduction

ORDERED_MAPPINGS = 6
COUNTED_MAPPINGS, COUNTED_EACH, COUNTED_UP_TO = 8, 3, 1.15  # of the least cost that is only estimated
FEWEST_CALLS_UP_TO = 1.03  # of the least cost: what costs about as much takes the fewest kernel calls
RAGGED_UP_TO = 1.02  # the same where the last step is shorter: its rows lie across more bursts than guessed


def search(nest: Nest, device: Device, mesh: Mesh | None = None) -> Solution:
    """The best solution of ``nest`` on ``device``; with ``mesh``, of the tiles that it has (``one_tile``).

    Raises ``Unsupported`` where no tile fits a core, or none of those that do a memory tile.
    """
    return best_with_cost(nest, device, mesh)[0]


def best_with_cost(nest: Nest, device: Device, mesh: Mesh | None = None) -> tuple[Solution, float]:
    """The same, and its modelled cycles."""
    return counted_best(checked(shortlist(nest, device, mesh)))


def checked(found: Shortlist) -> Shortlist:
    """A shortlist that has something. Raises ``Unsupported`` where memory tiles have no room for any."""
    if not found.found or not isfinite(found.best[0]):
        raise Unsupported(
            "of no tile that fits a core do memory tiles hold two chunks of each operand for a column",
            "smaller innermost extents or windows, or a device with larger memory tiles",
        )
    return found


def shortlist(nest: Nest, device: Device, mesh: Mesh | None = None) -> Shortlist:
    """The best mappings of ``nest``, each with its best tiles, as the model estimates them."""
    return in_other_orders(in_plain_order(nest, device, Tilings(nest, device, *(mesh or candidates(nest)))))


def in_plain_order(nest: Nest, device: Device, tilings: Tilings) -> Shortlist:
    """The same of ``tilings``, before other loop orders are tried."""
    return Shortlist(CostModel(nest, device, tilings), list(every_mapping(nest, device)))


def in_other_orders(found: Shortlist) -> Shortlist:
    """A shortlist with other loop orders, which only pay where the plain one already does well."""
    for mapping in found.top(ORDERED_MAPPINGS):
        for order in _orders(found.model.nest):
            found.try_order(mapping, order)
    return found


def counted_cheapest(found: Shortlist) -> tuple[Solution, float]:
    """Of the first of the shortlist the one that costs least when its commands are counted, and its cost."""
    counted = _Counted(found)
    cheapest, cost = counted.cheapest()
    return counted.schedule(cheapest).solution, cost


def counted_best(found: Shortlist) -> tuple[Solution, float]:
    """The same, but of several that cost about as much the one with the fewest kernel calls: each is work
    for cores, locks and DMAs that no estimate sees whole, and for the simulator.
    """
    counted = _Counted(found)
    cheapest, least = counted.cheapest()
    fewest, cost = cheapest, inf
    for offer in sorted(counted.offers, key=lambda offer: offer.calls):
        if offer.calls >= FEWER_CALLS * cheapest.calls or (offer.calls > fewest.calls and isfinite(cost)):
            break
        far = RAGGED_UP_TO if found.model.ragged[offer.at] else FEWEST_CALLS_UP_TO
        other = counted.cost(offer, least * far)
        if other < cost:
            fewest, cost = offer, other
    return counted.schedule(fewest).solution, least if cost == inf else cost


class _Counted:
    """The first of a shortlist and what they cost: commands are counted where an answer depends on them."""

    def __init__(self, found: Shortlist) -> None:
        self._model, self._found = found.model, found
        self.offers: list[Offer] = []
        self._costs: dict[Offer, float] = {}

    def _offer(self, limit: float) -> None:
        """Takes what is estimated to cost up to ``limit``."""
        mappings = self._found.top(COUNTED_MAPPINGS, limit)
        self.offers = [
            offer for one in mappings for offer in self._model.near_optimal(one, limit, COUNTED_EACH)
        ]

    def schedule(self, offer: Offer) -> Schedule:
        model = self._model
        return Schedule(model.nest, model.device, model.solution(offer.mapping, offer.at))

    def cheapest(self) -> tuple[Offer, float]:
        """The offer that costs least, the first of several, and its cost."""
        limit = self._found.best[0] * COUNTED_UP_TO
        self._offer(limit)
        best, least = self._least()
        if least > limit:  # commands were guessed too low: what seemed to cost more may cost less
            self._offer(least)
            best, least = self._least()
        return best, least

    def _least(self) -> tuple[Offer, float]:
        best, least = len(self.offers), inf
        # Those that may cost least come first, and rule out others before their commands are counted.
        for number, offer in sorted(enumerate(self.offers), key=lambda one: one[1].beside.guessed):
            least, best = min((least, best), (self.cost(offer, least), number))
        return self.offers[best], least

    def cost(self, offer: Offer, most: float) -> float:
        """Modelled cycles; infinity where they are more than ``most``."""
        if offer not in self._costs:
            commands = controller_cycles(self.schedule(offer), offer.beside.commands_up_to(most))
            if not isfinite(commands):
                return inf
            self._costs[offer] = offer.beside.cost(commands)
        return self._costs[offer] if self._costs[offer] <= most else inf


def estimated(schedule: Schedule, loads_resident: bool = False, most: float = inf) -> float:
    """Returns the modelled cycles of a schedule, as the search compares them.

    Infinity above ``most``, without counting its commands to the end.

    ``loads_resident``: the nest also loads the operands that stay in the cores.
    """
    nest, device = schedule.nest, schedule.device
    model = CostModel(nest, device, Tilings(nest, device, *one_tile(schedule.tiles, schedule.k_tile)))
    beside = model.beside_commands(schedule.mapping, 0, loads_resident)
    commands = controller_cycles(schedule, beside.commands_up_to(most), loads_resident)
    return beside.cost(commands) if isfinite(commands) else inf


class Shortlist:
    """The best candidate of every mapping that may matter: others are left out by a bound.

    A mapping and a candidate are evaluated only where the lower bound of the cost model, which is cheap, does
    not already rule them out. The choice is the one that evaluating all would make.
    """

    def __init__(self, model: CostModel, mappings: Sequence[Mapping]) -> None:
        self.model = model
        self.found: list[tuple[float, int, Mapping, int]] = []  # (cost, number, mapping, candidate)
        self.tried = len(mappings)
        # By the bound that is cheap first: of most mappings no other is needed.
        queue = [(model.work_bound(mapping), False, i) for i, mapping in enumerate(mappings)]
        heapify(queue)
        while queue and queue[0][0] <= (limit := self._limit(ORDERED_MAPPINGS)):
            _, close, i = heappop(queue)
            if close:
                self._evaluate(i, mappings[i], limit)
            else:
                heappush(queue, (model.lower_bound(mappings[i]), True, i))

    def _limit(self, places: int) -> float:
        """The cost that a mapping must not exceed to be among the best ``places``."""
        return self.found[places - 1][0] if len(self.found) >= places else inf

    def _evaluate(self, number: int, mapping: Mapping, limit: float) -> None:
        cost, at = self.model.best(mapping, limit)
        if at is not None:
            insort(self.found, (cost, number, mapping, at), key=lambda found: found[:2])

    def top(self, places: int, limit: float = inf) -> list[Mapping]:
        """The best mappings, best first, up to a cost of ``limit``."""
        return [mapping for cost, _, mapping, _ in self.found[:places] if cost <= limit]

    def try_order(self, mapping: Mapping, order: tuple[int, ...]) -> None:
        self._evaluate(self.tried, replace(mapping, order=order), self._limit(1))
        self.tried += 1

    @property
    def best(self) -> tuple[float, Mapping, int]:
        cost, _, mapping, at = self.found[0]
        return cost, mapping, at


def _orders(nest: Nest) -> Iterator[tuple[int, ...]]:
    """Loop orders other than the plain one: each dimension that is cut, made innermost."""
    plain = tuple(range(len(nest.dims)))
    for d in nest.cut[:-1]:
        yield (*(other for other in plain if other != d), d)


def _widths(nest: Nest, columns: int) -> list[int]:
    """Numbers of columns that are tried: those that share what stays, or powers of two, and all of them."""
    if nest.split is not None:
        return [nest.split.columns]
    return [*(1 << bit for bit in range(columns.bit_length()) if 1 << bit < columns), columns]


def every_mapping(nest: Nest, device: Device) -> Iterator[Mapping]:
    """Every way of laying dimensions over the array that the overlay's routes can serve."""
    axes: list[int | None] = [None, *nest.cut]
    most = device.columns
    for row_dim, col_dim, columns in product(axes, axes, _widths(nest, most)):
        if (col_dim is None) != (columns == 1):
            continue
        shared = [x for x in nest.inputs if row_dim is None or row_dim not in x.depends_on()]
        for in1 in dict.fromkeys((frozenset[str](), frozenset(x.name for x in shared))):
            if row_dim is None and in1:
                continue  # one row works: nothing to broadcast
            in0 = [x for x in nest.inputs if x.name not in in1]
            apart = row_dim != col_dim and columns == most > 1
            rowcast = apart and bool(in0) and not any(col_dim in x.depends_on() for x in in0)
            mapping = Mapping(row_dim, col_dim, columns, in1, rowcast, tuple(range(len(nest.dims))))
            if in_shares(nest, mapping):
                yield mapping
