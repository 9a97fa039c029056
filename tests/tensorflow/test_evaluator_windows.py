# SPDX-License-Identifier: Apache-2.0
"""Convolutions, pooling and normalisation of the evaluator against onnxruntime, and gradients as adjoints."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import helper

from tests.tensorflow.test_evaluator import image, run

SAME = {"padding": "SAME"}
VALID = {"padding": "VALID"}
EXPLICIT = {"padding": "EXPLICIT", "explicit_paddings": [0, 0, 1, 0, 2, 1, 0, 0]}


def onnx_node(op_type: str, *operands: Any, **attributes: Any) -> Any:
    """The first output of an ONNX node, by onnxruntime."""
    names = [f"x{i}" for i in range(len(operands))]
    infos = [helper.make_tensor_value_info(n, 1, x.shape) for n, x in zip(names, operands, strict=True)]
    node = helper.make_node(op_type, names, ["y"], **attributes)
    graph = helper.make_graph([node], "g", infos, [helper.make_tensor_value_info("y", 1, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, dict(zip(names, operands, strict=True)))[0]


def padding(given: dict[str, Any], rank: int = 2) -> dict[str, Any]:
    """Padding as ONNX says it."""
    if given["padding"] == "SAME":
        return {"auto_pad": "SAME_UPPER"}
    pairs = np.reshape(given.get("explicit_paddings", [0] * (4 + 2 * rank)), (-1, 2))[1:-1]
    return {"pads": [int(p) for p in pairs.T.ravel()]}


def first(x: Any) -> Any:
    return np.ascontiguousarray(np.moveaxis(x, -1, 1))


def last(x: Any) -> Any:
    return np.moveaxis(x, 1, -1)


@pytest.mark.parametrize("pads", [SAME, VALID, EXPLICIT], ids=lambda p: p["padding"])
@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (2, 1), (1, 2), (3, 1)])
@pytest.mark.parametrize("groups", [1, 2])
def test_convolutions(pads: dict[str, Any], stride: int, dilation: int, groups: int) -> None:
    x, w = image(2, 9, 10, 4), image(3, 2, 4 // groups, 6)
    spread = {"strides": [1, stride, stride, 1], "dilations": [1, dilation, dilation, 1]}
    how = {"strides": [stride] * 2, "dilations": [dilation] * 2, "group": groups, **padding(pads)}
    if pads is SAME and dilation > 1:  # which onnxruntime does not pad by itself; see kernel [3, 2]
        how = {**how, "auto_pad": "NOTSET", "pads": [2, 1, 2, 1]}
    wanted = last(onnx_node("Conv", first(x), np.ascontiguousarray(w.transpose(3, 2, 0, 1)), **how))
    np.testing.assert_allclose(run("Conv2D", x, w, **spread, **pads), wanted, rtol=1e-4, atol=1e-4)
    explicit = [0, 0, 0, 0, 1, 0, 2, 1]
    turned = {**pads, **({"explicit_paddings": explicit} if pads is EXPLICIT else {}), "data_format": "NCHW"}
    spread = {"strides": [1, 1, stride, stride], "dilations": [1, 1, dilation, dilation]}
    np.testing.assert_allclose(
        last(run("Conv2D", first(x), w, **spread, **turned)), wanted, rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("pads", [SAME, VALID, EXPLICIT], ids=lambda p: p["padding"])
@pytest.mark.parametrize("stride", [1, 2])
def test_depthwise_convolutions(pads: dict[str, Any], stride: int) -> None:
    x, w = image(1, 7, 8, 3), image(3, 3, 3, 2)
    kernel = np.ascontiguousarray(w.reshape(3, 3, 1, 6).transpose(3, 2, 0, 1))
    wanted = last(onnx_node("Conv", first(x), kernel, strides=[stride] * 2, group=3, **padding(pads)))
    found = run("DepthwiseConv2dNative", x, w, strides=[1, stride, stride, 1], **pads)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_convolutions_of_volumes() -> None:
    x, w = image(1, 5, 6, 7, 2), image(3, 2, 3, 2, 4)
    wanted = last(
        onnx_node("Conv", first(x), np.ascontiguousarray(w.transpose(4, 3, 0, 1, 2)), strides=[2, 1, 1])
    )
    found = run("Conv3D", x, w, strides=[1, 2, 1, 1, 1], padding="VALID")
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("pads", [SAME, VALID, EXPLICIT], ids=lambda p: p["padding"])
@pytest.mark.parametrize("form", ["NHWC", "NCHW"])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_gradients_are_adjoint(pads: dict[str, Any], form: str, stride: int) -> None:
    """The product of conv(x) and dy is that of x and the gradient of dy."""
    x, w = image(2, 8, 9, 4), image(3, 2, 4, 5)
    given = dict(pads)
    strides = [1, stride, stride, 1]
    if form == "NCHW":
        x, strides = first(x), [1, 1, stride, stride]
        if pads is EXPLICIT:
            given["explicit_paddings"] = [0, 0, 0, 0, 1, 0, 2, 1]
    how = {"strides": strides, "data_format": form, **given}
    y = run("Conv2D", x, w, **how)
    dy = image(*y.shape)
    back = run("Conv2DBackpropInput", np.array(x.shape, np.int32), w, dy, **how)
    assert back.shape == x.shape
    np.testing.assert_allclose((y * dy).sum(dtype=float), (x * back).sum(dtype=float), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("pads", [SAME, VALID], ids=lambda p: p["padding"])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_pooling(pads: dict[str, Any], stride: int) -> None:
    x = image(2, 9, 10, 3)
    how = {"ksize": [1, 3, 2, 1], "strides": [1, stride, stride, 1], **pads}
    said = {"kernel_shape": [3, 2], "strides": [stride] * 2, **padding(pads)}
    for op, onnx_op in (("MaxPool", "MaxPool"), ("AvgPool", "AveragePool")):
        np.testing.assert_allclose(
            run(op, x, **how), last(onnx_node(onnx_op, first(x), **said)), rtol=1e-5, atol=1e-6
        )
    values, places = run("MaxPoolWithArgmax", x, **how)
    np.testing.assert_array_equal(values, run("MaxPool", x, **how))
    np.testing.assert_array_equal(
        np.take_along_axis(x.reshape(2, -1), places.reshape(2, -1), 1).ravel(), values.ravel()
    )
    _, whole = run("MaxPoolWithArgmax", x, include_batch_in_index=True, **how)
    np.testing.assert_array_equal(x.ravel()[whole], values)


def test_pooling_of_other_forms() -> None:
    x = image(1, 4, 6, 6)
    pads = [0, 0, 0, 0, 1, 0, 0, 1]
    found = run("MaxPool", x, ksize=[1, 1, 2, 2], strides=[1, 1, 2, 2], padding="EXPLICIT",
                explicit_paddings=pads, data_format="NCHW")  # fmt: skip
    wanted = onnx_node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2], pads=[1, 0, 0, 1])
    np.testing.assert_array_equal(found, wanted)
    moved = run("MaxPoolV2", x, [1, 2, 2, 1], [1, 2, 2, 1], padding="VALID")
    np.testing.assert_array_equal(
        moved, last(onnx_node("MaxPool", first(x), kernel_shape=[2, 2], strides=[2, 2]))
    )
    numbers = (x * 10).astype(np.int32)
    assert run("MaxPool", numbers, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="SAME").dtype == np.int32


def test_local_response_normalisation() -> None:
    x = image(1, 3, 4, 7)
    wanted = onnx_node("LRN", first(x), size=5, alpha=0.5 * 5, beta=0.75, bias=2.0)
    found = run("LRN", x, depth_radius=2, alpha=0.5, beta=0.75, bias=2.0)
    np.testing.assert_allclose(found, last(wanted), rtol=1e-5)


@pytest.mark.parametrize("form", ["NHWC", "NCHW"])
def test_batch_normalisation(form: str) -> None:
    x, (scale, offset, mean) = image(2, 3, 4, 5), (image(5) for _ in range(3))
    variance = np.abs(image(5)) + 0.1
    wanted = last(onnx_node("BatchNormalization", first(x), scale, offset, mean, variance, epsilon=0.01))
    given = first(x) if form == "NCHW" else x
    made = run("FusedBatchNormV3", given, scale, offset, mean, variance,
               is_training=False, epsilon=0.01, data_format=form)  # fmt: skip
    np.testing.assert_allclose(last(made[0]) if form == "NCHW" else made[0], wanted, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(made[1], mean)
    trained = run("FusedBatchNorm", given, scale, offset, image(0), image(0), data_format=form)
    np.testing.assert_allclose(trained[1], x.mean((0, 1, 2)), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(trained[2], x.var((0, 1, 2), ddof=1), rtol=1e-4)
