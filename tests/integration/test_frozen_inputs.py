# SPDX-License-Identifier: Apache-2.0
"""Inputs that become constants: ``freeze=`` and ``--set``, what they take, what saved models keep."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser
from typer.testing import CliRunner

import onedispatch as od
from onedispatch.dispatch.cli import app
from onedispatch.dispatch.driver.compile_model import imported
from onedispatch.dispatch.frontend.frozen import frozen

MODEL = parser.parse_model("""
<ir_version: 8, opset_import: ["": 21]>
g (float[N, 4] x, int64 sr, float[4] gain, int64[K] sizes, bool flag) => (float[N, M] y) {
  rate = Cast<to = 1>(sr)
  scaled = Mul(x, gain)
  sum = Add(scaled, rate)
  less = Neg(sum)
  kept = Where(flag, sum, less)
  y = Reshape(kept, sizes)
}
""")
GIVEN = {"sr": 3, "gain": [1.0, 0.5, 2.0, 0.25], "sizes": [-1, 2], "flag": False}
X = np.arange(12, dtype=np.float32).reshape(3, 4)


def expected(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    feed = {
        "x": x,
        "sr": np.array(3, np.int64),
        "gain": np.float32(GIVEN["gain"]),
        "sizes": np.int64([-1, 2]),
        "flag": np.array(False),
    }
    answers: list[np.ndarray[Any, Any]] = onnxruntime.InferenceSession(MODEL.SerializeToString()).run(
        None, feed
    )
    return answers[0]


def cli(*arguments: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(one) for one in arguments])
    assert result.exit_code == code, result.output
    return str(result.exception) if code else result.stdout


@pytest.fixture
def file(tmp_path: Path) -> Path:
    onnx.save(MODEL, tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def test_results_are_those_of_inputs_with_these_values() -> None:
    session = od.InferenceSession(MODEL, freeze=GIVEN)
    assert [one.name for one in session.get_inputs()] == ["x"]
    assert session.model.deciding == frozenset()  # the value of sizes is known
    np.testing.assert_allclose(session.run(None, {"x": X})[0], expected(X), rtol=1e-6)


def test_saved_and_pickled_models_remember_them(tmp_path: Path) -> None:
    compiled = od.compile(MODEL, freeze=GIVEN, shapes={"x": (3, 4)})
    compiled.save(tmp_path / "m.od")
    for model in (od.load(tmp_path / "m.od"), pickle.loads(pickle.dumps(compiled))):
        assert {name: array.tolist() for name, array in model.frozen.items()} == GIVEN
        np.testing.assert_allclose(od.InferenceSession(model).run(None, {"x": X})[0], expected(X), rtol=1e-6)
    od.InferenceSession(tmp_path / "m.od", freeze={"sr": 3})
    with pytest.raises(od.InputError, match=r"sr=4; accepted: 3, which the model was compiled with"):
        od.InferenceSession(tmp_path / "m.od", freeze={"sr": 4})
    with pytest.raises(od.InputError, match=r"'x'; accepted: inputs that were frozen"):
        od.InferenceSession(tmp_path / "m.od", freeze={"x": X})


@pytest.mark.parametrize(
    "values, message",
    [
        ({"rs": 1}, "inputs to freeze: given 'rs'; accepted: inputs of the model: x, sr, gain, sizes, flag"),
        ({"sr": 0.5}, "input 'sr', frozen: given 0.5; accepted: sr: tensor\\(int64\\)"),
        ({"sr": True}, "input 'sr', frozen: given True"),
        ({"sr": "fast"}, "input 'sr', frozen: given 'fast'"),
        ({"sr": 1 << 70}, "input 'sr', frozen"),
        ({"sr": [1, 2]}, "given shape \\[2\\]; accepted: sr: tensor\\(int64\\)\\[\\]"),
        ({"sr": np.array(1, np.int32)}, "given dtype int32; accepted: int64"),
        ({"gain": [1.0, 2.0]}, "given shape \\[2\\]; accepted: gain: tensor\\(float\\)\\[4\\]"),
        ({"gain": [[1.0], [2.0, 3.0]]}, "accepted: lists of equal lengths"),
        ({"gain": 1e300}, "numbers that float32 has"),
        ({"flag": 1}, "input 'flag', frozen: given 1"),
        ({"x": 1.0}, "given shape \\[\\]; accepted: x: tensor\\(float\\)\\[N, 4\\]"),
    ],
)
def test_what_an_input_does_not_take_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(od.InputError, match=message):
        frozen(imported(MODEL), values)


def test_one_number_fills_an_input_of_known_shape() -> None:
    graph = frozen(imported(MODEL), {"gain": 2})
    np.testing.assert_array_equal(graph.constants["gain"], np.full(4, 2, np.float32))
    assert graph.value("gain").shape == (4,) and not graph.constants["gain"].flags.writeable
    assert [value.name for value in graph.inputs] == ["x", "sr", "sizes", "flag"]


def test_commands_take_them(file: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "gain.npy", np.float32(GIVEN["gain"]))
    np.save(tmp_path / "x.npy", X)
    values = ["sr=3", f"gain=@{tmp_path / 'gain.npy'}", "sizes=[-1,2]", "flag=false"]
    flags = [part for text in values for part in ("--set", text)]
    cli("run", file, *flags, "-i", f"x={tmp_path / 'x.npy'}", "-o", tmp_path / "y.npz")
    np.testing.assert_allclose(np.load(tmp_path / "y.npz")["y"], expected(X), rtol=1e-6)
    compared = json.loads(cli("compare", file, *flags, "--random", "--shape", "x=3,4", "--json"))
    assert compared["outputs_beside"] == "onnxruntime" and not compared["diverges"]
    cli("compile", file, "-o", tmp_path / "m.od", "--shape", "x=3,4", *flags)
    assert json.loads(cli("inspect", tmp_path / "m.od", "--json"))[0]["frozen"]["sr"] == 3
    assert "input sizes, frozen: [-1, 2]" in cli("inspect", tmp_path / "m.od", "--set", "sr=3")


@pytest.mark.parametrize(
    "text, message",
    [
        ("sr", "--set: given 'sr'; accepted: name=value"),
        ("sr=", "--set: given 'sr='"),
        ("sr=@none.npy", "--set: given 'sr=@none.npy'"),
        ("sr=quick", "input 'sr', frozen: given 'quick'"),
    ],
)
def test_wrong_command_lines_say_why(text: str, message: str, file: Path) -> None:
    assert message in cli("inspect", file, "--set", text, code=1)
