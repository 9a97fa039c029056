# SPDX-License-Identifier: Apache-2.0
"""onnxruntime's RotaryEmbedding inside of models that say nothing of its results: ours are its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import onedispatch
from tests.ops.case import run_onnxruntime

FULL, FLAT = (2, 4, 3, 8), (2, 3, 32)
EACH, FIRST = [[0, 1, 2], [4, 5, 6]], [5]


def model(shape: tuple[int, ...], places: Any, constant: bool, half: int = 4, **attributes: Any) -> Any:
    """y = 2 f(x + 1), and its feed; only the inputs have a type."""
    rng = np.random.default_rng(3)
    ids = np.array(places, np.int64)
    constants = {name: rng.standard_normal((9, half)).astype(np.float32) for name in ("cos", "sin")}
    constants |= {"one": np.ones((), np.float32), "two": np.full((), 2, np.float32)}
    constants |= {"ids": ids} if constant else {}
    turned = helper.make_node(
        "RotaryEmbedding", ["a", "ids", "cos", "sin"], ["b"], "turned", domain="com.microsoft", **attributes
    )
    nodes = [
        helper.make_node("Add", ["x", "one"], ["a"]),
        turned,
        helper.make_node("Mul", ["b", "two"], ["y"]),
    ]
    given = [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)]
    feed: dict[str, Any] = {"x": rng.standard_normal(shape).astype(np.float32)}
    if not constant:
        given.append(helper.make_tensor_value_info("ids", onnx.TensorProto.INT64, ids.shape))
        feed["ids"] = ids
    made = [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)]
    tensors = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "g", given, made, tensors)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8), feed


@pytest.mark.parametrize("constant", [True, False], ids=["known", "fed"])
@pytest.mark.parametrize("places", [EACH, FIRST], ids=["each", "first"])
@pytest.mark.parametrize(
    ("shape", "more"),
    [
        (FULL, {}),
        (FULL, {"interleaved": 1, "scale": 1.0}),
        (FLAT, {}),
        (FLAT, {"num_heads": 4, "rotary_embedding_dim": 4, "half": 2}),
        (FULL, {"num_heads": 4, "rotary_embedding_dim": 4, "half": 2, "interleaved": 1}),
    ],
    ids=["halves", "pairs", "flat", "part", "pairs of a part"],
)
def test_it_runs_on_the_device(
    shape: tuple[int, ...], more: dict[str, Any], places: Any, constant: bool
) -> None:
    proto, feed = model(shape, places, constant, **more)
    session = onedispatch.InferenceSession(proto, fallback="error")
    (expected,) = run_onnxruntime(proto, feed)
    np.testing.assert_allclose(session.run(None, feed)[0], expected, rtol=1e-5, atol=1e-5)
    assert session.last_run is not None and session.last_run.dispatches == 1
    (row,) = (row for row in session.placement if row.node == "turned")
    assert row.device == "npu" and row.reason.startswith("as ") and not row.remark


@pytest.mark.parametrize(
    ("places", "more", "reason"),
    [
        (EACH, {"scale": 2.0}, "scale 2.0"),
        (EACH, {"is_packed_batching": 1}, "is_packed_batching 1"),
        ([[0, 1, 9], [0, 1, 2]], {}, "position_ids from 0 to 9"),
        ([[-1, 0, 1], [0, 1, 2]], {}, "position_ids from -1 to 2"),
        ([[0, 1, 2]], {}, "position_ids of shape [1, 3]"),
        (EACH, {"half": 3}, "a table of shape"),
    ],
)
def test_it_says_why_it_does_not(places: Any, more: dict[str, Any], reason: str) -> None:
    proto, _ = model(FULL, places, True, **more)
    with pytest.raises(onedispatch.UnsupportedModelError) as refused:
        onedispatch.InferenceSession(proto, fallback="error")
    (line,) = (line for line in refused.value.nodes if line.startswith("turned"))
    assert reason in line


def test_what_the_device_does_not_take_is_onnxruntimes() -> None:
    proto, feed = model(FULL, EACH, True, scale=2.0)
    session = onedispatch.InferenceSession(proto)
    np.testing.assert_allclose(
        session.run(None, feed)[0], run_onnxruntime(proto, feed)[0], rtol=1e-5, atol=1e-5
    )
