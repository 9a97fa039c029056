# SPDX-License-Identifier: Apache-2.0
"""Sums that wait for the last step of a reduction: apart from their results' slots, or in the only one."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from onedispatch.operators.declarations.params import CADENCE_LAST, CADENCE_TILE
from onedispatch.operators.interface.operator import TensorSpec
from onedispatch.operators.kernels.matmul import MatMul, ProductOptions
from onedispatch.operators.scheduling.problem import Problem
from onedispatch.operators.scheduling.select import SEARCH, search
from onedispatch.operators.scheduling.solution import Solution
from onedispatch.transactions import Device, find_device
from onedispatch.transactions.base.errors import SolutionError
from tests.ops.case import Array
from tests.ops.host import execute

DEVICE = find_device("npu2")
SHAPE = (600, 512, 640)  # m, k, n


class Tiled:
    """What the search finds, with another tile."""

    def __init__(self, m: int, k: int, n: int) -> None:
        self.tiles, self.k_tile = (m, n), k

    def select(self, problem: Problem, device: Device) -> Solution:
        return replace(SEARCH.select(problem, device), tiles=self.tiles, k_tile=self.k_tile)


def product(out: str, shape: tuple[int, int, int] = SHAPE) -> tuple[MatMul, list[Array]]:
    m, k, n = shape
    random = np.random.default_rng(m)
    if out == "bfloat16":
        arrays = [random.standard_normal(s).astype(ml_dtypes.bfloat16) for s in ((m, k), (k, n))]
        others = {}
    else:
        arrays = [random.integers(-128, 128, s).astype(np.int8) for s in ((m, k), (k, n))]
        others = {"scale": np.full(1, 1 / 999, np.float32)}
    specs = [TensorSpec(name, x.dtype, x.shape) for name, x in zip("ab", arrays, strict=True)]
    more = {name: TensorSpec(name, x.dtype, x.shape) for name, x in others.items()}
    result = TensorSpec("y", np.dtype(ml_dtypes.bfloat16 if out == "bfloat16" else out), (m, n))
    return MatMul("op", *specs, result, DEVICE, ProductOptions(**more)), [*arrays, *others.values()]


TILES = {  # of two slots; of one, and sums apart; of one with the sums in it
    "int8": ((48, 64, 48), (96, 64, 80), (96, 64, 96)),
    "int16": ((48, 64, 48), (80, 64, 72), (96, 64, 80)),
    "bfloat16": ((48, 64, 48), (72, 48, 72), (80, 48, 80)),
}
FORMS = ((2, False), (1, False), (1, True))


@pytest.mark.parametrize("out", TILES)
@pytest.mark.parametrize("form", range(3), ids=["two slots", "one slot", "in the slot"])
def test_the_largest_form_that_fits_is_taken(out: str, form: int) -> None:
    """And all of them compute the same, tiles that overhang their matrix included."""
    op, arrays = product(out)
    op = op.selected(Tiled(*TILES[out][form]))
    (schedule,) = op.schedules
    assert (schedule.out_depth, schedule.sums_in_slot) == FORMS[form]
    assert schedule.out_cadence == (CADENCE_TILE if schedule.sums_in_slot else CADENCE_LAST)
    actual, expected = execute(op, arrays), op.reference(*arrays)
    if out == "bfloat16":
        near = np.abs(expected.astype(np.float64)) * 2**-7 + 1e-3
        assert (np.abs(actual.astype(np.float64) - expected.astype(np.float64)) <= near).all()
    else:
        np.testing.assert_array_equal(actual, expected)


def test_sums_do_not_wait_where_one_step_makes_them() -> None:
    op, _ = product("int8", (64, 32, 64))
    (schedule,) = op.selected(Tiled(16, 32, 16)).schedules
    assert not schedule.sums_wait and schedule.out_cadence == CADENCE_TILE


def test_what_fits_neither_apart_nor_in_the_slot_is_refused() -> None:
    op, _ = product("int8")
    with pytest.raises(SolutionError, match=r"bytes of slots, .* of scratch beside them"):
        op.selected(Tiled(144, 72, 144))


def test_the_search_finds_tiles_whose_sums_wait_in_the_slot() -> None:
    """Of a large product of bytes: they are larger than those that leave room for both."""
    op, _ = product("int8", (2048, 2048, 2048))
    (nest,) = op.nests()
    m, n = search(nest, DEVICE).tiles
    (schedule,) = op.schedules
    assert schedule.tiles == (m, n) and schedule.sums_in_slot
