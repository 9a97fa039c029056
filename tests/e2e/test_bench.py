# SPDX-License-Identifier: Apache-2.0
"""``onedispatch bench``: what it prints of one model, and of several."""

from __future__ import annotations

import importlib.util
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

import onedispatch as od
from onedispatch.dispatch.cli.commands import app
from onedispatch.dispatch.tools import beside

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")

DIGITS = str(Path(__file__).resolve().parents[2] / "models" / "digits.onnx")


def bench(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["bench", DIGITS, "--runs", "2", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_one_measurement_is_an_object() -> None:
    row = json.loads(bench("--json"))
    assert row["ratio"] == pytest.approx(row["seconds"] / row["onnxruntime_seconds"])
    assert row["precision"] == "fp32" and row["threads"] == 1 and row["runs"] >= 2
    assert row["recorded"][0] in ("played", "verified") and row["largest_error"] < 1e-4
    assert "in one dispatch" in row["summary"]["verdict"] and row["summary"]["cpu"] == 0


def test_several_have_means() -> None:
    kinds = ["--precision", "fp32", "--precision", "int8", "--precision", "bf16"]
    report: dict[str, Any] = json.loads(bench(*kinds, "--threads", "1", "--threads", "2", "--json"))
    wanted = [(precision, threads) for precision in ("fp32", "int8", "bf16") for threads in (1, 2)]
    assert [(row["precision"], row["threads"]) for row in report["rows"]] == wanted
    assert [(mean["precision"], mean["threads"]) for mean in report["geometric_means"]] == wanted
    for row, mean in zip(report["rows"], report["geometric_means"], strict=True):
        assert mean["models"] == 1 and mean["ratio"] == pytest.approx(row["ratio"])
        assert row["largest_error"] < 0.05 and row["dispatches"] == 1


def test_several_are_a_table() -> None:
    text = bench(DIGITS)
    assert text.count("digits, fp32: all 11 nodes on the NPU in one dispatch") == 1
    assert text.count("digits") == 3 and "mean of 2" in text


def test_the_verdict_comes_first() -> None:
    assert bench().startswith("all 11 nodes on the NPU in one dispatch; ")


def test_both_sides_compute_a_model_with_a_frozen_input(tmp_path: Path) -> None:
    graph = "g (float[2, 3] x, float[3] by) => (float[2, 3] y) { y = Mul(x, by) }"
    text = f'<ir_version: 8, opset_import: ["": 17]> {graph}'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "scaled.onnx")
    command = ["bench", str(tmp_path / "scaled.onnx"), "--runs", "2", "--json", "--set"]
    result = CliRunner().invoke(app, [*command, "by=[1,2,4]"], catch_exceptions=False)
    assert json.loads(result.stdout)["largest_error"] == 0.0
    with pytest.raises(od.InputError, match="inputs of the model: x, by"):
        CliRunner().invoke(app, [*command, "to=1"], catch_exceptions=False)


def saved(tmp_path: Path, graph: str, name: str = "m.onnx", **constants: Any) -> str:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {graph}')
    made = (onnx.numpy_helper.from_array(np.asarray(one), name) for name, one in constants.items())
    model.graph.initializer.extend(made)
    onnx.save(model, tmp_path / name)
    return str(tmp_path / name)


def row_of(*arguments: str) -> Any:
    command = ["bench", *arguments, "--runs", "2", "--fallback", "cpu", "--json"]
    result = CliRunner().invoke(app, command, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


BRANCHES = (
    "then_branch = t () => (float[2, 3] a) { a = Mul(x, w) }, "
    "else_branch = e () => (float[2, 3] b) { b = Add(x, u) }"
)


@pytest.mark.parametrize(
    ("graph", "constants", "options"),
    [
        ("g (float[2,3] x, float[3] w) => (float[2,3] y) { y = Mul(x, w) }", {"w": np.ones(3, "f")}, []),
        ("g (float[2,3] x) => (string[2,3] y) { y = Cast <to = 8> (x) }", {}, []),
        ("g (string[2,3] x) => (string[2,3] y) { y = Identity(x) }", {}, []),
        ("g (float[2,3] x) => (bool[2,3] y) { y = Less(x, z) }", {"z": np.float32(0)}, []),
        ("g (uint8[2,3] x) => (uint8[2,3] y) { y = Max(x, x) }", {}, []),
        ("g (float[0,3] x) => (float[0,3] y) { y = Relu(x) }", {}, []),
        (
            f"g (float[2,3] x, bool c) => (float[2,3] y) {{ y = If(c) <{BRANCHES}> }}",
            {"w": np.ones(3, "f"), "u": np.full(3, 2, "f")},
            ["--batch", "4"],
        ),
    ],
    ids=["defaults", "texts", "texts in", "truths", "bytes", "empty", "bodies"],
)
def test_kinds_of_models(tmp_path: Path, graph: str, constants: dict[str, Any], options: list[str]) -> None:
    assert row_of(saved(tmp_path, graph, **constants), *options)["largest_error"] < 1e-6


def test_what_differs_is_seen() -> None:
    assert beside._error(np.array(["a", "b"], object), np.array(["a", "c"])) == 0.5
    assert beside._error(np.array([1, 255], np.uint8), np.array([1, 0], np.uint8)) == 255.0
    assert beside._error(np.array([True]), np.array([False])) == math.inf
    assert beside._error([np.zeros(3)], [np.zeros(3)]) is None


def test_a_frozen_infinity_warns_of_nothing(tmp_path: Path) -> None:
    graph = "g (float[2,3] x, float[3] by) => (float[2,3] y) { y = Add(x, by) }"
    assert row_of(saved(tmp_path, graph), "--set", "by=1e999")["largest_error"] == 0.0


def test_the_model_that_lacks_an_input_is_named(tmp_path: Path) -> None:
    has = saved(tmp_path, "g (float[3] x, float[3] by) => (float[3] y) { y = Add(x, by) }", "has.onnx")
    lacks = saved(tmp_path, "g (float[3] x) => (float[3] y) { y = Neg(x) }", "lacks.onnx")
    with pytest.raises(od.InputError, match=r"lacks\.onnx, inputs to freeze: given 'by'"):
        row_of(has, lacks, "--set", "by=1")


def test_published_runs_take_no_options() -> None:
    with pytest.raises(od.InputError, match="bench --published: given --runs, --set; accepted: --json alone"):
        command = ["bench", "--published", "--set", "x=1", "--runs", "3"]
        CliRunner().invoke(app, command, catch_exceptions=False)


def test_onnxruntime_is_a_comparison_only(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "onnxruntime" else found(name, *rest)
    )
    row = json.loads(bench("--json"))
    assert row["ratio"] is None and row["onnxruntime_seconds"] is None and math.isfinite(row["seconds"])
    assert "–" in bench()


@pytest.mark.parametrize(
    ("given", "said"), [(["--precision", "fp8"], "precision"), (["--threads", "0"], "threads")]
)
def test_what_is_refused(given: list[str], said: str) -> None:
    with pytest.raises(od.InputError, match=said):
        CliRunner().invoke(app, ["bench", DIGITS, *given], catch_exceptions=False)
