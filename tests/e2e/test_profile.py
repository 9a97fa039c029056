# SPDX-License-Identifier: Apache-2.0
"""What time goes into: parts add up to operators and these to runs, and what bounds is what helps."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

import onedispatch as od
from onedispatch.dispatch.base.native import core
from onedispatch.dispatch.cli import app
from onedispatch.dispatch.runtime.device import DeviceSession
from onedispatch.dispatch.runtime.profile import BOUNDS, PARTS
from tests.e2e.test_recording import NETWORKS, feed, network

DIGITS = Path(__file__).parents[2] / "models" / "digits.onnx"

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("device", ["npu1", "npu2", "npu2_1col"])
def test_parts_add_up_to_operators_and_operators_to_the_run(name: str, device: str) -> None:
    report = od.compile(network(name), device=device, fallback="error").timing()
    profile = report.profile
    assert profile is not None
    assert all(sum(row.parts.values()) == row.cycles and row.ideal <= row.cycles for row in profile.rows)
    assert sum(profile.parts.values()) == sum(profile.bounds.values()) == profile.cycles == report.cycles
    rows = {row.name: row for row in profile.rows}
    assert all(rows[op.name].cycles == op.cycles and rows[op.name].nodes == op.nodes for op in report.ops)
    assert sum(row.read for row in profile.rows) == report.ddr_bytes_read
    assert sum(row.written for row in profile.rows) == report.ddr_bytes_written
    assert sum(row.bursts for row in profile.rows) == report.ddr_burst_bytes
    busy = sum(one.busy for one in report.cores)
    assert sum(row.busy for row in profile.rows) == busy
    assert sum(tile.busy for tile in profile.tiles if tile.tile == "core") == busy
    assert sum(kind.cycles for kind in profile.kinds()) == report.cycles
    (line,) = profile.timelines
    sums = {what: sum(map(sum, (column[what] for column in line.columns))) for what in line.columns[0]}
    assert sums == {"busy": busy, "read": report.ddr_bytes_read, "written": report.ddr_bytes_written}


def test_every_part_of_the_simulator_has_its_words() -> None:
    step = od.compile(network("image"), fallback="error").device_step
    session = DeviceSession(od.transactions.find_device("npu2"), profile=True)
    loaded = session.load(step)
    loaded.run(feed("image", 0))
    assert set(PARTS) == set(loaded.report().profile.parts) and len(BOUNDS) == 4


@pytest.mark.parametrize(
    "faster, gains",
    [("ddr.gigabytes_per_second", "memory"), ("controller.clock_mhz", "commands")],
)
def test_what_bounds_is_what_helps(faster: str, gains: str) -> None:
    """A machine that is faster at one thing spends less of the critical path there."""
    model = od.Graph()
    model.output(model.add_layer("Add", [model.input("a", (512, 1024)), model.input("b", (512, 1024))]), "y")
    compiled = od.compile(model, device="npu2")
    before = compiled.timing().profile
    assert before is not None and before.bound == "memory"
    session = DeviceSession(compiled.target, clock=True, profile=True)
    session.device.set_constant(faster, 4 * session.device.constants[faster])
    after = _timed(session, compiled).profile
    lost = {bound: before.bounds[bound] - after.bounds[bound] for bound in BOUNDS}
    assert max(lost, key=lambda bound: lost[bound]) == gains
    assert after.cycles < before.cycles


def _timed(session: DeviceSession, compiled: od.CompiledModel) -> Any:
    from onedispatch.dispatch.runtime.device import TimedStep

    return TimedStep(session, compiled.device_step).report()


def test_a_run_says_what_its_time_went_into_when_it_is_asked() -> None:
    session = od.InferenceSession(network("image"), fallback="error")
    for _ in range(3):  # on the engine, recorded, played
        session.run(None, feed("image", 0))
        report = session.last_run
        assert report is not None
        unasked = pickle.loads(pickle.dumps(report))
        assert unasked.profile is None and unasked.cycles == report.cycles
        assert report.profile == session.model.timing().profile
        assert pickle.loads(pickle.dumps(report)).profile == copy.deepcopy(report).profile == report.profile


def test_a_profiled_run_is_the_engines_and_takes_the_same_modelled_time() -> None:
    step = od.compile(network("image"), fallback="error").device_step
    reports = []
    for profile in (False, True):
        session = DeviceSession(od.transactions.find_device("npu2"), record="on", profile=profile)
        loaded = session.load(step)
        for _ in range(2):
            loaded.run(feed("image", 0))
        reports.append(loaded.report())
    assert reports[0].cycles == reports[1].cycles and reports[0].channels == reports[1].channels
    assert reports[1].recorded == ("the run is profiled",)


def test_dispatches_follow_each_other_on_one_clock(tmp_path: Path) -> None:
    """Nodes on the host cut a model into dispatches; their profiles are one after the other."""
    graph = od.Graph()
    x = graph.input("x", (8, 64))
    cubes = graph.add_layer("Reshape", [graph.add_layer("Relu", [x]), np.array([8, 8, 8])])
    middle = graph.add_layer("Det", [cubes])
    graph.output(graph.add_layer("Relu", [graph.add_layer("Add", [middle, middle])]), "y")
    session = od.InferenceSession(graph)
    session.run(None, {"x": np.ones((8, 64), np.float32)})
    report = session.last_run
    assert report is not None and report.profile is not None
    starts = [row.start for row in report.profile.rows]
    assert starts == sorted(starts) and report.profile.cycles == report.cycles
    assert {row.dispatch for row in report.profile.rows} == {0, 1}


def test_a_run_on_the_host_alone_has_no_profile() -> None:
    graph = od.Graph()
    graph.output(graph.add_layer("Det", [graph.input("x", (8, 8))]), "y")
    session = od.InferenceSession(graph)
    session.run(None, {"x": np.eye(8, dtype=np.float32)})
    assert session.last_run is not None and session.last_run.profile is None
    profile = session.model.timing().profile
    assert profile is None or profile.rows == ()


def test_the_device_refuses_nothing_and_says_nothing_unless_asked() -> None:
    device = core.device(0, "npu2")
    device.set_profile(False)
    step = od.compile(network("image"), fallback="error").device_step
    loaded = DeviceSession(od.transactions.find_device("npu2")).load(step)
    loaded.run(feed("image", 0))
    assert loaded.report().profile is None


QUANTISED = """<ir_version: 8, opset_import: ["": 17]> g (float[1,3,8,8] x) => (float[1,5,6,6] y)
<float s={0.05}, int8 z={0}>
{
 [qx] q = QuantizeLinear(x, s, z)
 [dx] a = DequantizeLinear(q, s, z)
 [dw] b = DequantizeLinear(w, s, z)
 [conv] c = Conv(a, b)
 [qy] r = QuantizeLinear(c, s, z)
 [dy] y = DequantizeLinear(r, s, z)
}"""


def quantised() -> onnx.ModelProto:
    """A convolution of int8, between QuantizeLinear and DequantizeLinear."""
    model = onnx.parser.parse_model(QUANTISED)
    weights = np.random.default_rng(3).integers(-9, 9, (5, 3, 3, 3)).astype(np.int8)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    return model


CONVS_OF_DIGITS = 64 * 16 * 9 + 16 * 32 * 16 * 9
PRODUCTS = [(quantised(), (1, 3, 8, 8), 36 * 5 * 27), (DIGITS, (1, 1, 8, 8), CONVS_OF_DIGITS + 128 * 10)]


@pytest.mark.parametrize(("model", "shape", "macs"), PRODUCTS, ids=["quantised", "digits"])
def test_products_are_counted_wherever_a_profile_is_from(
    model: Any, shape: tuple[int, ...], macs: int, tmp_path: Path
) -> None:
    name = od.compile(model).inputs[0].name
    compiled = od.compile(model, shapes={name: shape}, fallback="error")
    compiled.save(tmp_path / "m.od")
    session = od.InferenceSession(compiled)
    session.run(None, {name: np.ones(shape, np.float32)})
    assert session.last_run is not None
    for report in (compiled.timing(), od.load(tmp_path / "m.od").timing(), session.last_run):
        profile = report.profile
        assert profile is not None and profile.macs == macs
        assert profile.tops == profile.as_dict()["tops"] == pytest.approx(2e-12 * macs / report.seconds)


def test_the_command_counts_products_of_integers_and_of_saved_models(tmp_path: Path) -> None:
    onnx.save(quantised(), tmp_path / "q.onnx")
    od.compile(quantised()).save(tmp_path / "q.od")
    for file in ("q.onnx", "q.od"):
        result = CliRunner().invoke(app, ["profile", str(tmp_path / file)])
        assert result.exit_code == 0 and "\nproducts: 0.0" in result.stdout, result.output
