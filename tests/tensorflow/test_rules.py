# SPDX-License-Identifier: Apache-2.0
"""Our rules for TensorFlow against the evaluator, on the simulated device; other nodes run on the host."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import onedispatch as od
from onedispatch.dispatch.sources import registry
from onedispatch.dispatch.sources.translate import translate
from onedispatch.dispatch.tensorflow.framework import TENSORFLOW, load_rules
from onedispatch.dispatch.tensorflow.reader import read_graphdef
from onedispatch.dispatch.tensorflow.signatures import signature_of
from tests.tensorflow.evaluator import evaluate
from tests.tensorflow.graphdefs import GraphBuilder
from tests.tensorflow.rule_case import Case, case, data, fed
from tests.tensorflow.rule_cases import CASES, WITHOUT_RESULT

Array = np.ndarray[Any, Any]


def names_of_rules() -> set[str]:
    load_rules()
    return {rule.op_type for rule in registry.rules() if rule.framework == "tensorflow" and rule.ours}


def check(graphdef: Any, outputs: Sequence[str], feed: Mapping[str, Array], **options: Any) -> Any:
    """Runs a GraphDef; values, types and shapes are those of the evaluator. Returns the session."""
    expected = evaluate(graphdef, feed, outputs)
    with warnings.catch_warnings():
        warnings.simplefilter("error", od.RuleWarning)
        options = {"device": "npu2", "fallback": "cpu", **options}
        session = od.InferenceSession(graphdef, outputs=list(outputs), **options)
    wanted = {one.name for one in session.get_inputs()}
    made = session.run(None, {name: value for name, value in feed.items() if name in wanted})
    for one, other, name in zip(made, expected, outputs, strict=True):
        assert one.dtype == other.dtype, name
        assert one.shape == other.shape, name
        if one.dtype.kind == "f":
            scale = float(np.max(np.abs(other[np.isfinite(other)]), initial=1.0))
            np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-6 * scale, err_msg=name)
        else:
            np.testing.assert_array_equal(one, other, name)
    return session


@pytest.mark.daily(5)
@pytest.mark.parametrize("one", CASES, ids=str)
def test_a_rule_computes_what_tensorflow_does(one: Case) -> None:
    check(*one.graphdef(), fallback="cpu" if _on_the_host(one) else "error")


def _on_the_host(one: Case) -> bool:
    """Whether shapes follow from data, which the device does not do."""
    by_data = ("Where", "DynamicPartition", "Unique", "NonMaxSuppression")
    computed = ("Sum", "SegmentMax", "Slice", "StridedSlice", "Pad", "Conv2DBackpropInput")
    return one.op.startswith(by_data) or (one.op in computed and "computed" in one.note)


def test_every_rule_has_a_case() -> None:
    assert names_of_rules() - {one.op for one in CASES} == WITHOUT_RESULT | {"PlaceholderWithDefault"}
    assert len(names_of_rules()) >= 130


def test_every_rule_is_for_an_operator_of_tensorflow() -> None:
    assert [name for name in names_of_rules() if signature_of(name) is None] == []


# -- several nodes -----------------------------------------------------------------------------------


def test_nodes_without_result_are_dropped() -> None:
    b = GraphBuilder()
    x = b.placeholder("x", "float32", [None, 3])
    b.op("NoOp", name="init")
    b.op("Assert", b.op("Less", x, np.float32(9)), [x], name="check")
    y = b.op("Neg", x, name="y", control=["init", "check"])
    check(b.graphdef(), [y], {"x": data(2, 3)})


def _sizes(b: GraphBuilder, x: str, *others: int) -> Any:
    """The batch of x, and sizes that are known: as Keras writes it."""
    shape, bounds = b.op("Shape", x), [np.array([i], np.int32) for i in (0, 1, 1)]
    batch = b.op("StridedSlice", shape, *bounds, shrink_axis_mask=1)
    return b.op("Pack", [batch, *(b.const(f"size_{i}", np.int32(i)) for i in others)])


def test_sizes_with_the_batch_are_known_but_for_it() -> None:
    b = GraphBuilder()
    x = b.placeholder("x", "float32", [None, 7, 6, 4])
    two: dict[str, Any] = {"strides": [1, 2, 2, 1], "padding": "SAME"}
    y = b.op("Conv2DBackpropInput", _sizes(b, x, 14, 12, 3), data(3, 3, 3, 4), x, name="y", **two)
    check(b.graphdef(), [y], {"x": data(2, 7, 6, 4)}, fallback="error")
    graph = translate(read_graphdef(b.graphdef(), [y]), TENSORFLOW)
    made = next(node for node in graph.nodes if node.op_type == "ConvTranspose")
    assert made.attributes["output_padding"] == [0, 0]  # nothing is made that would be cut off
    assert graph.outputs[0].shape == (None, 14, 12, 3)


def test_a_rank_is_known_of_what_is_reshaped_to_the_batch() -> None:
    b = GraphBuilder()
    x = b.placeholder("x", "float32", [None, 5, 8])
    heads = b.op("Reshape", x, _sizes(b, x, 5, 2, 4))
    y = b.op("BatchMatMulV2", heads, heads, name="y", adj_y=True)
    check(b.graphdef(), [y], {"x": data(3, 5, 8)}, fallback="error")


def test_layers_that_keras_normalises_as_a_batch_in_training() -> None:
    """Rows are the channels of one image; ones and zeros are scale and offset."""
    b = GraphBuilder()
    x = b.placeholder("x", "float32", [None, 5, 8])
    shape, bounds = b.op("Shape", x), [np.array([i], np.int32) for i in (0, 1, 2)]
    parts = [
        b.op("StridedSlice", shape, bounds[i], bounds[i + 1], bounds[1], shrink_axis_mask=1) for i in (0, 1)
    ]
    rows, one = b.op("Mul", *parts), b.const("one", np.int32(1))
    image = b.op("Reshape", x, b.op("Pack", [one, rows, b.const("width", np.int32(8)), one]))
    dims = b.op("Pack", [rows])
    ones, zeros = (b.op("Fill", dims, np.float32(value)) for value in (1, 0))
    none = np.zeros(0, np.float32)
    y = b.op("FusedBatchNormV3", image, ones, zeros, none, none, data_format="NCHW", epsilon=1e-3)[0]
    y = b.op("Mul", b.op("Reshape", y, shape), data(8), name="y")
    check(b.graphdef(), [y], {"x": data(3, 5, 8)}, fallback="error")


def test_orders_and_axes_may_be_computed_of_the_rank() -> None:
    """Transpose and Sum without arguments are written so by TensorFlow."""
    b = GraphBuilder()
    x = b.placeholder("x", "float32", [None, 3, 4])
    places = b.op("Range", np.int32(0), b.op("Rank", x), np.int32(1))
    last = b.op("Sub", b.op("Rank", x, name="rank"), np.int32(1))
    y = b.op("Transpose", x, b.op("Sub", last, places), name="y")
    z = b.op("Sum", x, places, name="z")
    check(b.graphdef(), [y, z], {"x": data(2, 3, 4)}, fallback="error")


@pytest.mark.parametrize("training", [True, None])
def test_what_a_rule_does_not_take_is_said(training: bool | None) -> None:
    norm = [data(4), data(4), data(4), np.abs(data(4))]
    more: dict[str, Any] = {} if training is None else {"is_training": training}  # the default is True, too
    graphdef, outputs, _ = case("FusedBatchNormV3", fed(2, 3, 3, 4), *norm, **more).graphdef()
    with pytest.raises(od.UnsupportedModelError, match="is_training"):
        od.compile(graphdef, outputs=outputs)
