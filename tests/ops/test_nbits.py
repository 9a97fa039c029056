# SPDX-License-Identifier: Apache-2.0
"""MatMulNBits in models: its traffic, what it is in bfloat16, what is refused, and how."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import onedispatch as od
from tests.ops.case import Case, value
from tests.ops.cases_nbits import product

TensorProto = onnx.TensorProto


def between(one: Case) -> onnx.ModelProto:
    """``2 f(x + 1)``, whose values in the middle say no shapes."""
    node = onnx.NodeProto()
    node.CopyFrom(one.model.graph.node[0])
    node.input[0], node.output[0] = "a", "b"
    constants = [*one.model.graph.initializer]
    constants += [numpy_helper.from_array(np.float32(n), name) for n, name in ((1, "one"), (2, "two"))]
    nodes = [
        helper.make_node("Add", ["x0", "one"], ["a"]),
        node,
        helper.make_node("Mul", ["b", "two"], ["y"]),
    ]
    made = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "g", list(one.model.graph.input), made, constants)
    return helper.make_model(graph, opset_imports=list(one.model.opset_import), ir_version=10)


def run(model: onnx.ModelProto, feed: Any, **options: Any) -> tuple[Any, Any]:
    session = od.InferenceSession(model, fallback="error", **options)
    (y,) = session.run(None, feed)
    assert session.last_run is not None and session.last_run.dispatches == 1
    return y, session.last_run


def test_shapes_are_inferred_and_activations_of_bfloat16_take_the_same_weights() -> None:
    one = product((6, 256), 96, zeros="packed")
    exact, _ = run(between(one), one.feed)
    rounded, _ = run(between(one), one.feed, precision="bf16")
    session = od.InferenceSession(between(one), fallback="error", precision="bf16")
    assert not [row for row in session.placement if "float32" in row.reason]
    assert exact.shape == (6, 96) and 0 < np.abs(rounded - exact).max() < 0.02 * np.abs(exact).max()


@pytest.mark.parametrize("bits", [4, 8])
def test_weights_are_read_as_they_are_packed(bits: int) -> None:
    k, n = 1024, 512
    one = product((1, k), n, bits)
    _, report = run(one.model, one.feed)
    weights, activations = k * n * bits // 8 + k // 32 * n * 4, k * 4
    told = 2048  # what is more, of a column
    assert weights + activations <= report.ddr_bytes_read < weights + 8 * (activations + told)


def without(one: Case, index: int, put: Any) -> Case:
    """``one`` with another input there."""
    inputs = [*one.inputs, *[None] * (index + 1 - len(one.inputs))]
    inputs[index] = put
    return replace(one, inputs=tuple(inputs), answer=0)


GOOD = product((5, 96), 24, zeros="packed")
HOST = {
    "2 bits": replace(
        GOOD, inputs=(GOOD.inputs[0], value(np.zeros((24, 3, 8)), "uint8"), GOOD.inputs[2]),
        attributes={**GOOD.attributes, "bits": 2},
    ),
    "g_idx": without(GOOD, 4, value(np.arange(96) // 32, "int32")),
    "computed at run time": without(GOOD, 1, replace(GOOD.inputs[1] or value(0), const=False)),
    "x3 of float32 beside data of float16": without(
        product((5, 96), 24, dtype="float16"), 3, value(np.full((24, 3), 0.1), "float32")
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", HOST)
def test_what_stays_on_the_host_says_why(what: str) -> None:
    with pytest.raises(od.UnsupportedModelError, match=rf"node .*MatMulNBits.*{what}"):
        od.compile(HOST[what].model, fallback="error")


def test_zero_points_of_a_narrower_float_are_taken_as_they_are() -> None:
    one = without(GOOD, 3, value(np.linspace(0, 15, 72).reshape(24, 3), "float16"))
    wide = without(GOOD, 3, value(np.linspace(0, 15, 72).reshape(24, 3).astype(np.float16), "float32"))
    np.testing.assert_array_equal(run(one.model, GOOD.feed)[0], run(wide.model, GOOD.feed)[0])


WRONG = {
    "bits": (replace(GOOD, attributes={**GOOD.attributes, "bits": 3}), "'bits'.*3"),
    "block": (replace(GOOD, attributes={**GOOD.attributes, "block_size": 24}), "'block_size'.*24"),
    "small": (replace(GOOD, attributes={**GOOD.attributes, "block_size": 8}), "'block_size'.*8"),
    "k": (replace(GOOD, attributes={**GOOD.attributes, "K": 64}), "input 0"),
    "weights": (without(GOOD, 1, value(np.zeros((24, 3, 15)), "uint8")), "input 1"),
    "scales": (without(GOOD, 2, value(np.ones((24, 2)))), "input 2"),
    "zeros": (without(GOOD, 3, value(np.zeros((24, 3)), "uint8")), "input 3"),
    "bias": (without(GOOD, 5, value(np.zeros(23))), "input 5"),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_lengths_are_refused_by_name(what: str) -> None:
    one, match = WRONG[what]
    with pytest.raises(od.OneDispatchError, match=rf"node.*MatMulNBits.*{match}"):
        od.compile(one.model, fallback="cpu")
