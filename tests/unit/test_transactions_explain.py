# SPDX-License-Identifier: Apache-2.0
"""Explaining: access patterns, chains, host traffic, core parameter blocks, waits, the picture."""

from __future__ import annotations

import json
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onedispatch.transactions import (
    InputError,
    MemBd,
    ShimBd,
    Transaction,
    TransactionBuilder,
    lock_request_offset,
    queue_word,
    tile_address,
)
from onedispatch.transactions.analysis import effects
from onedispatch.transactions.analysis.picture import svg

SIDE_FILES = ("_param.bin", "_ctrl.bin")
MEM_BD, SHIM_BD = 0xA0000, 0x1D000


def example() -> Transaction:
    made = TransactionBuilder(4, 2)
    made.write(tile_address(0, 1, 0xC0000), 2)
    made.maskpoll(tile_address(1, 2, lock_request_offset("core", 14, -1, True)), 1, 1)
    block = [0x66660001, 7, 0x1F000, 2, 0x1D000, 64, *(v for i in range(1, 6) for v in (0x1D000 + 4 * i, 0))]
    made.blockwrite(tile_address(1, 2, 0x4880), [*block, 0x1DE04, 0x30000, 9])
    made.blockwrite(
        tile_address(0, 0, SHIM_BD), ShimBd.at(0, 64, [(1, 8), (16, 8)], iteration=(256, 4)).to_words()
    )
    made.ddr_patch(tile_address(0, 0, SHIM_BD + 4), 1, 0x400)
    made.write(tile_address(0, 0, 0x1D214), queue_word("shim", 0, 4, token=True))
    made.blockwrite(
        tile_address(0, 1, MEM_BD),
        [
            *MemBd.at(0x100, 8, acquire=(0, -1), release=(1, 1), next_bd=1).to_words(),
            *MemBd.at(0x200, 24, [(1, 4)], d0_zeros_before=2).to_words(),
        ],
    )
    made.write(tile_address(0, 1, 0xA0634), queue_word("mem", 0))
    made.maskpoll(tile_address(0, 0, 0x1D228), 0, 0x78003C)
    made.maskpoll(tile_address(0, 0, 0x1D228), 1, 3)
    made.merge_sync(2, 2)
    return Transaction.from_bytes(made.to_bytes())


def test_the_summary_says_what_moves() -> None:
    text = example().explain().summary()
    assert len(text.splitlines()) <= 40
    assert "arg 1              1,024              0   0x400 to 0x11e0" in text
    assert "1: 0/1K" in text and "1 x core lock 14 to be >= 1" in text
    assert "1 x 2 tokens of each of 2 columns" in text
    assert "start 2 tasks of 1,152 bytes in 2 tiles (shim and memory tile)" in text


def test_a_tile_in_words() -> None:
    told = example().explain()
    mem = told.tile_text((0, 1))
    assert "bd 0: own memory 0x100, 8 words; after lock 0 >= 1, then lock 1 +1" in mem
    assert "bd 1: own memory 0x200, 24 words: 4@1 x 4@1, zeros d0:2+0" in mem
    assert "locks set: 0 to 2 (op 0)" in mem
    shim = told.tile_text((0, 0))
    assert "bd 0: arg 1 + 0x400, 64 words: 8@1 x 8@16, +256 per run of 4" in shim
    assert "from bd 0 x 4, gives a token" in shim and "until idle: ops 8" in shim
    core = told.tile_text((1, 2))
    assert "has the core write 8 registers" in core and "pushed by the core" in core
    assert "bd 0: memory 0x0, 64 words" in core
    with pytest.raises(InputError, match="c0 r0, c0 r1, c1 r2"):
        told.tile_text((3, 3))


def test_json_holds_all_of_it() -> None:
    told = json.loads(json.dumps(example().explain().to_dict()))
    (argument,) = told["arguments"]
    assert argument == {
        "argument": 1, "read": 1024, "written": 0, "first": 0x400, "end": 0x11E0, "bds": 1
    }  # fmt: skip
    shim = told["tiles"][0]
    (push,) = shim["channels"][0]["pushes"]
    assert (push["start"], push["repeat"], push["token"], push["bytes"]) == (0, 4, True, 1024)
    assert push["chain"][0]["dims"] == [{"count": 8, "step": 1}, {"count": 8, "step": 16}]
    assert push["chain"][0]["iteration"] == {"count": 4, "step": 256, "current": 0}


def test_the_picture_is_well_formed() -> None:
    root = ElementTree.fromstring(svg(example().explain()))
    texts = [element.text or "" for element in root.iter() if element.tag.endswith("text")]
    assert "arg 1" in texts and "1,024 B" in texts and "c1" in texts


