# SPDX-License-Identifier: Apache-2.0
"""Checking what ops do together: each class found where it is, nothing found where nothing is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onedispatch.transactions import (
    FindingKind,
    MemBd,
    Severity,
    ShimBd,
    Transaction,
    TransactionBuilder,
    lock_request_offset,
    queue_word,
    tile_address,
)
from onedispatch.transactions.analysis.check import check_bytes
from onedispatch.transactions.analysis.validation import MOST_FINDINGS
from onedispatch.transactions.machine.bd import CoreBd

SIDE_FILES = ("_param.bin", "_ctrl.bin")
IDLE = 0x78003C
Made = TransactionBuilder


def mem(offset: int, column: int = 0) -> int:
    return tile_address(column, 1, offset)


def shim(offset: int) -> int:
    return tile_address(0, 0, offset)


def bd(made: Made, index: int, words: list[int]) -> None:
    made.blockwrite(mem(0xA0000 + 0x20 * index), words)


def push(made: Made, index: int = 0, channel: int = 0, **more: int) -> None:
    made.write(mem(0xA0604 + 8 * channel), queue_word("mem", index, **more))


def idle(made: Made, channel: int = 0) -> None:
    made.maskpoll(mem(0xA0660 + 4 * channel), 0, IDLE)


def invalid(made: Made) -> None:
    bd(made, 0, MemBd.at(0, 8, valid=0).to_words())
    push(made)


def unwritten(made: Made) -> None:
    push(made, 7)


def no_such_bd(made: Made) -> None:
    bd(made, 0, MemBd.at(0, 8, next_bd=50).to_words())


def wrong_half(made: Made) -> None:
    bd(made, 0, MemBd.at(0, 8, next_bd=24).to_words())
    bd(made, 24, MemBd.at(0, 8).to_words())
    push(made)


def reserved_bits(made: Made) -> None:
    words = MemBd.at(0, 8).to_words()
    words[2] |= 1 << 28
    bd(made, 0, words)


def reserved_queue(made: Made) -> None:
    bd(made, 0, MemBd.at(0, 8).to_words())
    made.write(mem(0xA0604), 1 << 8)


def reserved_control(made: Made) -> None:
    made.write(mem(0xA0600), 1)


def past_memory(made: Made) -> None:
    bd(made, 0, MemBd(length=0x18000, base=0x50000).to_words())


def iterations_past_memory(made: Made) -> None:
    made.blockwrite(tile_address(0, 2, 0x1D000), CoreBd.at(0xC000, 8, iteration=(0x1000, 2)).to_words())
    made.write(tile_address(0, 2, 0x1DE04), queue_word("core", 0, 2))


def no_western_tile(made: Made) -> None:
    bd(made, 0, MemBd(length=8, base=4).to_words())


def zeros_without_wrap(made: Made) -> None:
    bd(made, 0, MemBd.at(0, 8, d1_zeros_before=1).to_words())


def zeros_into_memory(made: Made) -> None:
    bd(made, 0, MemBd.at(0, 8, [(1, 4)], d0_zeros_before=4).to_words())
    push(made)


def cycle(made: Made, **more: object) -> None:
    bd(made, 0, MemBd.at(0, 8, next_bd=0, **more).to_words())  # type: ignore[arg-type]
    push(made)


def gated_cycle(made: Made) -> None:
    cycle(made, acquire=(3, -1))


def awaited_cycle(made: Made) -> None:
    cycle(made, acquire=(3, -1))
    idle(made)


def never_started(made: Made) -> None:
    idle(made, 3)


def no_token(made: Made) -> None:
    bd(made, 0, MemBd.at(0, 8).to_words())
    push(made)
    made.tct("S2MM", 0, 1, 0)


def too_few_tokens(made: Made) -> None:
    bd(made, 0, MemBd.at(0, 8).to_words())
    push(made, token=1)
    made.merge_sync(1, 2)


def rewritten_at_once(made: Made) -> None:
    bd(made, 0, MemBd.at(0, 8).to_words())
    push(made)
    bd(made, 0, MemBd.at(64, 8).to_words())


def rewritten_in_the_queue(made: Made) -> None:
    bd(made, 0, MemBd.at(0, 8).to_words())
    bd(made, 1, MemBd.at(32, 8).to_words())
    push(made)
    push(made, 1)
    bd(made, 1, MemBd.at(64, 8).to_words())


def rewritten_after_another_wait(made: Made) -> None:
    bd(made, 0, MemBd.at(0, 8).to_words())
    push(made)
    push(made, channel=2)
    idle(made, 2)
    bd(made, 0, MemBd.at(64, 8).to_words())


def lock_too_high(made: Made) -> None:
    made.write(mem(0xC0000), 1)
    bd(made, 0, MemBd.at(0, 8, release=(0, 1)).to_words())
    push(made)
    made.maskpoll(mem(lock_request_offset("mem", 0, -3, True)), 1, 1)


def lock_nobody_raises(made: Made) -> None:
    made.write(mem(0xC0000), 1)
    bd(made, 0, MemBd.at(0, 8, acquire=(0, -2)).to_words())
    push(made)


def lock_beyond_all(made: Made) -> None:
    bd(made, 0, MemBd.at(0, 8, acquire=(0, -64)).to_words())


def no_such_lock(made: Made) -> None:
    bd(made, 0, MemBd.at(0, 8, release_lock=200, release_value=1).to_words())


def no_such_bits(made: Made) -> None:
    made.maskpoll(mem(0xC0010), 64, 0xFF)


def past_all_locks(made: Made) -> None:
    made.maskpoll(mem(lock_request_offset("mem", 1, -64, True)), 1, 1)


ERROR, WARNING = Severity.ERROR, Severity.WARNING
CASES: list[tuple[Callable[[Made], None], FindingKind, Severity, int, str]] = [
    (invalid, FindingKind.BD, ERROR, 1, "while not valid"),
    (unwritten, FindingKind.BD, WARNING, 0, "BD 7 is not written here"),
    (no_such_bd, FindingKind.CHAIN, ERROR, 0, "BD 50, which does not exist"),
    (wrong_half, FindingKind.BD, ERROR, 2, "can use BDs 0 to 23"),
    (reserved_bits, FindingKind.RESERVED, ERROR, 0, "word 2 has no bits 0x10000000"),
    (reserved_queue, FindingKind.RESERVED, ERROR, 1, "DMA_S2MM_QUEUE[0] has no bits 0x100"),
    (reserved_control, FindingKind.RESERVED, WARNING, 0, "DMA_S2MM_CTRL[0] has no bits 0x1"),
    (past_memory, FindingKind.DIMENSION, ERROR, 0, "the memory ends at 0x180000"),
    (iterations_past_memory, FindingKind.DIMENSION, ERROR, 1, "2 runs reach to 0x10020"),
    (no_western_tile, FindingKind.DIMENSION, ERROR, 0, "to the west: there is none"),
    (zeros_without_wrap, FindingKind.DIMENSION, WARNING, 0, "zeros around dimension 0"),
    (zeros_into_memory, FindingKind.DIMENSION, WARNING, 1, "which an S2MM channel does not"),
    (cycle, FindingKind.CHAIN, ERROR, 1, "never ends, and no lock gates it"),
    (gated_cycle, FindingKind.CHAIN, WARNING, 1, "its locks gate it"),
    (awaited_cycle, FindingKind.CHAIN, ERROR, 1, "op 2 waits for its end"),
    (never_started, FindingKind.WAIT, WARNING, 0, "nothing here starts it"),
    (no_token, FindingKind.WAIT, ERROR, 2, "no task there gives one"),
    (too_few_tokens, FindingKind.WAIT, WARNING, 2, "waits for 2 tokens; the tasks before it give 1"),
    (rewritten_at_once, FindingKind.HAZARD, WARNING, 2, "nothing waits in between"),
    (rewritten_in_the_queue, FindingKind.HAZARD, ERROR, 4, "task of op 3: nothing waits in between"),
    (rewritten_after_another_wait, FindingKind.HAZARD, WARNING, 4, "no wait has seen end"),
    (lock_too_high, FindingKind.LOCK, ERROR, 3, "lock 0 >= 3; what is done here keeps it within 0 to 2"),
    (lock_nobody_raises, FindingKind.LOCK, WARNING, 2, "lock 0 >= 2"),
    (lock_beyond_all, FindingKind.LOCK, ERROR, 0, "locks end at 63"),
    (no_such_bits, FindingKind.VALUE, ERROR, 0, "whose bits are 0x3f"),
    (past_all_locks, FindingKind.VALUE, ERROR, 0, "more than 63"),
    (no_such_lock, FindingKind.LOCK, ERROR, 0, "releases lock 200"),
]


@pytest.mark.parametrize(
    ("make", "kind", "severity", "op", "says"), CASES, ids=[case[0].__name__ for case in CASES]
)
def test_each_class_is_found_where_it_is(
    make: Callable[[Made], None], kind: FindingKind, severity: Severity, op: int, says: str
) -> None:
    made = TransactionBuilder(4, 2)
    make(made)
    transaction = Transaction.from_bytes(made.to_bytes())
    (finding,) = transaction.check()
    assert (finding.kind, finding.severity, finding.op_index) == (kind, severity, op), str(finding)
    assert says in finding.message, finding.message
    assert finding.byte_offset == transaction.ops[op].offset


def test_iterations_count_for_argument_sizes() -> None:
    made = TransactionBuilder(4, 1)
    made.blockwrite(shim(0x1D000), ShimBd.at(0, 16, iteration=(64, 4)).to_words())
    made.ddr_patch(shim(0x1D004), 1, 32)
    made.write(shim(0x1D204), queue_word("shim", 0, 4))
    made.maskpoll(shim(0x1D220), 0, IDLE)
    transaction = Transaction.from_bytes(made.to_bytes())
    reach = 32 + 4 * (3 * 64 + 16)
    assert transaction.check({1: reach}) == []
    (finding,) = transaction.check({1: reach - 4})
    assert finding.op_index == 2 and f"from 32 to {reach}" in finding.message
    assert finding.kind is FindingKind.ARGUMENT
    (finding,) = transaction.check({1: 64})
    assert finding.op_index == 1, "the first execution already: found at the patch, once"


def _host_transfer(queue: int, status: int, patches: int = 1, *, waits: bool = True) -> Transaction:
    """A task of a shim, its BD patched so many times, the last ones behind its start."""
    made = TransactionBuilder(4, 1)
    made.blockwrite(shim(0x1D000), ShimBd.at(0, 16).to_words())
    made.ddr_patch(shim(0x1D004), 1, 0)
    made.write(shim(queue), queue_word("shim", 0))
    for more in range(1, patches):
        made.ddr_patch(shim(0x1D004), 1, 64 * more)
    if waits:
        made.maskpoll(shim(status), 0, IDLE)
    return Transaction.from_bytes(made.to_bytes())


def test_a_patch_rewrites_a_descriptor_too() -> None:
    assert _host_transfer(0x1D214, 0x1D228).check() == []
    (finding,) = _host_transfer(0x1D214, 0x1D228, 2).check()
    assert (finding.kind, finding.severity, finding.op_index) == (FindingKind.HAZARD, WARNING, 3)
    assert "c0 r0 BD 0 is rewritten" in finding.message and "task of op 2" in finding.message


def test_host_memory_is_written_before_the_end() -> None:
    assert _host_transfer(0x1D204, 0x1D220).check() == []
    (finding,) = _host_transfer(0x1D204, 0x1D220, waits=False).check()
    assert (finding.kind, finding.severity, finding.op_index) == (FindingKind.HAZARD, WARNING, 2)
    assert "task of op 2 when the transaction ends: no wait has seen it end" in finding.message
    assert _host_transfer(0x1D214, 0x1D228, waits=False).check() == []  # what is read is no result


def test_what_is_waited_for_may_be_rewritten() -> None:
    made = TransactionBuilder(4, 1)
    made.write(mem(0xC0000), 0)
    for address in (0, 64, 128, 192):
        bd(made, 0, MemBd.at(address, 8, release=(0, 1)).to_words())
        push(made, token=int(address == 128))
        if address == 0:
            idle(made)
        elif address == 64:
            made.maskpoll(mem(lock_request_offset("mem", 0, -1, True)), 1, 1)
        elif address == 128:
            made.tct("S2MM", 0, 1, 0)
    made.maskwrite(mem(0xA0600), 2, 2)
    bd(made, 0, MemBd.at(0, 8).to_words())
    assert Transaction.from_bytes(made.to_bytes()).check() == []


def test_a_token_tells_of_the_first_task_that_gives_one() -> None:
    made = TransactionBuilder(4, 1)
    for index in (0, 1, 2):
        bd(made, index, MemBd.at(64 * index, 8).to_words())
        push(made, index, token=int(index != 1))
    made.tct("S2MM", 0, 1, 0)
    for index in (0, 1, 2):
        bd(made, index, MemBd.at(256, 8).to_words())
    found = Transaction.from_bytes(made.to_bytes()).check()
    assert [(f.kind, f.op_index) for f in found] == [(FindingKind.HAZARD, 8), (FindingKind.HAZARD, 9)]
    made.tct("S2MM", 0, 1, 0)
    for index in (0, 1, 2):
        push(made, index)
    assert len(Transaction.from_bytes(made.to_bytes()).check()) == 2, "the last token tells of all"


def test_merged_tokens_tell_of_those_that_must_be_among_them() -> None:
    made = TransactionBuilder(4, 1)
    for index, channel in ((0, 0), (1, 0), (24, 1)):
        bd(made, index, MemBd.at(64 * index, 8).to_words())
        push(made, index, channel, token=1)
    made.merge_sync(2, 1)
    for index in (0, 1, 24):
        bd(made, index, MemBd.at(256, 8).to_words())
    found = Transaction.from_bytes(made.to_bytes()).check()
    # Two of three: one of channel 0 at least, and whether any of channel 1 is unknown.
    assert [(f.kind, f.op_index) for f in found] == [(FindingKind.HAZARD, 8), (FindingKind.HAZARD, 9)]


def test_what_cannot_be_decoded_is_a_finding() -> None:
    made = TransactionBuilder(4, 1)
    made.noop()
    data = made.to_bytes()
    assert check_bytes(data) == []
    (finding,) = check_bytes(data[:-1])
    assert finding.kind is FindingKind.FORMAT and finding.byte_offset == 19
    (finding,) = check_bytes(data[:8] + b"\7" + data[9:])
    assert "op_count 7" in finding.message and finding.byte_offset == 8
    assert check_bytes(b"")[0].severity is ERROR


@pytest.mark.amd_data
def test_amd_files_have_no_errors(amd_files: list[Path]) -> None:
    for path in amd_files:
        if not path.name.endswith(SIDE_FILES):
            found = check_bytes(path.read_bytes(), [1 << 40] * 6)
            assert [str(f) for f in found if f.severity is ERROR] == [], path.name


@pytest.mark.amd_data
@pytest.mark.parametrize("word", range(8))
def test_damaged_amd_files_are_checked(amd_transactions: Path, word: int) -> None:
    data = bytearray(next(amd_transactions.rglob("conv_a16w8c16_3_256_256.bin")).read_bytes())
    transaction = Transaction.from_bytes(bytes(data))
    for op in transaction.ops:
        if op.name == "BLOCKWRITE" and op.tile and op.tile[1] == 1:
            at = op.offset + 16 + 4 * word
            data[at : at + 4] = bytes(b ^ 0xFF for b in data[at : at + 4])
    assert check_bytes(bytes(data)), "eight words of every BD are inverted one after the other"


WORD = st.integers(0, 2**32 - 1)


@given(st.lists(st.tuples(st.sampled_from([0xA0000, 0xA0604, 0xA0634, 0xC0000, 0xA0600]), WORD), max_size=20))
def test_any_writes_are_checked(writes: list[tuple[int, int]]) -> None:
    made = TransactionBuilder(4, 1)
    for offset, word in writes:
        made.write(mem(offset), word)
        made.blockwrite(mem(0xA0000), [word ^ i for i in range(24)])
        made.maskpoll(mem(0xD0000 + (word & 0xFFFC)), 1, 1)
    transaction = Transaction.from_bytes(made.to_bytes())
    transaction.check([64])
    transaction.explain().text()


def test_a_flood_of_findings_is_counted() -> None:
    made = TransactionBuilder(4, 1)
    bad = TransactionBuilder(4, 4)
    for _ in range(MOST_FINDINGS + 5):
        bad.write(tile_address(1, 1, 0xC0000), 64)  # a column that is not there, a value that is too large
    made.extend(Transaction.from_bytes(bad.to_bytes()))
    made.write(tile_address(0, 0, 0x1D214), queue_word("shim", 3))
    found = Transaction.from_bytes(made.to_bytes()).check()
    counts = Counter(finding.kind for finding in found)
    assert counts == {
        FindingKind.ADDRESS: MOST_FINDINGS + 1,
        FindingKind.VALUE: MOST_FINDINGS + 1,
        FindingKind.BD: 1,
    }
    flood = [finding for finding in found if finding.message.startswith("5 more")]
    assert [(f.kind, f.op_index) for f in flood] == [
        (FindingKind.ADDRESS, MOST_FINDINGS),
        (FindingKind.VALUE, MOST_FINDINGS),
    ]


def test_a_bad_bd_is_told_once_however_often_it_is_queued() -> None:
    made = TransactionBuilder(4, 1)
    made.blockwrite(tile_address(0, 0, 0x1D000), [16] + [0] * 7)
    for _ in range(3):
        made.write(tile_address(0, 0, 0x1D214), queue_word("shim", 0))
        made.maskpoll(tile_address(0, 0, 0x1D228), 0, IDLE)
    found = Transaction.from_bytes(made.to_bytes()).check()
    assert [finding.op_index for finding in found if "not valid" in finding.message] == [1]
