# SPDX-License-Identifier: Apache-2.0
"""Reading: real files byte for byte, any bytes at all, text, checks, versions."""

from __future__ import annotations

import copy
import pickle
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onedispatch.transactions import (
    FindingKind,
    MemBd,
    ShimBd,
    Transaction,
    TransactionBuilder,
    TransactionError,
    queue_word,
    tile_address,
)
from onedispatch.transactions.analysis import validation
from onedispatch.transactions.format import codec, decode, spec
from onedispatch.transactions.machine import bd

SHIM_BD0 = tile_address(0, 0, 0x1D000)
SIDE_FILES = ("_param.bin", "_ctrl.bin")


def example() -> bytes:
    made = TransactionBuilder(4, 4)
    made.record_timer(0)
    made.maskpoll(tile_address(1, 2, 0x43BFC), 1, 1)
    made.blockwrite(tile_address(1, 2, 0x4880), list(range(20)))
    made.blockwrite(SHIM_BD0, ShimBd.at(0, 256, [(1, 16), (64, 16)], acquire=(1, -1)).to_words())
    made.ddr_patch(SHIM_BD0 + 4, 1, 0x400)
    made.write(tile_address(0, 0, 0x1D214), queue_word("shim", 0, 2, token=True))
    made.blockwrite(tile_address(0, 1, 0xA0000 + 0x20 * 24), MemBd.at(64, 8).to_words())
    made.write(tile_address(0, 1, 0xB0000), bd.circuit_master(9))
    made.maskpoll(tile_address(0, 0, 0x1D228), 0, 0x78003C)
    made.tct("S2MM", 0, 0, 0, columns=4)
    return made.to_bytes()


EXAMPLE_TEXT = """\
HEADER        v0.1 device_generation=4 rows=6 columns=4 mem_tile_rows=1  ; XDNA2, 10 ops, 396 bytes
     0       10  RECORD_TIMER  id=0
     1       1c  MASKPOLL      c1 r2 LOCK_REQUEST[14]      acquire -1
     2       3c  BLOCKWRITE    c1 r2 MEMORY+0x4880         20 words
                   00000000 00000001 00000002 00000003 00000004 00000005 00000006 00000007
                   00000008 00000009 0000000a 0000000b 0000000c 0000000d 0000000e 0000000f
                   00000010 00000011 00000012 00000013
     3       9c  BLOCKWRITE    c0 r0 DMA_BD[0]             8 words
                     bd 0: length=256 d0_wrap=16 d1_step=64 d1_wrap=16 acquire_lock=1 acquire_value=-1 \
acquire_enable=1
     4       cc  DDR_PATCH     c0 r0 DMA_BD[0]+0x4         arg 1 + 0x400
     5       fc  WRITE         c0 r0 DMA_MM2S_QUEUE[0]     start_bd=0 repeat=2 token=1
     6      114  BLOCKWRITE    c0 r1 DMA_BD[24]            8 words
                     bd 24: base=0x20010 length=8
     7      144  WRITE         c0 r1 SWITCH_MASTER[0]      slave=9 enable=1
     8      15c  MASKPOLL      c0 r0 DMA_MM2S_STATUS[0]    idle
     9      17c  TCT           c0 r0 S2MM[0]               columns=4 rows=1
"""


# --- real files ---------------------------------------------------------------------------------


@pytest.mark.amd_data
def test_every_amd_file_reads_back_byte_for_byte(amd_files: list[Path]) -> None:
    files = amd_files
    assert files
    read = 0
    for path in files:
        data = path.read_bytes()
        if path.name.endswith(SIDE_FILES):
            with pytest.raises(TransactionError):
                Transaction.from_bytes(data)
            continue
        transaction = Transaction.from_bytes(data)
        read += 1
        assert transaction.to_bytes() == data, path.name
        assert b"".join(op.raw for op in transaction.ops) == transaction.body, path.name
        assert transaction.validate() == [], path.name
        assert transaction.validate([1 << 40] * 5) == [], path.name
        assert "reserved" not in transaction.text(), path.name
        assert transaction.text().count("\n") > len(transaction)
    assert read, "no transaction among the files"


