# SPDX-License-Identifier: Apache-2.0
"""What a tiling is worth: a simple model of the slowest resource, for many candidates at once.

The estimates rank schedules; what the simulator charges is what is reported. Candidates are points of a
mesh of tile sizes (``np.ix_``); every mapping to the array has a cheap bound from below, so that only those
are evaluated in full that may be the best.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from math import prod
from typing import Any, NamedTuple

import numpy as np

from onedispatch.operators.declarations.params import MAX_PER_COLUMN
from onedispatch.operators.scheduling.access_pattern import MAX_ITERATION
from onedispatch.operators.scheduling.holds import (
    in1_first_pays,
    memory_cycles,
    read_cycles,
    takes_both_channels,
)
from onedispatch.operators.scheduling.index_space import IntArray, K, depends, kept
from onedispatch.operators.scheduling.keeping import tile_rules
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.operators.scheduling.resources import ROW_LANES, resources
from onedispatch.operators.scheduling.schedule import MAX_LOCK, MAX_PANEL_WORDS, PANEL_PARTS
from onedispatch.operators.scheduling.solution import Mapping, Solution
from onedispatch.operators.scheduling.tilings import Tilings
from onedispatch.transactions import Device
from onedispatch.transactions.base.cached import cached_property

Array = np.ndarray[Any, Any]

# Rough controller cycles; only their proportion to the work matters for choosing.
COLUMN_SETUP_CYCLES = 800
CORE_SETUP_CYCLES = 40
TASK_CYCLES = 200  # most of what a task takes of the controller passes beside the work
MANY_STEPS = 16384
OTHERS_WEIGHT = 0.1
IDLE_WEIGHT = 0.3  # an idle core is a chance missed where the estimate of compute is too low
FIRST_EVALUATED, MANY_CANDIDATES = 64, 1024  # candidates of one mapping
ROUNDING = 1e-9
FEWER_CALLS = 0.7  # makes a candidate another choice


class CostModel:
    """Modelled cycles of the candidate tilings of a nest, for one mapping after the other.

    Quantities of a candidate that no mapping changes are computed once, over the axes of the mesh where
    they do not depend on all of it. Raises ``Unsupported`` where no candidate fits.
    """

    def __init__(self, nest: Nest, device: Device, tilings: Tilings) -> None:
        """``tilings``: of the nest, or of one that differs in what stays in memory tiles."""
        found = tilings.of(nest)
        self.nest, self.device, self.limits, self.tilings = nest, device, resources(device), found
        self.tiles, self.k_tile, self.words = found.tiles, found.k_tile, found.words
        self.fetched, self.out, self.out_factor = found.fetched, found.out, found.out_factor
        # Words that reach device memory.
        self.drained = np.zeros_like(found.out) if nest.out_kept else found.out
        self.scratch, self.waits, self.some_wait = found.scratch, found.waits, bool(found.waits.any())
        self.op_cycles, self.cycles, self.inner = found.op_cycles, found.cycles, found.inner
        self.ragged = found.ragged
        self.per_group = np.where(self.ragged, 1.5, 0.25)  # shim tasks
        self.cycles_per_word, self.read_cycles = memory_cycles(device), read_cycles(device)
        self.shim_cycles = 1 / device.constant("dma.shim_words_per_cycle")  # of a word on one channel
        self.descriptor_cycles = device.constant("dma.shim_mm2s_bd_cycles")
        deep = [self.words[x.name] for x in nest.inputs if K in x.depends_on()]
        self.streamed = np.where(self.inner > 1, self.inner * sum(deep), 0) if deep else 0
        self._bounds: dict[tuple[object, ...], Array] = {}
        self._fetches: dict[frozenset[str], Array] = {}
        self._rates: dict[tuple[int, int], Array] = {}
        self._inputs = frozenset(self.words)
        self._kept = frozenset(x.name for x in nest.inputs if kept([x]))
        self._chunks: dict[frozenset[str], tuple[frozenset[int], Array, Array]] = {}
        self._work: dict[tuple[int | None, int | None, int], Array] = {}
        self._walked = found.walked
        self._count = found.count

    def best(self, mapping: Mapping, limit: float) -> tuple[float, int | None]:
        """The least cost of ``mapping`` and the first candidate that has it.

        Candidates that cost more than ``limit`` for sure are not evaluated; None where none is left.
        """
        bound = self._bound(mapping)
        if np.count_nonzero(bound <= limit) > MANY_CANDIDATES:  # the most promising give the others a limit
            few = np.argpartition(bound, FIRST_EVALUATED)[:FIRST_EVALUATED]
            limit = min(limit, self.cost(mapping, few).min())
        kept = np.flatnonzero(bound <= limit)
        if not len(kept):
            return limit, None
        cost = self.cost(mapping, kept)
        at = int(np.argmin(cost))
        return float(cost[at]), int(kept[at])

    def near_optimal(self, mapping: Mapping, limit: float, most: int) -> list[Offer]:
        """The cheapest candidate of ``mapping``, and others up to ``limit`` with ever fewer calls."""
        kept = np.flatnonzero(self._bound(mapping) <= limit)
        load = self._load(mapping, kept)
        cost = self._cost(mapping, load)
        near = np.flatnonzero(cost <= limit)
        near = near[np.argsort(cost[near], kind="stable")]
        calls = load.tiles[near] * self.inner[kept[near]]
        found: list[Offer] = []
        fewest = np.inf
        while len(found) < most and len(fewer := np.flatnonzero(calls < FEWER_CALLS * fewest)):
            fewest, number = float(calls[fewer[0]]), int(near[fewer[0]])
            found.append(Offer(mapping, int(kept[number]), fewest, self._beside(mapping, load, number)))
        return found

    def solution(self, mapping: Mapping, at: int) -> Solution:
        return Solution(
            self.nest.kernel.name, mapping, tuple(int(t[at]) for t in self.tiles), int(self.k_tile[at])
        )

    # -- bounds ----------------------------------------------------------------------------

    def work_bound(self, mapping: Mapping) -> float:
        """What no candidate of ``mapping`` can cost less than, were its cores always at work. No arrays."""
        cores = self._rows(mapping) * mapping.columns
        return self._least_work * (1 + IDLE_WEIGHT * self._idle(mapping)) / cores * (1 - 2 * ROUNDING)

    def lower_bound(self, mapping: Mapping) -> float:
        """The same, closer to it."""
        return float(self._bound(mapping).min())

    @cached_property
    def _least_work(self) -> float:
        """Cycles of all calls of the candidate that has the fewest."""
        work = self.cycles
        for d in self._walked:
            work = work * self._count(d, 1)
        return float(work.min())

    def _bound(self, mapping: Mapping) -> Array:
        """A bound of every candidate's cost from below.

        What every tile costs at least, and what fetching takes when memory tiles keep all that could be
        sent again.
        """
        # Loop orders have one bound.
        unordered = mapping.row_dim, mapping.col_dim, mapping.columns, mapping.in1, mapping.rowcast
        bound = self._bounds.get(unordered)
        if bound is None:
            bound = self._all_tiles(mapping) + mapping.columns * self._setup(mapping)
            for port in (0, 1):
                names = self._names(port, mapping)
                if (
                    names
                    and not names & self._kept
                    and not (port == 0 and self.nest.in0_resident(mapping.in1))
                ):
                    bound += self._fetches_bound(names) * self._copies(port, names, mapping)
            self._bounds[unordered] = bound
        return bound

    def _all_tiles(self, mapping: Mapping) -> Array:
        """What the tiles of a core cost at least, if nothing that feeds them is slower."""
        placed = mapping.row_dim, mapping.col_dim, mapping.columns
        found = self._work.get(placed)
        if found is None:
            found = self._per_tile(self._rows(mapping), mapping.columns)
            for d in self._walked:
                found = found * self._count(d, mapping.cores_along(d, self.limits.rows))
            self._work[placed] = found
        return found

    def _per_tile(self, rows: int, columns: int) -> Array:
        found = self._rates.get((rows, columns))
        if found is None:
            idle = 1 - rows * columns / (self.device.columns * self.limits.rows)
            moved = self.drained * rows * (1 + columns * self.out_factor * self.cycles_per_word)
            moved = moved + self.streamed
            tasks = 0 if self.nest.out_kept else columns * TASK_CYCLES * rows / 8
            found = self.cycles * (1 + IDLE_WEIGHT * idle) + OTHERS_WEIGHT * moved + tasks
            found = self._rates[rows, columns] = found * (1 - 1e-9)
        return found

    def _fetches_bound(self, names: frozenset[str]) -> Array:
        """Cycles for fetching every chunk of a port once: as traffic beside the work, and as tasks."""
        found = self._fetches.get(names)
        if found is None:
            along, _, fetched = self._carried(names)
            traffic = fetched * self.cycles_per_word * OTHERS_WEIGHT
            if K in along:
                traffic = traffic * self.inner
            found = traffic + TASK_CYCLES * self.per_group
            for d in along - {K}:
                found = found * self._count(d, 1) if d in self._walked else found
            found = self._fetches[names] = found * (1 - 1e-9)
        return found

    def _copies(self, port: int, names: frozenset[str], mapping: Mapping) -> int:
        """How many parts of the array fetch the same chunks of a port."""
        along, _, _ = self._carried(names)
        columns = 1 if (mapping.rowcast and port == 0) or mapping.col_dim in along else mapping.columns
        return columns * (1 if port == 1 or mapping.row_dim in along else self._rows(mapping))

    def _names(self, port: int, mapping: Mapping) -> frozenset[str]:
        """The operands of a port."""
        return self._inputs & mapping.in1 if port == 1 else self._inputs - mapping.in1

    def _carried(self, names: frozenset[str]) -> tuple[frozenset[int], Array, Array]:
        """What the chunks of these operands depend on, their words, and those as device memory sees them."""
        found = self._chunks.get(names)
        if found is None:
            operands = [x for x in self.nest.inputs if x.name in names]
            words: Any = sum(self.words[x.name] for x in operands)
            fetched: Any = sum(self.fetched[x.name] for x in operands)
            found = self._chunks[names] = depends(operands), words, fetched
        return found

    def _rows(self, mapping: Mapping) -> int:
        return 1 if mapping.row_dim is None else self.limits.rows

    def _idle(self, mapping: Mapping) -> float:
        return 1.0 - mapping.columns * self._rows(mapping) / (self.device.columns * self.limits.rows)

    def _setup(self, mapping: Mapping) -> int:
        return COLUMN_SETUP_CYCLES + self._rows(mapping) * CORE_SETUP_CYCLES

    # -- cost ------------------------------------------------------------------------------

    def cost(self, mapping: Mapping, at: Array) -> Array:
        """Modelled cycles of the candidates ``at``; commands are guessed from what ports carry."""
        return self._cost(mapping, self._load(mapping, at))

    def _cost(self, mapping: Mapping, load: _Load) -> Array:
        slowest: Array = load.resources.max(axis=0)
        # Resources contend: what is not the slowest still costs a little.
        contention = OTHERS_WEIGHT * (load.resources.sum(axis=0) - slowest)
        idle = slowest * IDLE_WEIGHT * self._idle(mapping)
        cost: Array = slowest + contention + idle + load.beside + self._commands(mapping, load)
        return np.where(load.fits, cost, np.inf)

    def beside_commands(self, mapping: Mapping, at: int, loads_resident: bool = False) -> BesideCommands:
        """What one candidate asks of all but the controller.

        ``loads_resident``: the nest is the first of several and loads the operands that stay in the cores.
        """
        return self._beside(mapping, self._load(mapping, np.array([at]), loads_resident), 0)

    def _beside(self, mapping: Mapping, load: _Load, number: int) -> BesideCommands:
        resources = load.resources[:, number].tolist()
        setup = mapping.columns * self._setup(mapping)
        return BesideCommands(max(resources), sum(resources), float(load.beside[number]), setup)

    def _load(self, mapping: Mapping, at: Array, loads_resident: bool = False) -> _Load:
        """Returns the load of the candidates ``at``; ``loads_resident``: resident operands included."""
        nest, out, cycles, inner = self.nest, self.out[at], self.cycles[at], self.inner[at]
        rows = self._rows(mapping)
        counts = {d: self._count(d, mapping.cores_along(d, self.limits.rows))[at] for d in self._walked}
        outer = prod(counts.values(), start=np.ones(len(at)))
        served = -(-self.limits.rows // self.device.columns) if mapping.rowcast else rows
        in0, in1 = (self._port(p, mapping, counts, outer, inner, at) for p in (0, 1))
        ring = 0 if nest.out_kept else self.limits.least_out_ring(out, served, rows) * rows
        fits = _hold(self.limits.mem_words - nest.occupied, (in0, in1), (served, 1), ring)
        fits = fits & self._in_shares(mapping, at)
        if not loads_resident and nest.in0_resident(mapping.in1):
            in0 = _Port()  # what memory tiles had room for came with an earlier nest
        if mapping.col_dim is not None:
            along = counts.get(mapping.col_dim, 1) * (rows if mapping.row_dim == mapping.col_dim else 1)
            fits = fits & (along <= MAX_PER_COLUMN)
        if nest.resident_operands:
            fits = fits & (outer == 1)
        drain = outer * self.drained[at] * rows
        sources = self.limits.rows if mapping.rowcast else rows * mapping.columns
        read = in0.taken * in0.fetched * sources
        second = self._second(mapping, in0, in1, served, ring + 2 * in0.ring * served, outer * cycles)
        resources = np.empty((6, len(at)))
        resources[0] = outer * cycles
        resources[1] = self._channel(in0, served - second)
        # Half of the rows have nothing before all of in1 has come.
        leads, of_in1 = np.greater(second, 0), self._channel(in1, 1)
        fetched = mapping.columns * in1.taken * in1.fetched
        resources[2] = np.where(leads, self._channel(in0, second), of_in1)
        resources[3] = np.maximum(in0.chunks * in0.words * -(-served // ROW_LANES), in1.chunks * in1.words)
        if nest.out_kept:
            resources[3] = np.maximum(resources[3], outer * out * -(-rows // ROW_LANES))
        resources[4] = drain * self.shim_cycles
        read = read + np.where(leads, 0, fetched)
        written = mapping.columns * drain * self.out_factor[at]
        resources[5] = np.floor(np.maximum((read + written) * self.cycles_per_word, read * self.read_cycles))
        stalls = outer * self._stall(in0.words + in1.words, out, cycles, inner, at)
        fill = in0.words * served + in1.words + out + self.op_cycles
        stalls = stalls + in0.waited * in0.words * self.shim_cycles
        beside = stalls + fill + np.where(leads, np.maximum(of_in1, fetched * self.read_cycles), 0)
        return _Load(resources, beside, fits, (in0, in1), served, outer, self.per_group[at])

    def _in_shares(self, mapping: Mapping, at: Array) -> IntArray:
        """Whether the candidates keep to ``tile_rules``."""
        kept: IntArray = True
        if self.nest.split is not None:
            for _, holds, _ in tile_rules(self.nest, mapping, [t[at] for t in self.tiles], self.limits.rows):
                kept = kept & holds
        return kept

    def _second(
        self, mapping: Mapping, in0: _Port, in1: _Port, served: int, others: IntArray, work: IntArray
    ) -> IntArray:
        """For how many of the ``served`` rows feed 1 brings in0: see ``Schedule.halved``. All but in1 takes
        ``others`` words of a memory tile; a core works for ``work`` cycles."""
        if not takes_both_channels(self.nest, mapping, self.limits):
            return 0
        first: IntArray = True
        if self.nest.reduces:
            words = in1.chunks / in1.repeats * in1.ring, in0.chunks * in0.ring * served
            first = in1_first_pays(self.device, mapping.columns, *words, work)
            first = first & self._comes_first(in1, others)
        return np.where((in0.taken == in0.chunks) & first, served // 2, 0)

    def _comes_first(self, in1: _Port, others: IntArray) -> IntArray:
        """Whether memory tiles have room for all of in1 beside ``others``: see ``Schedule.in1_first``."""
        if not in1.operands:
            return True
        once = in1.chunks / in1.repeats
        words = once * in1.ring
        room = (words <= MAX_PANEL_WORDS) & (words + others <= self.limits.mem_words - self.nest.occupied)
        return np.where(in1.repeats == 1, room, (in1.taken < in1.chunks) & (once == in1.panel))

    def _channel(self, port: _Port, rows: IntArray) -> IntArray:
        """Returns the cycles that a shim channel takes to feed a port's chunks to ``rows`` core rows."""
        cycles = port.taken * port.ring * rows * self.shim_cycles
        # Where operands take turns, each chunk is a descriptor's; of one alone it follows chunk within one.
        turns = port.taken * rows * port.operands * self.descriptor_cycles if port.operands > 1 else 0
        return cycles + turns

    def _stall(self, inputs: IntArray, out: Array, cycles: Array, inner: Array, at: Array) -> Array:
        """Cycles that a core stops per tile, and with it its inputs, while its single out buffer drains.

        Where sums wait apart from it, the next tile needs it for its last step alone.
        """
        scratch, held = self.scratch[at], 2 * inputs + self.nest.longer_block
        single = out
        if self.some_wait:
            drained = np.maximum(out - cycles * (1 - 1 / inner), 0)
            single = np.where(self.waits[at] & self.limits.core_holds(held + out, scratch), drained, out)
        return np.where(self.limits.core_holds(held + 2 * out, scratch), 0, single)

    def _port(
        self,
        port: int,
        mapping: Mapping,
        counts: dict[int, Array],
        outer: Array,
        inner: Array,
        at: Array,
    ) -> _Port:
        names = self._names(port, mapping)
        if not names:
            return _Port()
        along, words, fetched = self._carried(names)
        panel = inner if K in along else 1
        several = prod((count for d, count in counts.items() if d in along), start=panel) > 1
        chunks = np.where(several, outer * panel, 1)
        if names & self._kept:
            return self._kept_port(names - self._kept, words[at], chunks, panel, at)
        again = tuple(takewhile(lambda d: d not in along, reversed(mapping.order)))
        repeats = prod(counts[d] for d in again if d in counts)
        if not isinstance(repeats, int):
            repeats = np.where(chunks > 1, repeats, 1)
        return _Port(len(names), words[at], words[at], fetched[at], chunks, panel, repeats, chunks)

    def _kept_port(
        self, names: frozenset[str], words: Array, chunks: Array, panel: IntArray, at: Array
    ) -> _Port:
        """A port whose chunks have ``words``, of which shims bring the operands ``names``."""
        if not names:
            return _Port(words=words, chunks=chunks, panel=panel)
        _, ring, fetched = self._carried(names)
        return _Port(len(names), words, ring[at], fetched[at], chunks, panel, taken=chunks)

    def _commands(self, mapping: Mapping, load: _Load) -> Array:
        """Controller cycles, seen from the array: set-up, shim tasks, and far too many steps."""
        in0, in1 = load.ports
        tasks = (
            in0.tasks(load.served, load.per_group)
            + in1.tasks(1, load.per_group)
            + (0 if self.nest.out_kept else load.tiles * self._rows(mapping) / 8)
        )
        steps = np.maximum(in0.chunks, in1.chunks)
        too_many = np.where(steps > MANY_STEPS, 1e6 * steps / MANY_STEPS, 0)
        commands: Array = mapping.columns * (self._setup(mapping) + TASK_CYCLES * tasks) + too_many
        return commands


