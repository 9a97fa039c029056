# SPDX-License-Identifier: Apache-2.0
"""What a schedule's shim tasks cost the controller: counted, not guessed.

The tasks are those that will be emitted; what each takes is made of the device's constants of the
simulator's own controller.
"""

from __future__ import annotations

from functools import cache

from onedispatch.operators.scheduling.feeds import Feeds
from onedispatch.operators.scheduling.schedule import Schedule
from onedispatch.transactions import Device

SHIM_BD_WORDS = 8


def shim_command_cycles(schedule: Schedule) -> float:
    """Array cycles that the controller spends on the shim tasks of a nest.

    One column stands for all: a middle one, as those at the edges of a tensor have fewer regular feeds.
    """
    feeds, mapping = Feeds(schedule), schedule.mapping
    column = min(1, mapping.columns - 1)
    descriptor, task = _costs(schedule.device)
    cycles = 0.0
    for port in (0, 1):
        cast = port == 0 and mapping.rowcast
        rows = feeds.rows_served(0 if cast else column) if port == 0 else [0]
        if not schedule.chunks(port) or not rows:
            continue
        tasks = feeds.feed(port, 0 if cast else column, rows)
        sources = -(-schedule.device.core_rows // len(rows)) if cast else mapping.columns
        cycles += sources * sum(descriptor * len(t.patterns) + task for t in tasks)
    drain = sum(descriptor * len(t.patterns) + task for t in feeds.drain(column))
    return cycles + mapping.columns * drain


@cache
def _costs(device: Device) -> tuple[float, float]:
    """Array cycles of a descriptor (BLOCKWRITE, DDR_PATCH), and of a task (queue WRITE, TCT)."""
    scale = device.constant("clock.array_mhz") / device.constant("controller.clock_mhz")
    word, other = (
        device.constant("controller.blockwrite_word_cycles"),
        device.constant("controller.other_cycles"),
    )
    descriptor = device.constant("controller.blockwrite_cycles") + SHIM_BD_WORDS * word + other
    return scale * descriptor, scale * (device.constant("controller.write_cycles") + other)
