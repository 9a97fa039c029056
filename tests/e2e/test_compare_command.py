# SPDX-License-Identifier: Apache-2.0
"""``onedispatch compare``: the first node whose numbers leave onnxruntime's, or saved ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from typer.testing import CliRunner

import onedispatch as od
from onedispatch.dispatch.cli import app, output
from onedispatch.dispatch.tools.compare import value_comparison
from onedispatch.dispatch.tools.differences import errors_of, ulps
from tests.tensorflow.graphdefs import GraphBuilder

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")

RULES = """
import onedispatch as od
tf = od.frontend("tensorflow")
tf.op("Conv2D", to="Conv").compute(
    strides=lambda n: n.attr("strides")[1:3], auto_pad=lambda n: "SAME_UPPER"
).ignore("padding", "use_cudnn_on_gpu", "explicit_paddings", "dilations").format(1, "HWCN")
tf.op("Tanh")
"""


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setattr(output.console, "_width", 400)
    monkeypatch.chdir(tmp_path)
    yield
    od.plugins.reset()


@pytest.fixture
def model() -> str:
    """A product with a bias that become one operator, and a cosine of large numbers, which bf16 lacks."""
    proto = onnx.parser.parse_model("""
<ir_version: 8, opset_import: ["": 17]> g (float[4, 16] x) => (float[4, 8] y, float[4, 8] r) {
  [product] p = MatMul(x, w)
  [bend] r = Relu(p)
  [scale] s = Mul(r, thousand)
  [wave] c = Cos(s)
  [last] y = Softmax(c)
}
""")
    rng = np.random.default_rng(5)
    for name, array in {"w": rng.standard_normal((16, 8)), "thousand": np.array(1000.0)}.items():
        proto.graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), name))
    onnx.save(proto, "m.onnx")
    return "m.onnx"


@pytest.fixture
def frozen() -> str:
    """A convolution of channels last, and a function of its result."""
    filters = np.random.default_rng(3).standard_normal((3, 3, 4, 8)).astype(np.float32)
    b = GraphBuilder()
    x = b.placeholder("x", "float32", [1, 6, 6, 4])
    conv = b.op("Conv2D", x, b.const("w", filters), name="conv", strides=[1, 1, 1, 1], padding="SAME")
    b.op("Tanh", b.op("Relu", conv, name="act"), name="y")
    Path("g.pb").write_bytes(b.graphdef().SerializeToString())
    Path("rules.py").write_text(RULES)
    return "g.pb"


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["compare", *arguments])


def compared(*arguments: str) -> dict[str, Any]:
    result = invoke(*arguments, "--random", "--json")
    found: dict[str, Any] = json.loads(result.stdout)
    assert result.exit_code == (2 if found["diverges"] else 0), result.output
    return found


def test_outputs_alone_unless_nodes_are_asked_for(model: str) -> None:
    found = compared(model)
    assert found["rows"] == [] and [row["value"] for row in found["outputs"]] == ["y", "r"]
    assert found["outputs_beside"] == "onnxruntime" and not found["diverges"]


def test_the_first_node_that_diverges_is_named_with_its_numbers(model: str) -> None:
    found = compared(model, "--per-node", "--precision", "bf16")
    first = found["first_value"]
    assert found["first"] == first["node"] == "wave" and first["op_type"] == "Cos"
    assert [row["value"] for row in found["rows"]] == ["r", "c", "y"]
    assert len(first["index"]) == 2 and first["difference"] == pytest.approx(
        abs(first["mine"] - first["theirs"])
    )
    assert first["ulp"] > 1000 and first["difference"] > 0.05 * first["largest"]
    text = invoke(model, "--per-node", "--precision", "bf16", "--random").stdout
    assert f"element {first['index']}: " in text and "ULP of float32" in text


def test_run_compare_has_the_same_rows(model: str) -> None:
    result = CliRunner().invoke(app, ["run", model, "--random", "--compare", "--json"])
    rows = json.loads(result.stdout)["comparison"]["rows"]
    for row, own in zip(rows, compared(model, "--per-node")["rows"], strict=True):
        assert {name: own[name] for name in row} == row


def test_a_reference_has_values_by_name(model: str) -> None:
    x = np.random.default_rng(1).standard_normal((4, 16)).astype(np.float32)
    np.savez("x.npz", x=x)
    w = numpy_helper.to_array(onnx.load(model).graph.initializer[0])
    r = np.maximum(x @ w, 0)
    wrong = r.copy()
    wrong[2, 3] += 5
    np.savez("good.npz", r=r, x=x)
    np.savez("wrong.npz", r=wrong)
    good = json.loads(invoke(model, "-i", "x.npz", "--per-node", "--reference", "good.npz", "--json").stdout)
    assert [row["value"] for row in good["rows"]] == ["r"] and not good["diverges"]
    assert good["skipped"] == ["x: an input of the model"] and good["outputs_beside"] == "good.npz"
    result = invoke(model, "-i", "x.npz", "--per-node", "--reference", "wrong.npz")
    assert result.exit_code == 2 and "first to diverge: bend (Relu), value r" in result.stdout
    assert "element [2, 3]: " in result.stdout


@pytest.mark.parametrize(
    ("arrays", "said"),
    [({"z": 1.0}, "outputs (y, r)"), ({"p2": 1.0}, "values of nodes"), ({}, "no value in bad.npz")],
)
def test_a_reference_without_the_models_values_is_refused(
    model: str, arrays: dict[str, float], said: str
) -> None:
    np.savez("bad.npz", **{name: np.float32(value) for name, value in arrays.items()})
    result = invoke(model, "--random", "--per-node", "--reference", "bad.npz")
    assert isinstance(result.exception, od.InputError) and said in str(result.exception)


def test_bad_input_is_refused(model: str) -> None:
    Path("text.npz").write_text("no archive")
    for arguments in (["--reference", "text.npz"], ["--reference", "none.npz"], ["--threshold", "-1"]):
        result = invoke(model, "--random", *arguments)
        assert isinstance(result.exception, od.InputError), arguments
    od.compile(model).save("m.od")
    result = invoke("m.od", "--random")
    assert isinstance(result.exception, od.InputError) and "the ONNX file" in str(result.exception)


def test_other_shapes_diverge(model: str) -> None:
    np.savez("r.npz", r=np.zeros((8, 4), np.float32))
    result = invoke(model, "--random", "--reference", "r.npz")
    assert result.exit_code == 2 and "shapes: [4, 8] here, [8, 4] there" in result.stdout


def test_a_model_of_tensorflow_beside_onnxruntime_on_its_translation(frozen: str) -> None:
    found = compared(frozen, "--plugin", "rules.py", "--per-node")
    said = "onnxruntime on the translated graph, since it is a model of tensorflow"
    assert found["outputs_beside"] == said and not found["diverges"]
    assert [row["value"] for row in found["outputs"]] == ["y"] and found["rows"]
    asked = compared(frozen, "--plugin", "rules.py", "--outputs", "act", "--frontend", "tensorflow")
    assert [row["value"] for row in asked["outputs"]] == ["act"]


def test_saved_values_have_the_names_and_the_format_of_tensorflow(frozen: str) -> None:
    """What no Transpose makes any more is compared all the same, turned."""
    od.plugins.load("rules.py")
    x = np.random.default_rng(1).standard_normal((1, 6, 6, 4)).astype(np.float32)
    (act,) = od.InferenceSession(frozen, outputs=["act"]).run(None, {"x": x})
    np.savez("x.npz", x=x)
    wrong = act.copy()
    wrong[0, 1, 2, 3] += 7
    np.savez("good.npz", **{"act:0": act, "y:0": np.tanh(act)})
    np.savez("wrong.npz", act=wrong)
    given = (frozen, "-i", "x.npz", "--per-node", "--json", "--reference")
    good = json.loads(invoke(*given, "good.npz").stdout)
    assert [row["value"] for row in good["rows"]] == ["act", "y"] and not good["diverges"], good
    bad = json.loads(invoke(*given, "wrong.npz").stdout)
    assert bad["first"] == "act" and bad["first_value"]["index"] == [0, 1, 2, 3]
    assert bad["first_value"]["difference"] == pytest.approx(7, rel=1e-5)


def test_units_in_the_last_place() -> None:
    one = np.float32(1)
    assert ulps(np.nextafter(one, np.float32(2)), one, np.dtype(np.float32)) == 1
    assert ulps(np.float32(-0.0), np.float32(0.0), np.dtype(np.float32)) == 0
    tiny = np.float32(np.finfo(np.float32).smallest_subnormal)
    assert ulps(-tiny, tiny, np.dtype(np.float32)) == 2
    assert ulps(np.float32(1.0078125), np.float32(1), np.dtype(ml_dtypes.bfloat16)) == 1
    assert (
        ulps(ml_dtypes.float8_e4m3fn(1.125), ml_dtypes.float8_e4m3fn(1), np.dtype(ml_dtypes.float8_e4m3fn))
        == 1
    )
    assert ulps(np.int8(-128), np.int8(127), np.dtype(np.int8)) == 255
    assert ulps(np.float32(np.inf), one, np.dtype(np.float32)) == np.inf
    assert ulps(np.float32(np.nan), np.float32(np.nan), np.dtype(np.float32)) == 0


def test_differences_of_wide_integers_are_exact() -> None:
    large = np.array([2**62, -(2**63)], np.int64)
    assert errors_of(large, large + np.array([1, 2**63 - 1])).tolist() == [1.0, float(2**63 - 1)]
    found = value_comparison(("n", "Op"), (), "v", large, large + np.array([1, 0]), 1e-30)
    assert (found.index, found.ulp, found.diverges) == ((0,), 1.0, True)


def test_nothing_differs_in_empty_arrays_and_equal_infinities() -> None:
    empty = np.zeros((0, 3), np.float32)
    assert value_comparison(("n", "Op"), (), "v", empty, empty, 0.1).index is None
    odd = np.array([np.inf, -np.inf, np.nan], np.float32)
    assert not value_comparison(("n", "Op"), (), "v", odd, odd, 0.1).diverges
    other = value_comparison(("n", "Op"), (), "v", odd, np.array([np.inf, 1, 2], np.float32), 0.1)
    assert other.diverges and other.index == (1,) and other.error == np.inf
