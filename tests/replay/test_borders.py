# SPDX-License-Identifier: Apache-2.0
"""Memory tiles side by side, as AMD's files use them: moved about, the replay and the check agree."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from onedispatch.dispatch.tools.replay import replay
from onedispatch.transactions import (
    MemBd,
    Severity,
    Transaction,
    TransactionBuilder,
    queue_word,
    tile_address,
)
from onedispatch.transactions.machine import registers
from onedispatch.transactions.machine.bd import pack_fields, unpack_fields

TILE_WORDS = registers.MEM.memory_bytes // 4
# Words by which all BDs of memory tiles move: within a tile, across one border, across two.
MOVES = (-0x30000, -TILE_WORDS, -0x4321, 0x10, 0x8000, TILE_WORDS)


def mem(offset: int, column: int = 0) -> int:
    return tile_address(column, 1, offset)


def moved(transaction: Transaction, words: int) -> bytes | None:
    """The same with every BD of memory tiles elsewhere; None where a base field cannot say it."""
    made = TransactionBuilder(4, transaction.header.columns)
    block = registers.MEM.block["DMA_BD"]
    for op in transaction.ops:
        data = list(op.words) if op.name == "BLOCKWRITE" else []
        if op.name == "BLOCKWRITE":
            _, row, offset = registers.split_address(op.fields["reg"])
            if registers.kind_of_row(row) == "mem" and block.offset <= offset < block.end:
                for at in range(0, len(data), 8):
                    fields = unpack_fields(registers.MEM.bd_fields, data[at : at + 8])
                    fields["base"] += words
                    if not 0 <= fields["base"] < 3 * TILE_WORDS:
                        return None
                    data[at : at + 8] = pack_fields("BD", registers.MEM.bd_fields, fields, 8)
        made.op(op.name, b"".join(word.to_bytes(4, "little") for word in data), **op.fields)
    return made.to_bytes()


def variants(folder: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(folder.rglob("*.bin")):
        if path.parent.name == "sd" and "512_512" in path.name:
            continue  # the longest
        for words in MOVES:
            data = moved(Transaction.from_bytes(path.read_bytes()), words)
            if data is not None:
                yield f"{path.name} {words:+#x}", data


@pytest.mark.amd_data
def test_moved_samples_stop_where_the_check_says_so(amd_more: Path) -> None:
    ends = set()
    for name, data in variants(amd_more):
        columns = Transaction.from_bytes(data).header.columns
        report = replay(data, "npu2" if columns == 8 else f"npu2_{columns}col")
        errors = [f for f in Transaction.from_bytes(data).check() if f.severity is Severity.ERROR]
        assert report.complete != bool(errors), f"{name}: {report.verdict}; {errors[:1]}"
        if errors:
            assert report.stop is not None and report.stop.kind == "memory", f"{name}: {report.verdict}"
            assert all("memory" in str(error) for error in errors), f"{name}: {errors}"
        ends.add(report.complete)
    assert ends == {True, False}, "moves that stay inside the array, and moves that leave it"


@pytest.mark.parametrize(("column", "way"), [(0, "west"), (3, "east")])
def test_the_ends_of_the_array(column: int, way: str) -> None:
    """Up to the end is right; a word beyond it is told by the check and stops the replay."""
    first = TILE_WORDS - 8 if way == "west" else 2 * TILE_WORDS - 8
    for base, length, right in ((first, 16, False), (first + 8, 8, way == "west"), (first, 8, way == "east")):
        made = TransactionBuilder(4, 4)
        made.blockwrite(mem(0xA0000, column), MemBd(base=base, length=length).to_words())
        made.write(mem(0xA0604, column), queue_word("mem", 0))
        report = replay(made.to_bytes(), "npu2_4col")
        errors = [f for f in Transaction.from_bytes(made.to_bytes()).check() if f.severity is Severity.ERROR]
        assert report.complete == right and bool(errors) != right, (base, length, report.verdict)
        if not right:
            assert report.stop is not None and f"no memory tile lies to the {way}" in report.stop.text
            assert way in errors[0].message


def test_iterations_may_leave_the_array_too() -> None:
    made = TransactionBuilder(4, 2)
    step = TILE_WORDS // 2
    far = MemBd(base=TILE_WORDS, length=4, iteration_step=step, iteration_wrap=4)
    for column in (0, 1):
        made.blockwrite(mem(0xA0000, column), far.to_words())
        made.write(mem(0xA0604, column), queue_word("mem", 0, repeat=4))
    (finding,) = [f for f in Transaction.from_bytes(made.to_bytes()).check() if f.severity is Severity.ERROR]
    assert finding.op_index == 3
    assert "4 runs reach the memory tile to the east: there is none" in finding.message
    stop = replay(made.to_bytes(), "npu2_2col").stop
    assert stop is not None and stop.kind == "memory" and "c1 r1" in stop.text


def test_a_descriptor_across_a_border_is_explained() -> None:
    made = TransactionBuilder(4, 2)
    made.blockwrite(mem(0xA0000), MemBd(base=2 * TILE_WORDS - 4, length=8).to_words())
    made.write(mem(0xA0604), queue_word("mem", 0))
    text = Transaction.from_bytes(made.to_bytes()).explain().tile_text((0, 1))
    assert "bd 0: own memory 0x7fff0 to east memory 0xf, 8 words" in text


def flags(turns: int) -> TransactionBuilder:
    """One lock says that a buffer is full, one that it is empty; both swing between 0 and 1."""
    made = TransactionBuilder(4, 1)
    empty, full = 64, 65
    for number, wanted, sign in ((0, 0, 1), (1, 1, -1)):
        take = MemBd(
            length=100_000, acquire_enable=1, acquire_lock=empty, acquire_value=wanted,
            release_lock=full, release_value=sign, use_next=1 - number, next_bd=1,
        )  # fmt: skip
        give = MemBd(
            length=100_000, acquire_enable=1, acquire_lock=full, acquire_value=1 - wanted,
            release_lock=empty, release_value=sign, use_next=1 - number, next_bd=3,
        )  # fmt: skip
        made.blockwrite(mem(0xA0000 + 0x20 * number), take.to_words())
        made.blockwrite(mem(0xA0000 + 0x20 * (number + 2)), give.to_words())
    made.write(mem(0xC0000), 0)
    made.write(mem(0xC0010), 0)
    made.write(mem(0xA0604), queue_word("mem", 0, repeat=turns))
    made.write(mem(0xA0634), queue_word("mem", 2, repeat=turns))
    return made


def test_locks_that_are_flags_end_where_they_began() -> None:
    report = replay(flags(3).to_bytes())
    assert report.complete and not report.assumptions, report.verdict


def test_a_write_waits_for_all_that_tasks_have_to_move() -> None:
    """Setting the flags anew under 200 MB of traffic would take one below 0."""
    made = flags(256)
    # The output that the transaction waits for has long ended.
    made.blockwrite(mem(0xA0080), MemBd.at(0x70000, 16, release=(5, 1)).to_words())
    made.write(mem(0xA0614), queue_word("mem", 4))
    made.write(mem(0xC0000), 0)
    made.write(mem(0xC0010), 0)
    made.write(mem(0xA0604), queue_word("mem", 0, repeat=2))
    made.write(mem(0xA0634), queue_word("mem", 2, repeat=2))
    report = replay(made.to_bytes())
    assert report.complete and not report.assumptions, report.verdict
