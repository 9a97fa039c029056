# SPDX-License-Identifier: Apache-2.0
"""AMD's sample transactions, replayed: how many run to the end, and why the others do not."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from onedispatch.dispatch.cli import app
from onedispatch.dispatch.replay import replay
from onedispatch.transactions import Transaction, TransactionError

SIDE_FILES = ("_param.bin", "_ctrl.bin")
RUN_TO_THE_END = 0.95

# Files whose tasks are meant to outlive the transaction: chains of descriptors that loop.
ENDLESS = ("xcomconv2d",)


@pytest.fixture(scope="module")
def samples(amd_transactions: Path) -> list[Path]:
    return [p for p in sorted(amd_transactions.rglob("*.bin")) if not p.name.endswith(SIDE_FILES)]


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
def test_command(samples: list[Path]) -> None:
    path = next(p for p in samples if p.parent.name == "elwmul")
    shown = CliRunner().invoke(app, ["txn", "replay", str(path)])
    assert shown.exit_code == 0, shown.output
    assert "ran to the end" in shown.output and "32 parameter blocks" in shown.output
    parsed = json.loads(CliRunner().invoke(app, ["txn", "replay", str(path), "--json"]).stdout)
    assert parsed["finished"] and parsed["complete"] and parsed["handshakes"] == 32
    assert {"place", "name", "bytes", "busy", "stall", "open"} <= parsed["channels"][0].keys()


def test_junk_is_refused() -> None:
    with pytest.raises(TransactionError):
        replay(b"\0" * 8, "npu2")
