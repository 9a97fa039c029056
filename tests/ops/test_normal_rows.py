# SPDX-License-Identifier: Apache-2.0
"""LayerNormalization, in float32 and between integers, has the bits of onnxruntime's."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import onedispatch as od
from tests.ops.case import Array, run_onnxruntime

ROWS = 21
ENDS = [
    ("float32", "float32"),
    ("uint8", "uint8"),
    ("int8", "uint8"),
    ("uint8", "float32"),
    ("float32", "int8"),
    ("uint16", "int16"),
]


def model(read: str, written: str, length: int, bias: bool) -> onnx.ModelProto:
    rng = np.random.default_rng(length)
    constants: dict[str, Any] = {"scale": rng.uniform(0.5, 1.5, length).astype(np.float32)}
    if bias:
        constants["bias"] = rng.standard_normal(length).astype(np.float32)
    normal = helper.make_node("LayerNormalization", ["x", *constants], ["y"], "normal", epsilon=1e-5)
    nodes, ends = [normal], (("x", read, 0.037), ("y", written, 0.021))
    for name, dtype, step in ends:
        if dtype == "float32":
            continue
        constants |= {f"{name}_step": np.float32(step), f"{name}_zero": np.array(7, dtype)}
        others = [f"{name}_step", f"{name}_zero"]
        if name == "x":
            nodes.insert(0, helper.make_node("DequantizeLinear", ["x_in", *others], ["x"], "to_floats"))
        else:
            nodes.append(helper.make_node("QuantizeLinear", ["y", *others], ["y_out"], "to_integers"))
    names = ("x" if read == "float32" else "x_in"), ("y" if written == "float32" else "y_out")
    given, made = (
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), [2, ROWS, length]
        )
        for name, (_, dtype, _) in zip(names, ends, strict=True)
    )
    initializers = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "g", [given], [made], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def drawn(dtype: str, length: int) -> Array:
    rng = np.random.default_rng(length + 1)
    if dtype == "float32":
        return (3 * rng.standard_normal((2, ROWS, length)) + 10).astype(np.float32)
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max + 1, (2, ROWS, length)).astype(dtype)


@pytest.mark.parametrize("bias", [True, False], ids=["biased", "plain"])
@pytest.mark.parametrize("length", [8, 20, 61, 197, 384, 768])
@pytest.mark.parametrize(("read", "written"), ENDS)
def test_rows_are_onnxruntime_s_to_the_bit(read: str, written: str, length: int, bias: bool) -> None:
    one = model(read, written, length, bias)
    feed = {one.graph.input[0].name: drawn(read, length)}
    session = od.InferenceSession(one, fallback="error")
    np.testing.assert_array_equal(session.run(None, feed)[0], run_onnxruntime(one, feed)[0])
    whole = length % 4 == 0  # words of bytes; rows of others lie apart from those of floats
    assert len({row.reason.partition(" together")[0] for row in session.placement}) == 1 or not whole


@pytest.mark.parametrize("length", [768, 4096], ids=["fits", "too long for a core"])
def test_rows_of_one_value_become_the_bias(length: int) -> None:
    """Whatever the value, and however small the epsilon; mean and deviation are outputs too."""
    rows = np.repeat(np.array([[1000.3], [7.7], [-0.1]], np.float32), length, axis=1)
    names = {"y": [3, length], "mean": [3, 1], "inverse": [3, 1]}
    node = helper.make_node("LayerNormalization", ["x", "one", "bias"], list(names), epsilon=1e-12)
    tensors = [
        numpy_helper.from_array(np.full(length, n, np.float32), k) for k, n in (("one", 1), ("bias", 2))
    ]
    made = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name, shape in names.items()
    ]
    given = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, rows.shape)
    graph = helper.make_graph([node], "g", [given], made, tensors)
    one = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    found = od.InferenceSession(one, fallback="error").run(None, {"x": rows})
    for mine, theirs in zip(found, run_onnxruntime(one, {"x": rows}), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    np.testing.assert_array_equal(found[0], 2)


def test_between_integers_bf16_changes_nothing() -> None:
    one = model("uint8", "uint8", 384, bias=True)
    feed = {"x_in": drawn("uint8", 384)}
    session = od.InferenceSession(one, precision="bf16", fallback="error")
    np.testing.assert_array_equal(session.run(None, feed)[0], run_onnxruntime(one, feed)[0])
    assert len(session.placement) == 3


def test_an_epsilon_below_zero_is_not_the_kernel_s() -> None:
    one = model("float32", "float32", 64, bias=True)
    one.graph.node[0].attribute[0].f = -1e-3
    feed = {"x": drawn("float32", 64)}
    session = od.InferenceSession(one)
    np.testing.assert_allclose(session.run(None, feed)[0], run_onnxruntime(one, feed)[0], rtol=0, atol=2e-5)
    assert not any(row.reason.startswith("as normalise") for row in session.placement)
