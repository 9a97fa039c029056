# SPDX-License-Identifier: Apache-2.0
"""Names of hardware events, as mlir-aie's trace tools print them, for what means the same here.

Those of AIE-ML and later. A memory tile counts its events for a selected channel: ``SEL0`` is the first.
"""

from __future__ import annotations

MEMORY_ROW = 1

LOCK_STALL = "LOCK_STALL"  # a core waits for a lock
CALL_BEGINS, CALL_ENDS = "INSTR_EVENT_0", "INSTR_EVENT_1"  # event0() and event1() around a kernel's body


def start_task(row: int, channel: str) -> str:
    return f"{_dma(row, channel)}_START_TASK"


def finished_task(row: int, channel: str) -> str:
    return f"{_dma(row, channel)}_FINISHED_TASK"


def finished_bd(row: int, channel: str) -> str:
    return f"{_dma(row, channel)}_FINISHED_BD"


def stalled_lock(row: int, channel: str) -> str:
    return f"{_dma(row, channel)}_STALLED_LOCK"


def stalled_stream(row: int, channel: str) -> str:
    """Nothing comes, or nothing is taken."""
    return f"{_dma(row, channel)}_STREAM_{'BACKPRESSURE' if sends(channel) else 'STARVATION'}"


def stalled_memory(row: int, channel: str) -> str:
    return f"{_dma(row, channel)}_MEMORY_{'STARVATION' if sends(channel) else 'BACKPRESSURE'}"


def sends(channel: str) -> bool:
    """True for a channel that reads memory and sends what it reads."""
    return channel.startswith("MM2S")


def _dma(row: int, channel: str) -> str:
    direction, number = channel[:4], channel[4:]
    return f"DMA_{direction}_SEL0" if row == MEMORY_ROW else f"DMA_{direction}_{number}"
