# SPDX-License-Identifier: Apache-2.0
"""What a tiling is worth: a model of the stages that data passes through, for many candidates at once.

A nest takes what one of its stages does, and what others do before and behind it while that one waits; or
what the controller does, if that is more. Estimates rank schedules; what the simulator charges is what is
reported. Candidates are points of a mesh of tile sizes (``np.ix_``); every mapping to the array has a cheap
bound from below, so that only those are evaluated in full that may be the best.
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
from onedispatch.operators.scheduling.commands import costs
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

# The stages that data passes through; device memory, which two of them share; and what memory tiles send
# again, which has to come first.
FEED, SEND, WORK, TAKE, DRAIN, MEMORY, HOLD = range(7)
# Fitted to 33,000 measurements of 9,500 problems on two devices; the standard deviation is 7 %.
ALONE_WEIGHT = 0.9  # of what one stage does while others wait
COMMANDS_WEIGHT = 0.1  # the controller is at work beside the array, but for the first tasks
EVER_WEIGHT = 0.02  # of all that the array does, also where the controller does more
SERIAL_WEIGHT = 0.65  # but for chains so long that none is written ahead
MOST_AHEAD = 2  # descriptors of such a chain
LEAD_WEIGHT = 0.65  # of in1, where all of it comes before half of in0
CALL_CYCLES = 25  # locks, and turns of channels, at each call
COLUMN_CYCLES = 100
START_CYCLES = 900
GUESSED_TASKS = 0.2  # of those that ports would take one by one
MANY_STEPS = 16384
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
        self.op_cycles, self.cycles, self.inner = found.op_cycles, found.cycles, found.inner
        self.ragged = found.ragged
        self.per_group = np.where(self.ragged, 1.5, 0.25)  # shim tasks
        self.cycles_per_word, self.read_cycles = memory_cycles(device), read_cycles(device)
        self.shim_cycles = 1 / device.constant("dma.shim_words_per_cycle")  # of a word on one channel
        self.descriptor_cycles = device.constant("dma.shim_mm2s_bd_cycles")
        self._bounds: dict[tuple[object, ...], Array] = {}
        self._fetches: dict[frozenset[str], Array] = {}
        self._inputs = frozenset(self.words)
        self._kept = frozenset(x.name for x in nest.inputs if kept([x]))
        self._chunks: dict[frozenset[str], tuple[frozenset[int], Array, Array]] = {}
        self._known: dict[tuple[object, ...], tuple[float, _Evaluated]] = {}  # and up to which cost
        self._tiles_of: dict[tuple[int | None, int | None, int], Array] = {}
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
        found = self._evaluated(mapping, limit)
        asked = bound[found.at] <= limit
        at, cost = found.at[asked], found.cost[asked]
        if not len(at):
            return limit, None
        best = int(np.argmin(cost))
        return float(cost[best]), int(at[best])

    def near_optimal(self, mapping: Mapping, limit: float, most: int) -> list[Offer]:
        """The cheapest candidate of ``mapping``, and others up to ``limit`` with ever fewer calls."""
        at, load, commands, cost = self._evaluated(mapping, limit)
        near = np.flatnonzero(cost <= limit)
        near = near[np.argsort(cost[near], kind="stable")]
        calls = load.tiles[near] * self.inner[at[near]]
        found: list[Offer] = []
        fewest = np.inf
        while len(found) < most and len(fewer := np.flatnonzero(calls < FEWER_CALLS * fewest)):
            fewest, number = float(calls[fewer[0]]), int(near[fewer[0]])
            beside = self._beside(mapping, load, commands, number)
            found.append(Offer(mapping, int(at[number]), fewest, beside))
        return found

    def _evaluated(self, mapping: Mapping, limit: float) -> _Evaluated:
        """The candidates of ``mapping`` that may cost up to ``limit``, and maybe others."""
        key = *_unordered(mapping), *(self._sent_again(port, mapping) for port in (0, 1))
        known = self._known.get(key)
        if known is None or known[0] < limit:
            found = self._evaluate(mapping, np.flatnonzero(self._bound(mapping) <= limit))
            known = limit, found
            if len(found.at) <= MANY_CANDIDATES:
                self._known[key] = known
        return known[1]

    def cost(self, mapping: Mapping, at: Array) -> Array:
        """Modelled cycles of the candidates ``at``; commands are guessed from what ports carry."""
        return self._evaluate(mapping, at).cost

    def _evaluate(self, mapping: Mapping, at: Array) -> _Evaluated:
        load = self._load(mapping, at)
        commands = self._commands(mapping, load)
        return _Evaluated(at, load, commands, _cost(load, commands))

    def solution(self, mapping: Mapping, at: int) -> Solution:
        return Solution(
            self.nest.kernel.name, mapping, tuple(int(t[at]) for t in self.tiles), int(self.k_tile[at])
        )

    # -- bounds ----------------------------------------------------------------------------

    def work_bound(self, mapping: Mapping) -> float:
        """What no candidate of ``mapping`` can cost less than, were its cores always at work. No arrays."""
        cores = self._rows(mapping) * mapping.columns
        return max(self._least_commands(mapping), self._least_work / cores * (1 - ROUNDING))

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

        What its cores do, or what device memory does if memory tiles keep all that could be sent again.
        """
        unordered = _unordered(mapping)  # loop orders have one bound
        bound = self._bounds.get(unordered)
        if bound is None:
            outer, rows = self._outer(mapping), self._rows(mapping)
            traffic = outer * rows * mapping.columns * self.drained * self.out_factor
            for port in (0, 1):
                names = self._names(port, mapping)
                if (
                    names
                    and not names & self._kept
                    and not (port == 0 and self.nest.in0_resident(mapping.in1))
                ):
                    traffic = traffic + self._fetched_once(names) * self._copies(port, names, mapping)
            busiest = np.maximum(outer * self.cycles, traffic * self.cycles_per_word)
            calls = outer * self.inner * CALL_CYCLES
            commands = self._least_commands(mapping)
            started = START_CYCLES + COLUMN_CYCLES * mapping.columns + COMMANDS_WEIGHT * commands
            bound = np.maximum(commands, busiest + calls + started) * (1 - ROUNDING)
            self._bounds[unordered] = bound
        return bound

    def _outer(self, mapping: Mapping) -> Array:
        """The tiles of a core."""
        placed = mapping.row_dim, mapping.col_dim, mapping.columns
        found = self._tiles_of.get(placed)
        if found is None:
            found = np.ones_like(self.cycles)
            for d in self._walked:
                found = found * self._count(d, mapping.cores_along(d, self.limits.rows))
            self._tiles_of[placed] = found
        return found

    def _fetched_once(self, names: frozenset[str]) -> Array:
        """Words of device memory for every chunk of a port."""
        found = self._fetches.get(names)
        if found is None:
            along, _, found = self._carried(names)
            if K in along:
                found = found * self.inner
            for d in along - {K}:
                found = found * self._count(d, 1) if d in self._walked else found
            self._fetches[names] = found
        return found

    def _copies(self, port: int, names: frozenset[str], mapping: Mapping) -> int:
        """How many parts of the array fetch the same chunks of a port."""
        along, _, _ = self._carried(names)
        columns = 1 if (mapping.rowcast and port == 0) or mapping.col_dim in along else mapping.columns
        return columns * (1 if port == 1 or mapping.row_dim in along else self._rows(mapping))

    def _names(self, port: int, mapping: Mapping) -> frozenset[str]:
        """The operands of a port."""
        return self._inputs & mapping.in1 if port == 1 else self._inputs - mapping.in1

    def _sent_again(self, port: int, mapping: Mapping) -> tuple[int, ...]:
        """The innermost loops, in which a port's chunks are sent again: those they do not depend on."""
        names = self._names(port, mapping)
        if not names:
            return ()
        along, _, _ = self._carried(names)
        again = takewhile(lambda d: d not in along, reversed(mapping.order))
        return tuple(d for d in again if d in self._walked)

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

    @cached_property
    def _task(self) -> float:
        """Controller cycles of a task of one descriptor."""
        each = costs(self.device)
        return each.descriptor + each.push

    def _least_commands(self, mapping: Mapping) -> float:
        """Controller cycles of parameters, and of one task for each port that a shim serves."""
        names = [self._names(port, mapping) - self._kept for port in (0, 1)]
        if self.nest.in0_resident(mapping.in1):
            names[0] = frozenset()
        return mapping.columns * self._task * (1 + bool(names[1]) + (not self.nest.out_kept)) + (
            min(mapping.columns, self.limits.rows) if mapping.rowcast else mapping.columns
        ) * self._task * bool(names[0])

    # -- cost ------------------------------------------------------------------------------

    def beside_commands(self, mapping: Mapping, at: int, loads_resident: bool = False) -> BesideCommands:
        """What one candidate asks of all but the controller.

        ``loads_resident``: the nest is the first of several and loads the operands that stay in the cores.
        """
        load = self._load(mapping, np.array([at]), loads_resident)
        return self._beside(mapping, load, self._commands(mapping, load), 0)

    def _beside(self, mapping: Mapping, load: _Load, commands: Array, number: int) -> BesideCommands:
        cycles, least = float(load.cycles[number]), self._least_commands(mapping)
        return BesideCommands(cycles, float(load.behind[number]), least, float(commands[number]))

    def _load(self, mapping: Mapping, at: Array, loads_resident: bool = False) -> _Load:
        """Returns the load of the candidates ``at``; ``loads_resident``: resident operands included."""
        nest, out, cycles, inner = self.nest, self.out[at], self.cycles[at], self.inner[at]
        rows = self._rows(mapping)
        counts = {d: self._count(d, mapping.cores_along(d, self.limits.rows))[at] for d in self._walked}
        outer = self._outer(mapping)[at]
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
        second = self._second(mapping, in0, in1, served, ring + 2 * in0.ring * served, outer * cycles)
        halved = np.greater(second, 0)
        sources = self.limits.rows if mapping.rowcast else rows * mapping.columns
        # Words of device memory.
        of_in0, of_in1 = in0.taken * in0.fetched * sources, in1.taken * in1.fetched * mapping.columns
        drain = outer * self.drained[at] * rows
        read, written = of_in0 + of_in1, mapping.columns * drain * self.out_factor[at]
        in1_cycles = self._channel(in1, 1)
        channels = np.maximum(
            self._channel(in0, served - second), np.where(halved, self._channel(in0, second), in1_cycles)
        )
        stages = _Stages(len(at))
        stages.set(
            FEED,
            np.maximum(channels, read * self.read_cycles),
            self._first(in0, in1, served, sources, mapping.columns),
        )
        sent = np.maximum(in0.chunks * in0.words * -(-served // ROW_LANES), in1.chunks * in1.words)
        stages.set(SEND, sent, in0.words + in1.words)
        stages.set(WORK, outer * cycles, cycles / inner)
        stages.set(TAKE, outer * out, out)
        drained = np.maximum(drain * self.shim_cycles, written * self.cycles_per_word)
        stages.set(DRAIN, drained, drained / outer)
        stages.set(MEMORY, (read + written) * self.cycles_per_word)
        busy = np.maximum(stages.whole[SEND], stages.whole[WORK])
        held = (
            self._held(in0, served, sources, busy, of_in1),
            self._held(in1, 1, mapping.columns, busy, of_in0),
        )
        stages.set(HOLD, np.maximum(*held))
        cycles = stages.longest() + ALONE_WEIGHT * self.op_cycles + CALL_CYCLES * outer * inner
        # Half of the rows have nothing before all of in1 has come.
        cycles += LEAD_WEIGHT * np.where(halved, np.maximum(in1_cycles, of_in1 * self.read_cycles), 0)
        cycles += START_CYCLES + COLUMN_CYCLES * mapping.columns
        behind = stages.alone.sum(axis=0) if in0.operands > MOST_AHEAD else np.zeros(len(at))
        return _Load(cycles, behind, fits, (in0, in1), served, 1 + halved, outer, self.per_group[at])

    def _first(self, in0: _Port, in1: _Port, served: int, sources: int, columns: int) -> IntArray:
        """Cycles until a column has its first chunks: panels that stay come one row behind the other."""
        chunks = np.where(in0.taken < in0.chunks, in0.panel * (served - 1) + 1, served)
        channel = (in0.ring * chunks + in1.ring) * self.shim_cycles
        words = in0.fetched * chunks * (sources / served) + in1.fetched * columns
        return np.maximum(channel, words * self.read_cycles)

    def _held(self, port: _Port, rows: int, sources: int, work: Array, others: IntArray) -> IntArray:
        """Cycles where memory tiles send panels of a port several times, to cores that do ``work``.

        A panel takes its time to come the first time that it is sent, and so does each that has no second
        slot. Device memory serves ``others`` words, too, as many each time.
        """
        if isinstance(port.repeats, int):
            return 0
        panels = port.taken / port.panel
        times = panels * port.repeats
        fetched = port.panel * port.fetched * sources + others / times
        comes = np.maximum(port.panel * port.ring * rows * self.shim_cycles, fetched * self.read_cycles)
        exposed = np.where(port.single, panels, 1)
        # Of rows of cores, which work together, one has its panel behind the other.
        meanwhile = 1 if rows > 1 else exposed
        return np.where(port.taken < port.chunks, exposed * comes + work * (1 - meanwhile / times), 0)

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
        repeats = prod(counts[d] for d in self._sent_again(port, mapping))
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
        """Controller cycles, guessed: parameters, shim tasks, and far too many steps."""
        in0, in1 = load.ports
        steps = np.maximum(in0.chunks, in1.chunks)
        parameters = np.ones(len(load.tiles))
        tasks = (
            parameters + in0.tasks(load.served, load.per_group) * load.channels + in1.tasks(1, load.per_group)
        )
        if not self.nest.out_kept:
            tasks = tasks + np.maximum(1, GUESSED_TASKS * load.tiles * self._rows(mapping) / 8)
        tasks = tasks + np.where(steps > MANY_STEPS, 1e3 * steps / MANY_STEPS, 0)
        commands: Array = mapping.columns * self._task * tasks
        return commands


class BesideCommands(NamedTuple):
    """Modelled cycles of one candidate, as far as the controller does not decide them."""

    cycles: float
    behind: float  # of these, what comes only when most commands are done
    least_commands: float  # what the controller takes for any such candidate
    guessed_commands: float

    def cost(self, commands: float) -> float:
        """Modelled cycles of the candidate where the controller takes ``commands`` for it."""
        serial = SERIAL_WEIGHT * commands + self.behind if self.behind else 0
        return max(commands, serial, self.cycles + COMMANDS_WEIGHT * commands) + EVER_WEIGHT * self.cycles

    @property
    def guessed(self) -> float:
        """Modelled cycles, before commands are counted."""
        return self.cost(self.guessed_commands)

    def commands_up_to(self, cost: float) -> float:
        """More than these make it cost more than ``cost``; negative where it does so anyway."""
        most = cost * (1 + ROUNDING) - EVER_WEIGHT * self.cycles
        commands = min(most, (most - self.cycles) / COMMANDS_WEIGHT)
        commands = min(commands, (most - self.behind) / SERIAL_WEIGHT) if self.behind else commands
        return commands if commands >= self.least_commands * (1 - ROUNDING) else -1


class _Stages:
    """What the stages of a nest take, for many candidates at once.

    Shims feed memory tiles, these send to cores, which work; memory tiles take the results, shims drain them.
    """

    def __init__(self, candidates: int) -> None:
        self.whole = np.zeros((7, candidates))
        self.alone = np.zeros((7, candidates))  # the part that passes before others begin, or behind them

    def set(self, stage: int, cycles: Array, alone: IntArray = 0) -> None:
        self.whole[stage], self.alone[stage] = cycles, alone

    def longest(self) -> Array:
        """Cycles of the longest way through: one stage's, and what others do alone before and behind it."""
        others = self.alone.sum(axis=0) - self.alone
        # What memory serves first and last is among what it takes, and feeding among what has to come.
        others[MEMORY:] -= self.alone[FEED]
        others[MEMORY] -= self.alone[DRAIN]
        longest: Array = (self.whole + ALONE_WEIGHT * others).max(axis=0)
        return longest


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
    single: IntArray = False  # whether panels that are sent again have one slot

    def tasks(self, rows: int, per_group: Array) -> IntArray:
        """Descriptors that the controller writes for a shim's tasks, guessed."""
        if not self.operands:
            return 0
        alone = np.maximum(1, GUESSED_TASKS * self.taken / self.panel * rows * per_group)
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


class _Evaluated(NamedTuple):
    """Candidates of a mapping, and what they cost: commands are guessed from what ports carry."""

    at: Array
    load: _Load
    commands: Array  # controller cycles
    cost: Array  # modelled cycles


class _Load(NamedTuple):
    """What candidates ask of resources, in cycles, and of ports."""

    cycles: Array  # but for commands
    behind: Array  # what comes only when most commands are done
    fits: Array
    ports: tuple[_Port, _Port]
    served: int  # core rows by one in0 feed
    channels: IntArray  # of a shim, that feed in0
    tiles: Array  # of a core
    per_group: Array  # shim tasks


def _unordered(mapping: Mapping) -> tuple[object, ...]:
    """All of a mapping but its loop order."""
    return mapping.row_dim, mapping.col_dim, mapping.columns, mapping.in1, mapping.rowcast


def _cost(load: _Load, commands: Array) -> Array:
    """Modelled cycles of candidates where the controller takes ``commands`` for them."""
    cost: Array = np.maximum(commands, load.cycles + COMMANDS_WEIGHT * commands)
    cost = np.where(load.behind, np.maximum(cost, SERIAL_WEIGHT * commands + load.behind), cost)
    return np.where(load.fits, cost + EVER_WEIGHT * load.cycles, np.inf)


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
        port.single = keep & (need + port.panel * port.words * rows[number] > free)
        free = free - np.where(keep, need, 0)
    return rings_fit
