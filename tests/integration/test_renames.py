# SPDX-License-Identifier: Apache-2.0
"""Nodes that give a value another name: what stands around them is fused as if they were not there."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import parser

import onedispatch as od
from tests.ops.case import run_onnxruntime

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")

HEAD = "g (float[1, 4, 6, 6] x) => (float[1, 4, 6, 6] y)"
CONSTANTS = "int64[4] sizes = {1, 4, 6, 6}, int64[1] one = {1}, int64[1] front = {0}"
RENAMES = {
    "Identity": "a = Identity(c) b = Identity(a)",
    "Cast": "b = Cast<to = 1>(c)",
    "Reshape": "b = Reshape(c, sizes)",
    "Expand": "b = Expand(c, one)",
}


def model(body: str, head: str = HEAD) -> onnx.ModelProto:
    text = f'<ir_version: 8, opset_import: ["": 17]> {head} <{CONSTANTS}> {{ {body} }}'
    proto: onnx.ModelProto = parser.parse_model(text)
    weights = np.random.default_rng(1).standard_normal((4, 4, 3, 3), np.float32)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    return proto


def placed(proto: onnx.ModelProto) -> dict[str, od.NodePlacement]:
    session = od.InferenceSession(proto, fallback="error")
    feed = {"x": np.random.default_rng(2).standard_normal((1, 4, 6, 6), np.float32)}
    for mine, other in zip(session.run(None, feed), run_onnxruntime(proto, feed), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-5)
    return {row.op_type: row for row in session.placement}


@pytest.mark.parametrize("name", RENAMES)
def test_what_stands_around_it_is_one_operator(name: str) -> None:
    rows = placed(model(f"c = Conv<pads = [1, 1, 1, 1]>(x, w) {RENAMES[name]} y = Relu(b)"))
    assert "together with Conv_0" in rows["Relu"].reason
    assert rows[name].reason == "another name for c"


@pytest.mark.parametrize(
    "body",
    [
        "c = Conv<pads = [1, 1, 1, 1]>(x, w) b = Relu(c) y = Identity(b)",
        "y = Identity(x)",
        "c = Conv<pads = [1, 1, 1, 1]>(x, w) b = Cast<to = 10>(c) y = Cast<to = 1>(b)",
    ],
)
def test_outputs_and_other_types_stay(body: str) -> None:
    assert not any(row.reason.startswith("another name") for row in placed(model(body)).values())


def test_what_a_body_reads_stays() -> None:
    proto = model(
        "a = Identity(x) s = ReduceSum<keepdims = 0>(x) t = Greater(s, s) y = If(t) <then_branch = p () =>"
        " (float[1, 4, 6, 6] r) { r = Exp(a) }, else_branch = q () => (float[1, 4, 6, 6] r) { r = Neg(a) }>"
    )
    feed = {"x": np.random.default_rng(2).standard_normal((1, 4, 6, 6), np.float32)}
    session = od.InferenceSession(proto, fallback="cpu")
    np.testing.assert_array_equal(session.run(None, feed)[0], run_onnxruntime(proto, feed)[0])
