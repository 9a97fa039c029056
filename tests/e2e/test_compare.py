# SPDX-License-Identifier: Apache-2.0
"""``onedispatch run --compare``: every value beside the host's, and the first that diverges."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from typer.testing import CliRunner

import onedispatch as od
from onedispatch.dispatch.cli import app, models
from onedispatch.dispatch.cli.comparison import show
from onedispatch.dispatch.tools.compare import Comparison
from tests.e2e.quantised_models import NETWORKS, Scheme, feeds_of, quantised

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")

pytestmark = pytest.mark.usefixtures("no_plugins")

NODES = """
<ir_version: 8, opset_import: ["": 17]> g (float[4, 16] x) => (float[4, 8] y) {
  [product] p = MatMul(x, w)
  [bias] b1 = Add(p, b)
  [bend] r = Relu(b1)
  [scale] s = Mul(r, thousand)
  [wave] c = Cos(s)
  [last] y = Softmax(c)
}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A product, a bias and a function that become one; then a cosine of large numbers, which no bf16 has."""
    proto = onnx.parser.parse_model(NODES)
    rng = np.random.default_rng(5)
    given = {"w": rng.standard_normal((16, 8)), "b": rng.standard_normal(8), "thousand": np.array(1000.0)}
    for name, array in given.items():
        proto.graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), name))
    target = tmp_path / "m.onnx"
    onnx.save(proto, target)
    return target


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["run", *arguments])


def comparison(*arguments: str) -> dict[str, Any]:
    result = invoke(*arguments, "--random", "--compare", "--json")
    found: dict[str, Any] = json.loads(result.stdout)["comparison"]
    assert found["diverges"] == (found["first"] is not None)
    assert result.exit_code == (2 if found["diverges"] else 0), result.output
    return found


def test_values_of_bf16_beside_float32(path: Path) -> None:
    found = comparison(str(path), "--precision", "bf16", "--fallback", "error")
    rows = {row["value"]: row for row in found["rows"]}
    assert list(rows) == ["r", "c", "y"]
    assert rows["r"]["node"] == "bend" and set(rows["r"]["nodes"]) == {"bend", "bias", "product"}
    assert 1e-5 < rows["r"]["relative"] < 0.02 and not rows["r"]["diverges"]
    assert rows["r"]["relative"] == pytest.approx(rows["r"]["error"] / rows["r"]["largest"])
    assert rows["c"]["nodes"] == ["wave", "scale"] and rows["c"]["diverges"] and rows["c"]["relative"] > 0.5
    assert (found["precision"], found["threshold"], found["first"]) == ("bf16", 0.05, "wave")
    (output,) = found["outputs"]
    assert output["value"] == "y" and found["outputs_beside"] == "onnxruntime"


def test_the_threshold_is_an_option(path: Path) -> None:
    assert comparison(str(path), "--precision", "bf16", "--threshold", "1e-6")["first"] == "bend"
    assert comparison(str(path), "--precision", "bf16", "--threshold", "10")["first"] is None
    assert comparison(str(path))["first"] is None  # float32 on the device
    result = invoke(str(path), "--random", "--compare", "--threshold", "0")
    assert isinstance(result.exception, od.InputError) and "a number above 0" in str(result.exception)


def test_people_read_the_first_that_diverges(path: Path) -> None:
    text = " ".join(invoke(str(path), "--random", "--compare", "--precision", "bf16").stdout.split())
    assert "bend +2" in text and "first to diverge: wave (Cos), value c: error" in text
    text = " ".join(invoke(str(path), "--random", "--compare").stdout.split())
    assert "no value differs by more than 0.05 of its largest number" in text


def test_quantised_models_beside_onnxruntimes_integers(tmp_path: Path) -> None:
    proto = onnx.parser.parse_model("""
