# SPDX-License-Identifier: Apache-2.0
"""``onedispatch compare`` over data sets and beside another model: own errors, inherited ones, cures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper
from typer.testing import CliRunner

import onedispatch as od
from onedispatch.dispatch.cli import app, output
from onedispatch.dispatch.tools.matches import Match
from onedispatch.dispatch.tools.quantising import quantised
from onedispatch.operators.declarations.tensor import Quantisation

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")

NODES = """
<ir_version: 8, opset_import: ["": 17]> g (float[N, 16] x) => (float[N, 8] y) {
  [product] p = MatMul(x, w)
  [bend] r = Relu(p)
  [second] s = MatMul(r, v)
  [last] y = Softmax(s)
}
"""


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(output.console, "_width", 400)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def model() -> str:
    proto = onnx.parser.parse_model(NODES)
    rng = np.random.default_rng(5)
    for name, shape in {"w": (16, 32), "v": (32, 8)}.items():
        array = (rng.standard_normal(shape) / 4).astype(np.float32)
        proto.graph.initializer.append(numpy_helper.from_array(array, name))
    onnx.save(proto, "m.onnx")
    return "m.onnx"


@pytest.fixture
def data() -> Any:
    x = np.random.default_rng(1).standard_normal((12, 16)).astype(np.float32)
    np.savez("d.npz", x=x)
    return x


@pytest.fixture
def int8(model: str, data: Any) -> str:
    feeds = [{"x": row[None]} for row in data]
    onnx.save(quantised(onnx.load(model), feeds, activations="u8", per_channel=True), "q.onnx")
    return "q.onnx"


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["compare", *arguments])


def compared(*arguments: str) -> dict[str, Any]:
    result = invoke(*arguments, "--json")
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    found: dict[str, Any] = json.loads(result.stdout)
    assert result.exit_code == (2 if found["diverges"] else 0), result.output
    return found


def answers(model: str, x: Any) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model, options).run(None, {"x": x})[0]


def snr(mine: Any, theirs: Any) -> float:
    return float(10 * np.log10(np.square(theirs, dtype=np.float64).sum() / np.square(mine - theirs).sum()))


def test_own_errors_are_those_of_the_node_alone(model: str, data: Any) -> None:
    """The last node by itself, fed with onnxruntime's numbers, makes what the row calls its own."""
    found = compared(model, "--data", "d.npz", "--samples", "12", "--per-node", "--precision", "bf16")
    rows = {row["value"]: row for row in found["rows"]}
    assert list(rows) == ["r", "s", "y"] and found["samples"] == 12
    weights = [numpy_helper.to_array(one) for one in onnx.load(model).graph.initializer]
    scores = np.maximum(data @ weights[0], 0) @ weights[1]
    alone = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[N, 8] s) => (float[N, 8] y) { y = Softmax(s) }'
    )
    mine = od.InferenceSession(alone, precision="bf16").run(None, {"s": scores})[0]
    theirs = answers(model, data)
    assert rows["y"]["own_snr"] == pytest.approx(snr(mine, theirs), abs=0.5)
    assert rows["y"]["own"] == pytest.approx(np.abs(mine - theirs).max() / theirs.max(), rel=0.05)
    whole = od.InferenceSession(model, precision="bf16").run(None, {"x": data})[0]
    assert rows["y"]["snr"] == pytest.approx(snr(whole, theirs), abs=0.01)
    assert rows["y"]["inherited"] > 0 and rows["r"]["inherited"] == 0
    assert found["outputs"][0]["agreement"] == np.mean(whole.argmax(1) == theirs.argmax(1))


def test_the_first_node_reads_the_same_either_way(model: str, data: Any) -> None:
    found = compared(model, "--data", "d.npz", "--per-node", "--precision", "bf16")
    first = found["rows"][0]
    assert first["own_snr"] == first["snr"] and 40 < first["snr"] < 60


