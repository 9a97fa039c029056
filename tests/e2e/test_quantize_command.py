# SPDX-License-Identifier: Apache-2.0
"""``onedispatch quantize``: recipes measured on held-out samples, the best written, refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper, parser
from typer.testing import CliRunner

import onedispatch as od
from onedispatch.dispatch.cli import app, output
from onedispatch.dispatch.tools import recipes
from onedispatch.dispatch.tools.quantising import quantised, with_packed_weights
from onedispatch.transactions.base.files import protecting_files
from tests.e2e.quantised_models import convolutions, transformer

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(output.console, "_width", 400)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def images() -> Any:
    """Eight batches of two for a small network of convolutions, in one file; of these two are held out."""
    onnx.save(convolutions(), "m.onnx")
    x = np.random.default_rng(3).standard_normal((16, 3, 8, 8)).astype(np.float32)
    np.save("d.npy", x)
    return x


@pytest.fixture
def vectors() -> Any:
    """Four samples for a block of a transformer, whose output is no class; the last is held out."""
    onnx.save(transformer(), "t.onnx")
    x = np.random.default_rng(4).standard_normal((4, 2, 6, 16)).astype(np.float32)
    np.savez("d.npz", x=x)
    return x


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["quantize", *arguments])


def tried(*arguments: str, code: int = 0) -> dict[str, Any]:
    result = invoke(*arguments, "--json")
    assert result.exit_code == code, (result.output, result.exception)
    found: dict[str, Any] = json.loads(result.stdout)
    return found | {"recipes": {row["recipe"]: row for row in found["recipes"]}}


def runtime(model: onnx.ModelProto, feed: dict[str, Any]) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, feed)[0]


def test_the_best_is_written_and_is_what_the_table_says(images: Any) -> None:
    found = tried("m.onnx", "--data", "d.npy", "--recipe", "int8", "-o", "q.onnx")
    assert (found["calibrated"], found["held_out"], found["best"]) == (6, 2, "int8")
    row, written = found["recipes"]["int8"], onnx.load("q.onnx")
    assert Path("q.onnx").stat().st_size == row["bytes"] and not row["failed"] and row["fits"]
    report = od.compile(written).timing()
    assert row["cycles"] == report.cycles > 0
    assert found["summary"]["seconds"] == report.seconds and found["summary"]["cpu"] == row["nodes_on_host"]
    assert row["seconds"] == pytest.approx(report.seconds + report.launch_seconds)
    held_out = [{"x": images[first : first + 2]} for first in (6, 14)]
    mine = np.concatenate([runtime(written, feed) for feed in held_out])
    theirs = np.concatenate([runtime(onnx.load("m.onnx"), feed) for feed in held_out])
    noise = np.square(mine - theirs, dtype=np.float64).sum()
    assert row["snr"] == pytest.approx(10 * np.log10(np.square(theirs).sum() / noise), abs=0.01)
    assert row["agreement"] == np.mean(mine.argmax(1) == theirs.argmax(1))
    assert found["recipes"]["fp32"]["snr"] > 100 > row["snr"] > 15
    assert len(found["worst"]) == 5 and all(one["own"] > 0 for one in found["worst"])
    own = [one["own_snr"] for one in found["worst"]]
    assert own == sorted(own)


def test_mixed_leaves_the_worst_nodes_in_floats(images: Any) -> None:
    found = tried("m.onnx", "--data", "d.npy", "--recipe", "mixed", "--tolerance", "100%", "-o", "q.onnx")
    row, written = found["recipes"]["mixed"], onnx.load("q.onnx")
    integers = {name for n in written.graph.node if n.op_type == "DequantizeLinear" for name in n.output}
    reads = {node.name: set(node.input) & integers for node in written.graph.node}
    kinds = {node.name: node.op_type for node in written.graph.node}
    spared = row["spared"]
    assert spared and row["precision"] == "bf16"
    weighted = ("Conv", "Gemm", "MatMul")
    assert {len(reads[name]) for name in kinds if kinds[name] in weighted and name not in spared} <= {2, 3}
    assert not any(len(reads[name]) > 1 for name in spared), "an operand of weights is in integers"


def test_all_usual_recipes_run_and_the_fastest_that_fits_is_best(images: Any) -> None:
    found = tried("m.onnx", "--data", "d.npy", "--tolerance", "100%")
    assert list(found["recipes"]) == ["fp32", "bf16", "int8", "int8-bf16", "mixed", "a16w8"]
    assert not [row["failed"] for row in found["recipes"].values() if row["failed"]]
    others = {name: row["seconds"] for name, row in found["recipes"].items() if name != "fp32"}
    assert found["best"] == min(others, key=lambda name: others[name]) and found["path"] is None
    assert found["recipes"]["a16w8"]["snr"] > found["recipes"]["int8"]["snr"]


def test_the_measure_that_decides_is_said_and_a_bound_of_noise_holds_for_classes_too(images: Any) -> None:
    given = ("m.onnx", "--data", "d.npy", "--recipe", "int8", "--tolerance", "100%")
    found = tried(*given)
    (name,) = found["measures"]
    assert found["measures"] == {name: "top-1"} and found["recipes"]["int8"]["fits"]
    assert f"judged: {name} by top-1\n" in invoke(*given).stdout
    noisy = tried(*given, "--snr", "90", code=2)
    assert noisy["measures"] == {name: "top-1 and SNR"}
    assert not noisy["recipes"]["int8"]["fits"] and noisy["recipes"]["fp32"]["fits"]


@pytest.mark.parametrize(
    ("end", "classes"),
    [
        ("y = MatMul(x, w)", True),
        ("a = MatMul(x, w) y = Softmax(a)", True),
        ("a = MatMul(x, w) b = Softmax(a) y = Log(b)", True),
        ("a = MatMul(x, w) y = Relu(a)", False),
        ("a = MatMul(x, w) b = Sigmoid(a) y = Flatten(b)", False),
    ],
)
def test_what_a_function_of_one_tensor_makes_is_no_class(end: str, classes: bool) -> None:
    text = f"g (float[2,8] x) => (float[2,5] y) {{ {end} }}"
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}')
    rng = np.random.default_rng(7)
    weight = rng.standard_normal((8, 5)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    onnx.save(model, "e.onnx")
    np.save("e.npy", rng.standard_normal((8, 8)).astype(np.float32))
    found = tried("e.onnx", "--data", "e.npy", "--recipe", "bf16")
    assert found["measures"] == {"y": "top-1" if classes else "SNR"}
    assert (found["recipes"]["bf16"]["agreement"] is not None) == classes


def test_where_none_fits_nothing_is_written(vectors: Any) -> None:
    found = tried("t.onnx", "--data", "d.npz", "--recipe", "int8", "--snr", "150", "-o", "q.onnx", code=2)
    assert found["best"] is None and found["recipes"]["int8"]["agreement"] is None
    assert not Path("q.onnx").exists() and 10 < found["recipes"]["int8"]["snr"] < 60
    text = invoke("t.onnx", "--data", "d.npz", "--recipe", "int8", "--snr", "150").stdout
    assert "no recipe keeps" in text and "off" in text


def test_people_read_the_table_and_how_to_run_the_best(vectors: Any) -> None:
    result = invoke("t.onnx", "--data", "d.npz", "--recipe", "bf16", "-o", "q.onnx")
    text = " ".join(result.stdout.split())
    assert result.exit_code == 0 and "3 samples to calibrate, 1 held out" in text
    assert text.startswith("best, bf16: all ") and "best: bf16" in text
    slower = invoke("t.onnx", "--data", "d.npz", "--recipe", "int8").stdout.splitlines()[0]
    assert slower.startswith("best, int8: ") and "; fp32 takes no longer, 0.0" in slower
    assert "takes no longer" not in text
    assert "onedispatch run q.onnx --random --precision bf16" in text
    assert "largest own errors beside fp32" in text


def test_packed_weights_leave_what_bodies_and_outputs_read() -> None:
    proto = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]>
        g (float[3, 32] x, bool c) => (float[3, 32] y, float[32, 32] v) {
          a = MatMul(x, w)
          b = MatMul(a, v)
          y = If (c) <then_branch = t () => (float[3, 32] p) { p = MatMul(b, w) },
                      else_branch = e () => (float[3, 32] q) { q = Relu(b) }>
        }"""
    )
    rng = np.random.default_rng(3)
    for name in ("w", "v"):
        array = rng.standard_normal((32, 32)).astype(np.float32)
        proto.graph.initializer.append(numpy_helper.from_array(array, name))
    packed = with_packed_weights(proto)
    assert [node.op_type for node in packed.graph.node] == ["MatMulNBits", "MatMulNBits", "If"]
    feed = {"x": rng.standard_normal((3, 32)).astype(np.float32), "c": np.array(True)}
    theirs, wanted = runtime(packed, feed), runtime(proto, feed)
    assert 0 < np.abs(theirs - wanted).max() < 0.3 * np.abs(wanted).max()


