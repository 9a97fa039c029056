# SPDX-License-Identifier: Apache-2.0
"""Problems and solutions from elsewhere: whatever stands in the data, they are sound or a typed error."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import onedispatch as od
from onedispatch.operators.scheduling.problem import Problem
from onedispatch.operators.scheduling.search import search
from onedispatch.operators.scheduling.select import select
from onedispatch.operators.scheduling.solution import Solution
from tests.integration.test_operators_solution import NPU2, Always, product, through_json

GOOD = search(product(), NPU2).to_data()
PROBLEM = Problem.of(product(), NPU2).to_data()
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 300),
    st.sampled_from([1 << 62, 1 << 70, -(1 << 63), 1 << 20_000]),
    st.floats(),
    st.sampled_from(["", "a", "b", "f32", "relu", "od::conv@1", "od::gemm@2", "x" * 300]),
    st.lists(st.integers(0, 3), max_size=3),
    st.dictionaries(st.sampled_from(["a", "tiles"]), st.integers(0, 3), max_size=2),
)


def places(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to everything inside."""
    pairs = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in pairs:
        yield (*path, key)
        yield from places(value, (*path, key))


@st.composite
def mutated(draw: st.DrawFn, data: Any) -> Any:
    """``data`` with one to three places replaced, taken away, or added to."""
    data = copy.deepcopy(data)
    for _ in range(draw(st.integers(1, 3))):
        known = list(places(data))
        if not known:
            return data
        *way, key = draw(st.sampled_from(known))
        holder = data
        for step in way:
            holder = holder[step]
        match draw(st.sampled_from(["replace", "replace", "replace", "remove", "add"])):
            case "replace":
                holder[key] = draw(VALUES)
            case "remove":
                del holder[key]
            case _ if isinstance(holder, dict):
                holder["more"] = draw(VALUES)
            case _:
                holder.append(draw(VALUES))
    return data


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(mutated(GOOD))
def test_a_mutated_solution_is_valid_or_a_typed_error(data: Any) -> None:
    try:
        solution = Solution.from_data(data)
        schedule = select(product(), NPU2, Always(solution))
    except od.SolutionError as error:
        assert error.given and error.accepted and len(str(error)) < 3000
        return
    assert schedule.solution == solution
    assert Solution.from_data(through_json(solution.to_data())) == solution


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(mutated(PROBLEM))
def test_a_mutated_problem_is_valid_or_a_typed_error(data: Any) -> None:
    try:
        problem = Problem.from_data(data)
        nest = problem.nest
    except (od.SolutionError, od.OperatorError) as error:
        assert error.given and error.accepted
        return
    assert nest.kernel.name == problem.kernel and len(problem.digest) == 32
    again = Problem.from_data(through_json(problem.to_data()))
    assert again.digest == problem.digest


@pytest.mark.parametrize(
    ("kind", "data", "says"),
    [
        (Solution, {**GOOD, "format": 2}, "a dictionary of kernel, mapping, tiles, k_tile"),
        (Problem, {**PROBLEM, "format": 2}, "a dictionary of kernel, declaration"),
        (Solution, {**GOOD, "k_tile": np.int64(8)}, r"solution\.k_tile"),
        (Solution, {**GOOD, "k_tile": 1 << 20_000}, "an int of 64 bits"),
    ],
)
def test_data_of_another_make_is_refused(kind: Any, data: Any, says: str) -> None:
    with pytest.raises(od.SolutionError, match=says):
        kind.from_data(data)


@pytest.mark.parametrize("changes", [{"kernel": "od::gemm@2"}, {"declaration": 7}])
def test_a_problem_of_another_version_of_its_kernel_has_no_nest(changes: dict[str, Any]) -> None:
    with pytest.raises(od.SolutionError, match="the version that wrote the problem"):
        _ = Problem.from_data({**PROBLEM, **changes}).nest
