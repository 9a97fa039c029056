# SPDX-License-Identifier: Apache-2.0
"""`onedispatch txn` on transactions that send control packets."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from onedispatch.dispatch.cli import app
from onedispatch.transactions import ControlPackets
from onedispatch.transactions.packets.packet import ControlPacket
from tests.unit.test_transactions_control import controlled_chain, written
from tests.unit.test_transactions_packets import blob, sender


def test_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(sender([(0, 21)]).to_bytes())
    (tmp_path / "a_ctrl.bin").write_bytes(blob().to_bytes())
    (tmp_path / "a_ctrl_meta.json").write_text(blob().meta())
    run = CliRunner().invoke
    given = ["--packets", str(tmp_path / "a_ctrl.bin")]
    told = run(app, ["txn", "explain", str(tmp_path / "a.bin")]).stdout
    assert "--packets" in told
    told = run(app, ["txn", "explain", str(tmp_path / "a.bin"), *given]).stdout
    assert "arg 2" in told and "--packets" not in told
    assert "DMA_MM2S_QUEUE[1]" in run(app, ["txn", "dump", str(tmp_path / "a.bin"), *given]).stdout
    assert run(app, ["txn", "check", str(tmp_path / "a.bin"), *given]).exit_code == 0
    done = run(app, ["txn", "check", str(tmp_path / "a.bin"), *given, "--argument", "3", "--json"])
    assert "no shim channel" in str(done.exception)

    text = run(app, ["txn", "dump", str(tmp_path / "a_ctrl.bin")]).stdout
    (tmp_path / "t.txt").write_text(text)
    done = run(app, ["txn", "assemble", str(tmp_path / "t.txt"), "-o", str(tmp_path / "b_ctrl.bin")])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "b_ctrl.bin").read_bytes() == blob().to_bytes()
    assert (tmp_path / "b_ctrl_meta.json").read_text() == blob().meta()


def test_packets_are_compared_too(tmp_path: Path) -> None:
    packets = list(blob().packets)
    packets[3] = ControlPacket.write(2, 0, 0xC0000, [7])
    for name, one in (("a", blob()), ("b", ControlPackets(tuple(packets), blob().patches))):
        size = len(one.to_bytes()) // 4
        (tmp_path / f"{name}.bin").write_bytes(sender([(0, size)]).to_bytes())
        (tmp_path / f"{name}_ctrl.bin").write_bytes(one.to_bytes())
        (tmp_path / f"{name}_ctrl_meta.json").write_text(one.meta())
    run = CliRunner().invoke
    first, second = ([str(tmp_path / f"{name}{end}") for end in (".bin", "_ctrl.bin")] for name in "ab")
    both = ["txn", "diff", first[0], second[0]]
    assert run(app, both).exit_code == 0, "the transactions alone are the same"
    assert run(app, [*both, "--packets", first[1]]).exit_code == 0, "both with the same packets"
    shown = run(app, [*both, "--packets", first[1], "--packets", second[1]])
    assert shown.exit_code == 1 and "LOCK_VALUE" in shown.output
    thrice = run(app, [*both, *(["--packets", first[1]] * 3)])
    assert thrice.exit_code == 1 and "3 files" in str(thrice.exception)


def test_fused_operators_are_written_with_their_packets(tmp_path: Path) -> None:
    written(tmp_path, controlled_chain(tmp_path) | {"control_argument": 4})
    done = CliRunner().invoke(app, ["txn", "fuse", str(tmp_path / "map.json"), "-o", str(tmp_path / "f.bin")])
    assert done.exit_code == 0 and "t: arg 2 + 0x40" in done.stdout
    for command in ("dump", "explain", "check"):
        for name in ("f.bin", "f_ctrl.bin"):
            done = CliRunner().invoke(app, ["txn", command, str(tmp_path / name)], catch_exceptions=False)
            assert done.exit_code == 0, done.stdout
