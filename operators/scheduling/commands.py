# SPDX-License-Identifier: Apache-2.0
"""What a schedule's shim tasks cost the controller: counted, not guessed.

The tasks are those that will be emitted; what each takes is made of the device's constants of the
simulator's own controller.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from math import inf

from onedispatch.operators.scheduling.access_pattern import ChunkTask
from onedispatch.operators.scheduling.feeds import Feeds
from onedispatch.operators.scheduling.schedule import Schedule
from onedispatch.transactions import Device
from onedispatch.transactions.machine import registers as reg


def shim_command_cycles(schedule: Schedule, limit: float = inf, loads_resident: bool = False) -> float:
    """Array cycles that the controller spends on the shim tasks of a nest.

    One column stands for all: a middle one, as those at the edges of a tensor have fewer regular feeds.
    Returns infinity above ``limit``, without counting to the end. ``loads_resident``: the nest also loads
    the operands that stay in the cores.
    """
    if limit < 0:
        return inf
    descriptor, task = _costs(schedule.device)
    cycles = 0.0
    for sources, tasks in _shims(schedule, loads_resident or not schedule.in0_resident):
        each = 0.0
        for one in tasks:
            each += descriptor * len(one.patterns) + task
            if cycles + sources * each > limit:
                return inf
        cycles += sources * each
    return cycles


def _shims(schedule: Schedule, in0: bool) -> Iterator[tuple[int, Iterator[ChunkTask]]]:
    """How many shims have the same tasks, and these: of each port, maybe without in0, then of what drains."""
    feeds, mapping = Feeds(schedule), schedule.mapping
    column = min(1, mapping.columns - 1)
    for port in (0, 1) if in0 else (1,):
        cast = port == 0 and mapping.rowcast
        rows = feeds.rows_served(0 if cast else column) if port == 0 else [0]
        if not schedule.chunks(port) or not rows or not schedule.ring_words(port):
            continue
        sources = -(-schedule.device.core_rows // len(rows)) if cast else mapping.columns
        for channel, served in schedule.channels(port, rows):
            yield sources, feeds.feed(port, 0 if cast else column, served, channel)
    if not schedule.kept[2]:
        yield mapping.columns, feeds.drain(column)


@cache
def _costs(device: Device) -> tuple[float, float]:
    """Array cycles of a descriptor (BLOCKWRITE, DDR_PATCH), and of a task (queue WRITE, TCT)."""
    scale = device.constant("clock.array_mhz") / device.constant("controller.clock_mhz")
    word, other = (
        device.constant("controller.blockwrite_word_cycles"),
        device.constant("controller.other_cycles"),
    )
    descriptor = device.constant("controller.blockwrite_cycles") + reg.SHIM.bd_words * word + other
    return scale * descriptor, scale * (device.constant("controller.write_cycles") + other)