def test_values_without_dimensions_are_compared_too(folder: Path) -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[4, 16] x) => (float[4, 16] y, float m) {
  r = Relu(x)
  m = ReduceMax<keepdims=0>(r)
  y = Div(r, m)
}"""
    onnx.save(onnx.parser.parse_model(text), "scalar.onnx")
    found = CliRunner().invoke(app, ["compare", "scalar.onnx", "--random", "--per-node", "--json"])
    assert found.exit_code == 0, found.output
    assert [row["value"] for row in json.loads(found.stdout)["rows"]] == ["r", "m", "y"]


@pytest.mark.parametrize("dtype", (np.uint8, np.float32))
def test_given_numbers_keep_their_rank(dtype: type) -> None:
    scale = Quantisation((0.5,), (3,), None) if dtype is np.uint8 else None
    given = Match("v", "v", scale).given(np.array(2.0, np.float32), np.dtype(dtype))
    assert type(given) is np.ndarray and given.shape == () and given == (7 if scale else 2.0)


def test_float32_cures_bfloat16(model: str, data: Any) -> None:
    found = compared(model, "--data", "d.npz", "--per-node", "--precision", "bf16", "--threshold", "1e-5")
    assert found["first"] == "bend" and found["first_value"]["index"]
    cures = {cure["value"]: cure for cure in found["cures"]}
    assert {"r", "s", "y"} == set(cures) and {cure["kind"] for cure in cures.values()} == {"precision"}
    own = {row["value"]: row["own"] for row in found["rows"]}
    assert all(cure["own"] < 0.01 * own[name] for name, cure in cures.items())


def test_an_int8_model_beside_the_one_it_was_made_of(model: str, int8: str, data: Any) -> None:
    found = compared(int8, "--data", "d.npz", "--samples", "12", "--against", model, "--per-node")
    ours, theirs = answers(int8, data), answers(model, data)
    (out,) = found["outputs"]
    assert out["snr"] == pytest.approx(snr(ours, theirs), abs=1e-3) and 20 < out["snr"] < 60
    assert out["agreement"] == np.mean(ours.argmax(1) == theirs.argmax(1))
    assert out["relative"] == pytest.approx(np.max(np.abs(ours - theirs).max(1) / theirs.max(1)), rel=1e-4)
    names = [row["reference"] for row in found["rows"]]
    assert names[:2] == ["r", "s"] and found["rows"][0]["node"] in ("product", "bend")
    assert all(row["own"] > 0 for row in found["rows"][:2])


def test_beside_itself_an_int8_model_is_exact(int8: str, data: Any) -> None:
    found = compared(int8, "--data", "d.npz", "--per-node")
    assert not found["diverges"] and {row["own"] for row in found["rows"]} == {0.0}
    assert found["outputs"][0]["snr"] is None  # no error: infinite, which JSON lacks


def test_a_scale_that_clips_is_found_and_the_one_that_covers_named(model: str, int8: str, data: Any) -> None:
    proto = onnx.load(int8)
    (scale,) = [one for one in proto.graph.initializer if one.name == "r_scale"]
    right = float(numpy_helper.to_array(scale))
    scale.CopyFrom(numpy_helper.from_array(np.float32(right / 3), "r_scale"))
    onnx.save(proto, "bad.onnx")
    found = compared("bad.onnx", "--data", "d.npz", "--samples", "12", "--against", model, "--per-node")
    rows = {row["reference"]: row for row in found["rows"]}
    assert found["first_value"]["reference"] == "r" and rows["r"]["own"] > 0.5
    assert rows["y"]["own"] < 0.1, "what is behind it inherits"
    (cure,) = [one for one in found["cures"] if one["value"] == rows["r"]["value"]]
    r = np.maximum(data @ numpy_helper.to_array(onnx.load(model).graph.initializer[0]), 0)
    assert cure["kind"] == "scale" and cure["scale"] == pytest.approx(r.max() / 255, rel=1e-3)
    beyond = int((r > right / 3 * 255.5).sum())
    assert f"clips {beyond} numbers of {r.size:,}" in cure["text"]


def test_a_scale_that_is_coarse_is_found(model: str, int8: str, data: Any) -> None:
    proto = onnx.load(int8)
    (scale,) = [one for one in proto.graph.initializer if one.name == "r_scale"]
    wide = np.float32(10 * numpy_helper.to_array(scale))
    scale.CopyFrom(numpy_helper.from_array(wide, "r_scale"))
    onnx.save(proto, "bad.onnx")
    found = compared("bad.onnx", "--data", "d.npz", "--samples", "12", "--against", model, "--per-node")
    texts = [cure["text"] for cure in found["cures"] if cure["kind"] == "scale"]
    assert any(text.startswith(f"scale {wide:.4g} is coarse") and "of 255 steps" in text for text in texts)


def test_a_folder_says_the_same_as_its_arrays_in_one_file(model: str, data: Any) -> None:
    Path("samples").mkdir()
    for place, row in enumerate(data):
        np.save(f"samples/{place:02}.npy", row)
    arguments = ["--samples", "3", "--precision", "bf16"]
    one, other = (compared(model, "--data", path, *arguments)["outputs"] for path in ("samples", "d.npz"))
    assert one == other and one[0]["snr"] > 30


def test_random_samples_have_seeds_of_their_own(model: str) -> None:
    found = compared(model, "--random", "--samples", "4", "--precision", "bf16")
    single = compared(model, "--random", "--precision", "bf16")
    assert (found["samples"], single["samples"]) == (4, 1)
    assert found["outputs"][0]["snr"] != single["outputs"][0]["snr"]


def test_people_read_own_and_inherited_errors(model: str, int8: str, data: Any) -> None:
    result = invoke(int8, "--data", "d.npz", "--against", model, "--per-node", "--threshold", "1")
    text = " ".join(result.stdout.split())
    assert "8 samples" in text and "own" in text and "inherited" in text and "top-1" in text
    assert "largest own errors, and what would cure them" in text and " dB" in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--data", "d.npz", "--random"], "beside --random"),
        (["--samples", "2"], "of no data set"),
        (["--data", "d.npz", "--samples", "0"], "--samples"),
        (["--data", "d.npz", "--reference", "d.npz"], "beside a data set"),
        (["--data", "none.npz"], "none.npz"),
        (["--data", "wrong.npz"], "shape [12, 15]"),
        (["--data", "d.npz", "--against", "two.onnx"], "a model with the same outputs"),
        (["--data", "d.npz", "--against", "m.od"], "a compiled model"),
    ],
)
def test_what_does_not_fit_is_refused(model: str, data: Any, arguments: list[str], said: str) -> None:
    np.savez("wrong.npz", x=data[:, :15])
    od.compile(model).save("m.od")
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[N, 16] x) => (float[N, 16] a, float[N, 16] b) '
        "{ a = Relu(x) b = Exp(x) }"
    )
    onnx.save(proto, "two.onnx")
    result = invoke(model, *arguments)
    assert isinstance(result.exception, od.OneDispatchError), result.exception
    assert said in str(result.exception)
