# SPDX-License-Identifier: Apache-2.0
"""Products of weights that DequantizeLinear makes floats of: they stay packed, results are onnxruntime's."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import onedispatch as od
from tests.ops.case import Array, run_onnxruntime

ROWS, K, N = 5, 96, 24


def model(q: Array, scale: Array, zero: Array | None, readers: int = 1, **attributes: Any) -> onnx.ModelProto:
    """y = x W for so many x, where W is dequantised."""
    tensors = [
        numpy_helper.from_array(a, name) for a, name in ((q, "q"), (scale, "s"), (zero, "z")) if a is not None
    ]
    names = ["q", "s", *(["z"] if zero is not None else [])]
    nodes = [helper.make_node("DequantizeLinear", names, ["w"], "weights", **attributes)]
    kind = helper.np_dtype_to_tensor_dtype(scale.dtype)
    inputs, outputs = [], []
    for i in range(readers):
        nodes.append(helper.make_node("MatMul", [f"x{i}", "w"], [f"y{i}"], f"product{i}"))
        inputs.append(helper.make_tensor_value_info(f"x{i}", kind, [ROWS, q.shape[0]]))
        outputs.append(helper.make_tensor_value_info(f"y{i}", kind, [ROWS, q.shape[1]]))
    graph = helper.make_graph(nodes, "g", inputs, outputs, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def drawn(dtype: Any, *shape: int) -> Array:
    low, high = (-8, 8) if dtype == ml_dtypes.int4 else (0, 16) if dtype == ml_dtypes.uint4 else (0, 100)
    return np.random.default_rng(5).integers(low, high, shape).astype(dtype)


def scales(*shape: int) -> Array:
    return np.random.default_rng(6).uniform(0.01, 0.03, shape).astype(np.float32)


INT4, UINT4 = ml_dtypes.int4, ml_dtypes.uint4
PACKED = {
    "int4 in blocks": model(drawn(INT4, K, N), scales(3, N), None, axis=0, block_size=32),
    "uint4 in blocks": model(drawn(UINT4, K, N), scales(3, N), drawn(UINT4, 3, N), axis=0, block_size=32),
    "uint4 without zero points": model(drawn(UINT4, K, N), scales(6, N), None, axis=0, block_size=16),
    "int8 by column": model(drawn(np.int8, K, N), scales(N), drawn(np.int8, N), axis=1),
    "uint8 of one scale": model(drawn(np.uint8, K, N), scales(), drawn(np.uint8)),
    "a last block that is not full": model(drawn(np.int8, 70, N), scales(3, N), None, axis=0, block_size=32),
    "two readers": model(drawn(INT4, K, N), scales(3, N), None, readers=2, axis=0, block_size=32),
}
BLOCKS, SCALES = "rows in blocks of 16, 32, 64, 128 or 256", "scales of the tensor, of columns, or of blocks"
STAYS = [
    (SCALES, model(drawn(np.int8, K, N), scales(K), None, axis=0)),
    (BLOCKS, model(drawn(np.int8, 70, N), scales(N), None, axis=1)),
    (BLOCKS, model(drawn(np.int8, K, N), scales(K, 3), None, axis=1, block_size=8)),
    (SCALES, model(drawn(np.int8, K, 32), scales(K, 2), None, axis=1, block_size=16)),
]


def ran(one: onnx.ModelProto) -> od.InferenceSession:
    rng = np.random.default_rng(7)
    feed = {x.name: rng.standard_normal((ROWS, x.type.tensor_type.shape.dim[1].dim_value)).astype(np.float32)
            for x in one.graph.input}  # fmt: skip
    session = od.InferenceSession(one, fallback="error")
    found, wanted = session.run(None, feed), run_onnxruntime(one, feed)
    for a, e in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, e, rtol=0, atol=2.5e-6 * np.abs(e).max())
    return session


@pytest.mark.parametrize("what", PACKED)
def test_weights_stay_packed(what: str) -> None:
    told = " ".join(row.reason for row in ran(PACKED[what]).placement)
    assert "packed_weights" in told and "did not fire" not in told


@pytest.mark.parametrize(("what", "one"), STAYS)
def test_others_become_floats_and_say_why(what: str, one: onnx.ModelProto) -> None:
    remarks = " ".join(row.remark for row in ran(one).placement)
    assert f"rule packed_weights did not fire: {what}" in remarks


@pytest.mark.parametrize("opset", [10, 12])
def test_operator_sets_without_axes(opset: int) -> None:
    one = model(drawn(np.int8, K, N), scales(), drawn(np.int8))
    one.opset_import[0].version, one.ir_version = opset, 7
    assert "packed_weights" in " ".join(row.reason for row in ran(one).placement)


def test_the_dequantiser_of_onnxruntime() -> None:
    one = model(drawn(np.int8, K, N), scales(), drawn(np.int8))
    one.graph.node[0].domain = "com.microsoft"
    one.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    assert [row.reason.partition(",")[0] for row in ran(one).placement] == ["rule packed_weights"] * 2


@pytest.mark.parametrize(("k", "n"), [(0, 8), (32, 0)])
def test_weights_of_nothing_stay(k: int, n: int) -> None:
    one = model(np.zeros((k, n), np.int8), scales(), None)
    session = od.InferenceSession(one, fallback="error")
    feed = {"x0": np.ones((ROWS, k), np.float32)}
    np.testing.assert_array_equal(session.run(None, feed)[0], np.zeros((ROWS, n), np.float32))


def test_four_bits_are_read_as_four() -> None:
    """By what twice the weights add: control packets are read for either, x by each of eight columns."""
    n, found, data = 256, [], []
    for k in (2048, 4096):
        one = model(drawn(INT4, k, n), scales(k // 128, n), None, axis=0, block_size=128)
        report = ran(one).last_run
        assert report is not None
        found.append(report.ddr_bytes_read)
        data.append(k * n // 2 + k // 128 * n * 4 + 8 * ROWS * k * 4)
    assert found[1] - found[0] <= data[1] - data[0]
