# SPDX-License-Identifier: Apache-2.0
"""Indices outside of their axis: an error that names node, index and bound, and never another element."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import onedispatch
from onedispatch.operators.declarations.statuses import ERRORS
from tests.ops.case import Case, Input, case, f32, single_model, value

INDEX = ERRORS[-34]
EXTENT = 37


def gather(at: int, const: bool) -> Case:
    return case("Gather", f32(5, EXTENT), value([3, at, -EXTENT], "int64", const), axis=1)


@pytest.mark.parametrize("at", [EXTENT, -EXTENT - 1, 2**31 - 1, -(2**31)])
def test_computed_ones_end_the_run(at: int) -> None:
    good, bad = gather(EXTENT - 1, False), gather(at, False)
    session = onedispatch.InferenceSession(good.model, fallback="error")
    x = good.feed["x0"]
    for feed, fails in ((good.feed, False), ({**bad.feed, "x0": x}, True), (good.feed, False)):
        if not fails:
            np.testing.assert_array_equal(session.run(None, feed)[0], x[:, [3, EXTENT - 1, 0]])
            continue
        with pytest.raises(INDEX, match=rf"node 'node'.*index {at} .*axis of {EXTENT}") as caught:
            session.run(None, feed)
        assert caught.value.node == "node" and isinstance(caught.value, onedispatch.SimulationError)


@pytest.mark.parametrize("at", [EXTENT, -EXTENT - 1])
def test_constant_ones_are_refused(at: int) -> None:
    with pytest.raises(
        onedispatch.ModelError, match=rf"{at}; accepted: indices in -{EXTENT} to {EXTENT - 1}"
    ):
        onedispatch.InferenceSession(gather(at, True).model, fallback="error")


def numbers(given: Any) -> Input:
    return value(given, "int64", False)


WRONG = [
    case("GatherElements", f32(2, 3), numbers([[0, 3], [1, 1]]), axis=1),
    case("GatherND", f32(2, 3), numbers([[0, 2], [1, -4]])),
    case("GatherND", f32(2, 3), numbers([[-3]])),
    case("ReverseSequence", f32(4, 2), numbers([4, 5])),
    case("ReverseSequence", f32(4, 2, 3), numbers([4, -1])),
    case("ReverseSequence", f32(2, 4), numbers([2**32 + 1, 1]), batch_axis=0, time_axis=1),
    *(
        case(
            "RNN",
            f32(4, 2, 3),
            f32(1, 5, 3),
            f32(1, 5, 5),
            None,
            value(lengths, "int32", False),
            hidden_size=5,
        )
        for lengths in ([4, 5], [-1, 4], [4, -(2**31)])
    ),
    case("ScatterElements", f32(2, 3), numbers([[0, 3], [1, 1]]), f32(2, 2), axis=1),
    case("ScatterElements", f32(2, 3), numbers([[0, -4]]), f32(1, 2), axis=1),
    case("ScatterND", f32(2, 3), numbers([[0, 2], [2, 0]]), f32(2)),
    case("ScatterND", f32(2, 3), numbers([[2**33]]), f32(1, 3)),
    case("TensorScatter", f32(1, 4, 3), f32(1, 2, 3), numbers([3]), opset=24),
]


@pytest.mark.parametrize("wrong", WRONG, ids=lambda one: one.id)
def test_every_indexed_operator_looks_at_them(wrong: Case) -> None:
    session = onedispatch.InferenceSession(wrong.model, fallback="error")
    with pytest.raises(
        INDEX, match=r"node 'node'.*index -?\d+ .* along an axis of \d+; accepted: .*[.] Correct the data"
    ):
        session.run(None, wrong.feed)


@pytest.mark.parametrize("op_type", ["NonZero", "Unique", "Compress"])
def test_shapes_that_data_decides_are_refused_as_that(op_type: str) -> None:
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [6])]
    inputs += [helper.make_tensor_value_info("c", TensorProto.BOOL, [6])] if op_type == "Compress" else []
    node = helper.make_node(op_type, [one.name for one in inputs], ["y"])
    model = single_model([node], inputs, ["y"])
    with pytest.raises(onedispatch.UnsupportedModelError, match=f"{op_type}'s result depends on its data"):
        onedispatch.InferenceSession(model, fallback="error")
