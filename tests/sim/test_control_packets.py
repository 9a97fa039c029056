# SPDX-License-Identifier: Apache-2.0
"""Control packets do what the same writes of a transaction do: AMD's, and those of our operators."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from onedispatch.transactions import (
    ControlPackets,
    TransactionBuilder,
    find_device,
    tile_address,
)
from onedispatch.transactions.machine import registers
from onedispatch.transactions.packets.control_overlay import (
    control_overlay,
    send_packets,
)
from onedispatch.transactions.packets.packet import ControlPacket
from tests.array_model.compare import empty_overlay, run_cpp

NPU2 = find_device("npu2")


def kind_of(row: int) -> str:
    return registers.kind_of_row(row) or "core"


# --- AMD's samples ------------------------------------------------------------------------------


def passive(packets: ControlPackets) -> ControlPackets:
    """Without packets that push tasks: those need the overlay that the sample was written for."""
    tiles = packets.tiles()

    def pushes(packet: ControlPacket) -> bool:
        found = registers.TILES[kind_of(tiles[packet.key][1])].find(packet.offset)
        return found is not None and found.block.name.endswith("QUEUE")

    return ControlPackets(tuple(packet for packet in packets.packets if not pushes(packet)))


def read_back(builder: TransactionBuilder, addresses: Iterable[int]) -> bytes:
    builder.read_regs(sorted(set(addresses)))
    return builder.to_bytes()


@pytest.mark.amd_data
def test_samples_leave_what_their_writes_leave(amd_transactions: Path) -> None:
    files = sorted(amd_transactions.rglob("*_ctrl.bin"))
    assert files
    for path in files:
        whole_blob = ControlPackets.from_bytes(path.read_bytes())
        assert not whole_blob.findings(), path.name  # odd parity everywhere
        tiles, packets = whole_blob.tiles(), passive(whole_blob)
        assert len(packets.packets) > len(whole_blob.packets) // 2
        written = {
            tile_address(*tiles[p.key], p.offset + 4 * i): word
            for p in packets.packets
            for i, word in enumerate(p.data)
        }
        sent = TransactionBuilder(NPU2.device_generation, NPU2.columns)
        send_packets(sent, packets, 0)
        by_packets = run_cpp(
            NPU2, control_overlay(NPU2, tiles), read_back(sent, written), [packets.to_bytes()]
        )
        direct = TransactionBuilder(NPU2.device_generation, NPU2.columns)
        for op in packets.to_transaction(tiles).ops:
            direct.blockwrite(op.reg, op.words if op.name == "BLOCKWRITE" else [op.value])
        by_writes = run_cpp(NPU2, empty_overlay(NPU2), read_back(direct, written), [])
        assert by_packets.kind == by_writes.kind == "ok", f"{path.name}: {by_packets.text} {by_writes.text}"
        assert by_packets.registers == by_writes.registers, path.name
        assert dict(by_packets.registers) == written, path.name  # the last word that went to each
