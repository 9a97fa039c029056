# SPDX-License-Identifier: Apache-2.0
"""Sessions end to end: answers, names, errors, shapes on first sight, fallback, files."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from typer.testing import CliRunner

import onedispatch as od
from onedispatch.dispatch.cli import app
from tests.host_nodes import on_host

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")

Array = np.ndarray[Any, Any]
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def model_of(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, Sequence[int | str]],
    outputs: Sequence[str],
    kinds: dict[str, int] | None = None,
    **weights: Array,
) -> onnx.ModelProto:
    kinds = kinds or {}
    ins = [helper.make_tensor_value_info(n, kinds.get(n, FLOAT), s) for n, s in inputs.items()]
    outs = [helper.make_empty_tensor_value_info(n) for n in outputs]
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "g", ins, outs, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def node(op: str, reads: str, writes: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(op, reads.split(), writes.split(), name=op.lower(), **attributes)


def perceptron(batch: int | str = 4, *, last: str = "Softmax") -> onnx.ModelProto:
    rng = np.random.default_rng(5)
    return model_of(
        [
            node("Gemm", "x w b", "h"),
            node("Relu", "h", "r"),
            node("MatMul", "r v", "z"),
            node(last, "z", "y"),
        ],
        {"x": [batch, 20]},
        ["y"],
        w=rng.standard_normal((20, 33), np.float32),
        b=rng.standard_normal(33, np.float32),
        v=rng.standard_normal((33, 7), np.float32),
    )


def reference(model: onnx.ModelProto, feed: dict[str, Array]) -> list[Array]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, feed))


def check(model: onnx.ModelProto, feed: dict[str, Array], **options: Any) -> od.InferenceSession:
    session = od.InferenceSession(model, **options)
    for mine, theirs in zip(session.run(None, feed), reference(model, feed), strict=True):
        assert mine.dtype == theirs.dtype and mine.shape == theirs.shape
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)
    return session


@pytest.fixture
def x(rng: np.random.Generator) -> Array:
    return rng.standard_normal((4, 20), np.float32)


@pytest.mark.parametrize("device", ["npu1", "npu2", "npu2_1col", "strix"])
def test_one_dispatch_and_the_right_answer(device: str, x: Array) -> None:
    session = check(perceptron(), {"x": x}, device=device, fallback="error")
    report = session.last_run
    assert report is not None and report.dispatches == 1
    assert report.cycles > 0 and report.seconds > 0 and report.host_seconds == 0
    assert report.ddr_bytes_read >= x.nbytes and report.ddr_bytes_written >= 4 * 7 * 4
    assert {p.device for p in session.placement} == {"npu"}
    assert report.ops and all(op.cycles > 0 for op in report.ops)
    assert sum(op.cycles for op in report.ops) <= report.cycles
    assert "cycles" in str(report) and report.ops[0].name in str(report)


def test_names_shapes_and_types() -> None:
    session = od.InferenceSession(perceptron("N"))
    (given,), (made,) = session.get_inputs(), session.get_outputs()
    assert (given.name, given.shape, given.type) == ("x", ["N", 20], "tensor(float)")
    assert made.name == "y"


def test_outputs_by_name(x: Array) -> None:
    model = model_of([node("Relu", "x", "a"), node("Tanh", "x", "b")], {"x": [4, 20]}, ["a", "b"])
    session = od.InferenceSession(model)
    a, b = session.run(None, {"x": x})
    (only,) = session.run(["b"], {"x": x})
    np.testing.assert_array_equal(only, b)
    swapped = session.run(["b", "a"], {"x": x})
    np.testing.assert_array_equal(swapped[1], a)
    with pytest.raises(od.InputError, match="output_names"):
        session.run(["c"], {"x": x})


@pytest.mark.parametrize(
    ("feed", "text"),
    [
        ({}, "no 'x'"),
        ({"z": np.zeros((4, 20), np.float32)}, "unknown 'z'"),
        ({"x": np.zeros((4, 20), np.float64)}, "float64"),
        ({"x": np.zeros((4, 21), np.float32)}, r"\[4, 21\]"),
        ({"x": np.zeros((4, 20, 1), np.float32)}, r"\[4, 20, 1\]"),
        ({"x": [[0.0] * 20, [0.0]]}, "a list: ValueError"),
        ({"x": ((0.0,) * 20,) * 4}, "tuple"),
        ([1], "list"),
    ],
)
def test_wrong_inputs(feed: Any, text: str, x: Array) -> None:
    session = od.InferenceSession(perceptron())
    with pytest.raises(od.InputError, match=text):
        session.run(None, feed)
    session.run(None, {"x": x})  # and the session goes on


def test_inputs_are_checked_in_every_run(x: Array) -> None:
    """A feed like the last one is not checked again; one that differs in anything is."""
    model = model_of([node("Add", "a b", "y")], {"a": ["N", 20], "b": ["N", 20]}, ["y"])
    session = od.InferenceSession(model, fallback="error")
    good = {"a": x, "b": x}
    wide = np.zeros((4, 40), np.float32)
    for bad in (
        {"a": x},
        {"a": x, "c": x},
        {**good, "c": x},
        {**good, "b": x.astype(np.float64)},
        {**good, "b": x.astype(">f4")},
        {**good, "b": x[:, :19].copy()},
        {**good, "b": tuple(x.tolist())},
        [("a", x), ("b", x)],
    ):
        np.testing.assert_array_equal(session.run(None, good)[0], x + x)
        with pytest.raises(od.InputError):
            session.run(None, bad)
    for b in (wide[:, ::2], x[::-1], np.asfortranarray(x), x.view(np.matrix), x[:2], x):
        a = np.ones(b.shape, np.float32)
        (y,) = session.run(None, {"b": b, "a": a})
        np.testing.assert_array_equal(y, a + np.asarray(b))
    report = session.last_run
    assert report is not None and report is session.last_run and report.wall_seconds > 0


def test_a_run_of_a_small_network_costs_few_calls() -> None:
    """Of Python functions and of functions in C; the simulator takes as long as about 150 of them."""
    model = model_of([node("Add", "a b", "y")], {"a": [1], "b": [1]}, ["y"])
    session = od.InferenceSession(model, fallback="error")
    one = np.ones(1, np.float32)
    feed = {"a": one, "b": one}
    session.run(None, feed)
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        session.run(None, feed)
    finally:
        sys.setprofile(None)
    assert calls < 90


def test_options_are_checked() -> None:
    for options, error in (
        ({"device": "npu9"}, od.DeviceError),
        ({"precision": "bfloat16"}, od.InputError),
        ({"precision": "fp7"}, od.InputError),
        ({"fallback": "gpu"}, od.InputError),
        ({"threads": 0}, od.InputError),
    ):
        with pytest.raises(error):
            od.InferenceSession(perceptron(), **options)  # type: ignore[arg-type]


def test_non_contiguous_inputs(x: Array) -> None:
    check(perceptron(), {"x": np.asfortranarray(x)})
    check(perceptron(2), {"x": x[::2]})


def test_symbolic_batches_compile_on_first_sight(rng: np.random.Generator) -> None:
    session = od.InferenceSession(perceptron("N"), fallback="error", cache_size=2)
    model = perceptron("N")
    for batch in (1, 37, 4, 1):
        feed = {"x": rng.standard_normal((batch, 20), np.float32)}
        np.testing.assert_allclose(
            session.run(None, feed)[0], reference(model, feed)[0], rtol=1e-4, atol=1e-6
        )
        assert session.last_run is not None and session.last_run.dispatches == 1
    assert len(session.model.executables) == 2


def named_alike() -> onnx.ModelProto:
    """Three dimensions called "?", as exports of OCR models have them; numbers among them."""
    return model_of(
        [node("Conv", "x w", "c", pads=[1, 1, 1, 1]), node("Relu", "c", "y"), node("Tanh", "z", "t")],
        {"x": ["?", 3, "?", "?"], "z": ["?"]},
        ["y", "t"],
        w=np.ones((2, 3, 3, 3), np.float32),
    )


@pytest.mark.parametrize("last", ["Relu", "Atan"])  # Atan runs on the host
def test_names_of_dimensions_are_hints(last: str, rng: np.random.Generator) -> None:
    model = named_alike()
    model.graph.node[1].op_type = last
    feed = {"x": rng.standard_normal((1, 3, 12, 20), np.float32), "z": np.ones(5, np.float32)}
    session = check(model, feed)
    assert session.get_inputs()[0].shape == ["?", 3, "?", "?"]
    compiled = od.compile(model, shapes={name: array.shape for name, array in feed.items()})
    assert len(compiled.executables) == 1
    with pytest.raises(od.InputError, match=r"\[1, 4, 12, 20\].*\[\?, 3, \?, \?\]"):
        session.run(None, feed | {"x": np.ones((1, 4, 12, 20), np.float32)})
    with pytest.raises(od.InputError, match="accepted"):
        session.run(None, feed | {"x": np.ones((3, 12, 20), np.float32)})


def test_shapes_that_an_operator_cannot_take_are_an_error() -> None:
    model = model_of([node("Add", "x y", "z")], {"x": ["N"], "y": ["N"]}, ["z"])
    session = od.InferenceSession(model)
    with pytest.raises(od.ModelError, match="inference"):
        session.run(None, {"x": np.zeros(3, np.float32), "y": np.zeros(4, np.float32)})


def test_inputs_that_decide_shapes(rng: np.random.Generator) -> None:
    model = model_of(
        [node("Relu", "x", "r"), node("Reshape", "r s", "y")],
        {"x": [4, 6], "s": [2]},
        ["y"],
        {"s": INT64},
    )
    session = od.InferenceSession(model, fallback="error")
    data = rng.standard_normal((4, 6), np.float32)
    for shape in ([8, 3], [2, 12], [-1, 1]):
        (y,) = session.run(None, {"x": data, "s": np.array(shape, np.int64)})
        np.testing.assert_array_equal(y, np.maximum(data, 0).reshape(shape))


def test_outputs_that_are_inputs_constants_or_twice_the_same(x: Array) -> None:
    model = model_of(
        [
            node("Identity", "x", "same"),
            node("Relu", "x", "r"),
            node("Flatten", "r", "flat", axis=0),
            node("Mul", "k k", "c"),
        ],
        {"x": [4, 20]},
        ["same", "r", "flat", "c"],
        k=np.float32([2, 3, 4]),
    )
    session = check(model, {"x": x}, fallback="error")
    assert session.last_run is not None and session.last_run.dispatches == 1


def test_empty_tensors_and_scalars() -> None:
    model = model_of([node("Relu", "x", "y")], {"x": ["N", 3]}, ["y"])
    session = od.InferenceSession(model, fallback="error")
    (y,) = session.run(None, {"x": np.zeros((0, 3), np.float32)})
    assert y.shape == (0, 3) and y.dtype == np.float32
    scalar = model_of([node("Add", "a b", "y")], {"a": [], "b": []}, ["y"])
    check(scalar, {"a": np.asarray(1.5, np.float32), "b": np.asarray(2, np.float32)}, fallback="error")


def test_nan_and_infinity_flow_through() -> None:
    data = np.array([[np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, 3e38, -3e38]], np.float32)
    nodes = [node("Relu", "x", "a"), node("Add", "x x", "b"), node("Mul", "x x", "c")]
    check(model_of(nodes, {"x": [1, 8]}, ["a", "b", "c"]), {"x": data}, fallback="error")


def test_fallback_runs_the_rest_on_the_host(x: Array) -> None:
    model = model_of(
        [
            node("Relu", "x", "a"),
            *on_host("a", "b"),
            node("Det", "square", "d"),
            node("Add", "b d", "y"),
        ],
        {"x": [4, 20], "square": [3, 3]},
        ["y"],
    )
    feed = {"x": x, "square": np.eye(3, dtype=np.float32) * 2}
    session = check(model, feed)
    where = {p.op_type: p for p in session.placement}
    assert where["Relu"].device == where["Add"].device == "npu"
    assert where["Cast"].device == where["Det"].device == "cpu"
    assert "Det" in where["Det"].reason
    assert session.last_run is not None and session.last_run.dispatches == 2
    assert session.last_run.host_seconds > 0
    # Beside the device's time: what the host spends on launching, dispatch by dispatch.
    assert session.last_run.launch_seconds == pytest.approx(2 * 45e-6)
    payload = session.last_run.ddr_bytes_read + session.last_run.ddr_bytes_written
    bursts = session.last_run.ddr_burst_bytes
    assert bursts >= payload and bursts % 64 == 0
    with pytest.raises(od.UnsupportedModelError) as caught:
        od.InferenceSession(model, fallback="error")
    assert len(caught.value.nodes) == 3  # both Casts, and Det


def test_two_sessions_in_two_threads_answer_as_one_after_the_other(rng: np.random.Generator) -> None:
    feeds = [{"x": rng.standard_normal((4, 20), np.float32)} for _ in range(6)]
    sessions = [od.InferenceSession(perceptron(), device=name) for name in ("npu2", "npu1")]
    wanted = [[(s.run(None, f)[0], s.last_run.cycles) for f in feeds] for s in sessions if s.get_inputs()]  # type: ignore[union-attr]
    found: dict[int, list[tuple[Array, int]]] = {}

    def work(index: int) -> None:
        session = sessions[index]
        found[index] = [(session.run(None, f)[0], session.last_run.cycles) for f in feeds]  # type: ignore[union-attr]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for index in range(2):
        for (mine, cycles), (theirs, other) in zip(found[index], wanted[index], strict=True):
            np.testing.assert_array_equal(mine, theirs)
            assert cycles == other


def test_every_run_takes_the_same_time() -> None:
    """Nothing that a run did is paid by the next one: a core's last releases were."""
    node = helper.make_node("Transpose", ["x"], ["y"], perm=[2, 0, 1])
    model = model_of([node], {"x": [5, 6, 7]}, ["y"])
    session = od.InferenceSession(model, device="npu1_1col", fallback="error")
    x = np.zeros((5, 6, 7), np.float32)
    cycles = []
    for _ in range(4):
        session.run(None, {"x": x})
        cycles.append(session.last_run.cycles)
    assert len(set(cycles)) == 1, cycles