def test_chains_that_never_end_or_are_unknown_are_said() -> None:
    made = TransactionBuilder(4, 1)
    made.blockwrite(tile_address(0, 1, MEM_BD), MemBd.at(0, 8, next_bd=0).to_words())
    made.write(tile_address(0, 1, 0xA0604), queue_word("mem", 0))
    made.write(tile_address(0, 1, 0xA0614), queue_word("mem", 5))
    text = Transaction.from_bytes(made.to_bytes()).explain().tile_text((0, 1))
    assert "the chain never ends" in text and "BD 5 is not written here" in text


WRAPS = st.integers(0, 5)
STEPS = st.integers(1, 9)


@given(st.integers(1, 60), WRAPS, WRAPS, STEPS, STEPS, STEPS)
def test_patterns_reach_as_far_as_their_addresses(
    length: int, wrap0: int, wrap1: int, step0: int, step1: int, step2: int
) -> None:
    bd = ShimBd(length=length, d0_wrap=wrap0, d1_wrap=wrap1, d0_step=step0, d1_step=step1, d2_step=step2)
    shape = effects.bd_pattern("shim", tuple(bd.to_words()))
    n = np.arange(length)
    d0, rest = (n % wrap0, n // wrap0) if wrap0 else (n, 0 * n)
    d1, d2 = (rest % wrap1, rest // wrap1) if wrap1 else (rest, 0 * n)
    addresses = d0 * step0 + d1 * step1 + d2 * step2
    assert shape.extent() >= addresses.max() + 1
    if length == np.prod([count for count, _ in shape.dims]):
        assert shape.extent() == addresses.max() + 1


def test_iterations_reach_on() -> None:
    words = tuple(ShimBd.at(0, 8, iteration=(100, 3)).to_words())
    shape = effects.bd_pattern("shim", words)
    assert [shape.extent(runs) for runs in (1, 2, 3, 9)] == [8, 108, 208, 208]
    assert effects.bd_pattern("shim", tuple(ShimBd.at(0, 0).to_words())).extent(4) == 0


@pytest.mark.amd_data
def test_amd_files_are_explained(amd_files: list[Path]) -> None:
    longest = 0.0
    for path in amd_files:
        if path.name.endswith(SIDE_FILES):
            continue
        data = path.read_bytes()
        started = time.perf_counter()
        transaction = Transaction.from_bytes(data)
        told = transaction.explain()
        text = told.summary()
        longest = max(longest, time.perf_counter() - started)
        assert len(text.splitlines()) <= 45, path.name
        assert set(told.arguments) == {o.arg_index for o in transaction.ops if o.name == "DDR_PATCH"}
        ElementTree.fromstring(svg(told))
        json.dumps(told.to_dict())
        told.text()
    # The longest has 250 KB and takes some tens of ms; this is for what would never end.
    assert longest < 30


@given(st.binary(max_size=120))
def test_any_body_is_explained(body: bytes) -> None:
    body = body[: len(body) // 4 * 4]
    head = b"\0\1\4\6\4\1\0\0" + (1).to_bytes(4, "little") + (32 + len(body)).to_bytes(4, "little")
    op = b"\1\0\0\0\0\0\0\0" + tile_address(0, 1, MEM_BD).to_bytes(4, "little")
    data = head + op + (16 + len(body)).to_bytes(4, "little") + body
    Transaction.from_bytes(data).explain().text()


def test_a_step_of_one_op_is_no_range() -> None:
    made = TransactionBuilder(4, 1)
    made.write(tile_address(0, 1, 0xC0000), 1)
    made.maskpoll(tile_address(0, 0, 0x1D220), 0, 0x78003C)
    lines = Transaction.from_bytes(made.to_bytes()).explain().summary().splitlines()
    told = [line.split() for line in lines[lines.index("steps:") + 1 :]]
    assert [words[:3] for words in told] == [["op", "0", "set"], ["op", "1", "wait"]]


def test_steps_that_repeat_are_told_once() -> None:
    made = TransactionBuilder(4, 1)
    for _ in range(5):
        made.write(tile_address(0, 1, 0xC0000), 1)
        made.maskpoll(tile_address(0, 0, 0x1D220), 0, 0x78003C)
    made.write(tile_address(0, 1, 0xC0010), 1)
    summary = Transaction.from_bytes(made.to_bytes()).explain().summary()
    told = summary[summary.index("steps:") :].splitlines()[1:]
    assert [line[22:].strip() for line in told] == [
        "set 1 lock in 1 tile (memory tile)",
        "wait for 1 condition in 1 tile (shim)",
        "the same 2 steps 4 more times",
        "set 1 lock in 1 tile (memory tile)",
    ]