def test_weights_of_four_bits_are_onnxruntimes() -> None:
    """The device computes the packed model as onnxruntime does, near the one of floats."""
    rng = np.random.default_rng(7)
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[3, 80] x) => (float[3, 24] y) { y = MatMul(x, w) }'
    )
    w, x = (rng.standard_normal(shape).astype(np.float32) for shape in ((80, 24), (3, 80)))
    proto.graph.initializer.append(numpy_helper.from_array(w, "w"))
    packed = with_packed_weights(proto)
    assert [node.op_type for node in packed.graph.node] == ["MatMulNBits"]
    assert {one.name for one in packed.graph.initializer} == {"y/packed", "y/scales", "y/zeros"}
    theirs = runtime(packed, {"x": x})
    np.testing.assert_allclose(
        od.InferenceSession(packed).run(None, {"x": x})[0], theirs, rtol=1e-5, atol=1e-5
    )
    error = np.sqrt(np.square(theirs - x @ w).sum() / np.square(x @ w).sum())
    assert 0.03 < error < 0.15 and packed.ByteSize() < proto.ByteSize() / 3


def test_models_of_products_are_tried_in_four_bits() -> None:
    assert not recipes.is_language(convolutions()) and recipes.is_language(transformer())
    assert [one.name for one in recipes.chosen(None, transformer())][-1] == "w4a16"


