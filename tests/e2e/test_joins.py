# SPDX-License-Identifier: Apache-2.0
"""Kernel calls of a recorded run that one call makes instead: how many are left, and the same bits."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

import onedispatch as od
from onedispatch.dispatch.runtime import device
from onedispatch.transactions import find_device
from tests.e2e.join_cases import CASES, Array, Case
from tests.ops.case import run_onnxruntime

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")

THREADS = (1, 2, 3, 7)


def bits(results: list[Array]) -> list[bytes]:
    return [result.tobytes() for result in results]


@pytest.fixture
def reports(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the simulator says of each run."""
    seen: list[dict[str, Any]] = []
    make = device._report

    def report(raw: Any, *rest: Any) -> Any:
        seen.append(dict(raw))
        return make(raw, *rest)

    monkeypatch.setattr(device, "_report", report)
    return seen


@pytest.mark.daily(3)
@pytest.mark.parametrize("name", CASES)
def test_joined_calls_are_few_and_leave_the_bits_of_the_engine(
    name: str, reports: list[dict[str, Any]]
) -> None:
    case = CASES[name]
    compiled = od.compile(case.model(), fallback="error", precision=case.precision)
    engine = od.InferenceSession(compiled, threads=1, record=False)
    expected = [bits(engine.run(None, case.feed(seed))) for seed in range(4)]
    for threads in THREADS:
        session = od.InferenceSession(compiled, threads=threads, record=True)
        for seed in range(4):
            results = session.run(None, case.feed(seed))
            assert bits(results) == expected[seed]
        assert session.last_run is not None  # which makes the report
        last = reports[-1]
        assert last["recorded"] == "played"
        assert last["calls_made"] <= case.most < last["kernel_calls"]
    for result, wanted in zip(results, run_onnxruntime(case.model(), case.feed(3)), strict=True):
        if wanted.dtype.kind == "f":
            near = 2e-3 if case.precision == "fp32" else 2e-2 * float(np.abs(wanted).max())
            np.testing.assert_allclose(
                result.astype(np.float32), wanted.astype(np.float32), rtol=2e-3, atol=near
            )
        else:
            np.testing.assert_array_equal(result, wanted)


@pytest.mark.parametrize("threads", THREADS)
def test_indices_out_of_range_fail_as_on_the_engine(threads: int) -> None:
    """In a call that was joined over steps and tiles; what came before it is made by the engine again."""
    case = CASES["take"]
    compiled = od.compile(case.model(), fallback="error")
    recording, engine = (od.InferenceSession(compiled, threads=threads, record=on) for on in (True, False))
    for seed in range(3):
        recording.run(None, case.feed(seed))
    feed = case.feed(9)
    feed["i"][[3, 70]] = 30011, -30012
    texts = []
    for session in (recording, engine):
        with pytest.raises(od.OneDispatchError) as caught:
            session.run(None, feed)
        texts.append(str(caught.value))
    assert texts[0] == texts[1]
    feed = case.feed(9)
    feed["i"][:2] = -30011, 30010
    for session in (recording, engine):
        assert np.array_equal(session.run(None, feed)[0], feed["x"][feed["i"]])


def quantised(function: str, y_zero: int) -> onnx.ModelProto:
    """A convolution of bytes in many tiles of output channels, and what becomes of its results."""
    proto: onnx.ModelProto = parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 17]>
        g (uint8[1, 64, 14, 14] x) => (uint8[1, 256, 14, 14] y)
        {{ q = QLinearConv(x, xs, xz, w, ws, wz, ys, yz) {function} }}""")
    rng = np.random.default_rng(5)
    values = {"xs": np.float32(0.05), "ws": np.float32(0.03), "ys": np.float32(0.07), "xz": np.uint8(0)}
    values |= {"wz": np.int8(0), "yz": np.uint8(y_zero), "w": rng.integers(-9, 9, (256, 64, 1, 1), np.int8)}
    for name, value in values.items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(value), name))
    return proto


def both_ways(model: onnx.ModelProto, target: str = "npu2") -> tuple[device.LoadedStep, device.LoadedStep]:
    """The model's step with its runs recorded, and by the engine alone."""
    step = od.compile(model, target, fallback="error").device_step
    sessions = (device.DeviceSession(find_device(target), threads=1, record=on) for on in ("on", "off"))
    recording, engine = (device.LoadedStep(session, step) for session in sessions)
    return recording, engine


