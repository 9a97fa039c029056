# SPDX-License-Identifier: Apache-2.0
"""``onedispatch bench``: what it prints of one model, and of several."""

from __future__ import annotations

import importlib.util
import json
import math
from pathlib import Path
from typing import Any

import onnx
import pytest
from typer.testing import CliRunner

import onedispatch as od
from onedispatch.dispatch.cli.commands import app

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
