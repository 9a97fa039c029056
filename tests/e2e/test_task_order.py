# SPDX-License-Identifier: Apache-2.0
"""Memory tiles with more tasks than a queue holds, beside feeds that are slow: they begin in order."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import parser

import onedispatch as od

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")


@pytest.mark.parametrize(("batches", "rows", "inside"), [(5, 33, 33), (7, 49, 50)])
def test_products_of_transposed_heads(batches: int, rows: int, inside: int) -> None:
    """Values are read a word at a time, so that tasks pushed later could be there before those in packets."""
    shape = f"float[1,{batches},{rows},{inside}] p, float[1,{inside},32,{batches}] v"
    body = """
        t = Transpose<perm = [0, 3, 1, 2]>(v) o = MatMul(p, t)
        b = Transpose<perm = [0, 2, 3, 1]>(o) y = Relu(b)"""
    head = '<ir_version: 8, opset_import: ["" : 17]>'
    model: onnx.ModelProto = parser.parse_model(
        f"{head} g ({shape}) => (float[1,{rows},32,{batches}] y) {{ {body} }}"
    )
    rng = np.random.default_rng(0)
    sizes = {"p": (1, batches, rows, inside), "v": (1, inside, 32, batches)}
    feed = {name: rng.standard_normal(size).astype(np.float32) for name, size in sizes.items()}
    expected = ort.InferenceSession(model.SerializeToString()).run(None, feed)[0]
    session = od.InferenceSession(model, "npu2_1col", fallback="error")
    for _ in range(3):
        np.testing.assert_allclose(session.run(None, feed)[0], expected, rtol=1e-5, atol=1e-5)
