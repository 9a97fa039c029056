# SPDX-License-Identifier: Apache-2.0
"""Stream switches: which wires they have, what ``check`` says, and that our overlays obey."""

from __future__ import annotations

import pytest

from onedispatch.operators.emission.overlay import overlay_transaction
from onedispatch.transactions import (
    FindingKind,
    Severity,
    Transaction,
    TransactionBuilder,
    circuit_master,
    device_names,
    find_device,
    packet_master,
    switch_slave,
    switch_slot,
    tile_address,
)
from onedispatch.transactions.machine import registers as reg
from onedispatch.transactions.machine.switches import CONNECTIONS, connects
from onedispatch.transactions.packets.control_overlay import control_overlay


@pytest.mark.parametrize(
    ("kind", "slave", "master", "there"),
    [
        ("mem", "SOUTH_1", "NORTH_1", True),
        ("mem", "SOUTH_1", "NORTH_2", False),
        ("mem", "NORTH_3", "SOUTH_3", True),
        ("mem", "NORTH_3", "SOUTH_0", False),
        ("mem", "DMA_0", "SOUTH_3", True),
        ("mem", "DMA_0", "DMA_1", False),
        ("mem", "CONTROL", "DMA_5", True),
        ("mem", "CONTROL", "DMA_4", False),
        ("core", "SOUTH_0", "EAST_3", True),
        ("core", "EAST_0", "EAST_1", False),
        ("core", "CONTROL", "CONTROL", False),
        ("shim", "SOUTH_3", "NORTH_5", True),
        ("shim", "CONTROL", "SOUTH_0", True),
    ],
)
def test_wires(kind: str, slave: str, master: str, there: bool) -> None:
    tile = reg.TILES[kind]
    assert connects(kind, tile.slave(slave), tile.master(master)) is there


def test_every_slave_has_a_wire_and_none_is_beyond_the_table() -> None:
    for kind, masks in CONNECTIONS.items():
        assert len(masks) == len(reg.TILES[kind].slaves) and all(masks)
        assert max(masks) < 1 << len(reg.TILES[kind].masters)
        assert not connects(kind, len(masks), 0)


@pytest.mark.parametrize("name", device_names())
def test_our_overlays_use_only_wires_that_exist(name: str) -> None:
    device = find_device(name)
    for overlay in (overlay_transaction(device), control_overlay(device)):
        found = Transaction.from_bytes(overlay).check()
        assert [str(f) for f in found if f.severity is Severity.ERROR] == []


def mem(block: str, port: int) -> int:
    return tile_address(0, reg.MEM_ROW, reg.MEM.block[block].offset + 4 * port)


def test_a_circuit_without_wire_is_found_at_its_master() -> None:
    made = TransactionBuilder(4, 1)
    made.write(mem("SWITCH_SLAVE", reg.MEM.slave("SOUTH_1")), switch_slave())
    made.write(mem("SWITCH_MASTER", reg.MEM.master("NORTH_2")), circuit_master(reg.MEM.slave("SOUTH_1")))
    (finding,) = Transaction.from_bytes(made.to_bytes()).check()
    assert (finding.kind, finding.op_index) == (FindingKind.ROUTE, 1)
    assert "no mem tile has a wire from SOUTH_1 to NORTH_2" in finding.message
    assert "SOUTH_2, NORTH_2" in finding.message, finding.message


def test_packets_without_wire_are_found_at_their_slot() -> None:
    made = TransactionBuilder(4, 1)
    slave = reg.MEM.slave("SOUTH_1")
    made.write(mem("SWITCH_MASTER", reg.MEM.master("NORTH_2")), packet_master(3, 0b10))
    made.write(mem("SWITCH_SLOT", slave * reg.SLOTS_PER_SLAVE), switch_slot(4, arbiter=3, msel=1))
    assert Transaction.from_bytes(made.to_bytes()).check() == [], "the slave port is not enabled"
    made.write(mem("SWITCH_SLAVE", slave), switch_slave(packet=True))
    (finding,) = Transaction.from_bytes(made.to_bytes()).check()
    assert (finding.kind, finding.op_index) == (FindingKind.ROUTE, 1)
    assert "sends packets to NORTH_2" in finding.message
