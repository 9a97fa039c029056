# SPDX-License-Identifier: Apache-2.0
"""Selection by measuring: the fastest of what the cost model offers, where no catalog knows better."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from typer.testing import CliRunner

import onedispatch as od
from onedispatch.dispatch.cli.commands import app
from onedispatch.dispatch.tools import zoo
from onedispatch.dispatch.tuning import measured
from onedispatch.dispatch.tuning.collect import problems_of
from onedispatch.operators.scheduling.problem import Problem
from onedispatch.operators.scheduling.select import SEARCH
from onedispatch.operators.scheduling.solution import Solution
from onedispatch.transactions import Device, find_device
from onedispatch.transactions.base.errors import SolutionError
from tests.ops.case import check_beside_onnxruntime

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")

NPU2 = find_device("npu2")
ALONE = ["none"]  # no catalog


def model(rows: int = 36, size: int = 100) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, size])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Softmax", ["a"], ["b"]),
        helper.make_node("Exp", ["b"], ["y"]),
    ]
    weights = np.random.default_rng(3).standard_normal((size, size)).astype(np.float32)
    graph = helper.make_graph(nodes, "g", [x], [y], [onnx.numpy_helper.from_array(weights, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(scope="module")
def problems() -> list[Problem]:
    return list(problems_of(lambda chosen: od.compile(model(), "npu2", selector=chosen, groups="off")))


def test_what_is_chosen_is_the_fastest_that_was_measured(problems: list[Problem]) -> None:
    selector, seen = od.MeasuredSearch(5, ALONE), dict[Problem, dict[Solution, int]]()

    def noted(problem: Problem, solution: Solution, device: Device) -> int:
        cycles = od.measure(problem, solution, device)
        seen.setdefault(problem, {})[solution] = cycles
        return cycles

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measured, "measure", noted)
        chosen = {problem: selector.select(problem, NPU2) for problem in problems}
    for problem, solution in chosen.items():
        tried = seen[problem]
        assert 1 < len(tried) <= 6
        assert SEARCH.select(problem, NPU2) in tried  # so it is never slower
        assert tried[solution] == min(tried.values())
        assert selector.origin_of(problem) == (
            f"measured, {tried[solution]:,} cycles, of {len(tried)} the fastest"
        )


def test_a_copy_in_another_process_chooses_alike(problems: list[Problem]) -> None:
    selector = od.MeasuredSearch(3, ALONE)
    copy = pickle.loads(pickle.dumps(selector))
    assert repr(copy) == repr(selector) == "MeasuredSearch(3)"
    assert not copy.catalogs
    assert [copy.select(one, NPU2) for one in problems] == [selector.select(one, NPU2) for one in problems]


def test_what_a_catalog_has_tuned_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    network = zoo.find_model("light_squeezenet")
    known, *_ = problems_of(lambda chosen: od.compile(network, "npu2", selector=chosen))
    monkeypatch.setattr(measured, "measure", None)  # it would fail
    selector = od.MeasuredSearch()
    assert selector.select(known, NPU2) == od.CatalogSearch(selector.catalogs).select(known, NPU2)
    assert selector.counts == {"exact": 1}


def test_a_problem_that_cannot_be_measured_is_searched(
    problems: list[Problem], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise SolutionError("problem", "a custom kernel's", "declared kernels")

    monkeypatch.setattr(measured, "measure", refuse)
    selector = od.MeasuredSearch(2, ALONE)
    assert selector.select(problems[0], NPU2) == SEARCH.select(problems[0], NPU2)
    assert selector.origin_of(problems[0]) == ""


def test_results_and_reports_are_those_of_a_run() -> None:
    feed = {"x": np.random.default_rng(5).standard_normal((36, 100)).astype(np.float32)}
    compiled = od.compile(model(), fallback="error", selector=od.MeasuredSearch(4, ALONE))
    tried = od.InferenceSession(compiled)
    check_beside_onnxruntime(model(), feed, tried.run(None, feed), "fp32")
    schedules = [line for op in tried.last_run.ops for line in op.schedule]
    assert any("measured, " in line for line in schedules)
    assert tried.last_run.cycles == compiled.timing().cycles


def test_commands_measure_and_say_so(tmp_path: Path) -> None:
    onnx.save(model(), tmp_path / "m.onnx")
    runner = CliRunner()
    arguments = [str(tmp_path / "m.onnx"), "--catalog", "none"]
    done = runner.invoke(app, ["inspect", *arguments, "--measure", "3", "--full"], env={"COLUMNS": "400"})
    assert done.exit_code == 0, done.output
    assert "cycles, of 4 the fastest" in done.output
    done = runner.invoke(app, ["compile", *arguments, "--measure", "3", "-o", str(tmp_path / "m.od")])
    assert done.exit_code == 0, done.output
    done = runner.invoke(app, ["inspect", str(tmp_path / "m.od"), "--measure", "3"])
    assert isinstance(done.exception, od.InputError)
    assert "--measure" in str(done.exception) and "compiled already" in str(done.exception)


@pytest.mark.parametrize("given", [0, -1, 1025, 2.5, True, "3"])
def test_another_count_is_refused(given: Any) -> None:
    with pytest.raises(od.InputError, match="a whole number from 1 to 1024"):
        od.MeasuredSearch(given)
