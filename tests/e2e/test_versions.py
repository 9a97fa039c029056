# SPDX-License-Identifier: Apache-2.0
"""Versions 0.1 and 1.0 of a transaction mean the same: both are run, bytes and cycles are compared."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onedispatch as od
from onedispatch.transactions import Transaction
from onedispatch.transactions.format.spec import V0_1, V1_0

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")


def model() -> onnx.ModelProto:
    """A convolution, a pool, a product and a softmax: constants, scratch, every kind of task."""
    rng = np.random.default_rng(3)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, 16, 16])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 10])
    weights = {"w": (8, 3, 3, 3), "b": (8,), "m": (8 * 64, 10)}
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("MatMul", ["f", "m"], ["l"]),
        helper.make_node("Softmax", ["l"], ["y"]),
    ]
    constants = [
        numpy_helper.from_array(rng.standard_normal(s).astype(np.float32), n) for n, s in weights.items()
    ]
    graph = helper.make_graph(nodes, "versions", [x], [y], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("device", ["npu1", "npu2"])
def test_both_versions_give_the_same_bytes_in_the_same_time(device: str) -> None:
    compiled = od.compile(model(), device=device, fallback="error")
    x = np.random.default_rng(4).standard_normal((2, 3, 16, 16)).astype(np.float32)
    legacy = Transaction.from_bytes(compiled.transaction)
    optimised = legacy.converted(V1_0)
    assert legacy.version == V0_1 and len(optimised.to_bytes()) < len(legacy.to_bytes())

    def run(transaction: Transaction) -> tuple[Any, Any]:
        session = od.InferenceSession(compiled.with_transaction(transaction.to_bytes()))
        return session.run(None, {"x": x})[0], session.last_run

    expected, report = run(legacy)
    for other in (optimised, optimised.converted(V0_1)):
        y, again = run(other)
        assert np.array_equal(y, expected)
        assert again.cycles == report.cycles and again.dispatches == 1
        assert again.ddr_bytes_read == report.ddr_bytes_read
        assert again.ddr_bytes_written == report.ddr_bytes_written