class BesideCommands(NamedTuple):
    """Modelled cycles of one candidate, as far as its shim tasks do not decide them."""

    slowest: float  # of the resources
    total: float  # of all of them
    beside: float
    setup: float

    def cost(self, commands: float) -> float:
        """Modelled cycles of the candidate where its tasks take the controller ``commands``."""
        slowest = max(self.slowest, commands)
        contention = OTHERS_WEIGHT * (self.total + commands - slowest)
        return slowest + contention + self.beside + self.setup

    def commands_up_to(self, cost: float) -> float:
        """More than these make it cost more than ``cost``; negative where it does so anyway."""
        left = cost * (1 + ROUNDING) - self.cost(0)
        idle = self.slowest * OTHERS_WEIGHT  # until commands are the slowest, a part of them counts
        return left / OTHERS_WEIGHT if left <= idle else self.slowest + left - idle


@dataclass
class _Port:
    """What a port carries, for many candidates at once; by default nothing."""

    operands: int = 0  # that shims bring
    words: IntArray = 0  # per chunk
    ring: IntArray = 0  # of these, what shims bring
    fetched: IntArray = 0  # the same as device memory sees it
    chunks: IntArray = 0  # that a core takes
    panel: IntArray = 1  # chunks per reduction
    repeats: IntArray = 1  # of a panel by the innermost loops
    taken: IntArray = 0  # chunks that the memory tile takes from device memory
    waited: IntArray = 0  # of these, for one row, what comes only when all that was there has been sent

    def tasks(self, rows: int, per_group: Array) -> IntArray:
        """Descriptors that the controller writes for a shim's tasks."""
        alone = self.taken / self.panel * rows * per_group
        if self.operands < 2:
            return alone
        # A chain of descriptors walks one progression: that of the rows, or of chunks.
        return np.maximum(self.taken / (1 if rows > 1 else MAX_ITERATION), alone) * self.operands


