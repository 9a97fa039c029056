# SPDX-License-Identifier: Apache-2.0
"""Every kind of mistake in scales and zero points, of every row of the table of quantised operators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import onedispatch
from onedispatch import ModelError
from onedispatch.dispatch.compiler.quantised import quantisations, sources
from onedispatch.dispatch.frontend.importer import import_model
from onedispatch.dispatch.frontend.quantised_operands import OPERATORS, Parameters
from onedispatch.operators.declarations.registry import MICROSOFT, all_mappings
from tests.integration.test_dispatch_validity import NEWEST, f
from tests.ops.case import Array

Key = tuple[str, str]


def u8(*shape: int) -> Array:
    return np.ones(shape, np.uint8)


_IMAGE = {"x": u8(1, 3, 6, 6)}
_CONVOLVED = {**_IMAGE, "w": u8(4, 3, 3, 3), "B": np.ones(4, np.int32)}
_PRODUCT = {"a": u8(3, 5), "b": u8(5, 4)}
_BIAS = {"bias": f(4)}
# Tensors by name, and attributes; scales and zero points are of the table.
SAMPLES: dict[Key, tuple[Mapping[str, Array], dict[str, Any]]] = {
    ("", "QuantizeLinear"): ({"x": f(3, 5)}, {}),
    ("", "DequantizeLinear"): ({"x": u8(3, 5)}, {}),
    ("", "QLinearConv"): (_CONVOLVED, {}),
    ("", "QLinearMatMul"): (_PRODUCT, {}),
    ("", "ConvInteger"): (_CONVOLVED, {}),
    ("", "MatMulInteger"): (_PRODUCT, {}),
    (MICROSOFT, "QuantizeLinear"): ({"x": f(3, 5)}, {}),
    (MICROSOFT, "DequantizeLinear"): ({"x": u8(3, 5)}, {}),
    (MICROSOFT, "QLinearConv"): (_CONVOLVED, {}),
    (MICROSOFT, "QLinearAdd"): ({"a": u8(3, 5), "b": u8(5)}, {}),
    (MICROSOFT, "QLinearMul"): ({"a": u8(3, 5), "b": u8(5)}, {}),
    (MICROSOFT, "QLinearSigmoid"): (_IMAGE, {}),
    (MICROSOFT, "QLinearLeakyRelu"): (_IMAGE, {"alpha": 0.1}),
    (MICROSOFT, "QLinearAveragePool"): (_IMAGE, {"kernel_shape": [2, 2]}),
    (MICROSOFT, "QLinearGlobalAveragePool"): (_IMAGE, {}),
    (MICROSOFT, "QLinearReduceMean"): (_IMAGE, {"axes": [1], "keepdims": 1}),
    (MICROSOFT, "QLinearSoftmax"): ({"x": u8(3, 5)}, {"axis": -1, "opset": 13}),
    (MICROSOFT, "QLinearConcat"): ({"x": u8(3, 5)}, {"axis": 1}),
    (MICROSOFT, "QLinearWhere"): ({"condition": u8(3, 5) > 0, "x": u8(3, 5), "y": u8(5)}, {}),
    (MICROSOFT, "QGemm"): ({**_PRODUCT, "c": np.ones(4, np.int32)}, {}),
    (MICROSOFT, "QAttention"): (
        {
            "x": u8(1, 3, 4),
            "w": u8(4, 12),
            "bias": f(12),
            "mask_index": np.full(1, 3, np.int32),
            "past": f(2, 1, 2, 2, 2),
        },
        {"num_heads": 2},
    ),
    (MICROSOFT, "MatMulIntegerToFloat"): ({**_PRODUCT, **_BIAS}, {}),
    (MICROSOFT, "DynamicQuantizeMatMul"): ({"a": f(3, 5), "b": u8(5, 4), **_BIAS}, {}),
    (MICROSOFT, "DynamicQuantizeLSTM"): (
        {
            "x": f(3, 1, 5),
            "w": u8(1, 5, 8),
            "r": u8(1, 2, 8),
            "bias": f(1, 16),
            "lengths": np.full(1, 3, np.int32),
            "h": f(1, 1, 2),
            "c": f(1, 1, 2),
            "p": f(1, 6),
        },
        {"hidden_size": 2},
    ),
}


def operands(key: Key) -> dict[str, Array]:
    """All operands of the sample, by name: scales of a half, zero points of 3."""
    operator, (tensors, _) = OPERATORS[key], SAMPLES[key]
    found = {name: tensors[name] for name in operator.names if name in tensors}
    for one in operator.parameters(len(operator.names)):
        if one.scale is not None:
            found[operator.names[one.scale]] = np.array(0.5, np.float32)
        if one.zero is not None:
            source = one.like if one.made else one.tensor
            dtype = np.uint8 if source is None else found[operator.names[source]].dtype
            found[operator.names[one.zero]] = np.array(3, dtype)
    return {name: found[name] for name in operator.names}


def model(key: Key, arrays: Mapping[str, Array], **attributes: Any) -> onnx.ModelProto:
    """One node "n"; scalars and lists are constants."""
    domain, op_type = key
    given = {name: array for name, array in arrays.items() if name in SAMPLES[key][0]}
    node = helper.make_node(
        op_type, list(arrays), ["result"], "n", domain=domain, **{**SAMPLES[key][1], **attributes}
    )
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in given.items()
    ]
    constants = [onnx.numpy_helper.from_array(a, name) for name, a in arrays.items() if name not in given]
    graph = helper.make_graph([node], "g", infos, [onnx.ValueInfoProto(name="result")], constants)
    opsets = [helper.make_opsetid("", min(NEWEST, 21)), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def refused(key: Key, arrays: Mapping[str, Array], said: str) -> None:
    with pytest.raises(ModelError, match=rf"n \({key[1]}\)|node name: n|shape inference") as caught:
        onedispatch.compile(model(key, arrays))
    text = str(caught.value)
    # ONNX's own inference says it first where types of ONNX's operators contradict each other.
    assert said in text or (not key[0] and "node name: n" in text), text


def named() -> Iterator[Any]:
    """Operator, what its scale and zero point are called, and where they are."""
    for key, operator in OPERATORS.items():
        for one in operator.parameters(len(operator.names)):
            names = [None if at is None else operator.names[at] for at in (one.scale, one.zero)]
            yield pytest.param(
                key, *names, one, id="-".join((key[0] or "onnx", key[1], *filter(None, names)))
            )


ROWS = list(named())


def test_every_quantised_operator_that_maps_has_a_row() -> None:
    words = ("QLinear", "Quantize", "Integer", "QGemm", "QAttention")
    none = {"DynamicQuantizeLinear"}  # has neither scales nor zero points among its inputs
    mapped = {
        (one.domain, one.op_type)
        for one in all_mappings()
        if one.domain in ("", MICROSOFT) and any(word in one.op_type for word in words)
    }
    assert {key for key in mapped if key[1] not in none} <= set(OPERATORS)
    assert set(SAMPLES) == set(OPERATORS), "a sample for every row"


@pytest.mark.parametrize("key", OPERATORS, ids="-".join)
def test_samples_are_right(key: Key) -> None:
    """What is wrong with a changed one is the change: with the host's help the sample itself compiles."""
    onedispatch.compile(model(key, operands(key)))


