# SPDX-License-Identifier: Apache-2.0
"""A device file from outside goes wherever a device's name does, and answers do not depend on the device."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

import onedispatch as od
from onedispatch.dispatch.cli.commands import app
from onedispatch.dispatch.tools.checking import check_model, explain_model
from onedispatch.operators.emission.overlay import overlay_transaction
from onedispatch.operators.scheduling.select import Search
from onedispatch.transactions import CoreBd, MemBd, Severity, Xclbin, find_device
from onedispatch.transactions.machine.registers import TILES
from tests.devices import FILES, device_file, device_of
from tests.ops.case import Case, case, check, f32, weight
from tests.ops.cases import CASES
from tests.tables import each_case, sampled

# The first case of every operator; each device takes some of them, and what keeps all its cores busy.
FIRST = list({c.op_type: c for c in CASES if c.device == "npu2"}.values())
LARGE = [
    case("MatMul", f32(150, 260), weight(260, 140)),
    case("MatMul", f32(130, 96), f32(96, 210)),
    case("Conv", f32(1, 12, 19, 23), weight(24, 12, 3, 3), weight(24), pads=[1, 1, 1, 1]),
    case("Add", f32(300, 65), f32(65)),
    case("Softmax", f32(90, 40)),
]
BDS = {"mem": MemBd, "core": CoreBd}
EVERY = 4  # of the further cases of a device one in so many; `make nightly` runs all
SAMPLE = [(name, c) for number, name in enumerate(FILES) for c in (*LARGE, *FIRST[number % 4 :: 4])]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("devices")
    for name in FILES:
        device_file(made, name)
    return made


@each_case(
    sampled(SAMPLE, lambda one: one[0], EVERY),
    group=lambda one: one[0],
    name=lambda one: f"{one[0]}-{one[1].id}",
)
def test_answers_are_those_of_every_device(one: tuple[str, Case], folder: Path) -> None:
    name, own = one
    session = od.InferenceSession(own.model, device=str(folder / f"{name}.toml"), fallback="error")
    for actual, expected in zip(session.run(None, own.feed), own.expected, strict=True):
        check(actual, expected, own.allowed)


@pytest.mark.parametrize(("m", "k", "n"), [(1143, 2, 512), (277, 846, 920), (437, 335, 260)])
def test_rings_of_many_rows_fit_as_they_can_be_cut(folder: Path, m: int, k: int, n: int) -> None:
    """Where a memory tile has no descriptors for results in halves, tiles leave room for whole ones."""
    own = case("MatMul", f32(m, k), weight(k, n))
    compiled = od.compile(own.model, f"{folder / 'tall.toml'}_1col", fallback="error", selector=Search())
    session = od.InferenceSession(compiled)
    check(session.run(None, own.feed)[0], own.expected[0], own.allowed)


@pytest.mark.parametrize("name", list(FILES))
def test_transactions_for_a_file_check_out(folder: Path, name: str) -> None:
    compiled = od.compile(LARGE[0].model, device=folder / f"{name}.toml", fallback="error")
    errors = [finding for finding in check_model(compiled) if finding.severity is Severity.ERROR]
    assert errors == []


def test_more_rows_do_more_at_once(folder: Path) -> None:
    cycles, large = {}, case("MatMul", f32(256, 512), f32(512, 384))
    for name in ("two", "ten"):
        session = od.InferenceSession(large.model, device=folder / f"{name}.toml", fallback="error")
        session.run(None, large.feed)
        assert session.last_run is not None
        cycles[name] = session.last_run.cycles
    assert cycles["ten"] < cycles["two"]


def test_a_saved_model_carries_its_device(folder: Path, tmp_path: Path) -> None:
    path, saved = device_file(tmp_path, "mine", FILES["ten"]), tmp_path / "m.od"
    compiled = od.compile(LARGE[0].model, device=path, fallback="error")
    compiled.save(saved)
    path.unlink()
    loaded = od.load(saved)
    assert loaded.device == "mine" and loaded.target == compiled.target
    (actual,) = od.InferenceSession(loaded).run(None, LARGE[0].feed)
    check(actual, LARGE[0].expected[0], LARGE[0].allowed)
    other = device_file(tmp_path, "mine", FILES["two"])
    with pytest.raises(od.InputError, match="'mine' as it was"):
        od.InferenceSession(loaded, device=str(other))


def test_partitions_of_a_file(folder: Path) -> None:
    path = str(folder / "ten.toml")
    part = find_device(f"{path}_2col")
    assert (part.name, part.columns, part.core_rows) == ("ten_2col", 2, 6)
    session = od.InferenceSession(LARGE[2].model, device=f"{path}_2col", fallback="error")
    (actual,) = session.run(None, LARGE[2].feed)
    check(actual, LARGE[2].expected[0], LARGE[2].allowed)
    with pytest.raises(od.DeviceError, match="11 columns; accepted: 1 to 10"):
        find_device(f"{path}_11col")


def test_backend_and_xrt_take_files(folder: Path) -> None:
    path = folder / "six.toml"
    (actual,) = od.backend.run_model(LARGE[4].model, list(LARGE[4].feed.values()), npu_device=path)
    check(actual, LARGE[4].expected[0], LARGE[4].allowed)
    npu = od.xrt.device(0, str(path))
    assert (npu.name, npu.columns, npu.core_rows) == ("six", 6, 3)
    assert od.xrt.device(0, path).columns == 6
    for columns in (6, 2):
        own = find_device(path).partition(columns)
        binary = od.xrt.xclbin(Xclbin(own.name, {0: overlay_transaction(own)}).to_bytes())
        npu.register_xclbin(binary)
        od.xrt.hw_context(npu, binary.get_uuid())
    two = find_device(folder / "two.toml")
    foreign = od.xrt.xclbin(Xclbin("npu2_2col", {0: overlay_transaction(two)}).to_bytes())
    with pytest.raises(od.DeviceError, match="an xclbin for npu2_2col"):
        npu.register_xclbin(foreign)


def test_commands_take_files(folder: Path, tmp_path: Path) -> None:
    path, model = str(folder / "ten.toml"), str(tmp_path / "m.onnx")
    onnx.save(LARGE[4].model, model)
    npz = tmp_path / "in.npz"
    np.savez(npz, **LARGE[4].feed)
    invoke = CliRunner().invoke
    assert "ten" in invoke(app, ["devices", path]).output
    assert json.loads(invoke(app, ["devices", path, "--json"]).output)[-1]["core_rows"] == 6
    for arguments in (
        ["run", model, "--random", "--device", path],
        ["inspect", model, "--device", path],
        ["compile", model, "--device", path, "-o", str(tmp_path / "m.od")],
        ["txn", "check", str(tmp_path / "m.od")],
        ["txn", "dump", str(tmp_path / "m.od")],
        ["txn", "replay", str(tmp_path / "m.od"), "--device", path],
        ["inspect", str(tmp_path / "m.od")],
    ):
        result = invoke(app, arguments)
        assert result.exit_code == 0, (arguments, result.output)
    wrong = device_file(tmp_path, "wrong", {"core.data_memory_bytes": 655360})
    result = invoke(app, ["run", model, "--random", "--device", str(wrong)])
    assert result.exit_code != 0 and "core.data_memory_bytes = 655360" in str(result.exception)


@pytest.mark.parametrize("name", [name for name in FILES if device_of(name).notes])
def test_what_fields_do_not_reach_is_said(folder: Path, tmp_path: Path, name: str) -> None:
    path, model = str(folder / f"{name}.toml"), str(tmp_path / "m.onnx")
    onnx.save(LARGE[4].model, model)
    invoke = CliRunner().invoke
    notes = find_device(path).notes
    for arguments in (["devices", path], ["inspect", model, "--device", path]):
        told = " ".join(invoke(app, arguments).output.split())
        assert all(note in told for note in notes), told
    assert json.loads(invoke(app, ["devices", path, "--json"]).output)[-1]["notes"] == list(notes)
    assert json.loads(invoke(app, ["inspect", model, "--device", path, "--json"]).output)[0]["device_notes"]


@pytest.mark.parametrize("name", [name for name in FILES if device_of(name).notes])
def test_what_they_do_reach_is_used(folder: Path, name: str) -> None:
    """Memory tiles keep more of what is sent again; descriptors of cores stay where they reach."""
    large = case("MatMul", f32(512, 1536), f32(1536, 1024))
    target = find_device(folder / f"{name}.toml")
    ends = {"mem": 0, "core": 0}
    compiled = od.compile(large.model, device=folder / f"{name}.toml", fallback="error")
    for tile in explain_model(compiled).tiles.values():
        if tile.kind in ends:
            own = TILES[tile.kind].own_memory_view
            for use in (
                use for channel in tile.channels.values() for push in channel.pushes for use in push.chain
            ):
                ends[tile.kind] = max(ends[tile.kind], 4 * (use.bd.base + use.bd.length) - own)
    assert 0 < ends["core"] <= 65536
    tile = target.count("memory_tile.memory_bytes")
    assert ends["mem"] <= tile and (tile == 524288 or ends["mem"] > 524288)
    session = od.InferenceSession(compiled)
    check(session.run(None, large.feed)[0], large.expected[0], large.allowed)


def test_a_transaction_for_another_array_is_refused(folder: Path) -> None:
    """More columns, or other rows, than the device has; fewer columns are a partition."""
    made = {
        name: od.compile(LARGE[2].model, device=folder / f"{name}.toml", fallback="error")
        for name in ("two", "six", "ten", "doubled")
    }
    for own, other, says in (
        ("two", "six", "6 columns"),
        ("two", "ten", "10 columns"),
        ("six", "ten", "10 columns"),
        ("ten", "six", "5 rows, 1 of memory tiles; accepted: 8 with 1"),
        ("six", "doubled", "8 columns"),
    ):
        swapped = made[own].with_transaction(made[other].transaction)
        with pytest.raises(od.TransactionError, match=f"transaction header.*{says}"):
            od.InferenceSession(swapped).run(None, LARGE[2].feed)
        device = find_device(folder / f"{own}.toml")
        findings = od.transactions.Transaction.from_bytes(made[other].transaction).validate(device=device)
        assert any(finding.kind.value == "header" for finding in findings)


def test_a_file_that_has_changed_or_gone(tmp_path: Path) -> None:
    """A saved model runs on the device that it was compiled for, whatever became of its file."""
    path, saved = device_file(tmp_path, "mine", FILES["six"]), tmp_path / "m.od"
    od.compile(LARGE[4].model, device=path, fallback="error").save(saved)
    device_file(tmp_path, "mine", FILES["doubled"])
    session = od.InferenceSession(od.load(saved))
    check(session.run(None, LARGE[4].feed)[0], LARGE[4].expected[0], LARGE[4].allowed)
    assert session.last_run is not None
    cycles = session.last_run.cycles
    with pytest.raises(od.InputError, match="'mine' as it was"):
        od.InferenceSession(od.load(saved), device=path)
    path.write_text("[device]\nbase = 'npu2'\ncolumns = 0\n", encoding="utf-8")
    for state in ("wrong", "gone"):
        if state == "gone":
            path.unlink()
        session = od.InferenceSession(od.load(saved))
        session.run(None, LARGE[4].feed)
        assert session.last_run is not None and session.last_run.cycles == cycles
        with pytest.raises(od.DeviceError, match=r"mine\.toml"):
            od.InferenceSession(od.load(saved), device=path)
        for arguments in (["inspect"], ["run", "--random"], ["txn", "check"]):
            result = CliRunner().invoke(app, [*arguments, str(saved)])
            assert result.exit_code == 0, (arguments, result.output)


def test_what_no_overlay_can_serve_is_refused(tmp_path: Path) -> None:
    for key, value, accepted in (
        ("device.core_rows", 12, "1 to 11"),
        ("core.locks", 12, "16 or more"),
        ("core.bds", 5, "6 or more"),
        ("shim.bds", 3, "4 or more"),
        ("shim.channels", 1, "2 or more"),
        ("memory_tile.bds", 8, "a memory tile with 8 descriptors"),
    ):
        path = device_file(tmp_path, "small", {key: value})
        if key == "memory_tile.bds":
            key, value = "device.core_rows", 4
        with pytest.raises(od.DeviceError, match=f"{key} = {value}.*{accepted}"):
            od.compile(LARGE[0].model, device=path, fallback="error")