@pytest.mark.parametrize("own", ["zero point", "table"])
def test_each_tile_has_its_own(own: str, reports: list[dict[str, Any]]) -> None:
    """Tiles of output channels, whose constants lie apart, are joined: each reads its own."""
    function = "y = Identity(q)"
    if own == "table":
        function = "d = DequantizeLinear(q, ys, yz) f = Sigmoid(d) y = QuantizeLinear(f, ws, xz)"
    feed = {"x": np.random.default_rng(6).integers(0, 255, (1, 64, 14, 14), np.uint8)}
    recording, engine = both_ways(quantised(function, 77))
    for _ in range(3):
        before = recording.run(feed)["y"].copy()
    assert recording.report().recorded == ("played",)
    assert 2 * reports[-1]["calls_made"] < reports[-1]["kernel_calls"]
    buffers = [np.frombuffer(loaded._arguments[6].map(), np.uint32) for loaded in (recording, engine)]
    places = np.flatnonzero(buffers[0] == 77)
    if own == "table":  # whose entries never fall
        rows = np.lib.stride_tricks.sliding_window_view(buffers[0].view(np.uint8), 256)[::4]
        places = np.flatnonzero(
            (np.diff(rows.astype(np.int16), axis=1) >= 0).all(1) & (rows[:, 0] < rows[:, -1])
        )
    assert len(places) > 2
    for place in places[1:]:  # the last step of a tile reads it, earlier ones have it beside them
        for words in buffers:
            words[place] = 99
        after = recording.run(feed)["y"]
        assert recording.report().recorded == ("played",)
        assert np.array_equal(after, engine.run(feed)["y"])
        if not np.array_equal(after, before):
            break
    assert 0 < np.count_nonzero(after != before) < after.size / 2


PRODUCTS = {  # rows, members, columns; tiles have 32 columns and a last step that is not full, or 44 columns
    "panels together": (128, 3072, 768),
    "panels by themselves": (32, 512, 1376),
}


