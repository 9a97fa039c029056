# SPDX-License-Identifier: Apache-2.0
"""Control packets do what the same writes of a transaction do: AMD's, and those of our operators."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from onedispatch.operators.emission.overlay import overlay_transaction
from onedispatch.operators.families.elementwise import Eltwise
from onedispatch.operators.families.matmul import MatMul
from onedispatch.operators.interface.operator import Operator
from onedispatch.transactions import (
    ControlPackets,
    Device,
    Operation,
    Transaction,
    TransactionBuilder,
    circuit_master,
    find_device,
    switch_slave,
    tile_address,
)
from onedispatch.transactions.machine import registers
from onedispatch.transactions.packets.control_overlay import (
    FIRST_CORE_ID,
    MEM_ID,
    SHIM_SLAVES,
    control_overlay,
    lay_control_routes,
    send_packets,
    usual_tiles,
)
from onedispatch.transactions.packets.packet import ControlPacket
from tests.array_model.compare import empty_overlay, run_cpp, run_model
from tests.array_model.super_kernel import load_program
from tests.sim.test_model_operators import buffers_of, spec, whole

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


# --- our operators ------------------------------------------------------------------------------


def as_packets(address: int, words: list[int]) -> list[ControlPacket]:
    column, row, offset = registers.split_address(address)
    packet_id = MEM_ID if row == registers.MEM_ROW else FIRST_CORE_ID + row - registers.FIRST_CORE_ROW
    return [
        ControlPacket.write(packet_id, column, offset + 4 * i, words[i : i + 4])
        for i in range(0, len(words), 4)
    ]


def payload_of(op: Operation) -> bytes:
    return b"".join(word.to_bytes(4, "little") for word in op.words) if op.name == "BLOCKWRITE" else b""


def configured_by_packets(transaction: bytes, device: Device, argument: int) -> tuple[bytes, bytes]:
    """(transaction, packets): what an operator writes to memory tiles and cores travels as packets.

    The shim's DMA port takes packets first, and is then connected as the universal overlay has it.
    """
    builder = TransactionBuilder(device.device_generation, device.columns)
    rest, packets = [], []
    for op in Transaction.from_bytes(transaction).ops:
        if op.name in ("WRITE", "BLOCKWRITE") and op.reg >> registers.ROW_SHIFT & registers.ROW_MASK:
            packets += as_packets(op.reg, [op.value] if op.name == "WRITE" else list(op.words))
        else:
            rest.append(op)
    packets.sort(key=lambda packet: packet.key[1])  # stable: the order within a column stays
    blob = ControlPackets(tuple(packets))
    lay_control_routes(builder, usual_tiles(device.columns, device.core_rows))
    send_packets(builder, blob, argument)
    shim = registers.TILES["shim"]
    for column in range(device.columns):
        for lane, slave in enumerate(SHIM_SLAVES):
            number = shim.slave(slave)
            slaves, masters = shim.block["SWITCH_SLAVE"], shim.block["SWITCH_MASTER"]
            builder.write(tile_address(column, 0, slaves.offset + 4 * number), switch_slave())
            master = shim.master(f"NORTH_{lane}")
            builder.write(tile_address(column, 0, masters.offset + 4 * master), circuit_master(number))
    for op in rest:
        builder.op(op.name, payload_of(op), **op.fields)
    return builder.to_bytes(), blob.to_bytes()


@pytest.mark.parametrize("device", ["npu2_1col", "npu1", "npu2"])
@pytest.mark.parametrize("make", ["add", "matmul"])
def test_operators_configured_by_packets(device: str, make: str, rng: np.random.Generator) -> None:
    found = find_device(device)
    operator: Operator
    if make == "add":
        operator = Eltwise("add", "add", [spec("a", 7, 5), spec("b", 7, 1)], spec("out", 7, 5), found)
        arrays = [whole(rng, 7, 5), whole(rng, 7, 1)]
    else:
        operator = MatMul("product", spec("a", 40, 33), spec("b", 33, 50), spec("out", 40, 50), found)
        arrays = [whole(rng, 40, 33), whole(rng, 33, 50)]
    buffers = buffers_of(operator, arrays)
    transaction, packets = configured_by_packets(operator.transaction(), found, len(buffers))
    assert len(packets) > 100
    outcomes = [
        run_cpp(found, overlay_transaction(found, operator.image), transaction, [*buffers, packets]),
        run_model(
            found, overlay_transaction(found, operator.image), transaction, [*buffers, packets], load_program
        ),
    ]
    for outcome in outcomes:
        assert outcome.kind == "ok", outcome.text
        result = np.frombuffer(outcome.buffers[0][: operator.output.device_bytes], operator.output.dtype)
        np.testing.assert_array_equal(
            result.reshape(operator.output.shape), operator.reference(*arrays), err_msg=make
        )
