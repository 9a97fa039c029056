# SPDX-License-Identifier: Apache-2.0
"""Element types and quantisation of nodes of custom domains: casts to f32 and back, saved models too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

import onedispatch as od
from onedispatch.operators.plugin.node import Node
from onedispatch.operators.plugin.operands import In
from tests.integration.custom import Array, Bring, acme
from tests.plugins import model, value

# -- element types --------------------------------------------------------------------------------

KINDS = {
    "f16": (TensorProto.FLOAT16, np.float16),
    "bf16": (TensorProto.BFLOAT16, ml_dtypes.bfloat16),
    "i8": (TensorProto.INT8, np.int8),
    "u8": (TensorProto.UINT8, np.uint8),
    "i16": (TensorProto.INT16, np.int16),
}


def typed(kind: int, **more: Any) -> ModelProto:
    node = acme("x y", "z", name="n0", a=2.0)
    return model(
        [node], [value("x", [3, 4], kind), value("y", [3, 4], kind)], [value("z", None, kind)], **more
    )


@pytest.mark.parametrize("name", KINDS)
def test_an_element_type_that_the_kernel_lacks_is_refused(name: str, bring: Bring) -> None:
    bring()
    with pytest.raises(od.KernelDtypeError) as refused:
        od.compile(typed(KINDS[name][0]))
    error = refused.value
    assert (error.node, error.given, error.expected) == ("n0", name, "f32")
    assert 'cast_policy="f32"' in error.remedy


@pytest.mark.parametrize("name", KINDS)
def test_casts_to_f32_and_back_are_inserted_and_listed(name: str, bring: Bring) -> None:
    kernel = bring()
    kind, dtype = KINDS[name]
    session = od.InferenceSession(typed(kind), cast_policy="f32")
    x, y = np.arange(12).reshape(3, 4).astype(dtype), np.ones((3, 4), dtype)
    (found,) = session.run(None, {"x": x, "y": y})
    assert found.dtype == dtype
    np.testing.assert_array_equal(found.astype(np.float32), 2 * np.arange(12).reshape(3, 4) + 1)
    assert {node["x"].dtype for node in kernel.asked} == {"f32"}
    casts = [row for row in session.placement if row.op_type == "Cast"]
    assert len(casts) == 3 and [row.op_type for row in session.placement].index("ScaleAdd") == 2
    assert all(row.reason.startswith("inserted by cast_policy='f32' for n0: ") for row in casts)


@pytest.mark.parametrize(
    "kind", [TensorProto.INT32, TensorProto.INT64, TensorProto.DOUBLE, TensorProto.UINT32]
)
def test_no_cast_loses_what_an_input_may_hold(kind: int, bring: Bring) -> None:
    bring()
    with pytest.raises(od.KernelDtypeError, match="f32 holds all values of") as refused:
        od.compile(typed(kind), cast_policy="f32")
    assert refused.value.node == "n0"


def test_a_constant_that_f32_holds_is_cast(bring: Bring) -> None:
    bring()
    node = acme("x c", "z", a=2.0)
    for largest, fits in ((1 << 24, True), ((1 << 24) + 1, False)):
        constant = helper.make_tensor("c", TensorProto.INT32, [2], [1, largest])
        proto = model([node], [value("x", [2])], [value("z", None)], initializer=[constant])
        if not fits:
            with pytest.raises(od.KernelDtypeError):
                od.compile(proto, cast_policy="f32")
            continue
        (found,) = od.InferenceSession(proto, cast_policy="f32").run(None, {"x": np.float32([1, 2])})
        np.testing.assert_array_equal(found, np.float32([3, 4 + largest]))


def test_what_the_model_declares_as_f32_is_not_cast_back(bring: Bring) -> None:
    bring()
    inputs = [value("x", [2], TensorProto.INT8), value("y", [2], TensorProto.INT8)]
    session = od.InferenceSession(model([acme("x y", "z")], inputs, [value("z", [2])]), cast_policy="f32")
    (found,) = session.run(None, {"x": np.int8([1, 2]), "y": np.int8([3, 4])})
    assert found.dtype == np.float32
    assert sum(row.op_type == "Cast" for row in session.placement) == 2


def test_one_input_twice_is_cast_once(bring: Bring) -> None:
    bring()
    proto = model(
        [acme("x x", "z")], [value("x", [2], TensorProto.INT8)], [value("z", None, TensorProto.INT8)]
    )
    session = od.InferenceSession(proto, cast_policy="f32")
    np.testing.assert_array_equal(session.run(None, {"x": np.int8([1, 2])})[0], [2, 4])
    assert sum(row.op_type == "Cast" for row in session.placement) == 2


@pytest.mark.parametrize("policy", ["f16", "", None, 3])
def test_no_such_cast_policy(policy: Any) -> None:
    with pytest.raises(od.InputError, match=r"cast_policy.*'error', 'f32'"):
        od.compile(typed(TensorProto.FLOAT), cast_policy=policy)


# -- quantisation ---------------------------------------------------------------------------------


def quantised_model(annotated: bool = False) -> ModelProto:
    scale = helper.make_tensor("s", TensorProto.FLOAT, [], [0.25])
    zero = helper.make_tensor("o", TensorProto.UINT8, [], [7])
    nodes = [acme("q q", "r"), helper.make_node("DequantizeLinear", ["r", "s", "o"], ["z"])]
    inputs = [value("q", [4], TensorProto.UINT8)]
    if not annotated:
        nodes.insert(0, helper.make_node("QuantizeLinear", ["x", "s", "o"], ["q"]))
        inputs = [value("x", [4])]
    proto = model(nodes, inputs, [value("z", None)], initializer=[scale, zero])
    if annotated:
        said = proto.graph.quantization_annotation.add(tensor_name="q")
        for key, name in (("SCALE_TENSOR", "s"), ("ZERO_POINT_TENSOR", "o")):
            said.quant_parameter_tensor_names.add(key=key, value=name)
    return proto


@pytest.mark.parametrize("annotated", [False, True])
def test_scale_and_zero_point_reach_the_kernel(annotated: bool, bring: Bring) -> None:
    def computed(n: Node, x: Array, y: Array) -> Array:
        assert n["x"].quantisation is not None
        return x + np.uint8(n["x"].quantisation.zero_point[0])

    kernel = bring(inputs=(In("x", "u8", quantised=True), In("y", "u8")), computed=computed)
    session = od.InferenceSession(quantised_model(annotated))
    given = {"q": np.uint8([1, 2, 3, 4])} if annotated else {"x": np.float32([-1.5, -1.25, -1, -0.75])}
    (found,) = session.run(None, given)
    np.testing.assert_array_equal(found, 0.25 * np.arange(1, 5))
    told = kernel.asked[0]["x"].quantisation
    assert (told.scale, told.zero_point, told.axis) == ((0.25,), (7,), None)


@pytest.mark.parametrize("wanted", [False, True])
def test_a_declared_quantisation_is_verified(wanted: bool, bring: Bring) -> None:
    bring(inputs=(In("x", "u8", quantised=wanted), In("y", "u8")))
    plain = model(
        [acme("q q", "r")], [value("q", [4], TensorProto.UINT8)], [value("r", None, TensorProto.UINT8)]
    )
    with pytest.raises(od.KernelQuantisationError):
        od.compile(plain if wanted else quantised_model())


def test_other_operators_take_annotated_models_as_before() -> None:
    node = helper.make_node("Relu", ["x"], ["y"], name="n0")
    proto = model(
        [node], [value("x", [4])], [value("y", [4])], initializer=[helper.make_tensor("s", 1, [], [0.5])]
    )
    said = proto.graph.quantization_annotation.add(tensor_name="y")
    said.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="s")
    assert od.InferenceSession(proto).placement[0].device == "npu"


# -- saved models ---------------------------------------------------------------------------------


def test_saved_models_keep_policy_and_quantisation(bring: Bring, tmp_path: Path) -> None:
    bring()
    compiled = od.compile(typed(TensorProto.INT8), cast_policy="f32")
    compiled.save(tmp_path / "m.od")
    again = od.load(tmp_path / "m.od")
    assert again.cast_policy == "f32"
    x = np.arange(12, dtype=np.int8).reshape(3, 4)
    (found,) = od.InferenceSession(again).run(None, {"x": x, "y": x})
    np.testing.assert_array_equal(found, 3 * x)
    kernel = bring(
        "Integers", inputs=(In("x", "u8", quantised=True), In("y", "u8")), computed=lambda n, x, y: x
    )
    proto = quantised_model()
    next(node for node in proto.graph.node if node.domain).op_type = "Integers"
    od.compile(proto).save(tmp_path / "q.od")
    kernel.asked.clear()
    od.InferenceSession(od.load(tmp_path / "q.od")).run(None, {"x": np.zeros(4, np.float32)})
    assert kernel.asked[0]["x"].quantisation.scale == (0.25,)
