# SPDX-License-Identifier: Apache-2.0
"""Functions of bytes that follow each other are one table, and convolutions look their results up: not one
byte differs from onnxruntime's, whose operators are apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import onedispatch as od

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")

Array = np.ndarray[Any, Any]
MICROSOFT = "com.microsoft"
BYTES = pytest.mark.parametrize("dtype", [np.uint8, np.int8], ids=["uint8", "int8"])


class Bytes:
    """A model of quantised nodes: every value has a scale and a zero point of its own."""

    def __init__(self, dtype: Any, shape: tuple[int, ...], seed: int) -> None:
        self.rng, self.dtype, self.shape = np.random.default_rng(seed), np.dtype(dtype), shape
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.said: dict[str, list[str]] = {}
        self.value("x")

    def constant(self, value: Array) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(value, name))
        return name

    def value(self, name: str, scale: float | None = None) -> list[str]:
        """The scale and the zero point of ``name``: new ones where it has none yet."""
        if name not in self.said:
            scale = np.float32(2.0 ** self.rng.uniform(-8, -4) if scale is None else scale)
            zero = self.rng.integers(np.iinfo(self.dtype).min, np.iinfo(self.dtype).max, endpoint=True)
            self.said[name] = [self.constant(np.array(scale)), self.constant(np.array(zero, self.dtype))]
        return self.said[name]

    def unary(self, op_type: str, x: str, y: str, **attributes: Any) -> None:
        given = [x, *self.value(x), *self.value(y)]
        self.nodes.append(helper.make_node(f"QLinear{op_type}", given, [y], domain=MICROSOFT, **attributes))

    def binary(self, op_type: str, a: str, b: str, y: str) -> None:
        given = [a, *self.value(a), b, *self.value(b), *self.value(y)]
        self.nodes.append(helper.make_node(f"QLinear{op_type}", given, [y], domain=MICROSOFT))

    def conv(self, x: str, y: str, weights: tuple[int, ...], **attributes: Any) -> None:
        values = self.rng.integers(-128, 128, weights).astype(np.int8)
        scales = (2.0 ** self.rng.uniform(-10, -6, weights[0])).astype(np.float32)
        bias = self.rng.integers(-2000, 2000, weights[0]).astype(np.int32)
        zeros = np.zeros(weights[0], np.int8)
        given = [x, *self.value(x), *map(self.constant, (values, scales, zeros)), *self.value(y)]
        self.nodes.append(helper.make_node("QLinearConv", [*given, self.constant(bias)], [y], **attributes))

    def proto(self, *outputs: str) -> onnx.ModelProto:
        kind = helper.np_dtype_to_tensor_dtype(self.dtype)
        graph = helper.make_graph(
            self.nodes,
            "bytes",
            [helper.make_tensor_value_info("x", kind, self.shape)],
            [helper.make_tensor_value_info(name, kind, None) for name in outputs],
            self.constants,
        )
        opsets = [helper.make_opsetid("", 19), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=9)

    def compared(self) -> od.RunReport:
        """The report of a run whose y is onnxruntime's."""
        model = self.proto("y")
        x = np.resize(np.arange(256, dtype=np.uint8), self.shape)
        self.rng.shuffle(x.reshape(-1))
        feed = {"x": x.view(self.dtype)}
        session = od.InferenceSession(model, fallback="error", threads=1)
        theirs = onnxruntime.InferenceSession(
            model.SerializeToString(), providers=["CPUExecutionProvider"]
        ).run(None, feed)
        np.testing.assert_array_equal(session.run(None, feed)[0], theirs[0])
        assert session.last_run is not None
        return session.last_run


@BYTES
@pytest.mark.parametrize("seed", range(6))
def test_a_product_with_its_own_sigmoid(dtype: Any, seed: int) -> None:
    model = Bytes(dtype, (3, 5, 70), seed)
    model.unary("Sigmoid", "x", "s")
    model.binary("Mul", *(("x", "s") if seed % 2 else ("s", "x")), "y")
    assert [op.op_type for op in model.compared().ops] == ["table"]


@BYTES
def test_a_chain_of_functions(dtype: Any) -> None:
    model = Bytes(dtype, (300,), 7)
    model.unary("LeakyRelu", "x", "a", alpha=0.1)
    model.unary("Sigmoid", "a", "b")
    model.binary("Add", "x", "b", "c")
    model.binary("Mul", "c", "x", "y")
    assert [op.op_type for op in model.compared().ops] == ["table"]


