# SPDX-License-Identifier: Apache-2.0
"""A clock without data says what runs of whole models cost, and nothing else happens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from typer.testing import CliRunner

import onedispatch as od
from onedispatch.dispatch.base.native import core
from onedispatch.dispatch.cli.commands import app
from onedispatch.dispatch.runtime.device import DeviceSession, TimedStep
from onedispatch.transactions import find_device
from tests.e2e.test_recording import NETWORKS, feed, network
from tests.host_nodes import on_host
from tests.timing import modelled

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")

pytestmark = pytest.mark.usefixtures("no_plugins")

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def model_of(nodes: list[onnx.NodeProto], inputs: list[Any], shape: list[int | str]) -> onnx.ModelProto:
    result = helper.make_tensor_value_info("y", FLOAT, shape)
    graph = helper.make_graph(nodes, "g", inputs, [result])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def open_relu() -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", FLOAT, ["N", 8])
    return model_of([helper.make_node("Relu", ["x"], ["y"])], [x], ["N", 8])


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("device", ["npu1", "npu2", "npu2_1col"])
def test_timing_is_that_of_a_run(name: str, device: str) -> None:
    session = od.InferenceSession(network(name), device=device, fallback="error", record=False)
    session.run(None, feed(name, 0))
    timing = session.model.timing()
    assert modelled(timing) == modelled(session.last_run)
    assert timing.recorded == ("timed",) and sum(one.stall for one in timing.channels) > 0


def test_a_clock_needs_nothing_but_what_decides_and_writes_nothing() -> None:
    step = od.compile(network("image"), fallback="error").device_step
    session = DeviceSession(find_device("npu2"), clock=True)
    timed = TimedStep(session, step)
    first = timed.report()
    buffers = timed._arguments[3:]
    assert [np.frombuffer(one.map(), np.uint8).any() for one in buffers] == [False] * 4 + [True]
    assert timed.report() == first


def test_timing_again_says_the_same_whatever_was_timed_between() -> None:
    names = list(NETWORKS)[:3]  # more than are kept
    models = [od.compile(network(name), fallback="error") for name in names]
    first = [modelled(model.timing()) for model in models]
    assert [modelled(model.timing()) for model in [*models, *models]] == first * 2
    assert [modelled(models[-1].timing()) for _ in range(2)] == first[-1:] * 2


def test_packets_that_were_not_given_are_named() -> None:
    step = od.compile(network("parts"), fallback="error").device_step
    session = DeviceSession(find_device("npu2"), clock=True)
    timed = TimedStep(session, step)
    timed._arguments = (*timed._arguments[:-1], core.bo(session.device, step.sizes[-1]))
    with pytest.raises(od.SimulationError, match="kernel argument 4, which a clock without data") as error:
        timed.report()
    assert error.value.kind == "clock"


def test_open_shapes_are_asked_for() -> None:
    compiled = od.compile(open_relu())
    with pytest.raises(od.InputError, match=r"timing.*nothing yet of x.*Give shapes="):
        compiled.timing()
    for size in (3, 300):
        session = od.InferenceSession(compiled, record=False)
        session.run(None, {"x": np.zeros((size, 8), np.float32)})
        assert modelled(compiled.timing({"x": (size, 8)})) == modelled(session.last_run)
        assert modelled(session.model.timing()) == modelled(session.last_run)
    with pytest.raises(od.InputError):
        compiled.timing({"x": (3, 9)})


def test_values_that_decide_shapes_are_asked_for() -> None:
    inputs = [helper.make_tensor_value_info("x", FLOAT, [12]), helper.make_tensor_value_info("k", INT64, [2])]
    nodes = [helper.make_node("Reshape", ["x", "k"], ["r"]), helper.make_node("Softmax", ["r"], ["y"])]
    compiled = od.compile(model_of(nodes, inputs, ["a", "b"]))
    with pytest.raises(od.InputError, match="Run it once, and time the session's model"):
        compiled.timing()
    with pytest.raises(od.InputError, match="depend on values of k"):
        compiled.timing({"x": (12,), "k": (2,)})
    session = od.InferenceSession(compiled, record=False)
    session.run(None, {"x": np.zeros(12, np.float32), "k": np.int64([3, 4])})
    assert modelled(session.model.timing()) == modelled(session.last_run)


def test_nodes_on_the_host_take_no_time() -> None:
    x = helper.make_tensor_value_info("x", FLOAT, [4, 8])
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        *on_host("a", "b"),
        helper.make_node("Exp", ["b"], ["y"]),
    ]
    session = od.InferenceSession(model_of(nodes, [x], [4, 8]), record=False)
    session.run(None, {"x": np.ones((4, 8), np.float32)})
    timing = session.model.timing()
    assert timing.dispatches == 2 and [one.dispatch for one in timing.ops] == [0, 1]
    assert {one.dispatch for one in timing.channels} == {0, 1}
    assert modelled(timing) == modelled(session.last_run)
    assert timing.host_seconds == 0.0


def test_kernels_are_not_called() -> None:
    @od.kernel("test_timing::never", inputs="x", outputs="y")
    class Never:
        def infer(self, n: Any) -> Any:
            return {"y": n["x"].like()}

        def index_space(self, n: Any) -> Any:
            return n["x"].shape

        def access(self, n: Any) -> Any:
            return n.elementwise("x", "y")

        def body(self, t: Any) -> None:
            called.append(1)
            t.y[:] = t.x

    called: list[int] = []
    od.maps("Never", domain="test_timing")(Never)
    x = helper.make_tensor_value_info("x", FLOAT, [4, 8])
    proto = model_of([helper.make_node("Never", ["x"], ["y"], domain="test_timing")], [x], [4, 8])
    proto.opset_import.append(helper.make_opsetid("test_timing", 1))
    session = od.InferenceSession(proto, fallback="error", record=False)
    called.clear()
    timing = session.model.timing()
    assert not called
    session.run(None, {"x": np.ones((4, 8), np.float32)})
    assert called and modelled(timing) == modelled(session.last_run)


def test_wrong_transactions_are_refused() -> None:
    compiled = od.compile(network("parts"), fallback="error")
    with pytest.raises(od.TransactionError):
        compiled.with_transaction(compiled.transaction[:-4]).timing()


def test_the_command_asks_about_any_device(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(open_relu(), path)
    cycles = {}
    for device in ("npu1_1col", "npu2"):
        shape = ["--shape", "x=20000,8", "--device", device]
        result = CliRunner().invoke(app, ["time", str(path), *shape, "--json"], catch_exceptions=False)
        parsed = json.loads(result.stdout)
        cycles[parsed["device"]] = parsed["report"]["cycles"]
        text = CliRunner().invoke(app, ["time", str(path), *shape], catch_exceptions=False).stdout
        assert f"({cycles[device]:,} cycles)" in text and "DMA stalls" in text and "cores compute" in text
    assert cycles["npu1_1col"] > cycles["npu2"]
