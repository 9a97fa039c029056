# SPDX-License-Identifier: Apache-2.0
"""Diff: meaning, not bytes."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onedispatch.transactions import ShimBd, Transaction, TransactionBuilder, queue_word, tile_address


def made(
    length: int = 64, offset: int = 0, index: int = 0, locks: tuple[int, ...] = (1, 2, 3), columns: int = 1
) -> Transaction:
    builder = TransactionBuilder(4, columns)
    for lock in locks:
        builder.write(tile_address(0, 1, 0xC0000 + 16 * lock), lock)
    at = tile_address(0, 0, 0x1D000 + 0x20 * index)
    builder.blockwrite(at, ShimBd.at(0, length, [(1, 8), (16, length // 8)]).to_words())
    builder.ddr_patch(at + 4, 1, offset)
    builder.write(tile_address(0, 0, 0x1D214), queue_word("shim", index))
    builder.blockwrite(tile_address(0, 2, 0x100), [5, 6, 7])
    return Transaction.from_bytes(builder.to_bytes())


def test_padding_and_version_do_not_count() -> None:
    a = made()
    data = bytearray(a.to_bytes())
    data[17:19] = b"\7\7"
    garbage = Transaction.from_bytes(bytes(data))
    assert a != garbage and not a.diff(garbage) and not a.diff(a.converted((1, 0)))
    assert a.diff(garbage).text() == "no difference in meaning\n"


def test_a_changed_pattern() -> None:
    difference = made().diff(made(length=128, offset=256))
    assert difference.traffic == ("arg 1: read 256 -> 512, first 0 -> 256, end 480 -> 1,248",)
    assert difference.tasks == (
        "c0 r0 MM2S[0]: task 0: arg 1 + 0x0, 64 words: 8@1 x 8@16 -> arg 1 + 0x100, 128 words: 8@1 x 16@16",
    )
    assert [str(change) for change in difference.ops] == [
        "~ op 3 -> 3: BLOCKWRITE c0 r0 DMA_BD[0]: bd 0: length 64 -> 128, d1_wrap 8 -> 16",
        "~ op 4 -> 4: DDR_PATCH c0 r0 DMA_BD[0]+0x4: arg_offset 0 -> 256",
    ]


def test_moved_added_and_removed_ops() -> None:
    difference = made(locks=(1, 2, 3)).diff(made(locks=(2, 3, 1, 4)))
    assert [(c.kind, c.a, c.b) for c in difference.ops] == [("moved", 0, 2), ("added", None, 3)]
    assert "the tasks of all channels are the same" in difference.text()
    assert [c.kind for c in made(locks=(2, 3, 1, 4)).diff(made(locks=(2, 3, 1))).ops] == ["removed"]


def test_another_bd_for_the_same_task_is_the_same_task() -> None:
    difference = made().diff(made(index=3))
    assert difference and not difference.tasks and not difference.traffic
    assert "~ op 5 -> 5: WRITE c0 r0 DMA_MM2S_QUEUE[0]: start_bd 0 -> 3" in difference.text()


def test_headers_and_blocks() -> None:
    data = made().to_bytes()
    changed = Transaction.from_bytes(data[:-4] + b"\x09\0\0\0")
    assert str(made().diff(changed).ops[0]).endswith("BLOCKWRITE c0 r2 MEMORY+0x100: word 2 0x7 -> 0x9")
    assert made().diff(made(columns=2)).header == ("header: columns 1 -> 2",)


@given(st.lists(st.integers(0, 5), max_size=30), st.lists(st.integers(0, 5), max_size=30))
def test_every_op_is_accounted_for(a: list[int], b: list[int]) -> None:
    one, other = made(locks=tuple(a)), made(locks=tuple(b))
    difference = one.diff(other)
    kinds = [change.kind for change in difference.ops]
    assert len(one) - kinds.count("removed") == len(other) - kinds.count("added")
    assert bool(difference) == (a != b)


@pytest.mark.amd_data
def test_amd_files_differ_from_others_only(amd_files: list[Path]) -> None:
    files = [p for p in amd_files if not p.name.endswith(("_param.bin", "_ctrl.bin"))]
    read = [Transaction.from_bytes(path.read_bytes()) for path in files]
    started = time.perf_counter()
    for one, other in itertools.pairwise(read):
        assert not one.diff(one.converted((1, 0)))
        one.diff(other).text()
    assert time.perf_counter() - started < 20
