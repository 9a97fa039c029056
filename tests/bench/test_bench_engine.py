# SPDX-License-Identifier: Apache-2.0
"""How fast the event engine decides, on one core, with nothing copied and no kernel called: ``make bench``.

The transactions move 256 bytes a task: by each column's shim to its memory tile and, once a lock says that
they are there, back. Tasks a second should not fall with their number.
"""

from __future__ import annotations

import struct
import time
from typing import Any

import numpy as np
import pytest

from onedispatch.dispatch.base.native import core
from onedispatch.operators.emission.overlay import overlay_xclbin
from onedispatch.transactions import MemBd, ShimBd, TransactionBuilder, find_device, queue_word
from onedispatch.transactions.format.builder import register_address
from onedispatch.transactions.format.spec import HEADER_SIZE, KERNEL_OPCODE

pytestmark = pytest.mark.bench
DEVICE = find_device("npu2")
WORDS = 64
IDLE = 0x78003C  # of a channel's status: nothing runs, nothing is queued
QUEUED = 4  # tasks of each of a column's four channels between two polls
PUSHES = (  # block, channel and first BD of the way there and back
    (0, "DMA_MM2S_QUEUE", 0, 0),
    (1, "DMA_S2MM_QUEUE", 0, 0),
    (1, "DMA_MM2S_QUEUE", 5, 24),
    (0, "DMA_S2MM_QUEUE", 0, 1),
)
TASKS_OF_ROUND = QUEUED * len(PUSHES) * DEVICE.columns


def _prologue(made: TransactionBuilder, column: int) -> None:
    filled, free = 0, 1
    for bd, argument in ((0, 0), (1, 1)):
        at = register_address(column, 0, "DMA_BD", bd)
        made.blockwrite(at, ShimBd.at(0, WORDS).to_words())
        made.ddr_patch(at + 4, argument, 4 * WORDS * column)
    to_memory = MemBd.at(0, WORDS, acquire=(free, -1), release=(filled, 1))
    to_shim = MemBd.at(0, WORDS, acquire=(filled, -1), release=(free, 1))
    made.blockwrite(register_address(column, 1, "DMA_BD", 0), to_memory.to_words())
    made.blockwrite(register_address(column, 1, "DMA_BD", 24), to_shim.to_words())
    made.write(register_address(column, 1, "LOCK_VALUE", free), 1)


def _round(made: TransactionBuilder) -> None:
    for row, block, channel, bd in PUSHES * QUEUED:
        for column in range(DEVICE.columns):
            task = queue_word("mem" if row else "shim", bd)
            made.write(register_address(column, row, block, channel), task)
    for column in range(DEVICE.columns):
        made.maskpoll(register_address(column, 0, "DMA_S2MM_STATUS", 0), 0, IDLE)


def _transaction(tasks: int) -> bytes:
    """Of that many tasks, to the next whole round. A round is written once and repeated."""
    first, one = TransactionBuilder.for_device(DEVICE), TransactionBuilder.for_device(DEVICE)
    for column in range(DEVICE.columns):
        _prologue(first, column)
    _round(one)
    rounds = -(-tasks // TASKS_OF_ROUND)
    data = bytearray(first.to_bytes() + one.to_bytes()[HEADER_SIZE:] * rounds)
    struct.pack_into("<II", data, 8, first.op_count + one.op_count * rounds, len(data))
    return bytes(data)


class _Clock:
    """A transaction and what it takes to time it."""

    def __init__(self, transaction: bytes) -> None:
        device = core.device.from_description(DEVICE.description())
        device.set_clock(True)
        device.set_threads(1)
        binary = core.xclbin(overlay_xclbin(DEVICE))
        device.register_xclbin(binary)
        context = core.hw_context(device, binary.get_uuid())
        self._kernel = core.kernel(context, binary.get_kernels()[0].get_name())
        instructions = core.bo(device, len(transaction), core.bo.cacheable, self._kernel.group_id(1))
        np.frombuffer(instructions.map(), np.uint8)[:] = np.frombuffer(transaction, np.uint8)
        instructions.sync(core.xclBOSyncDirection.XCL_BO_SYNC_BO_TO_DEVICE, len(transaction), 0)
        size = 4 * WORDS * DEVICE.columns
        buffers = [core.bo(device, size, core.bo.host_only, self._kernel.group_id(index)) for index in (3, 4)]
        self._arguments = (KERNEL_OPCODE, instructions, len(transaction), *buffers)

    def __call__(self) -> Any:
        run = self._kernel(*self._arguments)
        run.wait()
        return run.report()


@pytest.mark.benchmark(timer=time.process_time)  # of one core, however busy the machine is
@pytest.mark.parametrize("tasks", [10_000, 100_000, 1_000_000])
def test_tasks(benchmark: Any, tasks: int) -> None:
    clock = _Clock(_transaction(tasks))
    benchmark.group = "DMA tasks"
    report = benchmark.pedantic(clock, rounds=5, warmup_rounds=1)
    pushed = -(-tasks // TASKS_OF_ROUND) * TASKS_OF_ROUND
    assert sum(report["ddr_bytes_read"]) == pushed // len(PUSHES) * 4 * WORDS
    if not benchmark.disabled:
        benchmark.extra_info["million tasks a second"] = round(pushed / benchmark.stats.stats.min / 1e6, 2)
