# SPDX-License-Identifier: Apache-2.0
"""What ``run`` of a kernel in C++ answers: the errors that the same numbers are in Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onedispatch.operators.declarations import statuses
from onedispatch.operators.plugin.library import LibraryKernel
from onedispatch.transactions.base.errors import SimulationError
from tests.ops.libraries import SOURCES, built, compiled, executed, kernels_of

X = np.random.default_rng(4).standard_normal(9000).astype(np.float32)


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, LibraryKernel]:
    return kernels_of(built("answers.cpp", tmp_path_factory.mktemp("answers")))


@pytest.mark.parametrize("name", ["answers", "typed"])
@pytest.mark.parametrize(
    ("status", "error"),
    [
        (-1, statuses.KernelNotSupportedError),
        (-2, statuses.KernelParameterInvalidError),
        (-3, statuses.KernelRuntimeFailureError),
        (-4, statuses.KernelRuntimeFailureError),
        (-30, statuses.KernelRuntimeFailureError),
        (-(2**31), statuses.KernelRuntimeFailureError),
    ],
)
def test_answers_below_zero(
    answers: dict[str, LibraryKernel], name: str, status: int, error: type[Exception]
) -> None:
    with pytest.raises(error, match=f"run: answered {status}; accepted: 0 and more") as refused:
        executed(answers[name], {"x": X}, {"status": status})
    assert isinstance(refused.value, SimulationError) and f"acme::{name}@1" in str(refused.value)
    assert np.array_equal(executed(answers[name], {"x": X}, {"status": 0})["z"], X)  # others go on


@pytest.mark.parametrize("status", [0, 1, 2**31 - 1])
@pytest.mark.parametrize("x", [X, (50 * X[:300]).astype(np.int8)], ids=["f32", "i8"])
def test_answers_that_are_well(answers: dict[str, LibraryKernel], status: int, x: Any) -> None:
    assert np.array_equal(executed(answers["typed"], {"x": x}, {"status": status})["z"], x)


def test_a_body_without_an_answer(answers: dict[str, LibraryKernel]) -> None:
    assert np.array_equal(executed(answers["silent"], {"x": X})["z"], X)


def test_other_answers_do_not_compile(tmp_path: Path) -> None:
    source = tmp_path / "wrong.cpp"
    source.write_text((SOURCES / "answers.cpp").read_text().replace("int run(", "bool run("))
    with pytest.raises(AssertionError, match="returns nothing, or an int"):
        compiled(source, tmp_path / "libwrong.so")
