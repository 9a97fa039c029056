# SPDX-License-Identifier: Apache-2.0
"""A folder of transactions, file by file: what comes back, what is right, what runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from onedispatch.dispatch.cli import app
from onedispatch.dispatch.tools.survey import OTHER, PACKETS, TRANSACTION, survey
from onedispatch.transactions import InputError, ShimBd, TransactionBuilder, queue_word, tile_address
from onedispatch.transactions.packets.control_packets import ControlPackets
from onedispatch.transactions.packets.packet import ControlPacket


def sender(words: int) -> bytes:
    """Sends so many words of argument 4."""
    made = TransactionBuilder(4, 1)
    made.blockwrite(tile_address(0, 0, 0x1D080), ShimBd.at(0, words).to_words())
    made.ddr_patch(tile_address(0, 0, 0x1D084), 4)
    made.write(tile_address(0, 0, 0x1D214), queue_word("shim", 4))
    made.maskpoll(tile_address(0, 0, 0x1D228), 0, 0x78003C)
    return made.to_bytes()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    control = ControlPackets((ControlPacket.write(2, 0, 0xC0000, [1]),))
    bad = TransactionBuilder(4, 1)
    bad.write(tile_address(0, 0, 0x1D214), queue_word("shim", 4))
    bad.write(tile_address(0, 1, 0xC0000), 64)
    files = {
        "good/a.bin": sender(3),
        "good/a_ctrl.bin": control.to_bytes(),
        "good/a_ctrl_meta.json": control.meta().encode(),
        "good/a_param.bin": bytes(64),
        "bad/short.bin": sender(3)[:-1],
        "bad/lock.bin": bad.to_bytes(),
        "bad/x_ctrl.bin": bytes(7),
    }
    for name, data in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    return tmp_path


def test_every_file_is_told(folder: Path) -> None:
    count, files = survey(folder, jobs=1, replays=True)
    found = {file.path: file for file in files}
    assert count == len(found) == 6
    good = found["good/a.bin"]
    assert (good.kind, good.operations, good.lossless, good.errors) == (TRANSACTION, 4, True, 0)
    assert good.finished and good.complete and good.verdict == "ran to the end" and not good.problem
    assert found["good/a_ctrl.bin"].kind == PACKETS and found["good/a_ctrl.bin"].lossless
    assert found["good/a_param.bin"].kind == OTHER
    short = found["bad/short.bin"]
    assert short.kind == TRANSACTION and not short.lossless and "1 byte short" in short.problem
    wrong = found["bad/lock.bin"]
    assert wrong.lossless and wrong.errors == 1 and not wrong.finished and "64" in wrong.problem
    assert not found["bad/x_ctrl.bin"].lossless and "7 bytes" in found["bad/x_ctrl.bin"].problem


def test_without_replays_and_in_processes(folder: Path) -> None:
    alone = list(survey(folder, jobs=1, replays=False)[1])
    assert all(file.verdict == "" for file in alone)
    assert list(survey(folder, jobs=2, replays=False)[1]) == alone


def test_the_command_line(folder: Path) -> None:
    run = CliRunner().invoke
    done = run(app, ["txn", "survey", str(folder), "--jobs", "1"])
    assert done.exit_code == 1 and "2 transactions" not in done.stdout
    assert "bad/short.bin:" in done.stdout and "3 files are not as they should be" in done.stdout
    done = run(app, ["txn", "survey", str(folder / "good"), "--jobs", "1", "--json"])
    assert done.exit_code == 0 and json.loads(done.stdout)["bad"] == 0


def test_no_folder_and_no_file(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "none"):
        with pytest.raises(InputError, match=r"no \*\.bin"):
            survey(place, 1, True)


@pytest.mark.amd_data
def test_amd_samples_are_as_they_should_be(amd_transactions: Path) -> None:
    _, files = survey(amd_transactions, jobs=1, replays=True)
    for file in files:
        assert file.lossless and not file.errors and file.finished, f"{file.path}: {file.problem}"


@pytest.mark.amd_data
def test_amd_files_across_borders_leave_nothing_running(amd_more: Path) -> None:
    _, files = survey(amd_more, jobs=1, replays=True)
    for file in files:
        assert file.lossless and not file.errors and file.complete, f"{file.path}: {file.problem}"
