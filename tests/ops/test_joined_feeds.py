# SPDX-License-Identifier: Apache-2.0
"""Rows of chunks that are parts of bursts: read of device memory with those of the next steps, sent apart."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from onedispatch.operators.interface.operator import TensorSpec
from onedispatch.operators.kernels.matmul import MatMul, ProductOptions
from onedispatch.operators.scheduling.problem import Problem
from onedispatch.operators.scheduling.select import SEARCH
from onedispatch.operators.scheduling.solution import Mapping, Solution
from onedispatch.transactions import Device, find_device
from tests.ops.case import Array
from tests.ops.host import execute

DEVICE = find_device("npu2")
BYTES, HALVES, WORDS = np.dtype(np.int8), np.dtype(ml_dtypes.bfloat16), np.dtype(np.float32)
ROWS = Mapping(0, 1, 8, frozenset("b"), True, (0, 1))  # A is cast along rows of cores, B along columns
OWN = Mapping(0, 1, 8, frozenset("b"), False, (0, 1))
ACROSS = Mapping(1, 0, 8, frozenset("a"), True, (0, 1))  # the other way round


class Given:
    """What the search finds, with another mapping and step."""

    def __init__(self, mapping: Mapping, k_tile: int) -> None:
        self.mapping, self.k_tile = mapping, k_tile

    def select(self, problem: Problem, device: Device) -> Solution:
        found = SEARCH.select(problem, device)
        return replace(found, mapping=self.mapping, tiles=(32, 32), k_tile=self.k_tile)


def product(dtype: np.dtype[Any], k: int, mapping: Mapping, k_tile: int) -> tuple[MatMul, list[Array]]:
    """A [300, k] by B transposed [520, k], whole numbers."""
    random = np.random.default_rng(k)
    arrays = [random.integers(-9, 10, (n, k)).astype(dtype) for n in (300, 520)]
    specs = [TensorSpec(name, x.dtype, x.shape) for name, x in zip("ab", arrays, strict=True)]
    made = TensorSpec("y", np.dtype(np.int32) if dtype == BYTES else np.dtype(np.float32), (300, 520))
    op = MatMul("op", *specs, made, DEVICE, ProductOptions(trans_b=True))
    return op.selected(Given(mapping, k_tile)), arrays  # type: ignore[return-value]


@pytest.mark.parametrize("mapping", [ROWS, OWN, ACROSS], ids=["rows", "own", "across"])
@pytest.mark.parametrize(
    ("dtype", "k", "k_tile", "joins"),
    [
        (BYTES, 720, 72, True),
        (HALVES, 480, 24, True),
        (WORDS, 240, 12, True),
        (BYTES, 704, 64, False),  # whole bursts as they are
        (BYTES, 724, 72, False),  # the last step is shorter
    ],
)
def test_products_of_joined_rows(
    mapping: Mapping, dtype: np.dtype[Any], k: int, k_tile: int, joins: bool
) -> None:
    op, arrays = product(dtype, k, mapping, k_tile)
    (schedule,) = op.schedules
    passes = [port for port in (0, 1) if schedule.holds[port].repeat == 1 and schedule.holds[port].chunks > 1]
    assert any(schedule.joined(port) > 1 for port in (0, 1)) == joins and (passes or not joins)
    a, b = (x.astype(np.float64) for x in arrays)
    np.testing.assert_array_equal(execute(op, arrays).astype(np.float64), a @ b.T)