@pytest.mark.daily(2)
@pytest.mark.parametrize("own", ["a_zero", "b_zero", "scale", "out_zero"])
@pytest.mark.parametrize("product", PRODUCTS)
def test_each_panel_of_a_product_has_its_own(product: str, own: str, reports: list[dict[str, Any]]) -> None:
    """Panels of columns and steps bring zero points and scales with them, of which one changes."""
    rows, members, columns = PRODUCTS[product]
    proto: onnx.ModelProto = parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 17]>
        g (uint8[{rows}, {members}] x) => (uint8[{rows}, {columns}] y)
        {{ y = QLinearMatMul(x, xs, xz, w, ws, wz, ys, yz) }}""")
    rng = np.random.default_rng(5)
    scales = {"xs": np.float32(0.05), "ws": np.float32(0.03), "ys": np.float32(4)}
    zeros = {"xz": np.uint8(111), "wz": np.uint8(113), "yz": np.uint8(131)}
    for name, value in {**scales, **zeros, "w": rng.integers(0, 256, (members, columns), np.uint8)}.items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(value), name))
    feed = {"x": rng.integers(0, 256, (rows, members), np.uint8)}
    recording, engine = both_ways(proto)
    for _ in range(3):
        before = recording.run(feed)["y"].copy()
    assert recording.report().recorded == ("played",)
    assert 4 * reports[-1]["calls_made"] < reports[-1]["kernel_calls"]
    buffers = [np.frombuffer(loaded._arguments[6].map(), np.uint32) for loaded in (recording, engine)]
    scale = (scales["xs"] * scales["ws"] / scales["ys"]).view(np.uint32)
    word = {"a_zero": 111, "b_zero": 113, "out_zero": 131, "scale": scale}[own]
    places = np.flatnonzero(buffers[0] == word)
    changed = 0
    for place in rng.permutation(places)[:96]:
        for words in buffers:
            words[place] = np.float32(0.001).view(np.uint32) if own == "scale" else 77
        after = recording.run(feed)["y"]
        assert recording.report().recorded == ("played",)
        assert np.array_equal(after, engine.run(feed)["y"])
        changed += 0 < np.count_nonzero(after != before) < after.size / 2
        for words in buffers:
            words[place] = word
    assert changed >= 2


def test_what_two_tiles_write_is_from_the_later_one(reports: list[dict[str, Any]]) -> None:
    """The last tile of channels is shifted back onto others, with constants of its own: one changes."""
    case = Case(
        "float[1, 1, 4, 37] x",
        "float[1, 49, 4, 39] y",
        "y = Conv<kernel_shape = [1, 3], pads = [0, 2, 0, 2]>(x, w, b)",
        20,
        (("w", (49, 1, 1, 3)), ("b", (49,))),
    )
    recording, engine = both_ways(case.model(), "npu1")
    for seed in range(3):
        before = recording.run(case.feed(seed))["y"].copy()
    assert recording.report().recorded == ("played",)
    assert reports[-1]["calls_made"] < reports[-1]["kernel_calls"]
    both = [np.frombuffer(one._arguments[6].map(), np.float32) for one in (recording, engine)]
    constants = both[0].copy()
    unlike = 0
    for place in np.flatnonzero(constants):
        for words in both:
            words[place] += 1
        after, expected = (one.run(case.feed(2))["y"] for one in (recording, engine))
        assert recording.report().recorded == ("played",)
        assert np.array_equal(after, expected)
        unlike += not np.array_equal(after, before)
        for words in both:
            words[place] = constants[place]
    assert unlike >= 4 * 49


def played(
    model: onnx.ModelProto, groups: str, feed: dict[str, Array], reports: list[dict[str, Any]]
) -> tuple[dict[str, Any], Array]:
    """The report and the result of the third run of a session, which plays its recording."""
    session = od.InferenceSession(model, "npu2", fallback="error", groups=groups, record="on", threads=1)
    for _ in range(3):
        (result,) = session.run(None, feed)
    assert session.last_run is not None and session.last_run.recorded == ("played",)
    return reports[-1], result


def test_what_stays_on_the_chip_shares_memory_in_a_recording(reports: list[dict[str, Any]]) -> None:
    """Of twelve tensors in a chain no more than three have memory at once."""
    nodes = " ".join(f"{b} = Conv({a}, w)" for a, b in pairwise(["x", *(f"t{i}" for i in range(12)), "y"]))
    case = Case("float[1, 32, 32, 32] x", "float[1, 32, 32, 32] y", nodes, 0, (("w", (32, 32, 1, 1)),))
    on, off = (played(case.model(), groups, case.feed(0), reports) for groups in ("on", "off"))
    assert 0 < on[0]["kept_bytes"] <= 3 * 4 * 32**3
    assert off[0]["kept_bytes"] == 0
    assert on[1].any() and bits([on[1]]) == bits([off[1]])


def test_sums_of_bytes_that_stay_on_the_chip_are_joined(reports: list[dict[str, Any]]) -> None:
    """No more calls are left than where the tensors pass device memory."""
    model = parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 18, "com.microsoft" : 1]>
        g (uint8[1, 64, 32, 32] x) => (uint8[1, 64, 32, 32] y) {
            a = QLinearConv(x, s, z, w, s, k, s, z)
            b = QLinearConv(a, s, z, w, s, k, s, z)
            c = com.microsoft.QLinearAdd(a, s, z, b, s, z, s, z)
            y = QLinearConv(c, s, z, w, s, k, s, z) }"""
    )
    rng = np.random.default_rng(3)
    values = {
        "s": np.float32(0.05),
        "z": np.uint8(128),
        "k": np.int8(0),
        "w": rng.integers(-9, 10, (64, 64, 1, 1)),
    }
    for name, value in values.items():
        array = np.asarray(value).astype(np.int8) if name == "w" else np.asarray(value)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    feed = {"x": rng.integers(0, 256, (1, 64, 32, 32)).astype(np.uint8)}
    (on, result), (off, plain) = (played(model, groups, feed, reports) for groups in ("on", "off"))
    assert on["kept_bytes"] > 0 and result.std() > 0 and bits([result]) == bits([plain])
    assert on["calls_made"] <= off["calls_made"] < off["kernel_calls"] / 8
