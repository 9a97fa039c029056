# SPDX-License-Identifier: Apache-2.0
"""A C++ library that is older than the declarations says so, and how it is built anew."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import parser

import onedispatch as od
from onedispatch.dispatch.runtime import built

RELU = '<ir_version: 8, opset_import: ["": 21]> g (float[4] x) => (float[4] y) { y = Relu(x) }'


def test_kernels_that_were_declared_since_the_build(monkeypatch: pytest.MonkeyPatch) -> None:
    class Older:
        """The extension, without the kernel of element-wise functions as it is now."""

        @staticmethod
        def kernels() -> list[tuple[str, int]]:
            return [("od::eltwise@1", 1)]

    session = od.InferenceSession(parser.parse_model(RELU))
    feed = {"x": np.array([1, -1, 0, 2], np.float32)}
    monkeypatch.setattr(built, "core", Older)
    with pytest.raises(od.KernelNotFoundError, match=r"od::eltwise@1 than Python has now.*make generate"):
        session.run(None, feed)
    monkeypatch.undo()
    assert session.run(None, feed)[0].tolist() == [1.0, 0.0, 0.0, 2.0]
