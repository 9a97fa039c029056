# SPDX-License-Identifier: Apache-2.0
"""Writing: descriptors, words, the builder; each misuse has its message."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onedispatch.transactions import (
    CoreBd,
    MemBd,
    ShimBd,
    Transaction,
    TransactionBuilder,
    TransactionError,
    tile_address,
)
from onedispatch.transactions.format import spec
from onedispatch.transactions.machine import bd, registers

SHIM_BD0 = tile_address(0, 0, 0x1D000)
MEM_QUEUE = tile_address(0, 1, 0xA0604)


def builder(version: spec.Version = spec.V0_1) -> TransactionBuilder:
    return TransactionBuilder(4, 8, version)


# --- tables -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", registers.TILES)
def test_bd_fields_do_not_overlap(kind: str) -> None:
    tile = registers.TILES[kind]
    used = [0] * tile.bd_words
    for field in tile.bd_fields:
        bits = ((1 << field.width) - 1) << field.lsb
        assert field.lsb + field.width <= 32 and not used[field.word] & bits, field.name
        used[field.word] |= bits


@pytest.mark.parametrize("kind", registers.TILES)
def test_every_block_is_found_at_its_items(kind: str) -> None:
    tile = registers.TILES[kind]
    for block in tile.blocks:
        for index in {0, block.count // 2, block.count - 1}:
            found = tile.find(block.offset + index * block.stride)
            assert found is not None and (found.block, found.index, found.byte) == (block, index, 0)


@pytest.mark.parametrize("version", spec.VERSIONS)
def test_op_fields_lie_inside_and_apart(version: spec.Version) -> None:
    for op in spec.OPCODES:
        layout = op.layouts[version]
        taken = {0}
        size_field = [spec.ByteField("size", layout.size_at, 4)] if layout.size_at is not None else []
        for field in (*layout.fields, *size_field):
            places = set(range(field.offset, field.offset + field.width))
            assert not places & taken and max(places) < layout.min_size, (op.name, field.name)
            taken |= places


def test_known_ports_and_wiring() -> None:
    assert registers.CORE.master("NORTH_0") == 13 and registers.CORE.slave("NORTH_0") == 15
    assert registers.MEM.master("NORTH_0") == 11 and registers.MEM.slave("NORTH_0") == 13
    assert registers.SHIM.master("NORTH_0") == 12 and registers.SHIM.slave("SOUTH_7") == 9
    assert registers.SHIM_MM2S_SLAVES == (5, 9) and registers.SHIM_S2MM_MASTERS == (4, 5)


# --- descriptors --------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", [ShimBd, MemBd, CoreBd])
@given(data=st.data())
def test_bd_words_round_trip(cls: type[bd.BufferDescriptor], data: st.DataObject) -> None:
    raw = data.draw(st.lists(st.integers(0, 2**32 - 1), min_size=8, max_size=8))
    words = [word & mask for word, mask in zip(raw, cls.tile.bd_covered, strict=False)]
    assert cls.from_words(words).to_words() == words


def test_bd_at_speaks_of_own_memory_and_locks() -> None:
    made = MemBd.at(
        0x1000,
        64,
        [(1, 8), (16, 8)],
        acquire=(3, -1),
        release=(4, 1),
        next_bd=9,
        packet_id=2,
        iteration=(64, 4),
    )
    assert made.base == (0x80000 + 0x1000) // 4
    assert (made.acquire_lock, made.release_lock) == (67, 68)
    words = made.to_words()
    assert words[0] == 64 | 2 << 23 | 1 << 31
    assert words[1] == 0x20400 | 1 << 19 | 9 << 20
    assert words[2] == 0 | 8 << 17 and words[3] == 15 | 8 << 17
    assert words[6] == 63 | 3 << 17
    assert words[7] == 67 | 0x7F << 8 | 1 << 15 | 68 << 16 | 1 << 24 | 1 << 31


def test_shim_address_has_48_bits() -> None:
    words = ShimBd.at(0x1234_5678_9ABC, 5).to_words()
    assert words[1] == 0x56789ABC and words[2] == 0x1234
    assert ShimBd.from_words(words) == ShimBd(address=0x123456789ABC, length=5)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: CoreBd.at(0, 20_000).to_words(), "length: given 20000; accepted: 0 to 16383"),
        (lambda: CoreBd.at(0x10000, 4), "address: given 0x10000"),
        (lambda: MemBd.at(2, 4), "multiples of 4"),
        (lambda: ShimBd.at(2, 4).to_words(), "multiples of 4 below 2"),
        (lambda: ShimBd.at(0, 4, [(1, 2)] * 4), "4 dimensions"),
        (lambda: CoreBd.at(0, 4, [(1, 2), (2, 2), (4, 2)]), "8 words of length, not 4"),
        (lambda: CoreBd.at(0, 4, wrong=1), "field ['wrong']"),
        (lambda: CoreBd.at(0, 4, acquire=(16, -1)).to_words(), "acquire_lock: given 16"),
        (lambda: CoreBd.at(0, 4, release=(1, 64)).to_words(), "-64 to 63"),
        (lambda: MemBd.from_words([0] * 7), "7 words"),
        (lambda: CoreBd(length=1, d0_step=0).to_words(), "1 to 8192"),
        (lambda: bd.queue_word("mem", 48 + 16), "start_bd: given 64"),
        (lambda: bd.queue_word("shim", 0, 257), "repeat: given 257; accepted: 1 to 256"),
        (lambda: bd.lock_request_offset("core", 16, 0, True), "locks 0 to 15"),
        (lambda: bd.lock_request_offset("core", 1, 64, True), "values -64 to 63"),
        (lambda: bd.pack_fields("x", registers.SLOT_FIELDS, {"nonsense": 1}, 1), "['nonsense']"),
        (lambda: bd.packet_master(8, 1), "arbiter: given 8"),
        (lambda: bd.control_packet_header(0, 5), "beats: given 5; accepted: 1 to 4"),
    ],
)
def test_bd_errors(make: Callable[[], object], says: str) -> None:
    with pytest.raises(TransactionError) as caught:
        make()
    assert says in str(caught.value)


def test_words_of_switches_queues_and_packets() -> None:
    assert bd.circuit_master(5, drop_header=True) == 1 << 31 | 1 << 7 | 5
    assert bd.packet_master(2, 0b0101) == 1 << 31 | 1 << 30 | 0b0101 << 3 | 2
    assert bd.switch_slave(packet=True) == 0xC0000000
    assert bd.switch_slot(1, arbiter=3, msel=2, mask=0x1F) == 3 | 2 << 4 | 1 << 8 | 0x1F << 16 | 1 << 24
    assert bd.queue_word("mem", 47, 256, token=True) == 47 | 255 << 16 | 1 << 31
    assert bd.decode_queue("mem", 47 | 255 << 16) == {"start_bd": 47, "repeat": 256, "token": 0}
    headers = (bd.packet_header(3, source_row=2), bd.packet_header(1), bd.control_packet_header(0x1D000, 4))
    for word in headers:
        assert bin(word).count("1") % 2 == 1


def test_lock_requests_as_shipped_binaries_have_them() -> None:
    assert bd.lock_request_offset("core", 14, -1, acquire=True) == 0x43BFC
    assert bd.lock_request_offset("core", 15, 1, acquire=False) == 0x43C04
    assert bd.decode_lock_request("core", 0x43BFC) == (14, -1, True)
    assert bd.decode_lock_request("core", 0x3FFFC) is None


# --- builder ------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", spec.VERSIONS)
def test_every_method_reads_back(version: spec.Version) -> None:
    made = builder(version)
    made.write(MEM_QUEUE, 7)
    made.blockwrite(SHIM_BD0, ShimBd.at(0, 16).to_words())
    made.ddr_patch(SHIM_BD0 + 4, 2, 0x1_0000_0040)
    made.maskwrite(MEM_QUEUE - 4, 2, 2)
    made.maskpoll(tile_address(0, 0, 0x1D220), 0, registers.DMA_IDLE_MASK)
    made.maskpoll_busy(tile_address(0, 0, 0x1D220), 0, registers.DMA_IDLE_MASK)
    made.noop()
    made.preempt(1)
    made.loadpdi(3, 64, 0x1000)
    made.tct("S2MM", 1, 0, 1, columns=2)
    made.record_timer(5)
    made.merge_sync(4, 2)
    made.read_regs([MEM_QUEUE, SHIM_BD0])
    made.op("LOAD_PM_START", count=0x010203, pm_id=9)
    made.custom(199, b"12345678")
    read = Transaction.from_bytes(made.to_bytes())
    assert read.version == version and len(read) == made.op_count == 15
    assert [op.name for op in read.ops] == [
        "WRITE",
        "BLOCKWRITE",
        "DDR_PATCH",
        "MASKWRITE",
        "MASKPOLL",
        "MASKPOLL_BUSY",
        "NOOP",
        "PREEMPT",
        "LOADPDI",
        "TCT",
        "RECORD_TIMER",
        "MERGE_SYNC",
        "READ_REGS",
        "LOAD_PM_START",
        "CUSTOM_199",
    ]
    assert read.ops[0].fields == {"reg": MEM_QUEUE, "value": 7}
    assert list(read.ops[1].words) == ShimBd.at(0, 16).to_words()
    assert read.ops[2].fields == {"reg": SHIM_BD0 + 4, "arg_index": 2, "arg_offset": 0x1_0000_0040}
    assert read.ops[4].mask == registers.DMA_IDLE_MASK
    assert read.ops[8].fields == {"pdi_id": 3, "pdi_size": 64, "address": 0x1000}
    assert (read.ops[9].word, read.ops[9].config) == (1 << 16, 1 << 8 | 2 << 16 | 1 << 24)
    assert read.ops[12].words == (MEM_QUEUE, SHIM_BD0)
    assert read.ops[13].fields == {"count": 0x010203, "pm_id": 9}
    assert read.ops[14].payload == b"12345678"


def test_blockwrite_takes_lists_arrays_and_bytes() -> None:
    words = [1, 2, 0xFFFFFFFF]
    made = []
    arrays = (np.array(words, np.uint32), np.array(words, ">u4"), np.array(words, "<u4").tobytes())
    for given_words in (words, *arrays):
        one = builder()
        one.blockwrite(0x2000, given_words)
        made.append(one.to_bytes())
    assert len(set(made)) == 1


def test_extend_appends_another_transaction() -> None:
    first, second = builder(), builder()
    first.noop()
    second.writes([(MEM_QUEUE, 1), (MEM_QUEUE, 2)])
    first.extend(Transaction.from_bytes(second.to_bytes()))
    read = Transaction.from_bytes(first.to_bytes())
    assert [op.name for op in read.ops] == ["NOOP", "WRITE", "WRITE"]
    assert first.byte_size == len(first.to_bytes())


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda b: b.write(2, 0), "address 0x2; accepted: multiples of 4"),
        (lambda b: b.write(tile_address(8, 0, 0), 0), "columns 0 to 7"),
        (lambda b: b.write(6 << 20, 0), "rows 0 to 5"),
        (lambda b: b.write(0, 1 << 32), "unsigned 32-bit words"),
        (lambda b: b.maskwrite(0, -1, 0), "unsigned 32-bit words"),
        (lambda b: b.blockwrite(0, []), "0 bytes"),
        (lambda b: b.blockwrite(0, [-1]), "does not fit"),
        (lambda b: b.blockwrite(0, ["a"]), "does not fit"),
        (lambda b: b.blockwrite(0, b"123"), "3 bytes"),
        (lambda b: b.blockwrite(0, np.zeros(2)), "array of float64"),
        (lambda b: b.ddr_patch(SHIM_BD0, 0), "word 1 of a shim BD"),
        (lambda b: b.ddr_patch(tile_address(0, 1, 0x1D004), 0), "word 1 of a shim BD"),
        (lambda b: b.ddr_patch(SHIM_BD0 + 4, 0, 2), "multiple of 4"),
        (lambda b: b.ddr_patch(SHIM_BD0 + 4, -1), "argument -1"),
        (lambda b: b.tct("up", 0, 0, 0), "'S2MM' or 'MM2S'"),
        (lambda b: b.tct("S2MM", 7, 0, 0, columns=2), "columns 7 to 8"),
        (lambda b: b.preempt(256), "0 to 255"),
        (lambda b: b.read_regs([3]), "multiples of 4"),
        (lambda b: b.op("JUMP"), "JUMP; accepted: WRITE"),
        (lambda b: b.op("NOOP", b"1234"), "a payload of 4 bytes; accepted: none"),
        (lambda b: b.op("WRITE", reg=0), "exactly ['reg', 'value']"),
        (lambda b: b.custom(131, b""), "unnamed opcodes"),
        (lambda b: b.custom(3, b""), "unnamed opcodes"),
        (lambda b: b.custom(140, b"123"), "a payload of 3 bytes; accepted: multiples of 4"),
        (lambda b: b.extend(Transaction.from_bytes(builder(spec.V1_0).to_bytes())), "use .converted"),
        (lambda b: TransactionBuilder(4, 0), "1 to 127 columns"),
        (lambda b: TransactionBuilder(4, 1, (2, 0)), "version (2, 0)"),
        (lambda b: tile_address(0, 32, 0), "row 32"),
    ],
)
def test_builder_errors(call: Callable[[TransactionBuilder], object], says: str) -> None:
    made = builder()
    made.noop()
    with pytest.raises(TransactionError) as caught:
        call(made)
    assert says.lower() in str(caught.value).lower()
    assert made.op_count == 1, "a refused op must not be counted"
    Transaction.from_bytes(made.to_bytes())