def combined(op_type: str, values: list[Array], numbers: list[Array]) -> Array:
    """A sum or product of two tensors, by the scale and the zero point of each and of the result."""
    (x, s), (x_scale, x_zero, s_scale, s_zero, scale, zero) = values, numbers
    with np.errstate(all="ignore"):  # what is beyond float32 is infinite
        if op_type == "Mul":
            product = (x.astype(np.float32) - x_zero) * (s.astype(np.float32) - s_zero)
            found = product * (x_scale * s_scale / scale) + zero
        else:
            first, second = x_scale / scale, s_scale / scale
            found = x * np.float64(first) + (
                s * np.float64(second) + (zero - (first * x_zero + second * s_zero))
            )
        ends = np.iinfo(x.dtype)
        return np.rint(np.clip(np.nan_to_num(found, nan=-np.inf), ends.min, ends.max)).astype(x.dtype)


@BYTES
@pytest.mark.parametrize("op_type", ["Add", "Mul"])
@pytest.mark.parametrize("scales", [(1, 1, 1e-39), (1e10, 1e10, 1e-30), (1e-45, 3e38, 1)], ids=str)
def test_scales_whose_quotients_are_no_numbers(dtype: Any, op_type: str, scales: tuple[float, ...]) -> None:
    model = Bytes(dtype, (256,), 9)
    model.said.clear()
    for name, scale in zip("xsy", scales, strict=True):
        model.value(name, scale)
    model.unary("LeakyRelu", "x", "s", alpha=0.5)
    model.binary(op_type, "x", "s", "y")
    feed = {"x": np.arange(256, dtype=np.uint8).view(dtype)}
    merged, apart = (od.InferenceSession(model.proto(*outputs), threads=1) for outputs in ("y", ("y", "s")))
    y, s = apart.run(["y", "s"], feed)
    np.testing.assert_array_equal(merged.run(["y"], feed)[0], y)
    known = {one.name: numpy_helper.to_array(one).astype(np.float32) for one in model.constants}
    numbers = [known[name] for value in "xsy" for name in model.said[value]]
    np.testing.assert_array_equal(y, combined(op_type, [feed["x"], s], numbers))
    assert [len(session.last_run.ops) for session in (merged, apart) if session.last_run] == [1, 2]


@BYTES
def test_a_square_is_no_function_of_one_operand_alone(dtype: Any) -> None:
    model = Bytes(dtype, (300,), 8)
    model.unary("Sigmoid", "x", "s")
    model.binary("Mul", "s", "s", "y")
    assert len(model.compared().ops) == 2


WEIGHTS: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "pointwise": ((24, 16, 1, 1), {}),
    "window": ((9, 16, 3, 3), {"pads": [1, 1, 1, 1], "strides": [2, 1]}),
    "depthwise": ((16, 1, 3, 3), {"group": 16, "pads": [1, 0, 0, 1]}),
    "groups": ((8, 4, 3, 3), {"group": 4}),
    "as_many_channels_as_entries": ((256, 16, 1, 1), {}),
}


@BYTES
@pytest.mark.parametrize("name", WEIGHTS)
def test_a_convolution_looks_its_results_up(dtype: Any, name: str) -> None:
    shape, attributes = WEIGHTS[name]
    model = Bytes(dtype, (2, 16, 9, 11), 11)
    model.conv("x", "a", shape, **attributes)
    model.unary("Sigmoid", "a", "s")
    model.binary("Mul", "a", "s", "y")
    assert [op.op_type for op in model.compared().ops] == ["integer_conv"]


def test_of_one_row_and_of_none() -> None:
    for shape in ((1, 16, 1, 60), (0, 16, 4, 4)):
        model = Bytes(np.uint8, shape, 12)
        model.conv("x", "a", (8, 16, 1, 1))
        model.unary("Sigmoid", "a", "y")
        model.compared()


def test_what_others_read_stays() -> None:
    model = Bytes(np.uint8, (1, 16, 6, 6), 13)
    model.conv("x", "a", (16, 16, 1, 1))
    model.unary("Sigmoid", "a", "s")
    model.binary("Add", "a", "x", "b")  # another reader of the convolution's results
    model.binary("Mul", "b", "s", "y")
    assert [op.op_type for op in model.compared().ops] == ["integer_conv", "table", "combine", "combine"]