def test_a_saved_model_runs_without_onnx(tmp_path: Path, x: Array) -> None:
    model = perceptron()
    od.compile(model, fallback="error").save(tmp_path / "m.od")
    np.save(tmp_path / "x.npy", x)
    code = (
        "import sys, numpy as np, onedispatch as od\n"
        "s = od.InferenceSession(od.load('m.od'))\n"
        "np.save('y.npy', s.run(None, {'x': np.load('x.npy')})[0])\n"
        "bad = {'onnx', 'onnxruntime'} & set(sys.modules)\n"
        "assert not bad, bad\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    wanted = reference(model, {"x": x})[0]
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), wanted, rtol=1e-4, atol=1e-6)


def test_saved_host_regions_run_too(tmp_path: Path, x: Array) -> None:
    model = model_of([*on_host("x", "c"), node("Relu", "c", "y")], {"x": [4, 20]}, ["y"])
    od.compile(model).save(tmp_path / "m.od")
    (y,) = od.InferenceSession(od.load(tmp_path / "m.od")).run(None, {"x": x})
    np.testing.assert_allclose(y, reference(model, {"x": x})[0], rtol=1e-6)


def test_the_backend_runs_models_and_nodes(x: Array) -> None:
    (y,) = od.backend.run_model(perceptron(), [x], fallback="error")
    np.testing.assert_allclose(y, reference(perceptron(), {"x": x})[0], rtol=1e-4, atol=1e-6)
    (z,) = od.backend.run_node(helper.make_node("Relu", ["x"], ["y"]), [x], fallback="error")
    np.testing.assert_array_equal(z, np.maximum(x, 0))
    assert od.backend.supports_device("CPU") and not od.backend.supports_device("CUDA")


