# SPDX-License-Identifier: Apache-2.0
"""Problems and solutions are values: the same in every process, and checked wherever they come from."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onedispatch as od
from onedispatch.operators.declarations.functions import Activation
from onedispatch.operators.declarations.tensor import TensorSpec, Unsupported
from onedispatch.operators.interface.operator import Operator
from onedispatch.operators.kernels.matmul import MatMul, ProductOptions
from onedispatch.operators.scheduling import select as selecting
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.operators.scheduling.problem import Problem
from onedispatch.operators.scheduling.search import best_with_cost, search
from onedispatch.operators.scheduling.select import SEARCH, select
from onedispatch.operators.scheduling.solution import Mapping, Solution
from onedispatch.transactions import Device, find_device
from tests.ops.case import run_onnxruntime

NPU2 = find_device("npu2")


def product(m: int = 200, k: int = 96, n: int = 160, activation: str = "none", device: Device = NPU2) -> Nest:
    a, b = (TensorSpec(name, np.dtype(np.float32), shape) for name, shape in (("a", (m, k)), ("b", (k, n))))
    out = TensorSpec("y", np.dtype(np.float32), (m, n))
    return MatMul("product", a, b, out, device, ProductOptions(activation=Activation(activation))).nests()[0]


def through_json(data: Any) -> Any:
    return json.loads(json.dumps(data))


# -- problems ------------------------------------------------------------------------------------


def test_a_problem_survives_json_and_is_searched_alike() -> None:
    problem = Problem.of(product(), NPU2)
    again = Problem.from_data(through_json(problem.to_data()))
    assert again == problem and hash(again) == hash(problem) and again.digest == problem.digest
    assert search(again.nest, NPU2) == search(product(), NPU2)


_DIGEST = """
import sys
sys.path.insert(0, {root!r})
from tests.integration.test_operators_solution import NPU2, SEARCH, Problem, product
problem = Problem.of(product(), NPU2)
print(problem.digest, SEARCH.select(problem, NPU2).name)
"""


def test_other_processes_know_a_problem_by_the_same_digest(repository: Any) -> None:
    problem = Problem.of(product(), NPU2)
    expected = f"{problem.digest} {SEARCH.select(problem, NPU2).name}"
    for seed in ("0", "4711"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        script = _DIGEST.format(root=str(repository))
        run = subprocess.run(
            [sys.executable, "-c", script],
            env=environment,
            cwd=repository,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert run.stdout.strip() == expected, run.stderr


def test_where_tensors_lie_is_no_part_of_a_problem() -> None:
    nest = product()
    moved = replace(nest, outputs=(replace(nest.outputs[0], offset=64),))
    assert Problem.of(moved, NPU2) == Problem.of(nest, NPU2)


def test_functions_that_cost_the_same_are_one_problem() -> None:
    assert Problem.of(product(activation="relu"), NPU2) == Problem.of(product(activation="abs"), NPU2)
    assert Problem.of(product(activation="tanh"), NPU2) != Problem.of(product(), NPU2)


@pytest.mark.parametrize("other", [{"m": 201}, {"k": 97}, {"n": 161}])
def test_other_extents_are_other_problems(other: dict[str, int]) -> None:
    assert Problem.of(product(**other), NPU2).digest != Problem.of(product(), NPU2).digest


def test_a_device_is_known_by_its_description() -> None:
    nest = product()
    slower = NPU2.with_constants(**{"ddr.gigabytes_per_second": 10.0})
    keys = {Problem.of(nest, device).digest for device in (NPU2, slower, find_device("npu1"))}
    assert len(keys) == 3
    with pytest.raises(od.SolutionError, match="Use that device"):
        SEARCH.select(Problem.of(nest, slower), NPU2)


def test_a_problem_without_work_has_no_solution() -> None:
    problem = Problem.of(product(), NPU2)
    for dim in range(2):
        data = through_json(problem.to_data())
        data["dims"][dim]["extent"] = 0
        with pytest.raises(od.SolutionError, match=r"extents \[.*0.*1 or more"):
            SEARCH.select(Problem.from_data(data), NPU2)


def test_a_problem_of_an_unknown_kernel_says_which_are_known() -> None:
    problem = replace(Problem.of(product(), NPU2), kernel="od::gone@1")
    with pytest.raises(od.SolutionError, match="od::gemm@1"):
        _ = problem.nest


# -- solutions -------------------------------------------------------------------------------------


def chosen() -> Solution:
    return search(product(), NPU2)


def test_a_solution_is_frozen_and_survives_json() -> None:
    solution = chosen()
    with pytest.raises(dataclasses.FrozenInstanceError):
        solution.k_tile = 1  # type: ignore[misc]
    again = Solution.from_data(through_json(solution.to_data()))
    assert again == solution and again.name == solution.name
    assert replace(solution, k_tile=1).name != solution.name


DAMAGE: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "missing": (lambda d: d.pop("tiles"), "a dictionary of"),
    "unknown": (lambda d: d.update(speed=3), "a dictionary of"),
    "type": (lambda d: d.update(k_tile="8"), r"solution\.k_tile.*int"),
    "flag": (lambda d: d.update(k_tile=True), r"solution\.k_tile"),
    "item": (lambda d: d["tiles"].__setitem__(1, 2.5), r"solution\.tiles\[1\]"),
    "list": (lambda d: d.update(tiles=7), "a list"),
    "nested": (lambda d: d["mapping"].update(columns=None), r"solution\.mapping\.columns"),
    "neither": (lambda d: d["mapping"].update(row_dim="m"), "int or NoneType"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_solution_says_where(name: str) -> None:
    damage, message = DAMAGE[name]
    data = through_json(chosen().to_data())
    damage(data)
    with pytest.raises(od.SolutionError, match=message):
        Solution.from_data(data)


@pytest.mark.parametrize("data", [None, 3, "x", [], {"tiles": []}])
def test_what_is_no_solution_or_problem_is_told_so(data: Any) -> None:
    for kind in (Solution, Problem):
        with pytest.raises(od.SolutionError):
            kind.from_data(data)


# -- selectors -------------------------------------------------------------------------------------


class Always:
    """A selector with one answer."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked: list[Problem] = []

    def select(self, problem: Problem, device: Device) -> Solution:
        self.asked.append(problem)
        answer: Solution = self.answer(problem) if callable(self.answer) else self.answer
        return answer


