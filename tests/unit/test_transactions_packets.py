# SPDX-License-Identifier: Apache-2.0
"""Control packets as text and back; transactions merged with the packets that they send."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onedispatch.transactions import (
    ControlPackets,
    FindingKind,
    Severity,
    ShimBd,
    Transaction,
    TransactionBuilder,
    TransactionError,
    merged,
    queue_word,
    tile_address,
)
from onedispatch.transactions.fusion.fusemap import fuse_map
from onedispatch.transactions.packets.packet import ControlPacket, Patch

WORD = st.integers(0, 2**32 - 1)


def blob() -> ControlPackets:
    """A task of shim 0 that reads argument 2, in five packets."""
    words = ShimBd.at(0x40, 64).to_words()
    packets = (
        ControlPacket.write(1, 0, 0x1D020, words[:4]),
        ControlPacket.write(1, 0, 0x1D030, words[4:]),
        ControlPacket.write(1, 0, 0x1D21C, [queue_word("shim", 1)]),
        ControlPacket.write(2, 0, 0xC0000, [1]),
        ControlPacket.write(2, 0, 0xC0010, [2]),
    )
    return ControlPackets(packets, (Patch(12, 2, 0x100),))


def sender(tasks: list[tuple[int, int]], argument: int = 4) -> Transaction:
    """Sends words [first, end) of the argument, one task after the other."""
    made = TransactionBuilder(4, 1)
    for i, (first, end) in enumerate(tasks):
        at = tile_address(0, 0, 0x1D000 + 0x20 * (i + 4))
        made.blockwrite(at, ShimBd.at(0, end - first).to_words())
        made.ddr_patch(at + 4, argument, 4 * first)
        made.write(tile_address(0, 0, 0x1D214), queue_word("shim", i + 4))
        made.record_timer(i)
    return Transaction.from_bytes(made.to_bytes())


# --- Text ---------------------------------------------------------------------------------------


def test_text_of_a_blob() -> None:
    lines = blob().text().splitlines()
    assert lines[0] == "CONTROL_PACKETS  ; 5 packets, 1 patch"
    assert lines[1].split() == (
        "0 0 WRITE 1@c0 c0 r0 DMA_BD[1] 00000040 00000040 00000000 00000000 arg 2 + 0x100 at 1".split()
    )
    assert ControlPackets.from_text(blob().text()) == blob()


@given(st.lists(st.tuples(WORD, WORD, st.lists(WORD, min_size=4, max_size=4)), max_size=6))
def test_any_headers_come_back(raw: list[tuple[int, int, list[int]]]) -> None:
    packets = []
    for header, control, data in raw:
        read = control >> 22 & 3 == 1
        packets.append(ControlPacket(header, control, () if read else tuple(data[: (control >> 20 & 3) + 1])))
    made = ControlPackets(tuple(packets))
    assert ControlPackets.from_text(made.text()).to_bytes() == made.to_bytes()


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("", "CONTROL_PACKETS"),
        ("WRITE c0 r1 LOCK_VALUE[0] 00000001", "id@column"),
        ("WRITE 1@0 c0 r1 LOCK_VALUE[0] 00000001", "id@column"),
        ("WRITE 32@c0 c0 r1 LOCK_VALUE[0] 00000001", "ids to 31"),
        ("WRITE 1@c0 c0 r1 LOCK_VALU[0] 00000001", "LOCK_VALUE"),
        ("WRITE 1@c0 c0 r1 LOCK_VALUE[0]", "1 to 4"),
        ("WRITE 1@c0 c0 r1 LOCK_VALUE[0] 1", "words="),
        ("WRITE 1@c0 c0 r1 0x0 00000001 00000001 00000001 00000001 00000001", "1 to 4"),
        ("READ 1@c0 c0 r1 0x0 00000001", "words=1"),
        ("READ 1@c0 c0 r1 0x0 words=5", "words=1"),
        ("WRITE 1@c0 c0 r1 0x0 00000001 arg 1 0", "arg index"),
        ("WRITE 1@c0 c0 r1 0x0 00000001 arg 1 + 0 at 0", "two data words"),
        ("WRITE 1@c0 c0 r1 0x0 00000001 header=0x2", "agrees"),
        ("MOVE 1@c0 c0 r1 0x0 00000001", "WRITE_INCREMENT"),
    ],
)
def test_lines_that_cannot_be_read(line: str, says: str) -> None:
    with pytest.raises(TransactionError) as caught:
        ControlPackets.from_text(f"CONTROL_PACKETS\n{line}\n" if line else "WRITE 1@c0\n")
    assert says in str(caught.value), str(caught.value)


# --- Merging ------------------------------------------------------------------------------------


def test_packets_stand_behind_the_push_that_sends_them() -> None:
    # 6 + 6 + 3 + 3 + 3 words; the second task ends inside of a packet.
    both = merged(sender([(0, 12), (12, 16), (16, 21)]), blob())
    names = [op.name for op in both.transaction.ops]
    assert (
        names
        == (
            "BLOCKWRITE DDR_PATCH WRITE BLOCKWRITE DDR_PATCH RECORD_TIMER "
            "BLOCKWRITE DDR_PATCH WRITE WRITE RECORD_TIMER "
            "BLOCKWRITE DDR_PATCH WRITE WRITE WRITE RECORD_TIMER"
        ).split()
    )
    assert both.packets == (range(3, 5), range(9, 10), range(14, 16))
    assert both.transaction.ops[4].arg_offset == 0x100
    told = both.transaction.explain().arguments
    assert told[2].read == 256 and told[4].read == 4 * 21
    assert merged(sender([(0, 21)]).converted((1, 0)), blob()).transaction.version == (1, 0)


def test_packets_lie_anywhere_in_any_argument() -> None:
    control = ControlPackets(blob().packets, blob().patches, argument=5, base=64)
    assert ControlPackets.from_bytes(control.to_bytes(), control.meta()) == control
    both = merged(sender([(16, 37)], argument=5), control)
    assert len(both.transaction) == 4 + 5
    assert merged(sender([(16, 37)], argument=3), control, argument=3) == merged(
        sender([(16, 37)], argument=3), ControlPackets(blob().packets, blob().patches, 3, 64)
    )


@pytest.mark.parametrize(
    ("tasks", "argument", "says"),
    [
        ([(0, 21)], 3, "no shim channel"),
        ([(0, 20)], 4, "not sent to its end"),
        ([(0, 22)], 4, "words 0 to 22"),
        ([(1, 7)], 4, "starts at byte 4"),
        ([(0, 3), (6, 9)], 4, "starts at byte 0"),
    ],
)
def test_what_cannot_be_merged(tasks: list[tuple[int, int]], argument: int, says: str) -> None:
    with pytest.raises(TransactionError) as caught:
        merged(sender(tasks, argument), blob())
    assert says in str(caught.value), str(caught.value)


def test_a_packet_that_rewrites_the_chain_that_carries_it_is_a_warning() -> None:
    words = ShimBd.at(64, 8).to_words()
    control = ControlPackets(
        (ControlPacket.write(1, 0, 0x1D0A0, words[:4]), ControlPacket.write(1, 0, 0x1D0B0, words[4:]))
    )
    made = TransactionBuilder(4, 1)
    chain = [ShimBd.at(0, 6, next_bd=5), ShimBd.at(0, 6)]
    made.blockwrite(tile_address(0, 0, 0x1D080), [word for bd in chain for word in bd.to_words()])
    made.ddr_patch(tile_address(0, 0, 0x1D084), 4, 0)
    made.ddr_patch(tile_address(0, 0, 0x1D0A4), 4, 24)
    made.write(tile_address(0, 0, 0x1D214), queue_word("shim", 4))
    both = merged(Transaction.from_bytes(made.to_bytes()), control)
    hazards = [f for f in both.check() if f.kind is FindingKind.HAZARD]
    assert hazards and all(f.severity is Severity.WARNING for f in hazards)
    assert any(f.severity is Severity.ERROR for f in both.transaction.check())


def test_a_question_ends_with_its_mark(tmp_path: Path) -> None:
    with pytest.raises(TransactionError, match=r"the blob of this transaction.*\?$"):
        merged(Transaction.from_bytes(TransactionBuilder(4, 1).to_bytes()), blob())


def test_fused_operators_are_merged_too(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(sender([(0, 21)]).to_bytes())
    (tmp_path / "a_ctrl.bin").write_bytes(blob().to_bytes())
    (tmp_path / "a_ctrl_meta.json").write_text(blob().meta())
    args = [
        {"kind": "INPUT", "xrt_arg_idx": 2, "onnx_arg_idx": 0, "size": 1024, "tensor": "x"},
        {"kind": "CONST_KERNEL_PARAM_INPUT", "xrt_arg_idx": 3, "onnx_arg_idx": 0, "size": 512},
        {"kind": "CTRL_PKT_BIN", "xrt_arg_idx": 4, "onnx_arg_idx": 0, "size": 84},
    ]
    part = {"file": "a.bin", "args": args, "control": "a_ctrl.bin"}
    for argument in (4, 5):
        path = tmp_path / "map.json"
        path.write_text(json.dumps({"parts": [part, part], "control_argument": argument}))
        result = fuse_map(path)
        assert result.control is not None and result.control.argument == argument
        both = merged(result.transaction, result.control)
        assert len(both.transaction) == 2 * (4 + 5), argument


@pytest.mark.amd_data
def test_amd_control_packets_come_back_and_merge(amd_transactions: Path) -> None:
    blobs = sorted(amd_transactions.rglob("*_ctrl.bin"))
    assert blobs
    for path in blobs:
        meta = path.with_name(f"{path.stem}_meta.json").read_bytes()
        control = ControlPackets.from_bytes(path.read_bytes(), meta)
        again = ControlPackets.from_text(control.text())
        assert again.to_bytes() == path.read_bytes(), path.name
        assert set(again.patches) == set(control.patches), path.name
        name = path.with_name(path.name.replace("_ctrl.bin", ".bin"))
        both = merged(Transaction.from_bytes(name.read_bytes()), control)
        assert not [f for f in both.check() if f.severity is Severity.ERROR], path.name
        told = both.transaction.explain().arguments
        assert set(told) == {control.argument, *(patch.argument for patch in control.patches)}, path.name
        assert told[control.argument].read == len(control.to_bytes()), path.name