class Offer(NamedTuple):
    """A candidate of a mapping that may be the best."""

    mapping: Mapping
    at: int
    calls: float  # of the kernel, of one core
    beside: BesideCommands


class _Load(NamedTuple):
    """What candidates ask of each resource, in cycles, and of ports."""

    resources: Array  # [resource, candidate]
    beside: Array  # cycles in which nothing else goes on
    fits: Array
    ports: tuple[_Port, _Port]
    served: int  # core rows by one in0 feed
    tiles: Array  # of a core
    per_group: Array  # shim tasks


def _hold(words: int, ports: Sequence[_Port], rows: Sequence[int], out_words: IntArray) -> Array:
    """What of a memory tile's ``words`` keeps chunks, as ``Schedule.holds`` will decide: sets ``taken``;
    whether rings fit."""
    free = words - 2 * (ports[0].ring * rows[0] + ports[1].ring) - out_words
    rings_fit: Array = np.asarray(free >= 0)
    for number in (1, 0):
        port = ports[number]
        if isinstance(port.repeats, int):
            continue  # nothing is sent again
        need = (port.panel - 2) * port.words * rows[number]  # one slot
        keep = (port.repeats > 1) & (port.repeats <= MAX_LOCK) & (need <= free)
        keep &= port.panel * port.words <= PANEL_PARTS * MAX_PANEL_WORDS
        if number == 0 and rows[number] > ROW_LANES:
            keep &= port.panel == 1  # rows that share a lane take turns
        port.taken = np.where(keep, port.chunks / port.repeats, port.chunks)
        if rows[number] > 1:  # elsewhere a panel comes in pieces
            alone = keep & (port.taken > port.panel) & (need + port.panel * port.words * rows[number] > free)
            port.waited = np.where(alone, port.taken - port.panel, 0)
        free = free - np.where(keep, need, 0)
    return rings_fit