PLAIN = Mapping(None, None, 1, frozenset(), False, (0, 1))
UNFIT: dict[str, tuple[Solution, str]] = {
    "kernel": (Solution("od::conv@1", PLAIN, (8, 8), 8), "od::gemm@1"),
    "count": (Solution("od::gemm@1", PLAIN, (8,), 8), "one per dimension"),
    "zero": (Solution("od::gemm@1", PLAIN, (0, 8), 8), "tile of m"),
    "large": (Solution("od::gemm@1", PLAIN, (8, 161), 8), "tile of n.*1 to 160"),
    "k": (Solution("od::gemm@1", PLAIN, (8, 8), 97), "tile of k"),
    "memory": (Solution("od::gemm@1", PLAIN, (200, 160), 96), "bytes"),
    "row": (Solution("od::gemm@1", replace(PLAIN, row_dim=2), (8, 8), 8), "row dimension"),
    "columns": (Solution("od::gemm@1", replace(PLAIN, col_dim=0, columns=9), (8, 8), 8), "1 to 8"),
    "idle": (Solution("od::gemm@1", replace(PLAIN, columns=4), (8, 8), 8), "column dimension"),
    "order": (Solution("od::gemm@1", replace(PLAIN, order=(0, 0)), (8, 8), 8), "loop order"),
    "in1": (Solution("od::gemm@1", replace(PLAIN, row_dim=0, in1=frozenset("a")), (8, 8), 8), "rows share"),
    "rowcast": (Solution("od::gemm@1", replace(PLAIN, rowcast=True), (8, 8), 8), "row broadcast"),
}


@pytest.mark.parametrize("name", UNFIT)
def test_an_unfit_solution_is_told_what_would_fit(name: str) -> None:
    solution, message = UNFIT[name]
    with pytest.raises(od.SolutionError, match=message) as caught:
        select(product(), NPU2, Always(solution))
    fits = Solution.from_data(caught.value.would_fit)
    assert select(product(), NPU2, Always(fits)).solution == fits


