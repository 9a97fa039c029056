# SPDX-License-Identifier: Apache-2.0
"""What the controller pushes never overtakes what goes to the same queue as a control packet."""

from __future__ import annotations

from typing import Any

import pytest

from onedispatch.operators.emission import control
from onedispatch.operators.emission.flow import FEED_RANK, STREAM, Flow, Push, address
from onedispatch.operators.scheduling.access_pattern import Pattern
from onedispatch.operators.scheduling.resources import MM2S, resources
from onedispatch.transactions import TransactionBuilder, find_device
from onedispatch.transactions.machine import registers as reg

DEVICE = find_device("npu2_1col")


class Steps(TransactionBuilder):
    """A builder that says, too, what it was asked for."""

    def __init__(self) -> None:
        super().__init__(4, 1)
        self.asked: list[tuple[Any, ...]] = []

    def write(self, address: int, value: int) -> None:
        self.asked.append(("write", address))
        super().write(address, value)

    def tct(
        self, direction: str, column: int, row: int, channel: int, columns: int = 1, rows: int = 1
    ) -> None:
        self.asked.append(("tct", direction, column, row, channel))
        super().tct(direction, column, row, channel, columns, rows)


@pytest.mark.parametrize("row", [reg.MEM_ROW, reg.FIRST_CORE_ROW])
def test_later_tasks_wait_for_the_end_of_the_packets(row: int) -> None:
    limits, builder = resources(DEVICE), Steps()
    stream = Push(-1, FEED_RANK, 0, 0, MM2S, control.CHANNEL, 1, STREAM, (), (0,))
    others = [Push(i, 0, 0, row, MM2S, 0, 1, i % 2) for i in range(limits.tasks_ahead + 1)]
    flow = Flow(builder, limits, [stream, *others], [], False)
    assert len(list(flow.at_once())) == limits.tasks_ahead
    flow.push_all(1, {0: Pattern(0, ((16, 1), (1, 1), (1, 1)))})
    pushed = builder.asked.index(("write", address(0, row, "DMA_MM2S_QUEUE", 0)))
    assert ("tct", "MM2S", 0, reg.SHIM_ROW, control.CHANNEL) in builder.asked[:pushed]
