# SPDX-License-Identifier: Apache-2.0
"""Sums that wait between steps in the type of the results: products against loops over the steps in NumPy."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from typer.testing import CliRunner

import onedispatch as od
from onedispatch.dispatch.cli import app
from onedispatch.operators.declarations.functions import Activation
from onedispatch.operators.interface.operator import TensorSpec
from onedispatch.operators.kernels.matmul import MatMul, ProductOptions
from onedispatch.operators.kernels.narrow_sums import shift_of
from onedispatch.operators.scheduling.problem import Problem
from onedispatch.operators.scheduling.select import SEARCH
from onedispatch.operators.scheduling.solution import Solution
from onedispatch.transactions import Device, find_device
from tests.ops.case import Array
from tests.ops.host import execute

DEVICE = find_device("npu2")
K_TILE = 32


class Stepped:
    """What the search finds, in steps of ``K_TILE``."""

    def select(self, problem: Problem, device: Device) -> Solution:
        return replace(SEARCH.select(problem, device), k_tile=K_TILE)


def narrow(arrays: dict[str, Array], out: np.dtype[Any], **others: Any) -> Array:
    """What a product of ``a`` and ``b`` gives on the device."""
    specs = {name: TensorSpec(name, x.dtype, x.shape) for name, x in arrays.items() if name not in "ab"}
    if "scale" in specs:
        specs["scale"] = replace(specs["scale"], value=arrays["scale"])
    a, b = (TensorSpec(name, arrays[name].dtype, arrays[name].shape) for name in "ab")
    if "bias" in others:
        b = replace(b, value=arrays["b"])
    result = TensorSpec("y", out, (a.shape[0], b.shape[1]))
    op = (
        MatMul("op", a, b, result, DEVICE, ProductOptions(**specs, **others))
        .in_narrow_sums()
        .selected(Stepped())
    )
    assert op.schedules[0].inner_steps > 1 and not op.schedules[0].sums_wait
    given = [x for name, x in arrays.items() if name != "scale"]
    made = execute(op, given)
    np.testing.assert_array_equal(made, op.reference(*given))
    return made


@pytest.mark.parametrize("out", ["int8", "uint8", "int16"])
@pytest.mark.parametrize("shift", [0, 7, 10])
@pytest.mark.parametrize("bias", [False, True])
def test_integers_are_shifted_and_saturated_after_every_step(out: str, shift: int, bias: bool) -> None:
    random, kind = np.random.default_rng(shift), np.dtype(out)
    m, k, n = 21, 4 * K_TILE + 9, 34
    a = random.integers(0, 256, (m, k)).astype(np.uint8)
    b = random.integers(-128, 128, (k, n)).astype(np.int8)
    zeros = {"a_zero": np.array([117], np.uint8), "out_zero": np.array([5], kind)}
    more = {"bias": random.integers(-9999, 9999, n).astype(np.int32)} if bias else {}
    actual = narrow({"a": a, "b": b, **zeros, "scale": np.float32([2.0**-shift])}, kind, **more)
    info, unit, wanted = np.iinfo(kind), 2**shift, np.full((m, n), 5)
    for at in range(0, k, K_TILE):
        step = (a[:, at : at + K_TILE].astype(int) - 117) @ b[at : at + K_TILE].astype(int)
        sums = wanted * unit + step + (more.get("bias", 0) if at == 0 else 0)
        wanted = np.clip(np.rint(sums / unit).astype(int), info.min, info.max)
    np.testing.assert_array_equal(actual, wanted)
    assert shift == 0 or len(np.unique(wanted)) > 20


@pytest.mark.parametrize("kind", [ml_dtypes.bfloat16, np.float16])
def test_floats_are_rounded_after_every_step(kind: Any) -> None:
    """Of whole numbers, which float32 sums exactly in any order."""
    random = np.random.default_rng(3)
    m, k, n = 21, 4 * K_TILE + 10, 34
    a, b = (random.integers(-9, 10, shape).astype(kind) for shape in ((m, k), (k, n)))
    bias = random.integers(-99, 99, n).astype(np.float32)
    actual = narrow({"a": a, "b": b}, np.dtype(kind), bias=bias, alpha=0.5, activation=Activation("relu"))
    wanted = np.zeros((m, n), np.float32)
    for at in range(0, k, K_TILE):
        step = a[:, at : at + K_TILE].astype(np.float32) @ b[at : at + K_TILE].astype(np.float32)
        wanted = wanted.astype(kind).astype(np.float32) + step
    np.testing.assert_array_equal(actual, np.maximum(wanted * np.float32(0.5) + bias, 0).astype(kind))


def test_scales_that_are_shifts() -> None:
    def of(*values: float) -> int | None:
        array = np.float32(values)
        return shift_of(TensorSpec("s", array.dtype, array.shape, array))

    assert [of(1), of(0.25), of(2.0**-16), of(0.5, 0.5)] == [0, 2, 16, 1]
    assert [of(2), of(0.3), of(2.0**-17), of(0.5, 0.25), of()] == [None] * 5
    assert shift_of(TensorSpec("s", np.dtype(np.float32), (1,))) is None  # of a value known at run time


def quantised(scale: float) -> onnx.ModelProto:
    """One QLinearMatMul of 16 x 4096 by 4096 x 16 bytes."""
    k = 4096
    b = np.random.default_rng(1).integers(-128, 128, (k, 16)).astype(np.int8)
    constants = {"s": np.float32(scale), "one": np.float32(1), "z": np.int8(0), "b": b}
    node = helper.make_node("QLinearMatMul", ["a", "s", "z", "b", "one", "z", "one", "z"], ["y"])
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("a", TensorProto.INT8, [16, k])],
        [helper.make_tensor_value_info("y", TensorProto.INT8, [16, 16])],
        [numpy_helper.from_array(np.asarray(x), name) for name, x in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def test_a_user_asks_for_it(tmp_path: Path) -> None:
    """Ranges that sums leave on their way, so that what waits saturates; files keep what was asked for."""
    feed = {"a": np.random.default_rng(2).integers(-128, 128, (16, 4096)).astype(np.int8)}

    def answer(scale: float, sums: str) -> Array:
        compiled = od.compile(quantised(scale), fallback="error", selector=Stepped(), sums=sums)
        compiled.save(tmp_path / "model.od")
        loaded = od.load(tmp_path / "model.od")
        assert loaded.sums == sums
        (made,) = od.InferenceSession(loaded).run(None, feed)
        return np.asarray(made)

    for scale, same in ((2.0**-13, False), (0.9 * 2.0**-13, True)):  # no shift: all bits are kept
        assert np.array_equal(answer(scale, "exact"), answer(scale, "narrow")) == same
    with pytest.raises(od.InputError, match=r"sums.*'exact', 'narrow'"):
        od.compile(quantised(1), sums="short")


def test_the_command_line_has_them(tmp_path: Path) -> None:
    def invoke(*arguments: str) -> Any:
        return CliRunner().invoke(app, list(arguments))

    source, target = str(tmp_path / "m.onnx"), str(tmp_path / "m.od")
    onnx.save(quantised(2.0**-13), source)
    assert invoke("compile", source, "-o", target, "--sums", "narrow").exit_code == 0
    assert od.load(target).sums == "narrow"
    (row,) = json.loads(invoke("inspect", target, "--json").stdout)
    assert row["sums"] == "narrow"
    assert invoke("run", target, "--random", "--sums", "narrow").exit_code == 0
    assert invoke("compile", source, "-o", target).exit_code == 0
    refused = invoke("run", target, "--random", "--sums", "narrow")
    assert isinstance(refused.exception, od.InputError) and "--sums" in str(refused.exception)
