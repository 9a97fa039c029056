# SPDX-License-Identifier: Apache-2.0
"""Runs that come again are made from a recording: the same words and cycles as on the engine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

import onedispatch as od
from onedispatch.dispatch.runtime.device import DeviceSession, LoadedStep
from onedispatch.transactions import find_device
from tests.ops.case import run_onnxruntime

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")

Array = np.ndarray[Any, Any]

NETWORKS = {
    "image": """
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[1, 3, 20, 20] x) => (float[1, 10] y)
        <float[8, 3, 3, 3] w1, float[8] b1, float[8, 1, 3, 3] w2, float[16, 8, 1, 1] w3, float[16, 10] w4>
        {
            c = Conv<pads = [1, 1, 1, 1]>(x, w1, b1)
            r = Relu(c)
            d = Conv<group = 8, pads = [1, 1, 1, 1], strides = [2, 2]>(r, w2)
            e = Conv(d, w3)
            s = Sigmoid(e)
            m = Mul(e, s)
            p = GlobalAveragePool(m)
            f = Flatten(p)
            g = MatMul(f, w4)
            y = Softmax(g)
        }""",
    "classes": """
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[1, 256, 9, 9] x) => (float[1, 250, 1, 1] y)
        <float[250, 256, 1, 1] w, float[250] b>
        {
            c = Conv(x, w, b)
            y = GlobalAveragePool(c)
        }""",
    "text": """
        <ir_version: 8, opset_import: ["" : 17]>
        g (int64[2, 12] ids) => (float[2, 12, 32] y)
        <float[50, 32] table, float[32, 32] q, float[32, 32] k, float[32] one, float[32] zero>
        {
            x = Gather(table, ids)
            a = MatMul(x, q)
            b = MatMul(x, k)
            t = Transpose<perm = [0, 2, 1]>(b)
            s = MatMul(a, t)
            p = Softmax(s)
            v = MatMul(p, x)
            r = Add(v, x)
            y = LayerNormalization(r, one, zero)
        }""",
    "parts": """
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[3, 7, 33] x) => (float[3, 14, 33] y, float[3, 7] m)
        {
            z = Neg(x)
            y = Concat<axis = 1>(z, x)
            m = ReduceMax<axes = [2], keepdims = 0>(x)
        }""",
}


def network(name: str) -> onnx.ModelProto:
    """The network, whose constants are inputs in its text."""
    proto: onnx.ModelProto = parser.parse_model(NETWORKS[name])
    rng = np.random.default_rng(5)
    for value in proto.graph.value_info:
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        proto.graph.initializer.append(
            onnx.numpy_helper.from_array(rng.standard_normal(shape, np.float32) / 3, value.name)
        )
    del proto.graph.value_info[:]
    return proto


def feed(name: str, seed: int) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    if name == "text":
        return {"ids": rng.integers(0, 50, (2, 12))}
    shape = {"image": (1, 3, 20, 20), "classes": (1, 256, 9, 9), "parts": (3, 7, 33)}[name]
    return {"x": rng.standard_normal(shape, np.float32)}


@pytest.fixture(scope="module", params=NETWORKS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def compiled(name: str) -> Any:
    return od.compile(network(name), fallback="error")


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_played_runs_are_those_of_the_engine(compiled: Any, name: str, threads: int) -> None:
    recording = od.InferenceSession(compiled, threads=threads, record=True)
    engine = od.InferenceSession(compiled, threads=1, record=False)
    states = []
    for seed in range(5):
        results = recording.run(None, feed(name, seed))
        expected = engine.run(None, feed(name, seed))
        for result, wanted in zip(results, expected, strict=True):
            assert np.array_equal(result.view(np.uint8), wanted.view(np.uint8))
        for result, wanted in zip(results, run_onnxruntime(network(name), feed(name, seed)), strict=True):
            np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-5)
        ours, theirs = recording.last_run, engine.last_run
        assert ours is not None and theirs is not None
        assert (ours.cycles, ours.ddr_bytes_read, [op.cycles for op in ours.ops]) == (
            theirs.cycles,
            theirs.ddr_bytes_read,
            [op.cycles for op in theirs.ops],
        )
        assert theirs.recorded == ("recording is off",)
        states += ours.recorded
    assert states[1:] == ["recorded", "played", "played", "played"]


def test_values_that_are_no_numbers_pass_as_on_the_engine(compiled: Any, name: str) -> None:
    if name == "text":
        pytest.skip("its input is whole numbers")
    recording, engine = (od.InferenceSession(compiled, record=record) for record in (True, False))
    for seed in range(4):
        (key, x), *_ = feed(name, seed).items()
        x.flat[:6] = [np.nan, np.inf, -np.inf, -0.0, 1e-42, 3e38]
        results, expected = recording.run(None, {key: x}), engine.run(None, {key: x})
        assert any(np.isnan(result).any() for result in results)
        for result, wanted in zip(results, expected, strict=True):
            assert np.array_equal(result.view(np.uint8), wanted.view(np.uint8))


def test_verified_runs_say_so(compiled: Any, name: str) -> None:
    session = od.InferenceSession(compiled, record="verify")
    for seed in range(3):
        session.run(None, feed(name, seed))
        assert session.last_run is not None and session.last_run.recorded == ("verified",)


def test_the_environment_is_the_default(compiled: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONEDISPATCH_RECORD", "off")
    session = od.InferenceSession(compiled)
    session.run(None, feed(name, 0))
    assert session.last_run is not None and session.last_run.recorded == ("recording is off",)
    monkeypatch.setenv("ONEDISPATCH_RECORD", "perhaps")
    with pytest.raises(od.InputError, match=r"ONEDISPATCH_RECORD.*perhaps.*verify"):
        od.InferenceSession(compiled)


@pytest.mark.parametrize("record", ["maybe", 2, 0.5])
def test_other_modes_are_refused(compiled: Any, record: Any) -> None:
    with pytest.raises(od.InputError, match=r"record.*'on', 'off', 'verify'"):
        od.InferenceSession(compiled, record=record)


# -- what ends a recording -------------------------------------------------------------------------


class Bench:
    """A loaded step that has been recorded, whose buffers a test may spoil."""

    def __init__(self, record: str) -> None:
        session = od.InferenceSession(network("image"), fallback="error")
        session.run(None, feed("image", 0))
        _, executable = session.model.used_last()
        (self.step,) = executable.device_steps
        self.record = record
        self.loaded = self._loaded()
        for seed in range(3):
            self.loaded.run(feed("image", seed))

    def _loaded(self) -> LoadedStep:
        return DeviceSession(find_device("npu2"), threads=1, record=self.record).load(self.step)

    def outcome(self, loaded: LoadedStep) -> Any:
        try:
            (result,) = loaded.run(feed("image", 9)).values()
        except od.OneDispatchError as error:
            return type(error), str(error)
        return result.tobytes()


def words_of(buffer: Any) -> Array:
    image: Array = np.frombuffer(buffer.map(), np.uint8)
    return image[: image.size // 4 * 4].view(np.uint32)


def spoils() -> Iterator[Any]:
    """Argument of the kernel (instructions 1, constants 6, parameters 7), which word of it, what changes."""
    rng = np.random.default_rng(17)
    for argument, count in ((1, 24), (6, 6), (7, 24)):
        for _ in range(count):
            yield argument, float(rng.random()), int(rng.integers(1, 1 << 32))


@pytest.fixture(scope="module")
def bench() -> Bench:
    made = Bench("on")
    (result,) = made.loaded.run(feed("image", 9)).values()
    assert made.loaded.report().recorded == ("played",)
    (wanted,) = run_onnxruntime(network("image"), feed("image", 9))
    np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-5)
    return made


@pytest.mark.parametrize(("argument", "place", "change"), list(spoils()))
def test_a_changed_word_counts_as_in_a_fresh_process(
    bench: Bench, argument: int, place: float, change: int
) -> None:
    """One word of instructions, constants or parameters changes between two runs."""
    fresh = Bench.__new__(Bench)
    fresh.step, fresh.record = bench.step, "off"
    outcomes = []
    for loaded in (bench.loaded, fresh._loaded()):
        words = words_of(loaded._arguments[argument])
        at = int(place * words.size)
        before = words[at].copy()
        words[at] ^= np.uint32(change)
        outcomes.append(bench.outcome(loaded))
        words[at] = before
    assert outcomes[0] == outcomes[1]
    assert bench.outcome(bench.loaded) == bench.outcome(fresh._loaded())


def test_errors_of_data_are_those_of_the_engine() -> None:
    """An index that a kernel refuses, in a run that would be played."""
    proto: onnx.ModelProto = parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[40, 8] table, int64[6] ids) => (float[6, 8] y) { y = Gather(table, ids) }""")
    table = np.random.default_rng(3).standard_normal((40, 8), np.float32)
    recording, engine = (od.InferenceSession(proto, fallback="error", record=on) for on in (True, False))
    for _ in range(3):
        recording.run(None, {"table": table, "ids": np.arange(6)})
    texts = []
    for session in (recording, engine):
        with pytest.raises(od.OneDispatchError) as caught:
            session.run(None, {"table": table, "ids": np.array([0, 1, 2, 3, 4, 99])})
        texts.append(str(caught.value))
    assert texts[0] == texts[1]
    ids = np.array([5, -1, 7, 0, 39, -40])
    assert np.array_equal(recording.run(None, {"table": table, "ids": ids})[0], table[ids])


