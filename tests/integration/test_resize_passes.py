# SPDX-License-Identifier: Apache-2.0
"""Passes of Resize: in which order, and that the last one rounds narrow results itself."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import onedispatch as od
from tests.integration.test_elide import feed, model
from tests.ops.case import check_beside_onnxruntime

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")


def resize(width: int, down: float, across: float) -> onnx.ModelProto:
    sizes = f"1, 4, {int(6 * down)}, {int(width * across)}"
    made = model(f"(float[1,4,6,{width}] x) => (float[{sizes}] y)", 'y = Resize<mode="linear">(x, , s)')
    scales = np.array([1, 1, down, across], np.float32)
    made.graph.initializer.append(onnx.numpy_helper.from_array(scales, "s"))
    return made


@pytest.mark.parametrize(
    ("width", "down", "across", "kinds"),
    [
        (10, 2, 2, ["resample", "resample"]),
        (10, 2, 0.5, ["resample", "resample", "convert"]),  # five in a row, which are no whole words
        (5, 2, 3, ["resample", "resample", "convert"]),
        (10, 2, 1, ["resample"]),
        (10, 1, 2, ["resample", "convert"]),  # the last axis is resized last
    ],
)
@pytest.mark.parametrize("device", ["npu1", "npu2"])
def test_the_last_pass_rounds(width: int, down: float, across: float, kinds: list[str], device: str) -> None:
    made = resize(width, down, across)
    given = feed(made)
    session = od.InferenceSession(made, device=device, precision="bf16", fallback="error")
    for _ in range(3):
        check_beside_onnxruntime(made, given, session.run(None, given), "bf16")
    ops = [op.op_type for op in session.last_run.ops]
    first = ops.index("resample")
    assert ops[first : first + len(kinds)] == kinds
    wide = od.InferenceSession(made, device=device, fallback="error")
    check_beside_onnxruntime(made, given, wide.run(None, given), "fp32")