def test_old_operator_sets_are_turned_into_ones_with_scales_per_channel() -> None:
    old = onnx.parser.parse_model(
        '<ir_version: 4, opset_import: ["": 9]> g (float[1, 8] x) => (float[1, 4] y) { y = MatMul(x, w) }'
    )
    old.graph.initializer.append(numpy_helper.from_array(np.ones((8, 4), np.float32), "w"))
    found = recipes.prepared(old)
    assert found.opset_import[0].version == 13 and [node.name for node in found.graph.node] == ["MatMul_0"]
    assert old.opset_import[0].version == 9 and not old.graph.node[0].name


def test_a_recipe_that_fails_is_a_row_that_says_why(images: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise KeyError("no such tensor")

    monkeypatch.setattr(recipes, "quantised", fails)
    found = tried("m.onnx", "--data", "d.npy", "--recipe", "int8", "--recipe", "bf16")
    assert "no such tensor" in found["recipes"]["int8"]["failed"] and found["best"] == "bf16"
    assert "no such tensor" in invoke("m.onnx", "--data", "d.npy", "--recipe", "int8").stdout


def _saved_models(images: Any) -> None:
    floats = convolutions()
    onnx.save(quantised(floats, [{"x": images[:2]}], activations="u8"), "q.onnx")
    whole = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Add", ["a", "a"], ["y"])],
        "g",
        [whole("a", TensorProto.INT32, [4])],
        [whole("y", TensorProto.INT32, [4])],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "i.onnx")
    od.compile("m.onnx").save("m.od")
    np.save("one.npy", images[:2])
    np.save("nan.npy", np.full_like(images, np.nan))
    Path("empty").mkdir()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["q.onnx", "--data", "d.npy"], "quantised already"),
        (["i.onnx", "--data", "d.npy"], "inputs and weights of int32"),
        (["m.od", "--data", "d.npy"], "a compiled model"),
        (["none.onnx", "--data", "d.npy"], "none.onnx"),
        (["m.onnx", "--data", "one.npy"], "1 sample"),
        (["m.onnx", "--data", "nan.npy"], "NaN or infinite"),
        (["m.onnx", "--data", "empty"], "no .npz and no .npy file"),
        (["m.onnx", "--data", "d.npy", "--recipe", "int"], "Did you mean 'int8'"),
        (["m.onnx", "--data", "d.npy", "--tolerance", "much"], "'much'"),
        (["m.onnx", "--data", "d.npy", "--tolerance", "1"], "a percentage, with its sign"),
        (["m.onnx", "--data", "d.npy", "--snr", "nan"], "decibels"),
        (["m.onnx", "--data", "d.npy", "--calibrate", "0"], "--calibrate"),
        (["m.onnx", "--data", "d.npy", "-o", "m.onnx"], "another file"),
    ],
)
def test_what_cannot_be_quantised_is_refused(images: Any, arguments: list[str], said: str) -> None:
    _saved_models(images)
    with protecting_files():
        result = invoke(*arguments)
    assert isinstance(result.exception, od.OneDispatchError), (result.exception, result.output)
    assert said in str(result.exception)
