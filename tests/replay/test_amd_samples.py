# SPDX-License-Identifier: Apache-2.0
"""AMD's sample transactions, replayed: how many run to the end, and why the others do not."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from onedispatch.dispatch.cli import app
from onedispatch.dispatch.tools.replay import Packets, read_packets, replay
from onedispatch.transactions import (
    ControlPackets,
    DeviceError,
    InputError,
    ShimBd,
    Transaction,
    TransactionBuilder,
    TransactionError,
    fuse,
    queue_word,
    tile_address,
)
from onedispatch.transactions.packets.packet import Patch

SIDE_FILES = ("_param.bin", "_ctrl.bin")
RUN_TO_THE_END = 0.95
EMPTY = TransactionBuilder(4, 4).to_bytes()

# Files whose tasks are meant to outlive the transaction: chains of descriptors that loop.
ENDLESS = ("xcomconv2d",)


@pytest.fixture(scope="module")
def samples(amd_files: list[Path]) -> list[Path]:
    return [p for p in amd_files if not p.name.endswith(SIDE_FILES)]


@pytest.mark.amd_data
def test_nearly_all_run_to_the_end(samples: list[Path]) -> None:
    assert samples
    stopped, kinds = [], Counter[str]()
    for path in samples:
        report = replay(path.read_bytes())
        assert report.cycles > 0 and report.channels, path.name
        if not report.finished:
            assert report.stop is not None and report.stop.op_index is not None, path.name
            kinds[report.stop.kind] += 1
            stopped.append(f"{path.name}: {report.verdict}: {report.stop.text}")
        elif not report.complete:
            assert path.parent.name in ENDLESS, f"{path.name}: {report.verdict}"
            assert all(task.why for task in report.unfinished)
    assert len(stopped) <= len(samples) * (1 - RUN_TO_THE_END), f"{dict(kinds)}\n" + "\n".join(stopped)


@pytest.mark.amd_data
def test_both_versions_do_the_same(samples: list[Path]) -> None:
    for path in samples:
        legacy = Transaction.from_bytes(path.read_bytes())
        old, new = replay(legacy), replay(legacy.converted((1, 0)))
        assert new == old, path.name


@pytest.mark.amd_data
def test_arguments_hold_what_the_patches_name(samples: list[Path]) -> None:
    for path in samples:
        transaction = Transaction.from_bytes(path.read_bytes())
        patched = {op.fields["arg_index"] for op in transaction.ops if op.name == "DDR_PATCH"}
        report = replay(transaction)
        assert {a.index for a in report.arguments} <= patched, path.name
        for argument in report.arguments:
            assert argument.first < argument.end and argument.read + argument.written > 0, path.name


@pytest.mark.amd_data
def test_what_is_assumed_is_named(samples: list[Path]) -> None:
    """Files of control packets set a lock to 1 and wait for their packets to clear it."""
    for path in samples:
        report = replay(path.read_bytes())
        packets = [a.index for a in report.arguments] in ([3], [4])
        assert bool(report.assumptions) == packets, path.name


@pytest.mark.amd_data
def test_command(amd_transactions: Path) -> None:
    path = amd_transactions / "elwmul" / "elwmul_v2_a16a16_1_11008.bin"
    shown = CliRunner().invoke(app, ["txn", "replay", str(path)])
    assert shown.exit_code == 0, shown.output
    assert "ran to the end" in shown.output and "32 parameter blocks" in shown.output
    parsed = json.loads(CliRunner().invoke(app, ["txn", "replay", str(path), "--json"]).stdout)
    assert parsed["finished"] and parsed["complete"] and parsed["handshakes"] == 32
    assert {"place", "name", "bytes", "busy", "stall", "open"} <= parsed["channels"][0].keys()


@pytest.mark.amd_data
def test_control_packets_leave_nothing_to_assume(amd_transactions: Path) -> None:
    files = sorted(amd_transactions.rglob("*_ctrl.bin"))
    assert files
    for path in files:
        transaction = path.with_name(path.name.replace("_ctrl.bin", ".bin")).read_bytes()
        packets = read_packets(path)
        report = replay(transaction, packets=packets)
        assert report.complete and not report.assumptions, f"{path.name}: {report.verdict}"
        assert report.packets == len(ControlPackets.from_bytes(packets.data).packets), path.name
        assert any(a.written for a in report.arguments), path.name  # packets made it write results
        thrice = replay(fuse([transaction] * 3), packets=packets)
        assert thrice.complete and not thrice.assumptions, f"{path.name}: {thrice.verdict}"


@pytest.mark.amd_data
def test_command_with_packets(amd_transactions: Path) -> None:
    path = next(p for p in (amd_transactions / "gemmgelu").glob("*.bin") if not p.name.endswith(SIDE_FILES))
    packets = path.with_name(path.stem + "_ctrl.bin")
    shown = CliRunner().invoke(app, ["txn", "replay", str(path), "--packets", str(packets)])
    assert shown.exit_code == 0 and "control packets executed" in shown.output, shown.output


def test_bad_patches_are_refused() -> None:
    with pytest.raises(DeviceError, match="patch at byte 4"):
        replay(EMPTY, packets=Packets(bytes(8), 4, (Patch(4, 0, 0),)))
    with pytest.raises(DeviceError, match="argument 99"):
        replay(EMPTY, packets=Packets(bytes(8), 99))


def test_unnamed_opcodes_are_assumptions() -> None:
    builder = TransactionBuilder(4, 4)
    builder.custom(199, bytes(4))
    report = replay(builder.to_bytes())
    assert report.complete
    assert [(a.place, a.what, a.times) for a in report.assumptions] == [
        (None, "custom opcode 199 skipped", 1)
    ]


@pytest.mark.amd_data
def test_packets_may_start_further_on(amd_transactions: Path) -> None:
    path = next(iter(sorted((amd_transactions / "gemmgelu").glob("*_ctrl.bin"))))
    transaction = Transaction.from_bytes(path.with_name(path.name.replace("_ctrl.bin", ".bin")).read_bytes())
    moved = TransactionBuilder(4, transaction.header.columns)
    # Parameters lie before them in the same argument, and take the same way.
    moved.blockwrite(tile_address(0, 0, 0x1D1E0), ShimBd.at(0, 64).to_words())
    moved.ddr_patch(tile_address(0, 0, 0x1D1E4), 4, 0)
    moved.write(tile_address(0, 0, 0x1D214), queue_word("shim", 15))
    moved.maskpoll(tile_address(0, 0, 0x1D228), 0, 0x78003C)
    for op in transaction.ops:
        fields = dict(op.fields)
        if op.name == "DDR_PATCH":
            fields["arg_offset"] += 256
        words = op.words if op.name == "BLOCKWRITE" else ()
        moved.op(op.name, b"".join(word.to_bytes(4, "little") for word in words), **fields)
    packets = read_packets(path)
    here, there = (
        replay(transaction, packets=packets),
        replay(moved.to_bytes(), packets=replace(packets, base=256)),
    )
    assert there.complete and there.packets == here.packets
    argument = next(use for use in there.arguments if use.index == 4)
    assert (argument.first, argument.end) == (0, 256 + len(packets.data))
    assert argument.read == argument.end
    with pytest.raises(InputError, match="byte 2"):
        replay(transaction, packets=replace(packets, base=2))


def test_packets_without_a_route_are_refused() -> None:
    with pytest.raises(InputError, match="c9 r0"):
        replay(EMPTY, packets=Packets(bytes(8), tiles={(1, 0): (9, 0)}))


def test_unreadable_packets_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        read_packets(tmp_path / "none_ctrl.bin")
    (tmp_path / "x_ctrl.bin").write_bytes(bytes(8))
    with pytest.raises(InputError, match="whole packet"):
        read_packets(tmp_path / "x_ctrl.bin")
    (tmp_path / "x_ctrl.bin").write_bytes(bytes(12))
    (tmp_path / "x_ctrl_meta.json").write_text('{"ctrl_pkt_patch_info": [{}]}')
    with pytest.raises(InputError, match="KeyError"):
        read_packets(tmp_path / "x_ctrl.bin")


def test_junk_is_refused() -> None:
    with pytest.raises(TransactionError):
        replay(b"\0" * 8, "npu2")
