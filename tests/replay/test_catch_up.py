# SPDX-License-Identifier: Apache-2.0
"""Replayed outputs overtake inputs; what the inputs still need stays until they have ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from onedispatch.dispatch.tools.replay import replay
from onedispatch.transactions import (
    MemBd,
    Transaction,
    TransactionBuilder,
    fuse,
    lock_request_offset,
    queue_word,
    tile_address,
)

WORDS = 50_000
RUNS = 4
FED, DONE = 2, 1
LOCK_STRIDE = 0x10


def mem(offset: int) -> int:
    return tile_address(0, 1, offset)


def overtaking() -> TransactionBuilder:
    """A short output ends; a long input, which releases a lock per run, still goes on."""
    made = TransactionBuilder(4, 1)
    made.blockwrite(mem(0xA0000), MemBd.at(0x1000, WORDS, release=(FED, 1)).to_words())
    made.blockwrite(mem(0xA0020), MemBd.at(0x0, 16, release=(DONE, 1)).to_words())
    made.write(mem(0xA0634), queue_word("mem", 0, repeat=RUNS))
    made.write(mem(0xA0604), queue_word("mem", 1))
    made.maskpoll(mem(lock_request_offset("mem", DONE, -1, True)), 1, 1)
    return made


def cycles(made: TransactionBuilder) -> int:
    report = replay(made.to_bytes())
    assert report.complete and not report.assumptions, report.verdict
    return report.cycles


def test_nothing_waits_that_takes_nothing_away() -> None:
    made = overtaking()
    made.write(mem(0xC0000 + LOCK_STRIDE * (FED + 1)), 0)
    made.blockwrite(mem(0xA0040), MemBd.at(0, 16).to_words())
    made.write(mem(0xA0614), queue_word("mem", 2))
    assert cycles(made) < WORDS


def test_a_lock_is_written_after_the_tasks_that_use_it() -> None:
    made = overtaking()
    made.write(mem(0xC0000 + LOCK_STRIDE * FED), 0)
    assert cycles(made) > RUNS * WORDS
    made.maskpoll(mem(lock_request_offset("mem", FED, 0, True)), 1, 1)
    cycles(made)


def test_a_descriptor_is_written_after_its_last_run() -> None:
    made = overtaking()
    made.blockwrite(mem(0xA0000), MemBd.at(0, 16).to_words())
    # The last run has read its descriptor already.
    assert (RUNS - 1) * WORDS < cycles(made) < RUNS * WORDS


def test_a_full_queue_is_waited_for() -> None:
    made = overtaking()
    for _ in range(5):
        made.write(mem(0xA0634), queue_word("mem", 0))
    assert RUNS * WORDS < cycles(made) < (RUNS + 2) * WORDS


def test_a_lock_that_starts_a_task_is_written_at_once() -> None:
    made = overtaking()
    made.write(mem(0xC0000 + LOCK_STRIDE * 5), 0)
    made.blockwrite(mem(0xA0040), MemBd.at(0, 16, acquire=(5, -1)).to_words())
    made.write(mem(0xA0614), queue_word("mem", 2))
    made.write(mem(0xC0000 + LOCK_STRIDE * 5), 1)
    made.maskpoll(mem(0xA0668), 0, 0x78003C)
    assert cycles(made) < WORDS


def test_each_write_waits_for_itself() -> None:
    """The first waits in vain, for a task that the second starts; the third waits for its end."""
    made = TransactionBuilder(4, 1)
    made.blockwrite(mem(0xA0000), MemBd.at(0, WORDS, acquire=(5, -1), release=(FED, 1)).to_words())
    made.blockwrite(mem(0xA0020), MemBd.at(0, 4096).to_words())
    made.write(mem(0xA0634), queue_word("mem", 0))
    made.write(mem(0xA0604), queue_word("mem", 1))  # what moves while the first one waits
    made.write(mem(0xC0000 + LOCK_STRIDE * FED), 0)
    made.write(mem(0xC0000 + LOCK_STRIDE * 5), 1)
    made.write(mem(0xC0000 + LOCK_STRIDE * FED), 0)
    assert cycles(made) > WORDS


@pytest.mark.amd_data
def test_every_sample_runs_twice_in_a_row(amd_files: list[Path]) -> None:
    for path in amd_files:
        if path.name.endswith(("_param.bin", "_ctrl.bin")):
            continue
        transaction = Transaction.from_bytes(path.read_bytes())
        report = replay(fuse([transaction, transaction]))
        assert report.finished, f"{path.name}: {report.verdict}"


def test_padding_that_is_never_reached_does_no_harm() -> None:
    made = TransactionBuilder(4, 1)
    behind = MemBd(length=64, valid=1, d0_wrap=8, d1_step=8, d1_zeros_after=2)
    received = MemBd(length=64, valid=1, d0_wrap=8, d0_zeros_before=3)
    made.blockwrite(mem(0xA0000), behind.to_words())
    made.blockwrite(mem(0xA0020), received.to_words())
    made.write(mem(0xA0634), queue_word("mem", 0))
    made.write(mem(0xA0604), queue_word("mem", 1))
    cycles(made)


def test_parameters_that_were_assumed_are_taken_at_the_next_change_of_a_lock() -> None:
    """Lock 15 is asked for as equal to 1, which takes nothing from it: a partner outside has set it."""
    made = TransactionBuilder(4, 1)
    for lock, value, acquire in ((15, 1, True), (14, 1, False), (14, -3, True)):
        made.maskpoll(tile_address(0, 2, lock_request_offset("core", lock, value, acquire)), 1, 1)
    report = replay(made.to_bytes(), "npu2_1col")
    assert report.complete and report.handshakes == 1, report.verdict
