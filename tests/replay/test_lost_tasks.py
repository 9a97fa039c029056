# SPDX-License-Identifier: Apache-2.0
"""A push that is missing from a transaction: no channel hears of its descriptor, and a replay says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

import onedispatch as od
from onedispatch.dispatch.cli import app
from onedispatch.dispatch.tools.replay import read_packets, replay
from onedispatch.transactions import (
    FindingKind,
    MemBd,
    ShimBd,
    Transaction,
    TransactionBuilder,
    queue_word,
    tile_address,
)
from onedispatch.transactions.analysis import effects

IDLE = 0x78003C
# Their last push repeats a task of the same descriptor, so no descriptor is left without one.
REPEATED = {"gatherqdqadd_4x4_a16a16acc16_12_32768_4096", "gemm_v_gelu_4x4_a16w8acc16_64_768_768"}


def mem(offset: int) -> int:
    return tile_address(0, 1, offset)


def outputs(pushes: int) -> TransactionBuilder:
    """Two outputs by two descriptors of a shim, of which so many are queued."""
    made = TransactionBuilder(4, 4)
    for bd in range(2):
        made.blockwrite(tile_address(0, 0, 0x1D000 + 0x20 * bd), ShimBd.at(0, 64).to_words())
        made.ddr_patch(tile_address(0, 0, 0x1D004 + 0x20 * bd), 2, 256 * bd)
        if bd < pushes:
            made.write(tile_address(0, 0, 0x1D204 + 8 * bd), queue_word("shim", bd))
        made.maskpoll(tile_address(0, 0, 0x1D220 + 4 * bd), 0, IDLE)
    return made


def without(transaction: Transaction, op: int) -> Transaction:
    header = transaction.header
    made = TransactionBuilder(header.device_generation, header.columns)
    for index, one in enumerate(transaction.ops):
        words = one.words if one.name == "BLOCKWRITE" else ()
        if index != op:
            made.op(one.name, b"".join(word.to_bytes(4, "little") for word in words), **one.fields)
    return Transaction.from_bytes(made.to_bytes())


def pushes_of(transaction: Transaction) -> list[int]:
    return [event.op for event in effects.events(transaction) if isinstance(event, effects.Pushed)]


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["txn", *arguments])


def test_an_argument_that_nothing_queues_is_lost() -> None:
    assert replay(outputs(2).to_bytes()).verdict == "ran to the end"
    report = replay(outputs(1).to_bytes())
    assert report.finished and not report.complete
    assert report.verdict == "ran to the end; left: 1 descriptor never queued"
    (lost,) = report.lost
    assert (str(lost.place), lost.bd, lost.argument, lost.op_index) == ("c0 r0", 1, 2, 4)
    assert lost.why == "BD 1 is written, with argument 2, and never queued"


def test_commands_say_it_and_fail(tmp_path: Path) -> None:
    path, whole = tmp_path / "lost.bin", tmp_path / "whole.bin"
    path.write_bytes(outputs(1).to_bytes())
    whole.write_bytes(outputs(2).to_bytes())
    shown = invoke("replay", str(path))
    assert shown.exit_code == 2 and "BD 1 is written, with argument 2, and never queued" in shown.output
    parsed = json.loads(invoke("replay", str(path), "--json").stdout)
    assert not parsed["complete"] and parsed["finished"] and parsed["unqueued"][0]["op_index"] == 4
    assert invoke("replay", str(whole)).exit_code == 0

    survey = invoke("survey", str(tmp_path), "--json")
    files = {row["path"]: row for row in json.loads(survey.stdout)["files"]}
    assert survey.exit_code == 1 and (files["lost.bin"]["lost"], files["whole.bin"]["lost"]) == (1, 0)
    assert files["lost.bin"]["problem"].startswith("operation 4, c0 r0 BD 1 is written")

    assert invoke("check", str(path)).exit_code == 0, "warnings alone"
    strict = invoke("check", str(path), "--strict")
    assert strict.exit_code == 1 and "never queued" in strict.output
    assert invoke("check", str(whole), "--strict").exit_code == 0
    assert invoke("check", str(path), "--strict", "--json").exit_code == 1


def test_check_warns_of_arguments_that_go_nowhere() -> None:
    found = [
        one for one in Transaction.from_bytes(outputs(1).to_bytes()).check() if one.kind is FindingKind.BD
    ]
    assert ["never queued" in one.message and one.op_index == 4 for one in found] == [True]
    assert not Transaction.from_bytes(outputs(2).to_bytes()).check()


def test_descriptors_that_change_while_their_chain_runs_are_not_lost() -> None:
    made = TransactionBuilder(4, 4)
    for bd in (0, 1):
        chained = MemBd.at(256 * bd, 64, use_next=1, next_bd=1 - bd)
        made.blockwrite(mem(0xA0000 + 0x20 * bd), chained.to_words())
    made.write(mem(0xA0604), queue_word("mem", 0))
    made.blockwrite(mem(0xA0020), MemBd.at(512, 64, use_next=1, next_bd=0).to_words())
    assert not replay(made.to_bytes()).unqueued


def test_a_word_that_changes_before_the_push_loses_nothing() -> None:
    made = TransactionBuilder(4, 4)
    made.blockwrite(mem(0xA0000), MemBd.at(0, 64).to_words())
    made.write(mem(0xA0000), MemBd.at(0, 32).to_words()[0])
    made.write(mem(0xA0604), queue_word("mem", 0))
    assert not replay(made.to_bytes()).unqueued


def test_a_descriptor_that_is_written_again_before_its_push_is_lost() -> None:
    made = TransactionBuilder(4, 4)
    for at in (0, 256):
        made.blockwrite(mem(0xA0000), MemBd.at(at, 64).to_words())
    made.write(mem(0xA0604), queue_word("mem", 0))
    assert [one.op_index for one in replay(made.to_bytes()).unqueued] == [0]


def test_every_push_of_a_compiled_model_counts() -> None:
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[8, 64] x) => (float[8, 64] y) { y = Relu(x) }'
    )
    transaction = Transaction.from_bytes(od.compile(proto).transaction)
    assert not replay(transaction).lost
    queued = pushes_of(transaction)
    assert queued
    for op in queued:
        assert replay(without(transaction, op)).lost, f"without operation {op}"


@pytest.mark.amd_data
def test_the_last_push_of_amds_files_counts(amd_files: list[Path]) -> None:
    samples = [p for p in amd_files if not p.name.endswith(("_param.bin", "_ctrl.bin"))]
    missed = set()
    for path in samples:
        transaction = Transaction.from_bytes(path.read_bytes())
        beside = path.with_name(f"{path.stem}_ctrl.bin")
        packets = read_packets(beside) if beside.exists() else None
        assert not replay(transaction, packets=packets).lost, path.name
        mutant = without(transaction, pushes_of(transaction)[-1])
        if replay(mutant, packets=packets).complete:
            missed.add(path.stem)
    assert samples and missed <= REPEATED


def test_compiled_constants_are_read_again() -> None:
    """Descriptors of the shim that several tasks use are queued more than once."""
    rng = np.random.default_rng(0)
    w = onnx.numpy_helper.from_array(rng.standard_normal((64, 64)).astype(np.float32), "w")
    proto = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]>
        g (float[64, 64] x) => (float[64, 64] y) { y = MatMul(x, w) }"""
    )
    proto.graph.initializer.append(w)
    assert replay(od.compile(proto).transaction).complete
