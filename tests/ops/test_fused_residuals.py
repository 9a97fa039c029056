# SPDX-License-Identifier: Apache-2.0
"""Sums in front of normalisations take no operator of their own, whatever else reads them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import onedispatch
from onedispatch.operators.declarations.tensor import Unsupported
from onedispatch.operators.kernels.normalise import Normalise
from tests.ops.case import check_beside_onnxruntime, run_onnxruntime, single_model

NORMS: list[tuple[str, int, int]] = [
    ("LayerNormalization", 1, 17), ("LayerNormalization", 2, 17), ("RMSNormalization", 1, 23)
]  # fmt: skip


def model(op_type: str, parameters: int, opset: int, shape: tuple[int, ...], kept: bool) -> onnx.ModelProto:
    """y = f(a + b), to which the sum is added again where it is ``kept``."""
    rng = np.random.default_rng(3)
    names = [f"w{i}" for i in range(parameters)]
    constants = [numpy_helper.from_array(rng.random(shape[-1:], np.float32), name) for name in names]
    nodes = [
        helper.make_node("Add", ["a", "b"], ["s"], "add"),
        helper.make_node(op_type, ["s", *names], ["n"], "norm", axis=-1),
        helper.make_node("Add", ["n", "s"], ["y"], "again"),
    ]
    given = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name in "ab"]
    return single_model(nodes[: 2 + kept], given, ["y" if kept else "n"], constants, opset)


@pytest.mark.daily(3)
@pytest.mark.parametrize("device", ["npu1", "npu2", "npu2_1col"])
@pytest.mark.parametrize("shape", [(7,), (37, 61), (3, 65, 24), (5, 1009)], ids=str)
@pytest.mark.parametrize(("op_type", "parameters", "opset"), NORMS)
@pytest.mark.parametrize("kept", [False, True], ids=["once", "kept"])
def test_the_normalisation_adds_it_up(
    op_type: str, parameters: int, opset: int, shape: tuple[int, ...], device: str, kept: bool
) -> None:
    proto = model(op_type, parameters, opset, shape, kept)
    random = np.random.default_rng(5)
    feed: dict[str, Any] = {name: random.standard_normal(shape).astype(np.float32) for name in "ab"}
    session = onedispatch.InferenceSession(proto, fallback="error", device=device)
    (y,) = session.run(None, feed)
    (expected,) = run_onnxruntime(proto, feed)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)
    assert session.last_run is not None and len(session.last_run.ops) == 1 + kept


@pytest.mark.daily(3)
@pytest.mark.parametrize("device", ["npu1", "npu2"])
@pytest.mark.parametrize("shape", [(8,), (37, 62), (3, 65, 24), (5, 1010)], ids=str)
@pytest.mark.parametrize(("op_type", "parameters", "opset"), NORMS)
@pytest.mark.parametrize("kept", [False, True], ids=["once", "kept"])
def test_narrow_sums_are_rounded_as_they_would_be_apart(
    op_type: str,
    parameters: int,
    opset: int,
    shape: tuple[int, ...],
    device: str,
    kept: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    proto = model(op_type, parameters, opset, shape, kept)
    random = np.random.default_rng(5)
    feed: dict[str, Any] = {name: random.standard_normal(shape).astype(np.float32) for name in "ab"}
    options: dict[str, Any] = {"fallback": "error", "device": device, "precision": "bf16"}
    session = onedispatch.InferenceSession(proto, **options)
    (y,) = session.run(None, feed)
    assert session.last_run is not None
    assert [op.op_type for op in session.last_run.ops if op.op_type in ("eltwise", "normalise")] == [
        "normalise", *["eltwise"] * kept
    ]  # fmt: skip

    def refused(*_: object) -> Normalise:
        raise Unsupported("a sum", "none")

    monkeypatch.setattr(Normalise, "with_residual", refused)
    (apart,) = onedispatch.InferenceSession(proto, **options).run(None, feed)
    np.testing.assert_array_equal(y, apart)
    check_beside_onnxruntime(proto, feed, [y], "bf16")


def test_a_row_that_does_not_fit_with_its_residual_stays_apart() -> None:
    proto = model("LayerNormalization", 2, 17, (2, 2000), True)
    random = np.random.default_rng(5)
    feed = {name: random.standard_normal((2, 2000)).astype(np.float32) for name in "ab"}
    session = onedispatch.InferenceSession(proto, fallback="error")
    np.testing.assert_allclose(session.run(None, feed)[0], run_onnxruntime(proto, feed)[0], atol=2e-5)
    (row,) = (one for one in session.placement if one.node == "norm")
    assert row.remark.startswith("merge eltwise_residual did not fire: ")