def test_an_answer_that_is_no_solution_is_told_so() -> None:
    with pytest.raises(od.SolutionError, match="a NoneType"):
        select(product(), NPU2, Always(None))


def test_a_selector_that_fails_is_named() -> None:
    with pytest.raises(od.InternalError, match="Always"):
        select(product(), NPU2, Always(lambda problem: 1 // 0))


def chain() -> onnx.ModelProto:
    """Convolution, batch normalisation, Relu: one operator after absorbing."""
    rng = np.random.default_rng(3)
    weights = {"w": rng.standard_normal((8, 4, 3, 3)), **{name: rng.random(8) + 0.5 for name in "sbmv"}}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c", "s", "b", "m", "v"], ["n"]),
        helper.make_node("Relu", ["n"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in
            (("x", (1, 4, 12, 12)), ("y", (1, 8, 12, 12)))]  # fmt: skip
    constants = [numpy_helper.from_array(np.float32(a), name) for name, a in weights.items()]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_nothing_is_selected_for_what_is_absorbed(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[Nest] = []

    def counted(nest: Nest, device: Device) -> tuple[Solution, float]:
        searched.append(nest)
        return best_with_cost(nest, device)

    monkeypatch.setattr(selecting, "best_with_cost", counted)
    recording = Always(lambda problem: selecting.Search().select(problem, NPU2))
    model = od.compile(chain(), fallback="error", selector=recording)
    assert [p.kernel for p in recording.asked] == ["od::conv@1"] and len(searched) == 1
    assert [row.device for row in model.placement] == ["npu"] * 3


def test_a_model_computes_the_same_whatever_fits() -> None:
    """One core and small tiles instead of what the search chooses: another transaction, the same answer."""

    def small(problem: Problem) -> Solution:
        tiles = tuple(min(d.extent, 4) for d in problem.dims)
        order = tuple(range(len(tiles)))
        return Solution(problem.kernel, Mapping(None, None, 1, frozenset(), False, order), tiles, 1)

    x = np.random.default_rng(5).standard_normal((1, 4, 12, 12)).astype(np.float32)
    usual, other = od.compile(chain()), od.compile(chain(), selector=Always(small))
    assert usual.transaction != other.transaction
    (expected,) = run_onnxruntime(chain(), {"x": x})
    for model in (usual, other):
        (answer,) = od.InferenceSession(model).run(None, {"x": x})
        np.testing.assert_allclose(answer, expected, rtol=1e-4, atol=1e-5)


def test_operators_that_do_not_fit_together_stay_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Merging asks whether the merged operator fits; refusing it costs no node its place."""
    fits = Operator.check_fits

    def check(self: Operator) -> None:
        if type(self).__name__ == "Conv" and self.activation.code == "relu":
            raise Unsupported("together they are too large")
        fits(self)

    monkeypatch.setattr(Operator, "check_fits", check)
    model = od.compile(chain(), fallback="error")
    steps = next(iter(model.executables.values())).device_steps
    assert [len(op.nodes) for op in steps[0].ops] == [2, 1]


def test_a_merged_operator_that_refuses_late_falls_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its nodes one by one, each where it can run; nothing else is selected again."""
    transaction = Operator.transaction

    def late(self: Operator) -> bytes:
        if type(self).__name__ == "Conv" and self.activation.code == "relu":
            raise Unsupported("too much of it")
        if type(self).__name__ == "ChannelAffine":
            raise Unsupported("not today")
        return transaction(self)

    monkeypatch.setattr(Operator, "transaction", late)
    recording = Always(lambda problem: SEARCH.select(problem, NPU2))
    model = od.compile(chain(), selector=recording, groups="off")
    assert [row.device for row in model.placement] == ["npu", "cpu", "npu"]
    assert "not today" in model.placement[1].reason
    assert len(recording.asked) == 4  # the merged one, and its three parts
    x = np.random.default_rng(6).standard_normal((1, 4, 12, 12)).astype(np.float32)
    (expected,) = run_onnxruntime(chain(), {"x": x})
    (answer,) = od.InferenceSession(model).run(None, {"x": x})
    np.testing.assert_allclose(answer, expected, rtol=1e-4, atol=1e-5)
