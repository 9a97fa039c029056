# SPDX-License-Identifier: Apache-2.0
"""Functions that a model brings: their nodes mean what they do in onnxruntime, or the model is refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, FunctionProto, NodeProto, TensorProto, helper

import onedispatch as od
from tests.ops.case import run_onnxruntime

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")

X = np.arange(60, dtype=np.float32).reshape(4, 3, 5)
PLACES = np.array([2, 0, -1])


def function(name: str, body: Sequence[NodeProto], opset: int, **defaults: Any) -> FunctionProto:
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("own", 1)]
    protos = [helper.make_attribute(key, given) for key, given in defaults.items()]
    return helper.make_function("own", name, ["a", "b"], ["c"], body, imports, attribute_protos=protos)


def call(name: str, **attributes: Any) -> NodeProto:
    return helper.make_node(name, ["x", "i"], ["y"], "call", domain="own", **attributes)


def gather(opset: int = 18, name: str = "G", **defaults: int) -> FunctionProto:
    node = helper.make_node("Gather", ["a", "b"], ["c"])
    node.attribute.append(AttributeProto(name="axis", ref_attr_name="axis", type=AttributeProto.INT))
    return function(name, [node], opset, **defaults)


def model(node: NodeProto, *functions: FunctionProto, opset: int = 18) -> onnx.ModelProto:
    ins = [helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)]
    ins += [helper.make_tensor_value_info("i", TensorProto.INT64, PLACES.shape)]
    graph = helper.make_graph([node], "g", ins, [helper.make_empty_tensor_value_info("y")])
    graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, None))
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=imports, functions=functions, ir_version=9)


def runs(proto: onnx.ModelProto) -> None:
    before = proto.SerializeToString()
    (mine,) = od.InferenceSession(proto, fallback="error").run(None, {"x": X, "i": PLACES})
    np.testing.assert_array_equal(mine, run_onnxruntime(proto, {"x": X, "i": PLACES})[0])
    assert proto.SerializeToString() == before


@pytest.mark.parametrize("given", [{}, {"axis": 2}], ids=str)
def test_attributes_that_a_call_leaves_out_are_at_their_default(given: dict[str, int]) -> None:
    runs(model(call("G", **given), gather(axis=1)))


def test_defaults_hold_for_calls_inside_functions() -> None:
    inner = helper.make_node("G", ["a", "b"], ["c"], domain="own")
    runs(model(call("Outer"), gather(axis=1), function("Outer", [inner], 18)))


@pytest.mark.parametrize(("own", "models"), [(13, 18), (21, 17)])
def test_versions_may_differ_where_the_operators_are_the_same(own: int, models: int) -> None:
    runs(model(call("G", axis=1), gather(own), opset=models))


def test_an_operator_that_became_another_is_refused() -> None:
    body = [helper.make_node("Gather", ["a", "b"], ["g"]), helper.make_node("Softmax", ["g"], ["c"], "old")]
    with pytest.raises(od.ModelError, match=r"function 'S', node old \(Softmax\): given operator set 11"):
        od.InferenceSession(model(call("S"), function("S", body, 11)))


def test_large_defaults_count_once_per_call() -> None:
    """What they would take is counted before any is written down."""
    large = function("F0", [helper.make_node("Identity", ["a"], ["c"])], 18, text="x" * (1 << 20))
    levels = [large]
    for level in range(1, 4):
        body = [
            helper.make_node(f"F{level - 1}", ["a", "b"], [f"c{n}" if n < 15 else "c"], domain="own")
            for n in range(16)
        ]
        levels.append(function(f"F{level}", body, 18))
    with pytest.raises(od.ModelError, match=r"with its functions inlined: given .* bytes"):
        od.InferenceSession(model(call("F3"), *levels))
