# SPDX-License-Identifier: Apache-2.0
"""Memories beyond what AMD's have: where descriptors of memory tiles lead to, and what cores hold."""

from __future__ import annotations

import numpy as np
import pytest

from onedispatch import SimulationError
from onedispatch.operators.emission.context import context
from onedispatch.transactions import (
    Device,
    FindingKind,
    MemBd,
    Severity,
    ShimBd,
    TransactionBuilder,
    queue_word,
    tile_address,
)
from onedispatch.transactions.analysis.check import check_bytes
from onedispatch.transactions.machine import registers
from onedispatch.transactions.machine.geometry import MemoryView
from tests.devices import device_of
from tests.ops.host import run_buffers

WORDS = 8
BUFFERS = 4  # kernel arguments; 0 is sent, 1 is received


class Host:
    """Single tasks between host memory and memory tiles, on the overlay's routes; each is waited for."""

    def __init__(self, device: Device) -> None:
        self.builder = TransactionBuilder.for_device(device)

    def _bd(self, column: int, row: int, number: int, words: list[int]) -> int:
        tile = registers.MEM if row else registers.SHIM
        block = tile.block["DMA_BD"]
        at = tile_address(column, row, block.at(number))
        self.builder.blockwrite(at, words)
        return at

    def _push(self, column: int, row: int, way: str, channel: int, bd: int, token: bool = False) -> None:
        tile = registers.MEM if row else registers.SHIM
        block = tile.block[f"DMA_{way}_QUEUE"]
        word = queue_word("mem" if row else "shim", bd, 1, token)
        self.builder.write(tile_address(column, row, block.at(channel)), word)

    def send(self, column: int, base: int) -> None:
        """Argument 0 into the memory that byte ``base`` of a descriptor names."""
        at = self._bd(column, 0, 0, ShimBd.at(0, WORDS).to_words())
        self.builder.ddr_patch(at + 4, 0, 0)
        self._bd(column, 1, 0, MemBd(base=base // 4, length=WORDS, valid=1).to_words())
        self._push(column, 1, "S2MM", 0, 0, token=True)
        self._push(column, 0, "MM2S", 0, 0)
        self.builder.tct("S2MM", column, 1, 0)

    def receive(self, column: int, base: int, offset: int) -> None:
        """The same the other way, into argument 1 from byte ``offset`` on."""
        at = self._bd(column, 0, 1, ShimBd.at(0, WORDS).to_words())
        self.builder.ddr_patch(at + 4, 1, offset)
        self._bd(column, 1, 25, MemBd(base=base // 4, length=WORDS, valid=1).to_words())
        self._push(column, 0, "S2MM", 0, 1, token=True)
        self._push(column, 1, "MM2S", 5, 25)
        self.builder.tct("S2MM", column, 0, 0)

    def run(self, device: Device) -> list[np.ndarray]:
        sent = np.arange(100, 100 + WORDS, dtype=np.int32)
        buffers = [sent.tobytes(), *[bytes(256)] * (BUFFERS - 1)]
        after = run_buffers(device, self.builder.to_bytes(), buffers)
        return list(np.frombuffer(after[1], np.int32)[: 2 * WORDS].reshape(2, WORDS))


def check(host: Host, device: Device) -> list[str]:
    """Errors about the reach of descriptors, without a run."""
    found = check_bytes(host.builder.to_bytes(), [256] * BUFFERS, context(device))
    return [str(f) for f in found if f.severity is Severity.ERROR and f.kind is FindingKind.DIMENSION]


@pytest.mark.parametrize("name", ["tiles_doubled", "halved"])
def test_neighbours_lie_one_after_the_other(name: str) -> None:
    """What one tile puts across its border, or behind it, is what its neighbour has there."""
    device = device_of(name)
    view = MemoryView(device.count("memory_tile.memory_bytes"))
    across = 16 if view.bytes >= view.own else 0  # smaller memories do not touch
    host = Host(device)
    host.send(0, view.own + view.pitch - across)
    host.receive(1, view.own - across, 0)  # as the neighbour sees it: from its west to itself
    host.receive(0, view.own + view.pitch - across, 4 * WORDS)
    assert check(host, device) == []
    for received in host.run(device):
        np.testing.assert_array_equal(received, np.arange(100, 100 + WORDS))


@pytest.mark.parametrize(
    ("name", "byte", "says"),
    [
        ("tiles_doubled", 0x200000 - 16, "bytes 0x1FFFF0 to 0x20000F"),  # the base field ends
        ("halved", 0x80000 + 262144 - 16, "262,144 bytes of each tile and not across"),
        ("doubled", 0x80000 + 64, "byte 0x40 of mem tile c0 r1, which was never written"),
        ("doubled", 0x180000 + 64, "byte 0x40 of mem tile c1 r1, which was never written"),
    ],
)
def test_what_a_descriptor_cannot_name(name: str, byte: int, says: str) -> None:
    host = Host(device_of(name))
    host.receive(0, byte, 0)
    with pytest.raises(SimulationError, match=says):
        host.run(device_of(name))
    found = check(host, device_of(name))
    assert bool(found) == ("never written" not in says), found


@pytest.mark.parametrize("size", [1024, 131072, 262144, 524288, 524352, 1048576, 1572864])
def test_views_of_memories(size: int) -> None:
    view = MemoryView(size)
    assert view.side(view.own) == 1 and view.offset(view.own) == 0
    assert view.side(view.own - 4) == 0 and view.side(view.own + view.pitch) == 2
    assert view.exists(view.own, view.own + size)
    assert view.end <= 1 << 21
    assert not view.exists(view.end - 4, view.end + 4)
    assert view.exists(view.own - 4, view.own + 4) == (size >= 524288)
