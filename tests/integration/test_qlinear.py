# SPDX-License-Identifier: Apache-2.0
"""Operators of onnxruntime's quantiser: what is refused, and shapes that models leave open."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import onedispatch as od
from tests.ops.case import Array

BYTES = np.zeros(1, np.uint8)
SCALE, ZERO = np.float32(0.5), np.uint8(3)
X = np.ones((1, 4, 6, 8), np.uint8)
LONG = np.ones((2, 100_000), np.uint8)
FLOATS = [X[0, 0], SCALE, ZERO, X[0, 0], SCALE, ZERO]  # of QGemm: without a scale of its result
UNARY = [X, SCALE, ZERO, SCALE, ZERO]


def model(
    op_type: str,
    given: list[Any],
    computed: tuple[int, ...] = (0,),
    *,
    kind: int = onnx.TensorProto.UINT8,
    **attributes: Any,
) -> onnx.ModelProto:
    """One node; its result has no shape, and is looked at by an operator of ONNX."""
    arrays: list[Array] = [np.asarray(one) for one in given]
    names = [f"x{i}" for i in range(len(arrays))]
    node = helper.make_node(op_type, names, ["y"], name="node", domain="com.microsoft", **attributes)
    shape = helper.make_node("Shape", ["y"], ["shape"], name="shape")
    infos = [
        helper.make_tensor_value_info(
            names[i], helper.np_dtype_to_tensor_dtype(arrays[i].dtype), arrays[i].shape
        )
        for i in computed
    ]
    constants = [
        numpy_helper.from_array(a, n)
        for i, (n, a) in enumerate(zip(names, arrays, strict=True))
        if i not in computed
    ]
    result = helper.make_tensor_value_info("y", kind, None)
    made = [result, helper.make_tensor_value_info("shape", onnx.TensorProto.INT64, None)]
    graph = helper.make_graph([node, shape], "g", infos, made, constants)
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


@pytest.mark.parametrize(
    ("op_type", "given", "computed", "attributes", "shape"),
    [
        ("QLinearAdd", [X, SCALE, ZERO, X[0, :, :1], SCALE, ZERO, SCALE, ZERO], (0, 3), {}, (1, 4, 6, 8)),
        ("QLinearMul", [X[0, 0], SCALE, ZERO, X, SCALE, ZERO, SCALE, ZERO], (0, 3), {}, (1, 4, 6, 8)),
        ("QLinearSigmoid", UNARY, (0,), {}, (1, 4, 6, 8)),
        ("QLinearGlobalAveragePool", UNARY, (0,), {}, (1, 4, 1, 1)),
        ("QLinearGlobalAveragePool", UNARY, (0,), {"channels_last": 1}, (1, 1, 1, 8)),
        ("QLinearAveragePool", UNARY, (0,), {"kernel_shape": [2, 3], "strides": [2, 2]}, (1, 4, 3, 3)),
        ("QLinearAveragePool", UNARY, (0,), {"kernel_shape": [3, 3], "auto_pad": "SAME_UPPER"}, (1, 4, 6, 8)),
        ("QLinearAveragePool", UNARY, (0,), {"kernel_shape": [2, 3], "channels_last": 1}, (1, 3, 4, 8)),
        ("QLinearConcat", [SCALE, ZERO, X, SCALE, ZERO, X, SCALE, ZERO], (2, 5), {"axis": 1}, (1, 8, 6, 8)),
        ("QLinearSoftmax", UNARY, (0,), {"axis": 1, "opset": 13}, (1, 4, 6, 8)),
        ("QGemm", FLOATS, (0, 3), {"transB": 1, "kind": onnx.TensorProto.FLOAT}, (6, 6)),
    ],
)  # fmt: skip
def test_shapes_of_results_are_inferred(
    op_type: str,
    given: list[Any],
    computed: tuple[int, ...],
    attributes: dict[str, Any],
    shape: tuple[int, ...],
) -> None:
    proto = model(op_type, given, computed, **attributes)
    session = od.InferenceSession(proto)
    result, told = session.run(None, {f"x{i}": given[i] for i in computed})
    assert result.shape == tuple(told) == shape


def test_a_result_of_another_type_than_declared_is_refused(tmp_path: Path) -> None:
    with pytest.raises(od.ModelError, match=r"output 'y'.*float.*declared as tensor\(uint8\)"):
        od.compile(model("QGemm", FLOATS, (0, 3), transB=1))
    right = model("QGemm", FLOATS, (0, 3), transB=1, kind=onnx.TensorProto.FLOAT)
    od.compile(right).save(tmp_path / "m.od")
    result, _ = od.InferenceSession(tmp_path / "m.od").run(None, {"x0": X[0, 0], "x3": X[0, 0]})
    np.testing.assert_array_equal(result, np.full((6, 6), 8 * (1 - 3) ** 2 * 0.25, np.float32))


@pytest.mark.parametrize(
    ("op_type", "given", "computed", "attributes", "why"),
    [
        ("QLinearSigmoid", UNARY, (0, 1), {}, r"scale or zero point 1: a computed one \(x1\)"),
        ("QLinearAdd", [X, SCALE, ZERO, X, SCALE, ZERO, SCALE, ZERO], (0, 5), {}, r"computed one \(x5\)"),
        ("QLinearAveragePool", UNARY, (0,), {"kernel_shape": [2, 2], "ceil_mode": 1}, "ceil_mode of 0"),
        ("QLinearAveragePool", UNARY, (0,), {"kernel_shape": [2, 2], "channels_last": 1}, "last of 0"),
        ("QLinearSoftmax", UNARY, (0, 3), {"opset": 13}, r"scale or zero point 3: a computed one \(x3\)"),
        ("QLinearSoftmax", [LONG, *UNARY[1:]], (0,), {"opset": 13}, "64512 byte data memory"),
        ("QLinearSoftmax", [*UNARY[:3], np.float32(1e-40), ZERO], (0,), {"opset": 13}, "inverse is a float"),
    ],
)  # fmt: skip
def test_what_the_device_does_not_take_is_said(
    op_type: str, given: list[Any], computed: tuple[int, ...], attributes: dict[str, Any], why: str
) -> None:
    with pytest.raises(od.UnsupportedModelError, match=why):
        od.compile(model(op_type, given, computed, **attributes), fallback="error")


@pytest.mark.parametrize(
    ("op_type", "given", "attributes"),
    [
        ("QLinearAdd", [X, SCALE, ZERO, X[..., :5], SCALE, ZERO, SCALE, ZERO], {}),
        ("QLinearAdd", [SCALE, SCALE, ZERO, X, SCALE, ZERO, SCALE, ZERO], {}),
        ("QLinearConcat", [SCALE, ZERO, X, SCALE, ZERO], {"axis": 7}),
        ("QLinearConcat", [SCALE, ZERO, X, SCALE, ZERO], {}),
        ("QLinearAveragePool", UNARY, {}),
        ("QLinearAveragePool", UNARY, {"kernel_shape": [2]}),
        ("QLinearGlobalAveragePool", [BYTES, *UNARY[1:]], {}),
        ("QLinearSoftmax", UNARY, {"axis": 4, "opset": 13}),
        ("QLinearSoftmax", UNARY, {"axis": 1}),
        ("QGemm", [BYTES, SCALE, ZERO, X, SCALE, ZERO], {}),
    ],
)
def test_mistakes_are_named_or_left_to_the_host(
    op_type: str, given: list[Any], attributes: dict[str, Any]
) -> None:
    data = 2 if op_type == "QLinearConcat" else 0
    with pytest.raises((od.ModelError, od.UnsupportedModelError), match="node"):
        od.compile(model(op_type, given, (data,), **attributes), fallback="error")
