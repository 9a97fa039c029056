# SPDX-License-Identifier: Apache-2.0
"""Reductions that no core holds at once, with results narrower than their sums: any length, any device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest

import onedispatch
from onedispatch.operators.declarations.dtypes import DTYPES
from onedispatch.operators.declarations.registry import all_mappings
from tests.devices import device_file
from tests.ops.case import Array, Case, Input, case, integers, run_onnxruntime, value

K = 20_001  # of products: no multiple of a word, or of a tile
AXIS = 100_003
DEVICES = ("npu1", "npu2", "quartered")
SHORT = {str(DTYPES[name].numpy): DTYPES[name].numpy for name in ("bf16", "f16")}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("devices")
    device_file(made, "quartered")
    return made


def on_device(model: onnx.ModelProto, feed: dict[str, Array], device: str, folder: Path) -> Array:
    target = str(folder / "quartered.toml") if device == "quartered" else device
    session = onedispatch.InferenceSession(model, device=target, fallback="error")
    return np.asarray(session.run(None, feed)[0])


def check_rounded(actual: Array, exact: Array, terms: Array, roundings: float) -> None:
    """One rounding of ``exact``, and so many of f32 in sums of ``terms``, which tend to cancel."""
    assert actual.shape == exact.shape
    info = ml_dtypes.finfo(actual.dtype)
    bound = float(info.eps) / 2 * np.abs(exact) + 2.0**-24 * roundings * terms + float(info.tiny)
    assert (np.abs(actual.astype(np.float64) - exact) <= 1.01 * bound).all()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", SHORT)
@pytest.mark.parametrize("const", [False, True], ids=["computed", "constant"])
def test_products_of_short_floats(dtype: str, device: str, const: bool, folder: Path) -> None:
    a, b = Input((5, K), dtype), Input((K, 9), dtype, const=const)
    one = case("MatMul", a, b, opset=22 if dtype == "bfloat16" else 21)
    left, right = (array.astype(np.float64) for array in one.arrays if array is not None)
    actual = on_device(one.model, one.feed, device, folder)
    assert actual.dtype == SHORT[dtype]
    check_rounded(actual, left @ right, np.abs(left) @ np.abs(right), K**0.5)


def test_narrow_results_cost_less_than_wide_ones() -> None:
    cycles = {}
    for dtype in ("float32", "bfloat16"):
        one = case("MatMul", Input((512, 1024), dtype), Input((1024, 512), dtype), opset=22)
        session = onedispatch.InferenceSession(one.model, fallback="error")
        session.run(None, one.feed)
        assert session.last_run is not None
        cycles[dtype] = session.last_run.cycles
    assert cycles["bfloat16"] < cycles["float32"] / 4


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("a", "b"), [("int8", "int8"), ("uint8", "int8"), ("uint8", "uint8")])
def test_quantised_products(a: str, b: str, device: str, folder: Path) -> None:
    """Results of every size from one end of the type to the other; also where B is constant."""
    for const in (False, True):
        scales = (value(0.02), value(0.01), value(12.5))
        zeros = (value(3, a), value(128 if b == "uint8" else 0, b))  # sums stay about where results lie
        left, right = integers(a, 6, K), integers(b, K, 7, const=const)
        one = case(
            "QLinearMatMul", left, scales[0], zeros[0], right, scales[1], zeros[1], scales[2], value(60, a)
        )
        expected = run_onnxruntime(one.model, one.feed)[0]
        assert len(np.unique(expected)) > 20
        np.testing.assert_array_equal(on_device(one.model, one.feed, device, folder), expected)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", SHORT)
def test_convolutions_of_many_channels(dtype: str, device: str, folder: Path) -> None:
    weights = Input((6, K, 1, 2), dtype, const=True)
    one = case("Conv", Input((1, K, 1, 5), dtype), weights, opset=22 if dtype == "bfloat16" else 21)
    x, w = (np.asarray(array).astype(np.float64) for array in one.arrays)
    seen = np.stack([x[0, :, 0, :-1], x[0, :, 0, 1:]], axis=1)  # [channel, tap, column]
    exact, terms = (
        np.einsum("ctx,mct->mx", *both) for both in ((seen, w[:, :, 0]), (abs(seen), abs(w[:, :, 0])))
    )
    actual = on_device(one.model, one.feed, device, folder)
    check_rounded(actual[0, :, 0], exact, terms, K**0.5)


NARROW = [str(row.numpy) for row in DTYPES.values() if row.per_word > 1]
# Every reduction in every type that its mapping takes and that is narrower than a word.
REDUCTIONS = [
    (mapping.op_type, dtype)
    for mapping in all_mappings()
    if mapping.op_type.startswith("Reduce")
    for dtype in mapping.dtypes
    if dtype in NARROW
]
FUNCTIONS: dict[str, Callable[..., Array]] = {
    "ReduceMean": np.mean,
    "ReduceMax": np.max,
    "ReduceMin": np.min,
    "ReduceProd": np.prod,
}
# What is added up in place of the elements.
ADDED: dict[str, Callable[[Array], Array]] = {
    "ReduceL1": np.abs,
    "ReduceL2": np.square,
    "ReduceSumSquare": np.square,
    "ReduceLogSumExp": np.exp,
}
# What is done to the sum, and the slope there: by how much of a deviation of the sum the result is off.
FINISHES: dict[str, tuple[Callable[[Array], Array], Callable[[Array], Array]]] = {
    "ReduceL2": (np.sqrt, lambda total: 0.5 / np.sqrt(total)),
    "ReduceLogSum": (np.log, lambda total: 1 / total),
    "ReduceLogSumExp": (np.log, lambda total: 1 / total),
}


def exactly(op_type: str, wide: Array, axes: tuple[int, ...]) -> tuple[Array, Array]:
    """What is to come of elements in a type that holds it, and the terms whose roundings are seen in it."""
    added = ADDED.get(op_type, np.asarray)(wide)
    exact = np.asarray(FUNCTIONS.get(op_type, np.sum)(added, axis=axes, keepdims=True))
    mean = np.mean(np.abs(added), axis=axes, keepdims=True)
    count = added.size // exact.size
    terms = {"ReduceMean": mean, "ReduceProd": np.abs(exact)}.get(op_type, count * mean)
    if op_type not in FINISHES:
        return exact, terms
    finish, slope = FINISHES[op_type]
    return finish(exact), slope(exact) * terms


@pytest.mark.daily(5)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("op_type", "dtype"), REDUCTIONS)
def test_long_axes(op_type: str, dtype: str, device: str, folder: Path) -> None:
    for axis, shape in ((0, (AXIS, 3)), (1, (3, AXIS))):
        check_reduction(reduction(op_type, dtype, shape, (axis,)), (axis,), device, folder)


# Axes that are reduced in two steps: even ones by twice as many cores as there are results, others by rows,
# which end within words, or apart. Few partial results and many results: roundings between would be seen.
IN_STEPS: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "parted rows": ((16, 32_768), (1,)),
    "parted columns": ((32_768, 16), (0,)),
    "padded rows": ((64, 3, 333), (1, 2)),
    "apart": ((2, 64, 334), (0, 2)),
    "apart and padded": ((2, 64, 333), (0, 2)),
}


@pytest.mark.daily(5)
@pytest.mark.parametrize("steps", IN_STEPS)
@pytest.mark.parametrize(("op_type", "dtype"), [row for row in REDUCTIONS if row[1] in SHORT])
def test_reductions_in_steps(op_type: str, dtype: str, steps: str, folder: Path) -> None:
    """What lies between two steps is not rounded to the type of the results, nor beyond it."""
    shape, axes = IN_STEPS[steps]
    check_reduction(reduction(op_type, dtype, shape, axes), axes, "npu2", folder)


def check_reduction(one: Case, axes: tuple[int, ...], device: str, folder: Path) -> None:
    (x,) = one.feed.values()
    actual = on_device(one.model, one.feed, device, folder)
    assert actual.dtype == x.dtype
    short = str(x.dtype) in SHORT
    wide = x.astype(np.float64 if short else np.int64)
    exact, terms = exactly(one.op_type, wide, axes)
    if not short or one.op_type in ("ReduceMax", "ReduceMin"):
        np.testing.assert_array_equal(actual.astype(wide.dtype), exact)
        return
    with np.errstate(over="ignore"):
        fits = np.isfinite(exact.astype(x.dtype))
    np.testing.assert_array_equal(np.isfinite(actual), fits)
    count = x.size // exact.size
    roundings = count if one.op_type == "ReduceProd" else count**0.5
    check_rounded(actual[fits], exact[fits], terms[fits], roundings)


# Results that float16 has, of sums that it has not where they are finished.
SCALES = {"ReduceL1": 0.5, "ReduceL2": 4.0, "ReduceLogSum": 8.0}


def reduction(op_type: str, dtype: str, shape: tuple[int, ...], axes: tuple[int, ...]) -> Case:
    opset = 22 if dtype == "bfloat16" else 21
    one = case(op_type, Input(shape, dtype), value(axes, "int64"), opset=opset)
    if op_type == "ReduceMin":  # the least of so many unsigned numbers would be 0, whatever is done
        few = (np.random.default_rng(2).random(shape) > 1 / AXIS).tolist()
        x = Input(shape, dtype, "value", value=few) if dtype == "bool" else Input(shape, dtype, "positive")
        one = replace(one, inputs=(x, one.inputs[1]))
    if op_type in SCALES:
        drawn = SCALES[op_type] * np.random.default_rng(3).standard_normal(shape)
        drawn = np.abs(drawn) if op_type == "ReduceLogSum" else drawn  # its sums have logarithms
        one = replace(one, inputs=(Input(shape, dtype, "value", value=drawn), one.inputs[1]))
    if op_type == "ReduceProd":  # factors close to 1, so that something is left of so many
        near = 1 + 2.0**-7 * np.sign(np.random.default_rng(1).standard_normal(shape))
        one = replace(one, inputs=(Input(shape, dtype, "value", value=near), one.inputs[1]))
    return one


@pytest.mark.parametrize("given", [1.0, 1e4])
def test_constant_rows_are_normalised_to_nothing(given: float, folder: Path) -> None:
    """Of a large mean no rounding remains, however small the deviation that it is divided by."""
    x = np.full((2, K), given, np.float32)
    one = case("LayerNormalization", value(x, const=False), value(np.ones(K, np.float32)), axis=-1)
    assert not on_device(one.model, one.feed, "npu2", folder).any()
