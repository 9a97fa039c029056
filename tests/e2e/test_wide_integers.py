# SPDX-License-Identifier: Apache-2.0
"""Operators between integers of 16 bits: exact sums, each operator alone.

onnxruntime computes them in floats, so that formulas say what is right: of sums to the bit, and all within a
unit of float64.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import pytest

import onedispatch as od
from onedispatch.operators.declarations.dtypes import saturated
from onedispatch.operators.kernels.matmul import requantised
from tests.integration.integer_models import Model
from tests.ops.cases_conv_integer import sums_of

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")

Array = np.ndarray[Any, Any]
MADE = 0.0004  # scale of results of 16 bits
UNSIGNED, SIGNED = {"dtype": np.uint16, "zero": 32768}, {"dtype": np.int16, "zero": 0}
NARROW = {"dtype": np.uint8, "zero": 128, "scale": 0.1}
BYTES = {"dtype": np.int8, "constant": True, "scale": 0.01}


@dataclass(frozen=True)
class Row:
    """An operator, its operands as (name, shape, options of ``Model.integers``), and what it makes."""

    op_type: str
    given: tuple[tuple[str, tuple[int, ...], dict[str, Any]], ...]
    result: dict[str, Any] = field(default_factory=lambda: UNSIGNED)
    attributes: dict[str, Any] = field(default_factory=dict)
    note: str = ""

    def __str__(self) -> str:
        given = "-".join("x".join(map(str, shape)) for _, shape, _ in self.given)
        return f"{self.op_type}-{given}-{self.note or np.dtype(self.given[0][2]['dtype'])}"

    @property
    def made(self) -> float:
        """The scale of the result."""
        return float(self.result.get("scale", MADE))

    @property
    def model(self) -> Model:
        made = Model()
        names = [
            made.integers(name, shape, **{"scale": 2e-5, **options}) for name, shape, options in self.given
        ]
        made.node(self.op_type, names, ["made"], **self.attributes)
        made.quantised("result", "made", self.made, self.result["zero"], self.result["dtype"])
        return made

    @property
    def proto(self) -> onnx.ModelProto:
        """Of the first operator set whose QuantizeLinear takes 16 bits."""
        proto = self.model.proto(f"result:{np.dtype(self.result['dtype'])}")
        proto.opset_import[0].version = 21
        proto.ir_version = 10
        return proto


def x_of(*shape: int, **options: Any) -> tuple[str, tuple[int, ...], dict[str, Any]]:
    return "x", shape, options


def w_of(*shape: int, name: str = "w", **options: Any) -> tuple[str, tuple[int, ...], dict[str, Any]]:
    return name, shape, {**BYTES, **options}


def bias_of(count: int, **options: Any) -> tuple[str, tuple[int, ...], dict[str, Any]]:
    return "bias", (count,), {"dtype": np.int32, "zero": 0, "constant": True, "scale": 2e-7, **options}


SAME = {"pads": [1, 1, 1, 1]}
SUMS = (
    Row("Conv", (x_of(1, 5, 9, 11, **UNSIGNED), w_of(10, 5, 3, 3), bias_of(10)), attributes=SAME),
    Row("Conv", (x_of(1, 5, 9, 11, **SIGNED), w_of(10, 5, 3, 3, axis=0), bias_of(10, axis=0)), SIGNED, SAME),
    Row("Conv", (x_of(1, 700, 3, 5, **UNSIGNED), w_of(6, 700, 1, 1))),
    Row("Conv", (x_of(1, 131, 7, 7, **UNSIGNED), w_of(67, 131, 3, 3), bias_of(67)), attributes=SAME),
    Row("Conv", (x_of(1, 64, 13, 15, **SIGNED), w_of(32, 64, 1, 1)), attributes={"strides": [2, 2]}),
    Row("Conv", (x_of(2, 12, 9, 9, **UNSIGNED), w_of(8, 3, 3, 3)), attributes={"group": 4}),
    Row("Conv", (x_of(1, 6, 9, 7, **UNSIGNED), w_of(6, 1, 3, 3)), attributes={"group": 6, **SAME}),
    Row(
        "Conv",
        (x_of(1, 6, 9, 7, **SIGNED), w_of(6, 1, 5, 5, dtype=np.uint8, zero=3), bias_of(6)),
        NARROW,
        {"group": 6, "strides": [2, 2]},
    ),
    Row("MatMul", (x_of(5, 7, **UNSIGNED), w_of(7, 10))),
    Row("MatMul", (x_of(9, 31, **SIGNED), w_of(31, 13, axis=1)), SIGNED),
    Row("MatMul", (x_of(2, 3, 30, **UNSIGNED), w_of(30, 1001)), NARROW),
    Row("MatMul", (x_of(2, 9001, **UNSIGNED), w_of(9001, 3))),
    Row("MatMul", (x_of(2, 7, 300, **UNSIGNED), w_of(2, 300, 11, **UNSIGNED, constant=False, scale=2e-5))),
    Row(
        "Gemm", (x_of(4, 30, **UNSIGNED), w_of(12, 30, axis=0), bias_of(12, axis=0)), attributes={"transB": 1}
    ),
)


def random_feed(proto: onnx.ModelProto, seed: int) -> dict[str, Array]:
    random, feed = np.random.default_rng(seed), {}
    for one in proto.graph.input:
        dtype = onnx.helper.tensor_dtype_to_np_dtype(one.type.tensor_type.elem_type)
        shape = [d.dim_value for d in one.type.tensor_type.shape.dim]
        limits = np.iinfo(dtype)
        feed[one.name] = random.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    return feed


def run(proto: onnx.ModelProto, feed: dict[str, Array], rule: str) -> Array:
    """By one operator of integers: ``rule`` fired."""
    session = od.InferenceSession(proto, fallback="error")
    assert any(f"rule {rule}" in row.reason for row in session.placement), list(session.placement)
    (found,) = session.run(None, feed)
    return np.asarray(found)


def sums_and_scale(row: Row, feed: dict[str, Array]) -> tuple[Array, Array]:
    """Exact sums, and the scale of each as float32, as the operator multiplies by it."""
    values = {**row.model.constants, **feed}
    integers = [values[f"{name}_integers"] for name, _, _ in row.given]
    zeros = [values[f"{name}_zero"] for name, _, _ in row.given]
    scale = values["x_scale"] * values["w_scale"] / np.float32(row.made)
    bias = integers[2] if len(integers) > 2 else None
    if row.op_type == "Conv":
        return sums_of(*integers[:2], (zeros[0], zeros[1]), bias, row.attributes), scale.reshape(-1, 1, 1)
    a, b = (x.astype(np.int64) for x in integers[:2])
    b = b - (zeros[1].reshape(-1, 1) if row.attributes.get("transB") else zeros[1])
    sums = (a - zeros[0]) @ (b.T if row.attributes.get("transB") else b)
    return sums + (0 if bias is None else bias), scale


@pytest.mark.parametrize("extreme", [False, True], ids=["random", "extreme"])
@pytest.mark.parametrize("row", SUMS, ids=str)
def test_sums_are_exact(row: Row, extreme: bool) -> None:
    """Random ones, and where every x is the largest, sums far beyond 32 bits."""
    proto = row.proto
    feed = random_feed(proto, 4)
    if extreme:
        feed = {name: np.full_like(x, np.iinfo(x.dtype).max) for name, x in feed.items()}
    found = run(proto, feed, {"Gemm": "QGemm"}.get(row.op_type, f"QLinear{row.op_type}"))
    sums, scale = sums_and_scale(row, feed)
    dtype, zero = np.dtype(row.result["dtype"]), row.result["zero"]
    np.testing.assert_array_equal(found, requantised(sums, scale, zero, dtype))
    wide = saturated(np.rint(sums * scale.astype(np.float64)) + zero, dtype)
    assert np.abs(found.astype(np.int64) - wide).max() <= 1
    assert extreme or len(np.unique(found)) > 3


ELEMENTS = tuple(
    Row(op_type, given, {**kind}, attributes)
    for kind in (UNSIGNED, SIGNED)
    for op_type, given, attributes in (
        ("Add", (x_of(2, 4, 3, 5, **kind), ("b", (2, 4, 3, 5), {**kind, "scale": 5e-5})), {}),
        ("Add", (x_of(2, 4, 3, 5, **kind), ("b", (4, 1, 1), {**kind, "scale": 5e-5})), {}),
        ("Mul", (x_of(3, 7, **kind), ("b", (3, 7), {**kind, "scale": 5e-5})), {}),
        ("Concat", (x_of(2, 3, 5, **kind), ("b", (2, 2, 5), {**kind, "scale": 5e-5})), {"axis": 1}),
        ("GlobalAveragePool", (x_of(2, 5, 7, 7, **kind),), {}),
    )
)
FUNCTIONS: dict[str, Any] = {
    "Add": lambda a, b: a + b,
    "Mul": lambda a, b: a * b,
    "Concat": lambda a, b: np.concatenate([a, b], 1),
    "GlobalAveragePool": lambda x: x.mean((2, 3), keepdims=True),
}


@pytest.mark.parametrize("row", ELEMENTS, ids=str)
def test_others_are_within_a_unit(row: Row) -> None:
    proto = row.proto
    feed = random_feed(proto, 5)
    found = run(proto, feed, f"QLinear{row.op_type}")
    values = {**row.model.constants, **feed}
    floats = [
        (values[f"{name}_integers"].astype(np.float64) - values[f"{name}_zero"]) * values[f"{name}_scale"]
        for name, _, _ in row.given
    ]
    exact = FUNCTIONS[row.op_type](*floats) / np.float32(row.made) + row.result["zero"]
    wanted = saturated(np.rint(exact), found.dtype)
    assert np.abs(found.astype(np.int64) - wanted).max() <= 1
    assert len(np.unique(found)) > 3


def test_largest_values_are_of_the_integers_themselves() -> None:
    model = Model(np.uint16)
    x = model.integers("x", (1, 3, 8, 8), 2e-5, zero=32768)
    model.node("MaxPool", [x], ["made"], kernel_shape=[2, 2], strides=[2, 2])
    model.quantised("result", "made", 2e-5, 32768)
    proto = model.proto("result:uint16")
    proto.opset_import[0].version = 21
    proto.ir_version = 10
    feed = random_feed(proto, 6)
    session = od.InferenceSession(proto, fallback="error")
    (found,) = session.run(None, feed)
    wanted = feed["x_integers"].reshape(1, 3, 4, 2, 4, 2).max((3, 5))
    np.testing.assert_array_equal(found, wanted)
    assert any("rule MaxPool" in row.reason for row in session.placement)


def test_windows_whose_sums_do_not_fit_stay_floats() -> None:
    row = Row("Conv", (x_of(1, 4, 16, 16, **UNSIGNED), w_of(4, 1, 12, 12)), attributes={"group": 4})
    session = od.InferenceSession(row.proto, fallback="error")
    remarks = " ".join(one.remark for one in session.placement)
    assert "a depthwise window of 144 taps over uint16 (nearest: at most 128 taps, or int8, uint8)" in remarks
