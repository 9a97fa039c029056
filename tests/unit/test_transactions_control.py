# SPDX-License-Identifier: Apache-2.0
"""Control packets: byte for byte, as transactions, relocated; and fusing from JSON."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onedispatch.transactions import (
    ArgKind,
    ArgMap,
    Bindings,
    ControlPackets,
    InputError,
    ShimBd,
    Transaction,
    TransactionBuilder,
    TransactionError,
    queue_word,
    tile_address,
)
from onedispatch.transactions.fusion.fusemap import fuse_map
from onedispatch.transactions.packets.control_packets import read_meta
from onedispatch.transactions.packets.packet import ControlPacket, Patch


def example() -> ControlPackets:
    """A task of shim 1, and a lock of memory tile 1."""
    words = ShimBd.at(0x40, 64).to_words()
    packets = (
        ControlPacket.write(1, 1, 0x1D020, words[:4]),
        ControlPacket.write(1, 1, 0x1D030, words[4:]),
        ControlPacket.write(1, 1, 0x1D214, [queue_word("shim", 1)]),
        ControlPacket.write(2, 1, 0xC0000, [1]),
    )
    return ControlPackets(packets, (Patch(12, 2, 0x100),))


def test_packets_are_the_writes_that_they_hold() -> None:
    transaction = example().to_transaction()
    assert [str(op) for op in transaction.ops] == [
        "BLOCKWRITE    c1 r0 DMA_BD[1]             8 words; bd 1: address=0x40 length=64",
        "DDR_PATCH     c1 r0 DMA_BD[1]+0x4         arg 2 + 0x100",
        "WRITE         c1 r0 DMA_MM2S_QUEUE[0]     start_bd=1",
        "WRITE         c1 r1 LOCK_VALUE[0]         0x00000001",
    ]
    added = ControlPackets(example().packets, (Patch(12, 2, 0x100, adds=True),))
    assert added.to_transaction().ops[1].arg_offset == 0x140
    assert transaction.check() == [] and example().findings() == []
    assert "1@c1  c1 r0 DMA_BD[1]" in example().text() and "arg 2 + 0x100 at 1" in example().text()


def test_bytes_and_meta_come_back() -> None:
    made = example()
    assert ControlPackets.from_bytes(made.to_bytes(), made.meta()) == made
    added = ControlPackets(made.packets, (Patch(12, 2, 0x100, adds=True),))
    assert ControlPackets.from_bytes(made.to_bytes(), added.meta()) == added


def test_wrong_headers_are_found() -> None:
    packet = ControlPacket(1, 1 << 22 | 2, ())
    blob = ControlPackets((ControlPacket.write(1, 0, 0x14000, [1]), packet)).to_bytes()
    read = ControlPackets.from_bytes(blob)
    assert [(f.op_index, f.byte_offset) for f in read.findings()] == [(1, 12), (1, 12)]
    with pytest.raises(TransactionError, match="READ to"):
        read.to_transaction()


@pytest.mark.parametrize(
    ("data", "meta", "says"),
    [
        (b"\0\0\0", None, "3 bytes"),
        (bytes(4), None, "1 word at the end"),
        (bytes(8), None, "2 words at the end"),
        (bytes(12), "[", "JSONDecodeError"),
        (bytes(12), "[]", "ctrl_pkt_patch_info"),
        (bytes(12), '{"ctrl_pkt_patch_info": [{"offset": 1}]}', "KeyError"),
        (bytes(12), '{"external_buffers": {"a": 1}}', "AttributeError"),
        (bytes(12), example().meta(), "6 bytes at 12"),
        (example().to_bytes(), example().meta().replace("12", "-12"), "no number"),
        (example().to_bytes(), example().meta().replace("6", "4"), "4 bytes at 12"),
    ],
)
def test_what_is_no_blob_is_refused(data: bytes, meta: str | None, says: str) -> None:
    with pytest.raises(TransactionError) as caught:
        ControlPackets.from_bytes(data, meta)
    assert says in str(caught.value), str(caught.value)


def test_patches_follow_the_rule_of_fusing() -> None:
    args = [ArgMap(ArgKind.CONST_INPUT, 2, 0, 0, 0x200)]
    moved = example().relocated(args, Bindings(const=0x1000))
    assert moved.patches == (Patch(12, 3, 0x1100),) and moved.packets == example().packets
    with pytest.raises(TransactionError, match="regions of the arg map"):
        example().relocated([ArgMap(ArgKind.CONST_INPUT, 2, 0, 0, 0x100)], Bindings())


@given(st.binary(max_size=120), st.text(max_size=30))
def test_any_bytes_are_read_or_refused(data: bytes, meta: str) -> None:
    for text in (None, meta):
        try:
            read = ControlPackets.from_bytes(data, text)
        except TransactionError:
            continue
        assert read.to_bytes() == data
        read.text()
        read.findings()
        with contextlib.suppress(TransactionError):
            read.to_transaction().check()


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["external_buffers", "ctrl_pkt_patch_info", "a"]), inner, max_size=3
            )
        ),
    )
)
def test_any_json_is_read_or_refused(value: Any) -> None:
    try:
        read_meta(json.dumps(value))
    except TransactionError as error:
        assert "control packet JSON" in str(error)


@pytest.mark.amd_data
def test_amd_control_packets(amd_transactions: Path) -> None:
    blobs = sorted(amd_transactions.rglob("*_ctrl.bin"))
    assert blobs
    for path in blobs:
        data = path.read_bytes()
        meta = path.with_name(f"{path.stem}_meta.json").read_bytes()
        read = ControlPackets.from_bytes(data, meta)
        assert read.to_bytes() == data and read.findings() == [], path.name
        assert ControlPackets.from_bytes(data, read.meta()) == read
        transaction = read.to_transaction()
        assert [f for f in transaction.check() if f.severity.value == "error"] == [], path.name
        told = transaction.explain()
        assert set(told.arguments) == {patch.argument for patch in read.patches}, path.name
        assert [op.name for op in transaction.ops].count("DDR_PATCH") == len(read.patches), path.name


# --- Fusing from JSON ---------------------------------------------------------------------------


def operator(read: int, written: int, size: int = 256) -> bytes:
    """Reads ``size`` bytes of one argument, writes as many of another."""
    made = TransactionBuilder(4, 1)
    for bd, argument, queue in ((0, read, 0x1D214), (1, written, 0x1D204)):
        at = tile_address(0, 0, 0x1D000 + 0x20 * bd)
        made.blockwrite(at, ShimBd.at(0, size // 4).to_words())
        made.ddr_patch(at + 4, argument)
        made.write(tile_address(0, 0, queue), queue_word("shim", bd))
    return made.to_bytes()


def arg(kind: str, xrt: int, onnx: int = 0, tensor: str = "", **more: int) -> dict[str, Any]:
    row = {"kind": kind, "xrt_arg_idx": xrt, "onnx_arg_idx": onnx, "size": 256, **more}
    return row | ({"tensor": tensor} if tensor else {})


def chain(folder: Path) -> dict[str, Any]:
    (folder / "a.bin").write_bytes(operator(1, 0))
    (folder / "b.bin").write_bytes(operator(0, 2))
    return {
        "parts": [
            {"file": "a.bin", "args": [arg("INPUT", 1, 0, "x"), arg("OUTPUT", 0, 1, "t")]},
            {"file": "b.bin", "args": [arg("INPUT", 0, 0, "t", padding_offset=64), arg("OUTPUT", 2, 1, "y")]},
        ]
    }


def written(folder: Path, data: Any) -> Path:
    path = folder / "map.json"
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return path


def patches(transaction: Transaction) -> list[tuple[int, int]]:
    return [(op.arg_index, op.arg_offset) for op in transaction.ops if op.name == "DDR_PATCH"]


def test_a_plan_of_ours(tmp_path: Path) -> None:
    result = fuse_map(written(tmp_path, chain(tmp_path)))
    assert result.layout.tensors == {"x": (0, 0), "t": (2, 64), "y": (1, 0)}
    assert patches(result.transaction) == [(0, 0), (2, 64), (2, 0), (1, 0)]
    assert result.layout.sizes[0] == 256 and result.layout.sizes[2] == 320
    assert fuse_map(written(tmp_path, chain(tmp_path) | {"outputs": ["t"]})).layout.tensors["t"] == (1, 64)


def test_bindings_of_somebody_else(tmp_path: Path) -> None:
    data = chain(tmp_path)
    data["parts"][0]["bindings"] = {"tensors": {"0": [0, 4096], "1": [2, 0]}}
    data["parts"][1]["bindings"] = {"tensors": {"0": [2, 64], "1": [1, 0]}}
    result = fuse_map(written(tmp_path, data))
    assert patches(result.transaction) == [(0, 4096), (2, 0), (2, 0), (1, 0)] and not result.layout.sizes
    data["sizes"] = {"0": 4096, "1": 256, "2": 512}
    with pytest.raises(TransactionError, match="past the end of its fused buffer"):
        fuse_map(written(tmp_path, data))


def controlled_chain(folder: Path) -> dict[str, Any]:
    """``chain``, each part of which has control packets."""
    data = chain(folder)
    for part in data["parts"]:
        name = part["file"].replace(".bin", "_ctrl.bin")
        part["control"] = name
        part["args"].append(arg("CONST_INPUT", 5, size=1024))
        control = ControlPackets(example().packets, (Patch(12, 5, 0x100),))
        (folder / name).write_bytes(control.to_bytes())
        (folder / name.replace(".bin", "_meta.json")).write_text(control.meta())
    return data


def test_control_packets_are_fused_too(tmp_path: Path) -> None:
    data = controlled_chain(tmp_path)
    size = len(example().to_bytes())
    for argument in (5, 4):
        result = fuse_map(written(tmp_path, data | {"control_argument": argument}))
        assert result.control is not None and result.layout.sizes[argument] == 2 * size
        assert result.control.patches == (Patch(12, 3, 0x100), Patch(12 + size, 3, 0x100 + 1024))
        assert [b.ctrl for b in result.layout.bindings] == [0, size]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("[", "map.json: given"),
        ("[]", "an object"),
        ({"part": []}, "key 'part'"),
        ({"parts": 1}, "a list"),
        ({"parts": [{"file": 1}]}, "a path"),
        ({"parts": [{"file": "absent.bin"}]}, "absent.bin"),
        ({"parts": [], "control_argument": 3}, "4 or 5"),
        ({"parts": [], "sizes": {"x": 1}}, "a number"),
        ({"parts": [{"file": "a.bin", "args": [{"kind": "IN"}]}]}, "INPUT"),
        ({"parts": [{"file": "a.bin", "args": [{"kind": "INPUT"}]}]}, "no xrt_arg_idx"),
        ({"parts": [{"file": "a.bin", "args": [arg("INPUT", -1)]}]}, "a number from 0"),
        ({"parts": [{"file": "a.bin", "args": [arg("INPUT", 1, 0, "x"), arg("INPUT", 0, 0, "y")]}]}, "again"),
        ({"parts": [{"file": "a.bin", "args": [], "bindings": {"tensors": {"0": [3, 0]}}}]}, "0 to 2"),
        (
            {"parts": [{"file": "a.bin", "args": [], "bindings": {}}, {"file": "a.bin", "args": []}]},
            "in none",
        ),
    ],
)
def test_what_is_no_map_is_refused(tmp_path: Path, change: Any, says: str) -> None:
    chain(tmp_path)
    with pytest.raises(InputError) as caught:
        fuse_map(written(tmp_path, change))
    assert says in str(caught.value), str(caught.value)


def test_reasons_of_fuse_are_told(tmp_path: Path) -> None:
    data = chain(tmp_path)
    data["parts"][0]["args"][0]["xrt_arg_idx"] = 7
    with pytest.raises(TransactionError, match="fuse part 0 DDR_PATCH"):
        fuse_map(written(tmp_path, data))
    (tmp_path / "a.bin").write_bytes(b"")
    with pytest.raises(TransactionError, match=r"part 0 a\.bin"):
        fuse_map(written(tmp_path, data))


@pytest.mark.amd_data
def test_an_amd_operator_with_its_control_packets(amd_transactions: Path, tmp_path: Path) -> None:
    (path,) = amd_transactions.rglob("gemm_4x4_a16w8acc16_64_3072_768.bin")
    kinds = ["OUTPUT", "INPUT", "CONST_INPUT", "CONST_KERNEL_PARAM_INPUT", "CTRL_PKT_BIN"]
    sizes = [98304, 393216, 2654464, 16384, 9312]
    args = [arg(kind, i, i, kind, size=size) for i, (kind, size) in enumerate(zip(kinds, sizes, strict=True))]
    part = {"file": str(path), "args": args, "control": str(path.with_name(f"{path.stem}_ctrl.bin"))}
    result = fuse_map(written(tmp_path, {"parts": [part, part]}))
    assert result.control is not None and len(result.transaction) == 104
    assert {a for a, _ in patches(result.transaction)} == {5}
    assert {p.argument for p in result.control.patches} == {0, 1, 3, 4}
