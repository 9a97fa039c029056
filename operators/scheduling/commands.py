# SPDX-License-Identifier: Apache-2.0
"""What a nest costs the controller: counted, not guessed.

Descriptors, tasks and tokens are those that will be emitted (``onedispatch.operators.emission``); what each
takes is made of the device's constants of the simulator's own controller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from math import inf
from typing import NamedTuple

from onedispatch.operators.scheduling.access_pattern import MAX_REPEAT, ChunkTask
from onedispatch.operators.scheduling.feeds import Feeds
from onedispatch.operators.scheduling.holds import STREAM
from onedispatch.operators.scheduling.index_space import Operand
from onedispatch.operators.scheduling.resources import (
    DRAIN,
    FEED,
    MM2S,
    OUT_FILL,
    ROW_LANES,
    S2MM,
    sending,
)
from onedispatch.operators.scheduling.schedule import Schedule
from onedispatch.transactions import Device
from onedispatch.transactions.machine import registers as reg

MOST_COUNTED = 128  # tasks of a channel


def controller_cycles(schedule: Schedule, limit: float = inf, loads_resident: bool = False) -> float:
    """Array cycles that the controller spends on a nest.

    One of columns that are alike is counted: where tiles do not divide evenly, some columns have others than
    most, and those at the edges of a tensor have fewer regular feeds. Returns infinity above ``limit``,
    without counting to the end. ``loads_resident``: the nest also loads the operands that stay in the cores.
    """
    if limit < 0:
        return inf
    feeds = Feeds(schedule)
    cycles = _ends(schedule)
    for columns, column in _alike(schedule, feeds):
        for one in _Column(feeds, column, loads_resident or not schedule.in0_resident).cycles():
            cycles += columns * one
            if cycles > limit:
                return inf
    return cycles if cycles <= limit else inf


class Costs(NamedTuple):
    """Array cycles of a descriptor (BLOCKWRITE, DDR_PATCH), of a push (WRITE), and of waiting for a token
    (TCT) or for a queue (MASKPOLL)."""

    descriptor: float
    push: float
    token: float


@cache
def costs(device: Device) -> Costs:
    """What each of these takes on ``device``."""
    scale = device.constant("clock.array_mhz") / device.constant("controller.clock_mhz")
    word, other = (
        device.constant("controller.blockwrite_word_cycles"),
        device.constant("controller.other_cycles"),
    )
    descriptor = device.constant("controller.blockwrite_cycles") + reg.SHIM.bd_words * word + other
    return Costs(scale * descriptor, scale * device.constant("controller.write_cycles"), scale * other)


def _ends(schedule: Schedule) -> float:
    """Waiting for the results, of all columns at once."""
    channels = min(schedule.active_rows, ROW_LANES) if schedule.kept[2] else 1
    return channels * costs(schedule.device).token


def _alike(schedule: Schedule, feeds: Feeds) -> list[tuple[int, int]]:
    """Numbers of columns, and one that stands for so many."""
    m, whole = schedule.mapping, schedule.mapping.columns
    if m.col_dim is not None:  # columns whose tiles lie as those of the first; one with some; the others
        extent, tile = schedule.nest.dims[m.col_dim].extent, schedule.tiles[m.col_dim]
        whole = extent // tile // schedule.strides(m.col_dim)[0]
    ends = (0, m.columns - 1) if _reaches_out(schedule) else ()
    found: dict[tuple[object, ...], list[int]] = {}
    for column in range(m.columns):
        rows = feeds.rows_served(column) if m.rowcast else []  # some columns feed rows of all
        served = rows if schedule.redoes or ends else [len(rows)]
        end = column if column in ends else -1
        found.setdefault((*served, end, column >= whole, column > whole), []).append(column)
    return [(len(some), some[-1]) for some in found.values()]


def _reaches_out(schedule: Schedule) -> bool:
    """Whether chunks at the ends of a dimension lie otherwise than those between."""
    views = [x for x in schedule.nest.inputs if isinstance(x, Operand)]
    return any(access.start or access.end for view in views for access in view.access)


class _Queue:
    """One channel's tasks, and what the controller does for each."""

    def __init__(self, costs: Costs, ahead: int, descriptors: int = 0, tasks: int = 0) -> None:
        """``descriptors``: that a shim's channel has; the first tasks of others come as control packets.
        ``tasks`` are there already."""
        self._costs, self._ahead, self._descriptors, self._tasks = costs, ahead, descriptors, tasks

    def task(self, descriptors: int = 0) -> float:
        """Cycles of the next task."""
        ahead = self._ahead
        if descriptors:
            ahead = self._ahead = min(ahead, self._descriptors // descriptors)
        self._tasks += 1
        waits = self._tasks > ahead
        pushed = waits or descriptors > 0
        return descriptors * self._costs.descriptor + pushed * self._costs.push + waits * self._costs.token


class _Column:
    """What a column's shim, memory tile and cores ask of the controller."""

    def __init__(self, feeds: Feeds, column: int, in0: bool) -> None:
        self._feeds, self._schedule, self._column = feeds, feeds.schedule, column
        self._costs, self._limits = costs(feeds.schedule.device), feeds.schedule.limits
        self._in0 = in0
        # Parameters are the first task of these.
        first = (reg.SHIM_ROW, MM2S, 1), (reg.MEM_ROW, S2MM, 1), (reg.MEM_ROW, MM2S, 0)
        self._queues = {queue: self._queue(*queue, tasks=1) for queue in first}

    def cycles(self) -> Iterator[float]:
        """Of one thing after the other."""
        s = self._schedule
        yield self._costs.descriptor + self._costs.push  # parameters
        rows = self._feeds.rows_served(self._column) if self._in0 else [], [0]
        for port in (0, 1):
            if s.chunks(port) and rows[port]:
                yield from self._input(port, rows[port])
        yield from self._output()
        counts = s.chunks(0) if self._in0 else 0, s.chunks(1), s.outer_steps
        for direction, channel, count in zip((S2MM, S2MM, MM2S), (0, 1, 0), counts, strict=True):
            queue = self._queue(reg.FIRST_CORE_ROW, direction, channel, tasks=channel)
            for _ in range(0, count, MAX_REPEAT):
                yield s.active_rows * queue.task()
        if s.active_rows == 1 and self._limits.sharers > 1:
            yield 2 * self._costs.push  # one row does not wait for its turn

    def _queue(self, row: int, direction: int, channel: int, tasks: int = 0) -> _Queue:
        descriptors = len(self._limits.shim_bds[direction, channel]) if row == reg.SHIM_ROW else 0
        return _Queue(self._costs, self._limits.tasks_ahead, descriptors, tasks)

    def _of(self, row: int, direction: int, channel: int) -> _Queue:
        key = row, direction, channel
        if key not in self._queues:
            self._queues[key] = self._queue(*key)
        return self._queues[key]

    def _runs(self, direction: int, channel: int, runs: int, times: int = 1) -> Iterator[float]:
        """Tasks of a memory tile that run a chain ``runs`` times."""
        queue = self._of(reg.MEM_ROW, direction, channel)
        for _ in range(times):
            for _ in range(0, runs, MAX_REPEAT):
                yield queue.task()

    def _of_rows(
        self, rows: Sequence[int], tasks: Callable[[int], Iterable[ChunkTask]]
    ) -> Iterator[tuple[int, int]]:
        """Yields each row and its number of ``tasks``: equal ones, unless some tiles are computed twice."""
        count = 0
        for place, row in enumerate(rows):
            if place == 0 or self._schedule.redoes:
                count = sum(1 for _ in tasks(row))
            yield row, count

    def _input(self, port: int, rows: list[int]) -> Iterator[float]:
        s, hold = self._schedule, self._schedule.holds[port]
        panels = s.chunks(port) // (hold.chunks * hold.repeat)
        if s.kept[port]:
            for row, count in self._of_rows(rows, lambda row: self._feeds.send(port, self._column, row)):
                queue = self._of(reg.MEM_ROW, MM2S, sending(port, row))
                for _ in range(count):
                    yield queue.task()
        else:
            runs, times = (panels, 1) if hold.repeat == 1 else (hold.repeat, panels)
            for channel in dict.fromkeys(sending(port, row) for row in rows):
                yield from self._runs(MM2S, channel, runs, times)
            if hold.repeat > 1 and hold.slots * hold.repeat != STREAM.slots:
                yield len(hold.parts) * len(rows) * self._costs.push  # locks, as they were
        if not s.ring_words(port):
            return
        cast = port == 0 and s.mapping.rowcast
        for channel, some in s.channels(port, rows):
            yield from self._runs(S2MM, FEED[channel], panels)
            queue = self._of(reg.SHIM_ROW, MM2S, channel)
            tasks = self._feeds.feed(port, 0 if cast else self._column, some, channel)
            yield from _of_shim(queue, tasks, s.chunks(port) // hold.repeat * len(some))

    def _output(self) -> Iterator[float]:
        s, rows = self._schedule, range(self._schedule.active_rows)
        if s.kept[2]:
            for row, count in self._of_rows(rows, lambda row: self._feeds.drain(self._column, [row])):
                queue = self._of(reg.MEM_ROW, S2MM, OUT_FILL + row % ROW_LANES)
                for _ in range(count):
                    yield queue.task()
            return
        for lane in range(min(len(rows), ROW_LANES)):
            yield from self._runs(S2MM, OUT_FILL + lane, s.outer_steps)
        yield from self._runs(MM2S, DRAIN, s.outer_steps)
        queue = self._of(reg.SHIM_ROW, S2MM, 0)
        yield from _of_shim(queue, self._feeds.drain(self._column), s.outer_steps * len(rows))


def _of_shim(queue: _Queue, tasks: Iterable[ChunkTask], chunks: int) -> Iterator[float]:
    """Cycles of a shim's tasks for ``chunks``; of very many, the last are taken to be like the first."""
    cycles = 0.0
    for number, task in enumerate(tasks):
        cycles += (one := queue.task(len(task.patterns)))
        yield one
        if number == MOST_COUNTED:
            done = task.first + task.chunks
            yield cycles * (chunks - done) / done
            return
