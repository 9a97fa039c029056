# SPDX-License-Identifier: Apache-2.0
"""Packed constants as strided copies, beside chunks that are written one by one."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onedispatch.operators.declarations.tensor import TensorSpec
from onedispatch.operators.kernels.conv import Conv
from onedispatch.operators.kernels.matmul import MatMul, ProductOptions
from onedispatch.operators.kernels.window import Window
from onedispatch.operators.scheduling.index_space import K, Packed
from onedispatch.operators.scheduling.packing import ByteCopy, Step, packed_copies, whole_copy
from onedispatch.operators.scheduling.schedule import Schedule
from onedispatch.operators.scheduling.search import search
from onedispatch.transactions import find_device

Array = np.ndarray[Any, Any]
F32 = np.dtype(np.float32)
DEVICES = st.sampled_from(["npu1", "npu2", "npu1_1col", "npu2_2col"])


def one_by_one(schedule: Schedule, operand: Packed, parts: list[Array]) -> Array:
    """Every chunk of every tile, by the places that ``slot`` says; dimensions that a part has no axis of
    come first."""
    pitch, nest = 4 * schedule.words(operand), schedule.nest
    made = np.zeros(pitch * schedule.slot_count(operand), np.uint8)
    dims = [d for d in operand.dims if d != K]
    steps = schedule.inner_steps if K in operand.dims else 1
    for *tiles, step in product(*(range(schedule.grid[d]) for d in dims), range(steps)):
        origin = {
            d: min(i * schedule.tiles[d], nest.dims[d].extent - schedule.tiles[d])
            for d, i in zip(dims, tiles, strict=True)
        }
        origin[K] = step * schedule.k_tile
        at = pitch * int(schedule.slot(operand, tiles, step))
        for part, values in zip(operand.parts, parts, strict=True):
            own = {d for d, size in part.axes if not size}
            leading = [origin[d] for d in dims if d not in own] if values.ndim > len(part.axes) else []
            seen = values[tuple(leading)]
            counts = [n for _, n, _ in part.extents(nest, schedule.tiles, schedule.k_tile)]
            begins = [0 if size else origin[d if d is not None else K] for d, size in part.axes]
            chunk = np.zeros(counts, values.dtype)
            held = seen[tuple(slice(b, b + n) for b, n in zip(begins, counts, strict=True))]
            chunk[tuple(slice(n) for n in held.shape)] = held
            made[at : at + chunk.nbytes] = chunk.reshape(-1).view(np.uint8)
            at += 4 * int(part.words(nest, schedule.tiles, schedule.k_tile))
    return made


def check(operator: Any, device: str) -> None:
    for nest in operator.nests():
        schedule = Schedule(nest, find_device(device), search(nest, find_device(device)))
        for operand in (x for x in nest.inputs if isinstance(x, Packed)):
            parts = operator.packed_parts(operand.name)
            expected = one_by_one(schedule, operand, parts)
            made = np.zeros_like(expected)
            for copy in packed_copies(schedule, operand, parts):
                copy.run(made)
                assert copy.copy.agrees(copy.source, expected)
            np.testing.assert_array_equal(made, expected)
            assert made.any()


def constant(name: str, *shape: int) -> TensorSpec:
    values = 1 + np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    return TensorSpec(name, F32, shape, values)


@settings(max_examples=40, deadline=None)
@given(DEVICES, st.integers(1, 9), st.integers(1, 700), st.integers(1, 500), st.booleans())
def test_matrices(device: str, m: int, k: int, n: int, bias: bool) -> None:
    x, y = TensorSpec("x", F32, (m, k)), TensorSpec("y", F32, (m, n))
    options = ProductOptions(bias=np.arange(n, dtype=np.float32) if bias else None)
    check(MatMul("product", x, constant("w", k, n), y, find_device(device), options), device)


@settings(max_examples=40, deadline=None)
@given(
    DEVICES,
    st.integers(1, 3),
    st.sampled_from([1, 2, 3]),
    st.integers(1, 40),
    st.integers(1, 70),
    st.booleans(),
)
def test_windows(device: str, taps: int, groups: int, ci: int, co: int, depthwise: bool) -> None:
    groups, ci, co = (ci, 1, 1) if depthwise else (groups, ci, co)
    x = TensorSpec("x", F32, (1, ci * groups, 6, 6))
    y = TensorSpec("y", F32, (1, co * groups, 7 - taps, 7 - taps))
    w, b = constant("w", co * groups, ci, taps, taps), constant("b", co * groups)
    window = Window((taps, taps), (1, 1), (1, 1), (0, 0, 0, 0))
    check(Conv("windows", [x, w, b], y, window, groups, find_device(device)), device)


def test_views_are_read_where_they_lie() -> None:
    """So what is copied can be named by the constant that it is part of."""
    whole = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
    x, y = TensorSpec("x", F32, (1, 5)), TensorSpec("y", F32, (1, 4))
    w = TensorSpec("w", F32, (5, 4), whole[1].T)
    device = find_device("npu2")
    product_of = MatMul("product", x, w, y, device)
    (nest,) = product_of.nests()
    (operand,) = (one for one in nest.inputs if isinstance(one, Packed))
    schedule = Schedule(nest, device, search(nest, device))
    for copy in packed_copies(schedule, operand, product_of.packed_parts(operand.name)):
        assert np.shares_memory(copy.source, whole) and copy.copy.source >= whole[0].nbytes


@pytest.mark.parametrize(
    "wrong",
    [
        ByteCopy(4, 0, 0, (Step(5, 4, 4),)),
        ByteCopy(4, 4, 0, (Step(4, 4, 4),)),
        ByteCopy(4, 0, 4, (Step(4, 4, 4),)),
        ByteCopy(4, 0, 0, (Step(2, 1 << 40, 4),)),
        ByteCopy(4, -4, 0, (Step(1, 0, 0),)),
        ByteCopy(4, 0, 0, (Step(5, 1 << 62, 4),)),  # four of them are 0 in 64 bits
        ByteCopy(4, 0, 0, (Step(5, 4, 1 << 62),)),
        ByteCopy(4, 0, 0, (Step(0, 4, 4),)),
        ByteCopy(4, 0, 0, (Step(2, 4, -4),)),
    ],
)
def test_nothing_beyond_either_end_is_touched(wrong: ByteCopy) -> None:
    source, target = np.ones(16, np.uint8), np.zeros(16, np.uint8)
    with pytest.raises(ValueError, match="beyond"):
        wrong.run(source, target)
    assert not target.any()


def test_a_whole_array() -> None:
    values, target = np.arange(6, dtype=np.int16).reshape(2, 3), np.zeros(20, np.uint8)
    whole_copy(values).moved(4).run(target)
    assert target[4:16].view(np.int16).tolist() == [0, 1, 2, 3, 4, 5] and not target[16:].any()
