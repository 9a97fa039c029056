# SPDX-License-Identifier: Apache-2.0
"""A kernel that is declared again: sessions that were there do not mix its old tables with its new body."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto

import onedispatch as od
from tests.plugins import node_model

X = np.ones((4, 5), np.float32)


def declare(factor: int) -> None:
    @od.kernel("again::scaled", inputs="x", outputs="z", aux="w")
    class Scaled:
        def access(self, n):  # type: ignore[no-untyped-def]
            n.aux("w", np.float32([factor]))
            return n.elementwise("x", "z")

        def body(self, t):  # type: ignore[no-untyped-def]
            t.z[:] = t.x * t.w[0] * np.float32(factor)

    od.maps("Scaled", domain="again")(Scaled)


def model(rows: str | int) -> ModelProto:
    return node_model("Scaled", [rows, 5], "again")


def value(session: od.InferenceSession) -> float:
    (z,) = session.run(None, {"x": X})
    assert (z == z[0, 0]).all()
    return float(z[0, 0])


def test_a_model_of_open_shapes_is_compiled_again() -> None:
    declare(2)
    session = od.InferenceSession(model("N"), fallback="error")
    assert value(session) == 4
    declare(3)
    assert value(session) == 9
    assert value(od.InferenceSession(model("N"), fallback="error")) == 9
    assert value(session) == 9


def test_a_model_of_one_shape_is_compiled_again() -> None:
    declare(2)
    session = od.InferenceSession(model(4), fallback="error")
    assert value(session) == 4
    declare(3)
    assert value(od.InferenceSession(model(4), fallback="error")) == 9
    assert value(session) == 9


def test_a_saved_model_has_no_source_and_says_so(tmp_path: Path) -> None:
    declare(2)
    od.compile(model(4), fallback="error").save(tmp_path / "scaled.od")
    session = od.InferenceSession(od.load(tmp_path / "scaled.od"))
    assert value(session) == 4
    declare(3)
    with pytest.raises(od.KernelLibraryError, match=r"again::scaled@1: given declared again since"):
        value(session)
