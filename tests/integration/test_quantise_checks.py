# SPDX-License-Identifier: Apache-2.0
"""Scales, zero points, axes and blocks that fit no tensor: errors that name node and tensor."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

import onedispatch
from onedispatch import ModelError
from tests.integration.test_dispatch_validity import f, model
from tests.ops.case import Array, run_onnxruntime


def zeros(*shape: int, dtype: str = "uint8") -> Array:
    return np.zeros(shape, dtype)


def scale(value: float) -> Array:
    return np.array(value, np.float32)


SHAPES: list[tuple[tuple[Array, ...], dict[str, Any], str]] = [
    ((f(3),), {}, r"'x1'\): given \[3\]; accepted: \[5\], one scale per member of axis 1"),
    ((f(4), zeros(4)), {"axis": 0}, r"'x1'\): given \[4\]; accepted: \[3\], one scale per member of axis 0"),
    ((f(5), zeros(4)), {}, r"'x2'\): given \[4\]; accepted: \[5\]|must match|shape"),
    ((f(5), zeros(5)), {"axis": 2}, "'axis': given 2; accepted: -2 to 1"),
    ((f(5), zeros(5)), {"axis": -3}, "'axis': given -3; accepted: -2 to 1"),
    (
        (f(3, 2),),
        {"block_size": 2},
        r"'x1'\): given \[3, 2\]; accepted: \[3, 3\], 3 blocks of 2 along axis 1",
    ),
    ((f(3, 3),), {"block_size": 1, "axis": 1}, r"given \[3, 3\]; accepted: \[3, 5\], 5 blocks of 1"),
    ((f(2),), {"block_size": 3}, r"given \[2\]; accepted: \[3, 2\]"),
    ((f(3, 5),), {"block_size": -1}, "'block_size': given -1; accepted: 1 or more"),
    ((f(3, 5),), {}, r"given \[3, 5\]; accepted: a scalar, a list, or block_size"),
]


@pytest.mark.parametrize(("operands", "options", "said"), SHAPES)
@pytest.mark.parametrize("op_type", ["QuantizeLinear", "DequantizeLinear"])
def test_scales_that_fit_no_elements(
    op_type: str, operands: tuple[Array, ...], options: dict[str, Any], said: str
) -> None:
    x = f(3, 5) if op_type == "QuantizeLinear" else zeros(3, 5)
    with pytest.raises(ModelError, match=said) as caught:
        onedispatch.compile(model(op_type, x, *operands, opset=21, **options))
    assert "n (" in str(caught.value) or "node name: n" in str(caught.value)


@pytest.mark.parametrize("bad", [0.0, -0.5, np.nan, np.inf])
@pytest.mark.parametrize("op_type", ["QuantizeLinear", "DequantizeLinear"])
def test_scales_that_stand_for_nothing(op_type: str, bad: float) -> None:
    x = f(3, 5) if op_type == "QuantizeLinear" else zeros(3, 5)
    with pytest.raises(
        ModelError, match=rf"node n .*'x1'\): given the scale {bad}; accepted: finite numbers above"
    ):
        onedispatch.compile(model(op_type, x, scale(bad), opset=21, const=(1,)))


def test_zero_points_are_of_the_type_of_the_integers() -> None:
    with pytest.raises(ModelError, match=r"n \(|node name: n") as caught:
        onedispatch.compile(model("DequantizeLinear", zeros(3, 5), scale(1.0), zeros(dtype="int8"), opset=21))
    assert "x2" in str(caught.value) or "int8" in str(caught.value) or "T1" in str(caught.value)
    with pytest.raises(ModelError, match=r"n \(|node name: n"):
        onedispatch.compile(
            model("QuantizeLinear", f(3, 5), scale(1.0), zeros(), opset=21, output_dtype=TensorProto.INT8)
        )


@pytest.mark.parametrize("dtype", [TensorProto.INT4, TensorProto.UINT4, TensorProto.FLOAT8E4M3FN])
def test_types_that_no_core_has_are_declined_with_a_reason(dtype: int) -> None:
    proto = model("QuantizeLinear", f(3, 5), scale(1.0), opset=21, output_dtype=dtype)
    with pytest.raises(
        onedispatch.UnsupportedModelError, match=r"QuantizeLinear to .*int8, uint8, int16, uint16"
    ):
        onedispatch.compile(proto, fallback="error")


@pytest.mark.parametrize("dtype", ["int4", "uint4"])
@pytest.mark.parametrize(
    ("shape", "options"), [((), {}), ((6,), {"axis": 1}), ((4, 6), {"axis": 0, "block_size": 8})], ids=str
)
def test_weights_of_four_bits(dtype: str, shape: tuple[int, ...], options: dict[str, Any]) -> None:
    """Constants become floats when the model is compiled; what is computed in four bits is declined."""
    narrow = np.dtype(getattr(ml_dtypes, dtype))
    low, rng = (-8 if dtype == "int4" else 0), np.random.default_rng(3)
    w, zero = (rng.integers(low, low + 16, one).astype(narrow) for one in ((32, 6), shape))
    x = rng.standard_normal((3, 32)).astype(np.float32)
    by = np.asarray(rng.random(shape) + 0.1, np.float32)
    proto = model(
        "DequantizeLinear", w, by, np.asarray(zero, narrow), opset=21, const=(0, 1, 2), ir=10, **options
    )
    proto.graph.node.append(helper.make_node("MatMul", ["x", "y"], ["z"], "product"))
    proto.graph.input.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape))
    proto.graph.output[0].name = "z"
    session = onedispatch.InferenceSession(proto, fallback="error")
    (expected,) = run_onnxruntime(proto, {"x": x})
    np.testing.assert_allclose(session.run(None, {"x": x})[0], expected, rtol=2e-6, atol=1e-5)

    computed = model(
        "DequantizeLinear", w, by, np.asarray(zero, narrow), opset=21, const=(1, 2), ir=10, **options
    )
    with pytest.raises(onedispatch.UnsupportedModelError, match=rf"{dtype}.*int8, uint8"):
        onedispatch.compile(computed, fallback="error")