def test_outputs_are_saved_under_their_names(tmp_path: Path) -> None:
    """Also under names that ``numpy.savez`` takes for its own arguments."""
    onnx.save(model_of([node("Relu", "x", "file")], {"x": [2, 3]}, ["file"]), tmp_path / "m.onnx")
    for place in ("y.npz", "/dev/null"):
        command = ["run", str(tmp_path / "m.onnx"), "--random", "-o", str(tmp_path / place)]
        result = CliRunner().invoke(app, command)
        assert result.exit_code == 0, result.output
    with np.load(tmp_path / "y.npz") as saved:
        assert saved.files == ["file"] and saved["file"].shape == (2, 3)


def test_more_inputs_than_a_transaction_has_arguments() -> None:
    names = [f"x{i}" for i in range(300)]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 1]) for n in names]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 300])
    graph = helper.make_graph([helper.make_node("Concat", names, ["y"], axis=1)], "g", ends, [y])
    session = od.InferenceSession(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), fallback="error"
    )
    values = np.arange(600, dtype=np.float32).reshape(300, 2, 1)
    (got,) = session.run(None, dict(zip(names, values, strict=True)))
    np.testing.assert_array_equal(got, np.concatenate(list(values), 1))


@pytest.mark.nightly
def test_many_aliases_between_host_nodes_are_placed_in_linear_time() -> None:
    """30,000 nodes; with quadratic work this runs into the limit for hanging tests."""
    names = ["x", *(f"v{i}" for i in range(29_999)), "y"]
    ops: Iterator[tuple[str, dict[str, int]]] = itertools.cycle(
        (("Cast", {"to": TensorProto.DOUBLE}), ("Identity", {}))
    )
    nodes = [
        helper.make_node(op, [a], [b], **given)
        for (op, given), (a, b) in zip(ops, itertools.pairwise(names), strict=False)
    ]
    compiled = od.compile(model_of(nodes, {"x": [4]}, ["y"]))
    assert len(compiled.placement) == 30_000 and {p.device for p in compiled.placement} == {"cpu"}