@pytest.mark.parametrize(("key", "scale", "zero", "one"), ROWS)
def test_mistakes(key: Key, scale: str | None, zero: str | None, one: Parameters) -> None:
    right = operands(key)
    if scale is not None:
        for bad in (0.0, -0.5, np.nan, np.inf):
            said = f"({scale!r}): given the scale {np.float32(bad)}; accepted: finite numbers above zero"
            refused(key, {**right, scale: np.array(bad, np.float32)}, said)
        refused(key, {**right, scale: np.full(13, 0.5, np.float32)}, f"({scale!r}): given [13]; accepted: ")
    if zero is not None:
        source = one.like if one.made else one.tensor
        other = "float32" if source is None else "int8" if right[zero].dtype == np.uint8 else "uint8"
        if source is not None or key[0]:  # ONNX's QuantizeLinear makes some floats too
            refused(key, {**right, zero: right[zero].astype(other)}, f"({zero!r}): given {other}; accepted: ")
        wrong = {**right, zero: np.full(13, 3, right[zero].dtype)}
        refused(key, wrong, f"({zero!r}): given [13]; accepted: ")


@pytest.mark.parametrize("key", [key for key in OPERATORS if key[0]], ids="-".join)
def test_operands_that_are_missing_or_too_many(key: Key) -> None:
    right, operator = operands(key), OPERATORS[key]
    for at in operator.needed:
        wrong = {("" if i == at else name): array for i, (name, array) in enumerate(right.items())}
        kept = {name: array for name, array in wrong.items() if name}
        proto = model(key, kept)
        proto.graph.node[0].input[:] = list(wrong)
        with pytest.raises(ModelError, match=rf"n \({key[1]}\), inputs: given no {operator.names[at]};"):
            onedispatch.compile(proto)
    proto = model(key, right)
    proto.graph.node[0].input.append(operator.names[0])
    with pytest.raises(ModelError, match=rf"n \({key[1]}\), inputs: given {len(right) + 1} inputs; accepted"):
        onedispatch.compile(proto)


