# SPDX-License-Identifier: Apache-2.0
"""Operators that onnxruntime has and onnx has not: in ONNX's own domain, and in com.microsoft."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper
from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema, get_all_opkernel_def

import onedispatch as od
from onedispatch.dispatch.frontend.schemas import onnx_schema
from onedispatch.operators.declarations.registry import mapping_for

RNG = np.random.default_rng(14)
X = RNG.standard_normal((2, 3, 4, 5)).astype(np.float32)
SCALE, BIAS = (RNG.standard_normal(5).astype(np.float32) for _ in range(2))
GRID = RNG.uniform(-1, 1, (2, 4, 5, 2)).astype(np.float32)
ENDS = [np.array(one, np.int64) for one in ([0, 1], [2, 3], [0, 3])]  # starts, ends, axes of a slice

Case = tuple[int, tuple[np.ndarray[Any, Any], ...], dict[str, Any]]

# Operator set, inputs behind X, attributes.
CASES: dict[str, Case] = {
    "Affine": (9, (), {"alpha": 2.0, "beta": 0.5}),
    "Crop": (9, (), {"border": [1, 1, 1, 1]}),
    "DynamicSlice": (9, tuple(ENDS), {}),
    "ImageScaler": (9, (), {"scale": 2.0, "bias": [0.1, 0.2, 0.3]}),
    "LayerNormalization": (16, (SCALE, BIAS), {"axis": -1, "epsilon": 1e-4}),
    "MeanVarianceNormalization": (8, (), {"across_channels": 1}),
    "ParametricSoftplus": (9, (), {"alpha": 0.5, "beta": 1.5}),
    "Scale": (9, (), {"scale": 3.0}),
    "ScaledTanh": (9, (), {"alpha": 0.5, "beta": 1.5}),
    "SimplifiedLayerNormalization": (17, (SCALE,), {"axis": -1, "epsilon": 1e-4}),
    "ThresholdedRelu": (9, (), {"alpha": 0.25}),
}
_SIMPLIFIED = "SimplifiedLayerNormalization"
_COPIES = ("MemcpyFromHost", "MemcpyToHost")  # onnxruntime inserts them itself


def model(
    op_type: str,
    *more: Any,
    opset: int,
    domain: str = "",
    outputs: int = 1,
    shape: Any = None,
    **attributes: Any,
) -> onnx.ModelProto:
    """``op_type`` of x and constants, with a Relu behind its first output; ``shape`` of x, as declared."""
    names = [f"c{i}" for i in range(len(more))]
    made = ["t", "u", "v"][:outputs]
    node = helper.make_node(op_type, ["x", *names], made, "n", domain=domain, **attributes)
    graph = helper.make_graph(
        [node, helper.make_node("Relu", ["t"], ["y"], "relu")],
        "g",
        [helper.make_tensor_value_info("x", 1, X.shape if shape is None else shape)],
        [onnx.ValueInfoProto(name=name) for name in ("y", *made[1:])],
        [onnx.numpy_helper.from_array(array, name) for name, array in zip(names, more, strict=True)],
    )
    opsets = [helper.make_opsetid("", opset)] + ([helper.make_opsetid(domain, 1)] if domain else [])
    return helper.make_model(graph, opset_imports=opsets, ir_version=4 if opset < 10 else 8)


def expected(proto: onnx.ModelProto, x: Any = X) -> list[Any]:
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, {"x": x}))


def devices(session: od.InferenceSession) -> dict[str, str]:
    return {row.node: row.device for row in session.placement}


def test_every_operator_of_onnxruntime_in_onnx_domain_has_a_case() -> None:
    kernels = {one.op_name for one in get_all_opkernel_def() if one.domain in ("", "ai.onnx")}
    own = {
        schema.name
        for schema in get_all_operator_schema()
        if schema.domain in ("", "ai.onnx") and not schema.deprecated and schema.name in kernels
        if onnx_schema(schema.name, "", schema.since_version) is None
    }
    assert own - set(_COPIES) == set(CASES)


@pytest.mark.parametrize("op_type", CASES)
def test_they_run_as_on_onnxruntime(op_type: str) -> None:
    opset, more, attributes = CASES[op_type]
    proto = model(op_type, *more, opset=opset, **attributes)
    session = od.InferenceSession(proto, fallback="cpu")
    (y,) = session.run(None, {"x": X})
    np.testing.assert_allclose(y, expected(proto)[0], rtol=1e-5, atol=1e-6)
    where = "npu" if mapping_for("", op_type) else "cpu"
    # Nothing infers the shapes of these two: what follows them cannot be placed before a run.
    follows = "cpu" if op_type in ("Crop", "DynamicSlice") else "npu"
    assert devices(session) == {"n": where, "relu": follows}


def test_statistics_of_simplified_layer_normalization() -> None:
    proto = model("SimplifiedLayerNormalization", SCALE, opset=17, outputs=2, axis=-1)
    for got, wanted in zip(
        od.InferenceSession(proto, fallback="error").run(None, {"x": X}), expected(proto), strict=True
    ):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("op_type", "more"), [("LayerNormalization", [SCALE, BIAS]), (_SIMPLIFIED, [SCALE])])
def test_statistics_alone(op_type: str, more: list[Any]) -> None:
    """The normalised rows are read by nothing."""
    proto = model(op_type, *more, opset=17, outputs=2, axis=-1)
    del proto.graph.node[1], proto.graph.output[0]
    (got,) = od.InferenceSession(proto, fallback="error").run(None, {"x": X})
    np.testing.assert_allclose(got, expected(proto)[0], rtol=1e-5, atol=1e-6)


def test_means_alone_are_computed_on_the_host() -> None:
    proto = model("MeanVarianceNormalization", opset=8, normalize_variance=0)
    (y,) = od.InferenceSession(proto).run(None, {"x": X})
    np.testing.assert_allclose(y, expected(proto)[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("op_type", "more", "shape", "attributes"),
    [
        ("UnfoldTensor", (), None, {"dim": -1, "size": 2, "step": 1}),
        ("GridSample", (GRID,), ["n", 3, "h", 5], {}),
        ("GridSample", (GRID,), None, {}),
        ("SampleOp", (), None, {}),
    ],
)
def test_what_follows_an_operator_of_microsoft_stays_on_the_device(
    op_type: str, more: Any, shape: Any, attributes: dict[str, Any]
) -> None:
    proto = model(op_type, *more, opset=17, domain="com.microsoft", shape=shape, **attributes)
    session = od.InferenceSession(proto)
    (y,) = session.run(None, {"x": X})
    np.testing.assert_allclose(y, expected(proto)[0], rtol=1e-6, atol=1e-6)
    assert devices(session) == {"n": "cpu", "relu": "npu"}


def test_declared_shapes_stand_where_onnxruntime_infers_none() -> None:
    """Inverse has no inference: the model's value_info says what it makes."""
    x = X[..., :4]
    proto = model("Inverse", opset=17, domain="com.microsoft", shape=["n", 3, 4, 4])
    proto.graph.value_info.append(helper.make_tensor_value_info("t", 1, ["n", 3, 4, 4]))
    session = od.InferenceSession(proto)
    (y,) = session.run(None, {"x": x})
    np.testing.assert_allclose(y, expected(proto, x)[0], rtol=1e-5, atol=1e-5)
    assert devices(session) == {"n": "cpu", "relu": "npu"}


