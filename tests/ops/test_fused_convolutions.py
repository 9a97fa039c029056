# SPDX-License-Identifier: Apache-2.0
"""An activation behind a convolution or a pool of several parts takes no operator of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import onedispatch
from tests.ops.case import Array, run_onnxruntime, single_model

WINDOWS: list[tuple[str, tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ("Conv", (1, 3, 4, 5, 6), (4, 3, 3, 3, 3), {"pads": [1] * 6}),
    ("Conv", (2, 4, 4, 5, 6), (4, 2, 2, 3, 3), {"group": 2}),
    ("Conv", (2, 4, 4, 5, 6), (3, 4, 3, 1, 1), {}),
    ("ConvTranspose", (1, 3, 5, 6), (3, 4, 3, 3), {}),
    ("ConvTranspose", (1, 3, 5, 6), (3, 4, 2, 2), {"strides": [2, 2]}),
    ("ConvTranspose", (1, 4, 5, 6), (4, 1, 3, 3), {"strides": [2, 2], "group": 4}),
    ("ConvTranspose", (1, 2, 3, 4, 5), (2, 3, 2, 2, 2), {"strides": [2, 2, 2]}),
    ("AveragePool", (1, 3, 4, 5, 6), (), {"kernel_shape": [2, 2, 2]}),
]


def model(
    op_type: str, weights: Array | None, shape: tuple[int, ...], relu: bool, **attributes: Any
) -> onnx.ModelProto:
    constants = [] if weights is None else [numpy_helper.from_array(weights, "w")]
    nodes = [helper.make_node(op_type, ["x", *(c.name for c in constants)], ["c"], "c", **attributes)]
    nodes += [helper.make_node("Relu", ["c"], ["y"], "r")] if relu else []
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)
    return single_model(nodes, [x], ["y" if relu else "c"], constants)


@pytest.mark.parametrize(("op_type", "shape", "kernel", "attributes"), WINDOWS, ids=lambda v: str(v))
def test_an_activation_is_applied_by_the_last_part(
    op_type: str, shape: tuple[int, ...], kernel: tuple[int, ...], attributes: dict[str, Any]
) -> None:
    random = np.random.default_rng(5)
    x = random.standard_normal(shape).astype(np.float32)
    weights = random.standard_normal(kernel).astype(np.float32) if kernel else None
    counts = []
    for relu in (False, True):
        proto = model(op_type, weights, shape, relu, **attributes)
        session = onedispatch.InferenceSession(proto, fallback="error")
        (y,) = session.run(None, {"x": x})
        (expected,) = run_onnxruntime(proto, {"x": x})
        assert y.shape == expected.shape
        np.testing.assert_allclose(y, expected, atol=2e-5)
        assert session.last_run is not None
        counts.append(len(session.last_run.ops))
    assert counts[0] == counts[1] and (y == 0).any() and (y > 0).any()