@pytest.mark.amd_data
def test_amd_files_survive_both_conversions(amd_files: list[Path]) -> None:
    for path in amd_files:
        if path.name.endswith(SIDE_FILES):
            continue
        legacy = Transaction.from_bytes(path.read_bytes())
        optimised = legacy.converted((1, 0))
        assert optimised.version == (1, 0) and optimised.validate() == []
        back = optimised.converted((0, 1))
        assert back.text(brief=True) == legacy.text(brief=True), path.name
        assert [op.fields for op in back.ops] == [op.fields for op in optimised.ops], path.name


@pytest.mark.amd_data
def test_one_byte_short_is_refused_with_a_message(amd_files: list[Path]) -> None:
    path = next(p for p in amd_files if not p.name.endswith(SIDE_FILES))
    with pytest.raises(TransactionError, match="1 byte short"):
        Transaction.from_bytes(path.read_bytes()[:-1])


# --- any bytes ----------------------------------------------------------------------------------

ADDRESSES = st.builds(
    tile_address, st.integers(0, 7), st.integers(0, 5), st.integers(0, (1 << 18) - 1).map(lambda w: 4 * w)
)
WORDS = st.integers(0, 2**32 - 1)
CALLS = st.one_of(
    st.tuples(st.just("write"), ADDRESSES, WORDS),
    st.tuples(st.just("blockwrite"), ADDRESSES, st.lists(WORDS, min_size=1, max_size=40)),
    st.tuples(st.sampled_from(["maskwrite", "maskpoll", "maskpoll_busy"]), ADDRESSES, WORDS, WORDS),
    st.tuples(st.just("record_timer"), WORDS),
    st.tuples(st.just("merge_sync"), st.integers(0, 255), st.integers(0, 255)),
    st.tuples(st.just("preempt"), st.integers(0, 3)),
    st.tuples(st.just("loadpdi"), st.integers(0, 65535), WORDS, st.integers(0, 2**64 - 1)),
    st.tuples(
        st.just("ddr_patch"),
        st.just(SHIM_BD0 + 4),
        st.integers(0, 255),
        st.integers(0, 2**40).map(lambda o: 4 * o),
    ),
    st.tuples(st.just("custom"), st.integers(201, 255), st.binary(max_size=3).map(lambda b: b * 4)),
    st.tuples(st.just("noop")),
)


@given(st.lists(CALLS, max_size=30), st.sampled_from(spec.VERSIONS))
def test_what_is_written_is_read(calls: list[tuple[object, ...]], version: spec.Version) -> None:
    made = TransactionBuilder(4, 8, version)
    for name, *arguments in calls:
        getattr(made, str(name))(*arguments)
    data = made.to_bytes()
    read = Transaction.from_bytes(data)
    assert read.to_bytes() == data and len(read) == len(calls)
    other = spec.V1_0 if version == spec.V0_1 else spec.V0_1
    assert read.converted(other).converted(version).to_bytes() == data
    again = b"".join(codec.encode_op(op.code, version, op.fields, op.payload) for op in read.ops)
    assert again == read.body
    assert Transaction.from_text(read.text()) == read
    read.validate([1 << 20] * 5)


def framed(body: bytes, version: spec.Version = spec.V0_1, ops: int = 1) -> bytes:
    return codec.Header(version, op_count=ops, byte_size=16 + len(body)).to_bytes() + body