SHAPES: list[tuple[Key, dict[str, Array], dict[str, Any], str]] = [
    ((MICROSOFT, "QLinearAdd"), {"b": u8(4)}, {}, r"\('b'\): given \[4\]; accepted: a shape that broadcasts"),
    ((MICROSOFT, "QAttention"), {"x": u8(3, 4)}, {}, r"input 0 \('x'\): given \[3, 4\]; accepted: rank 3"),
    ((MICROSOFT, "QAttention"), {"w": u8(4, 10)}, {}, "accepted: 4 rows, and 6 columns or a multiple"),
    ((MICROSOFT, "QAttention"), {"bias": f(4)}, {}, r"input 2 \('bias'\): given \[4\]; accepted: \[12\]"),
    ((MICROSOFT, "QAttention"), {}, {"num_heads": 0}, "'num_heads': given 0; accepted: 1 or more"),
    ((MICROSOFT, "QAttention"), {"past": f(2, 1, 1, 2, 2)}, {}, r"accepted: \[2, 1, 2, any, 2\]"),
    (
        (MICROSOFT, "QAttention"),
        {"mask_index": np.ones((1, 3), np.int32)},
        {},
        r"given \[1, 3\]; accepted: \[1\] or \[2\] or \[1, 5\] or \[1, 3, 5\]",
    ),
    ((MICROSOFT, "QGemm"), {"b": u8(4, 4)}, {}, r"input 3 \('b'\): given \[4, 4\]; accepted: 5 rows"),
    ((MICROSOFT, "QGemm"), {"c": np.ones(3, np.int32)}, {}, r"input 6 \('c'\): given \[3\]"),
    (
        (MICROSOFT, "QLinearConv"),
        {"w": u8(4, 2, 3, 3)},
        {},
        r"input 0 \('x'\): given 3 channels; accepted: 2",
    ),
    (("", "QLinearConv"), {"B": np.ones(3, np.int32)}, {}, r"input 8 \('B'\): given \[3\]; accepted: \[4\]"),
    ((MICROSOFT, "QLinearAveragePool"), {}, {"pads": [2, 0, 0, 0]}, "'pads': given .* less than the kernel"),
    ((MICROSOFT, "QLinearSoftmax"), {}, {"axis": 2}, "'axis': given 2; accepted: -2 to 1"),
    ((MICROSOFT, "QLinearConcat"), {}, {"axis": -3}, "'axis': given -3; accepted: -2 to 1"),
    ((MICROSOFT, "MatMulIntegerToFloat"), {"b": u8(4, 4)}, {}, r"\('b'\): given \[4, 4\]; accepted: 5 rows"),
]


@pytest.mark.parametrize(("key", "changed", "attributes", "said"), SHAPES)
def test_shapes_and_axes(key: Key, changed: dict[str, Array], attributes: dict[str, Any], said: str) -> None:
    with pytest.raises(ModelError, match=said):
        onedispatch.compile(model(key, {**operands(key), **changed}, **attributes))