def test_attributes_that_onnxruntime_ignores_are_ignored() -> None:
    proto = model("SimplifiedLayerNormalization", SCALE, opset=17, axis=-1, another=3)
    (y,) = od.InferenceSession(proto, fallback="error").run(None, {"x": X})
    np.testing.assert_allclose(y, expected(proto)[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("op_type", "domain", "opset", "attributes", "said"),
    [
        ("Gelu", "com.microsoft", 17, {"approximat": 1}, "attribute 'approximat'; accepted: no attributes"),
        ("QuickGelu", "com.microsoft", 17, {"alhpa": 1.0}, "Did you mean 'alpha'?"),
        ("ThresholdedRelu", "", 9, {"alfa": 1.0}, "Did you mean 'alpha'?"),
        ("Affine", "", 17, {}, "no operator of operator set 17; accepted: operator sets 1 to 9"),
        ("Reluu", "", 17, {}, "Did you mean 'Relu'?"),
    ],
)
def test_what_onnxruntime_refuses_is_refused(
    op_type: str, domain: str, opset: int, attributes: dict[str, Any], said: str
) -> None:
    proto = model(op_type, opset=opset, domain=domain, **attributes)
    with pytest.raises(Exception, match=r"nrecognized attribute|registered"):
        expected(proto)
    with pytest.raises(od.ModelError) as caught:
        od.InferenceSession(proto)
    assert said in str(caught.value)