def test_open_shapes_have_a_recording_each() -> None:
    proto: onnx.ModelProto = parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[N, 24] x) => (float[N, 24] y) { s = Sigmoid(x) y = Mul(x, s) }""")
    session = od.InferenceSession(proto, fallback="error", record=True)
    rng = np.random.default_rng(8)
    for _ in range(2):
        for rows in (3, 3, 3, 5, 5, 5):
            x = rng.standard_normal((rows, 24), np.float32)
            (y,) = session.run(None, {"x": x})
            np.testing.assert_allclose(y, x / (1 + np.exp(-x)), rtol=1e-5, atol=1e-6)
    assert session.last_run is not None and session.last_run.recorded == ("played",)


def test_models_of_several_runs_have_a_recording_of_each() -> None:
    """Between two nodes on the host, and with shapes that alternate: all in one context."""
    proto: onnx.ModelProto = parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[N, 5] x) => (float[N, 5] y)
        { r = Relu(x) w = Cast<to = 11>(r) h = Cast<to = 1>(w) n = Neg(h) y = Sub(n, h) }""")
    session = od.InferenceSession(proto, record=True)
    rng = np.random.default_rng(8)
    for turn in range(4):
        for rows in (2, 7):
            x = rng.standard_normal((rows, 5), np.float32)
            (y,) = session.run(None, {"x": x})
            assert np.array_equal(y, -2 * np.maximum(x, 0))
            assert session.last_run is not None and len(session.last_run.recorded) == 2
            if turn > 1:
                assert session.last_run.recorded == ("played", "played")