def test_several_scales_where_the_operator_has_them() -> None:
    many = np.full(4, 0.5, np.float32)
    for key, name in (
        (("", "QLinearConv"), "w_scale"),
        (("", "QLinearMatMul"), "b_scale"),
        ((MICROSOFT, "QGemm"), "b_scale"),
    ):
        onedispatch.compile(model(key, {**operands(key), name: many}))
    turned = {**operands((MICROSOFT, "QGemm")), "b": u8(4, 5), "b_scale": many}
    onedispatch.compile(model((MICROSOFT, "QGemm"), turned, transB=1))


def test_int32_has_no_zero_point() -> None:
    key = ("", "DequantizeLinear")
    for zero, right in ((0, True), (3, False)):
        arrays = {"x": np.ones((3, 5), np.int32), "x_scale": f(), "x_zero": np.array(zero, np.int32)}
        if right:
            onedispatch.compile(model(key, arrays))
        else:
            refused(key, arrays, "('x_zero'): given a zero point other than 0 for int32; accepted: 0")


def _nbits(**changed: Any) -> onnx.ModelProto:
    """MatMulNBits of 64 x 6, in blocks of 32."""
    attributes = {"K": 64, "N": 6, "block_size": 32, "bits": 4}
    arrays: dict[str, Array] = {"a": f(3, 64), "b": u8(6, 2, 16), "scales": f(12), "zeros": u8(6)}
    for name, value in changed.items():
        (attributes if name in attributes else arrays)[name] = value
    node = helper.make_node("MatMulNBits", list(arrays), ["result"], "n", domain=MICROSOFT, **attributes)
    info = helper.make_tensor_value_info("a", onnx.TensorProto.FLOAT, arrays["a"].shape)
    constants = [onnx.numpy_helper.from_array(array, name) for name, array in arrays.items() if name != "a"]
    graph = helper.make_graph([node], "g", [info], [onnx.ValueInfoProto(name="result")], constants)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"bits": 3}, "'bits': given 3; accepted: 2, 4, 8"),
        ({"block_size": 24}, "'block_size': given 24; accepted: a power of two"),
        ({"K": 0}, "'K': given 0; accepted: 1 or more"),
        ({"a": f(3, 60)}, r"\('a'\): given \[3, 60\]; accepted: rows of 64, which is K"),
        ({"b": u8(6, 2, 8)}, r"\('b'\): given \[6, 2, 8\]; accepted: 192 elements: 6 x 2 blocks of 32"),
        ({"scales": f(11)}, r"\('scales'\): given \[11\]; accepted: 12 elements: 6 x 2 blocks"),
        ({"zeros": u8(5)}, r"\('zeros'\): given \[5\]; accepted: 6 elements"),
        ({"zeros": f(6)}, r"\('zeros'\): given \[6\]; accepted: 12 elements"),
    ],
)
def test_packed_weights(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(ModelError, match=rf"node n \(MatMulNBits\).*{said}"):
        onedispatch.compile(_nbits(**changed))


def test_what_integers_stand_for_is_of_the_same_table() -> None:
    """Operands and results of every row that has scales, where these are constants."""
    for key, operator in OPERATORS.items():
        arrays = operands(key)
        graph = import_model(model(key, arrays))
        said = sources(graph)
        for one in operator.parameters(len(operator.names)):
            if one.scale is None:
                continue
            name = "result" if one.made else operator.names[one.tensor]
            assert said[name][0] == operator.names[one.scale], (key, name)
    key = ("", "QLinearConv")
    scales = np.array([0.5, 0.25, 1.0, 2.0], np.float32)
    graph = import_model(model(key, {**operands(key), "w_scale": scales, "w_zero": np.zeros(4, np.uint8)}))
    told = quantisations(graph)
    assert told["w"].scale == tuple(scales.tolist()) and told["w"].axis == 0
    assert told["x"].scale == (0.5,) and told["x"].zero_point == (3,) and told["x"].axis is None