<ir_version: 8, opset_import: ["": 17]> g (float[4, 16] x) => (int32[4, 8] y) {
  q = QuantizeLinear(x, scale, zero)
  y = MatMulInteger(q, w, zero)
}
""")
    weights = np.random.default_rng(5).integers(-128, 127, (16, 8)).astype(np.int8)
    given = {"w": weights, "scale": np.float32(0.02), "zero": np.int8(3)}
    for name, array in given.items():
        proto.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
    onnx.save(proto, tmp_path / "q.onnx")
    rows = {row["value"]: row for row in comparison(str(tmp_path / "q.onnx"))["rows"]}
    assert {name: row["dtype"] for name, row in rows.items()} == {"q": "int8", "y": "int32"}
    assert rows["q"]["error"] == rows["y"]["error"] == 0


@pytest.mark.parametrize("network", NETWORKS)
def test_the_answers_of_quantised_networks_are_onnxruntimes(network: str, tmp_path: Path) -> None:
    """To the bit, as users run it: unoptimised it computes in floats, units away from its own answers."""
    floats = NETWORKS[network]()
    proto = quantised(floats, Scheme("u8", "s8", per_channel=True), tmp_path, feeds_of(floats, 3, 1))
    onnx.save(proto, tmp_path / "q.onnx")
    found = comparison(str(tmp_path / "q.onnx"), "--fallback", "error")
    assert found["first"] is None and [row["error"] for row in found["outputs"]] == [0.0]
    integers = [row for row in found["rows"] if "int" in row["dtype"]]
    assert len(integers) > 9 and {row["error"] for row in integers} == {0.0}


def test_an_output_that_diverges_is_the_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inside all agrees: the answers that the run gave do not."""
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[4] x) => (float[4] y) { [a] y = Relu(x) }'
    )
    onnx.save(proto, tmp_path / "m.onnx")
    assert comparison(str(tmp_path / "m.onnx"))["first"] is None
    values = models._values
    monkeypatch.setattr(models, "_values", lambda *given, **more: [one + 1 for one in values(*given, **more)])
    found = comparison(str(tmp_path / "m.onnx"))
    assert found["first"] == "a" and not any(row["diverges"] for row in found["rows"])
    result = invoke(str(tmp_path / "m.onnx"), "--random", "--compare")
    assert result.exit_code == 2 and "outputs in fp32 beside onnxruntime" in result.stdout


def test_what_onnxruntime_does_not_run_is_compared_with_the_hosts_engines(tmp_path: Path) -> None:
    (tmp_path / "twice.py").write_text(
        "import onedispatch as od\n"
        "@od.kernel('compared::twice', inputs='x', outputs='z')\n"
        "class Twice:\n"
        "    def infer(self, n):\n        return {'z': n['x'].like()}\n"
        "    def body(self, t):\n        t.z[:] = t.x + t.x\n"
        "od.maps('Twice', domain='compared')(Twice)\n"
    )
    proto = onnx.parser.parse_model("""
<ir_version: 8, opset_import: ["": 17, "compared": 1]> g (float[4] x) => (float[4] y) {
  t = compared.Twice(x)
  y = Relu(t)
}
""")
    onnx.save(proto, tmp_path / "m.onnx")
    found = comparison(str(tmp_path / "m.onnx"), "--plugin", str(tmp_path / "twice.py"))
    assert found["outputs_beside"].startswith("the host's engines, since onnxruntime does not run the model")
    assert found["first"] is None and len(found["outputs"]) == 1


def test_help_states_what_is_compared_and_how_it_ends() -> None:
    text = " ".join(invoke("--help").output.split())
    assert "onnxruntime with its default options" in text and "exit code is 2" in text


def test_infinities_beside_numbers_diverge(path: Path, tmp_path: Path) -> None:
    proto = onnx.parser.parse_model("""
<ir_version: 8, opset_import: ["": 17]> g (float[1, 4, 1] x) => (float[1, 4, 1] y) {
  [large] a = Add(x, x)
  [mean] y = GlobalAveragePool(a)
}
""")
    onnx.save(proto, tmp_path / "m.onnx")
    np.save(
        tmp_path / "x.npy", np.array([1, 2, 3, 1.6999e38], np.float32).reshape(1, 4, 1)
    )  # twice that rounds to infinity
    arguments = (str(tmp_path / "m.onnx"), "--precision", "bf16", "-i", f"x={tmp_path / 'x.npy'}")
    found = comparison(*arguments)
    assert found["first"] == "large" and found["rows"][0]["relative"] is None  # no number, in JSON


def test_a_compiled_model_has_no_graph_to_compare(path: Path, tmp_path: Path) -> None:
    compiled = tmp_path / "m.od"
    od.compile(path).save(compiled)
    result = invoke(str(compiled), "--random", "--compare")
    assert isinstance(result.exception, od.InputError) and "the ONNX file" in str(result.exception)


def test_a_threshold_is_for_comparisons(path: Path) -> None:
    result = invoke(str(path), "--random", "--threshold", "0.1")
    assert isinstance(result.exception, od.InputError) and "without --compare" in str(result.exception)


def test_nothing_to_compare(capsys: pytest.CaptureFixture[str]) -> None:
    """Strings have no differences: a model of nothing else has no rows."""
    show(Comparison("fp32", 0.05, ()))
    text = capsys.readouterr().out
    assert "nothing to compare" in text and "no value differs" not in text