@given(st.binary(max_size=200))
def test_random_bytes_are_refused_or_read(data: bytes) -> None:
    for version in spec.VERSIONS:
        for candidate in (data, framed(data[: len(data) // 4 * 4], version)):
            try:
                read = Transaction.from_bytes(candidate)
            except TransactionError:
                continue
            assert read.to_bytes() == candidate
            assert Transaction.from_text(read.text()) == read
            read.validate([64])


@given(st.integers(0, len(example()) - 1), st.integers(1, 255))
@settings(max_examples=300)
def test_one_damaged_byte_is_refused_or_read(at: int, flip: int) -> None:
    data = bytearray(example())
    data[at] ^= flip
    try:
        read = Transaction.from_bytes(bytes(data))
    except TransactionError as error:
        assert error.where and error.given and error.accepted
    else:
        assert read.to_bytes() == bytes(data)
        assert Transaction.from_text(read.text()) == read
        read.validate([1 << 20] * 5)


@given(st.integers(0, len(example())))
def test_every_cut_is_refused(cut: int) -> None:
    data = example()
    if cut == len(data):
        return
    with pytest.raises(TransactionError):
        Transaction.from_bytes(data[:cut])


@pytest.mark.parametrize(
    ("data", "says", "offset"),
    [
        (b"", "0 bytes; accepted: at least 16", 0),
        (framed(b"", (2, 0), 0), "version 2.0; accepted: 0.1, 1.0", 0),
        (example() + b"\0\0\0\0", "4 bytes too long", len(example())),
        (example()[:-4], "4 bytes short", len(example()) - 4),
        (codec.Header(byte_size=17).to_bytes() + b"\0", "a multiple of 4", 12),
        (framed(bytes([5, 0, 0, 0]), ops=2), "op_count 2; accepted: 1", 8),
        (framed(bytes([2, 0, 0, 0])), "opcode 2 (BLOCKSET)", 16),
        (framed(bytes([100, 0, 0, 0])), "opcode 100", 16),
        (framed(bytes([0, 0, 0, 0])), "24 bytes, inside the file", 16),
        (framed(bytes(20) + bytes([23, 0, 0, 0])), "23 bytes", 16),
        (framed(bytes([5, 0, 0, 0, 1]) + bytes(11) + bytes([12, 0, 0, 0]), ops=2), "12 bytes with", 20),
        (framed(bytes([131, 0, 0, 0, 16, 0, 0, 0]) + bytes(8)), "16 bytes", 16),
        (framed(bytes([250, 0, 0, 0, 6, 0, 0, 0])), "6 bytes", 16),
        (framed(bytes([250, 0, 0, 0, 0, 0, 0, 0])), "0 bytes", 16),
        (framed(bytes([250, 0, 0, 0, 255, 255, 255, 255])), "4,294,967,295 bytes", 16),
    ],
)
def test_decoding_errors(data: bytes, says: str, offset: int) -> None:
    with pytest.raises(TransactionError) as caught:
        Transaction.from_bytes(data)
    assert says in str(caught.value) and caught.value.byte_offset == offset


def test_padding_garbage_is_kept_and_masked_ops_may_have_28_bytes() -> None:
    write = b"\x00ABCDEFG" + (0x1D204).to_bytes(8, "little") + b"\1\0\0\0" + b"\x18\0\0\0"
    short_mask = b"\x03" + bytes(7) + (0xA0600).to_bytes(8, "little") + b"\2\0\0\0\2\0\0\0" + b"\x1c\0\0\0"
    data = framed(write + short_mask, ops=2)
    read = Transaction.from_bytes(data)
    assert read.to_bytes() == data and [op.size for op in read.ops] == [24, 28]
    assert read.ops[1].mask == 2
    assert read.converted((1, 0)).ops[1].fields == read.ops[1].fields


def test_a_value_that_the_other_version_cannot_hold_is_refused() -> None:
    write = b"\0" + bytes(7) + (1 << 40).to_bytes(8, "little") + bytes(4) + b"\x18\0\0\0"
    read = Transaction.from_bytes(framed(write))
    with pytest.raises(TransactionError, match="WRITE field reg") as caught:
        read.converted((1, 0))
    assert (caught.value.op_index, caught.value.byte_offset) == (0, 16)
    with pytest.raises(TransactionError, match="converted"):
        read.converted((3, 0))
    assert read.converted((0, 1)) == read
    assert [f.kind for f in read.validate()] == [FindingKind.ADDRESS]


# --- objects and text ---------------------------------------------------------------------------


def test_text_is_stable() -> None:
    read = Transaction.from_bytes(example())
    assert read.text() == str(read) == EXAMPLE_TEXT
    assert "00000013" not in read.text(brief=True) and "20 words, crc 53684a89" in read.text(brief=True)


def test_operations_are_a_sequence_of_views() -> None:
    read = Transaction.from_bytes(example())
    op = read.ops[-2]
    assert (op.name, op.index, op.tile) == ("MASKPOLL", 8, (0, 0))
    assert str(op.register) == "DMA_MM2S_STATUS[0]" and "idle" in repr(op)
    assert [o.index for o in read.ops[1:3]] == [1, 2] and len(list(read.ops)) == len(read.ops) == len(read)
    with pytest.raises(IndexError):
        read.ops[10]
    with pytest.raises(AttributeError, match="has no field 'value1'"):
        _ = op.value1
    assert copy.copy(op).fields == op.fields
    assert pickle.loads(pickle.dumps(read)) == read and hash(read) == hash(copy.deepcopy(read))
    assert read.ops[0].tile is None and read.ops[0].register is None and read.ops[0].payload == b""


# --- checks -------------------------------------------------------------------------------------


def patched(arg_offset: int = 0, arg: int = 0) -> Transaction:
    made = TransactionBuilder(4, 1)
    made.noop()
    made.blockwrite(SHIM_BD0, ShimBd.at(0, 64, [(1, 8), (16, 8)]).to_words())
    made.ddr_patch(SHIM_BD0 + 4, arg, arg_offset)
    return Transaction.from_bytes(made.to_bytes())


def raw(data: bytes, name: str, field: str, value: int, op: int) -> Transaction:
    """The transaction with one field of one op overwritten."""
    read = Transaction.from_bytes(data)
    where = spec.BY_NAME[name].layouts[read.version].field(field)
    at = read.ops[op].offset + where.offset
    changed = data[:at] + value.to_bytes(where.width, "little") + data[at + where.width :]
    return Transaction.from_bytes(changed)


def findings(transaction: Transaction, **options: object) -> list[tuple[FindingKind, int | None, str]]:
    return [(f.kind, f.op_index, f.message) for f in transaction.validate(**options)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("op", "name", "field", "value", "kind", "says"),
    [
        (5, "WRITE", "reg", 0x1D204 + 2, FindingKind.ADDRESS, "multiples of 4"),
        (5, "WRITE", "reg", tile_address(4, 0, 0x1D204), FindingKind.ADDRESS, "columns 0 to 3"),
        (5, "WRITE", "reg", 7 << 20, FindingKind.ADDRESS, "row 7"),
        (5, "WRITE", "reg", 0x99998, FindingKind.ADDRESS, "no known register"),
        (5, "WRITE", "reg", 1 << 50, FindingKind.ADDRESS, "columns 0 to 3"),
        (2, "BLOCKWRITE", "reg", tile_address(1, 2, 0xFFF0), FindingKind.ADDRESS, "offset 0x10000 of a core"),
        (1, "MASKPOLL", "value", 3, FindingKind.VALUE, "never succeed"),
        (9, "TCT", "word", 9 << 16, FindingKind.VALUE, "tokens of 4 columns from 9 on"),
        (9, "TCT", "config", 1 << 8 | 1 << 16 | 2 << 24, FindingKind.VALUE, "channels below 2"),
        (9, "TCT", "config", 7 << 8 | 1 << 16, FindingKind.VALUE, "tokens of 7 rows"),
    ],
)
def test_findings_of_one_field(
    op: int, name: str, field: str, value: int, kind: FindingKind, says: str
) -> None:
    found = findings(raw(example(), name, field, value, op))
    assert len(found) == 1 and found[0][:2] == (kind, op) and says in found[0][2], found


def test_findings_of_values_and_counts() -> None:
    made = TransactionBuilder(4, 1)
    made.write(tile_address(0, 0, 0x14000), 64)
    made.write(tile_address(0, 1, 0xA0604), queue_word("mem", 24))
    made.write(tile_address(0, 1, 0xA060C), queue_word("mem", 24))
    made.op("PREEMPT", level=4)
    made.op("READ_REGS", bytes(8), count=2)
    made.op("READ_REGS", (8 << 20).to_bytes(8, "little"), count=1)
    made.custom(140, b"")
    made.op("BLOCKWRITE", reg=0)
    found = findings(Transaction.from_bytes(made.to_bytes()))
    assert [(kind, op) for kind, op, _ in found] == [
        (FindingKind.VALUE, 0),
        (FindingKind.VALUE, 1),
        (FindingKind.VALUE, 3),
        (FindingKind.ADDRESS, 4),
        (FindingKind.COUNT, 4),
        (FindingKind.ADDRESS, 5),
        (FindingKind.UNKNOWN, 6),
        (FindingKind.COUNT, 7),
    ]
    assert "lock 0 set to 64" in found[0][2] and "accepted: 0 to 23" in found[1][2]


@pytest.mark.parametrize(
    ("byte", "value", "says"),
    [
        (2, 77, "generation 77"),
        (3, 5, "5 rows"),
        (5, 2, "2 of memory tiles"),
        (4, 9, "9 columns"),
        (4, 0, "0 columns"),
    ],
)
def test_findings_of_the_header(byte: int, value: int, says: str) -> None:
    data = bytearray(patched().to_bytes())
    data[byte] = value
    found = Transaction.from_bytes(bytes(data)).validate()
    assert found[0].kind is FindingKind.HEADER and found[0].op_index is None and says in str(found[0])


def test_every_check_of_the_extension_has_a_text() -> None:
    assert set(decode.native.CHECKS) == set(validation._TEXTS)


def test_addresses_that_end_in_half_a_word() -> None:
    body = (
        bytes([130, 0, 0, 0, 28, 0, 0, 0, 1, 0, 0, 0]) + bytes(4) + (0x14000).to_bytes(8, "little") + bytes(4)
    )
    read = Transaction.from_bytes(framed(body))
    assert read.ops[0].words == (0x14000,) and Transaction.from_text(read.text()) == read
    assert findings(read) == [(FindingKind.COUNT, 0, "count 1 with 12 bytes of addresses")]
    unknown = bytearray(read.to_bytes())
    unknown[2], unknown[4] = 77, 0
    messages = [f.message for f in Transaction.from_bytes(bytes(unknown)).validate()]
    assert messages[1] == "0 columns; accepted: 1 or more"


def test_offsets_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        patched().offsets[0] = 1


def test_patches_must_follow_their_bd() -> None:
    assert patched().validate() == []
    made = TransactionBuilder(4, 1)
    made.blockwrite(SHIM_BD0, ShimBd.at(0, 4).to_words())
    made.blockwrite(tile_address(0, 1, 0), [1])
    made.ddr_patch(SHIM_BD0 + 4, 0)
    made.ddr_patch(SHIM_BD0 + 0x24, 0)
    made.blockwrite(SHIM_BD0 + 0x20, ShimBd.at(0, 4).to_words())
    found = findings(Transaction.from_bytes(made.to_bytes()))
    assert [(kind, op) for kind, op, _ in found] == [(FindingKind.PATCH, 3)]
    moved = raw(patched().to_bytes(), "DDR_PATCH", "reg", tile_address(0, 1, 0x1D004), 2)
    assert findings(moved)[0][0] is FindingKind.PATCH
    alone = TransactionBuilder(4, 1)
    alone.ddr_patch(SHIM_BD0 + 4, 0)
    assert findings(Transaction.from_bytes(alone.to_bytes()))[0][0] is FindingKind.PATCH


def test_argument_bounds() -> None:
    reach = 4 * (7 * 16 + 8)
    assert patched(64).validate([64 + reach]) == []
    assert "480" in patched(0).validate([reach - 4])[0].message
    assert patched(64).validate({0: 64 + reach - 4})[0].kind is FindingKind.ARGUMENT
    assert patched(1 << 40).validate([64])[0].kind is FindingKind.ARGUMENT
    assert "accepted: 0, 1" in patched(0, 2).validate([64, 64])[0].message
    assert "multiple of 4" in raw(patched().to_bytes(), "DDR_PATCH", "arg_offset", 2, 2).validate()[0].message


def test_a_file_of_the_largest_size_takes_a_moment_only() -> None:
    made = TransactionBuilder(4, 8)
    block = MemBd.at(0, 64).to_words()
    for i in range(27_500):
        made.blockwrite(tile_address(i % 8, 1, 0xA0000 + 0x20 * (i % 24)), block)
        made.write(tile_address(i % 8, 1, 0xA0604), i % 24)
        made.maskpoll(tile_address(i % 8, 1, 0xA0660), 0, 0x78003C)
        made.write(tile_address(i % 8, 1, 0xC0000), 1)
    data = made.to_bytes()
    started = time.perf_counter()
    read = Transaction.from_bytes(data)
    assert read.validate() == [] and len(read) == 110_000 and len(data) > 3_500_000
    # About 50 ms on a laptop; a pass per op object would take seconds.
    assert time.perf_counter() - started < 2
