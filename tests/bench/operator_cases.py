# SPDX-License-Identifier: Apache-2.0
"""A large case of every registered operator: a million elements, or a product of 512-cubes.

``cases()`` walks the registry. An operator without a row in ``ROWS`` gets ``large``: as many operands as its
schema requires, each [1024, 1024] of the first type that it is registered for. So one that is added
appears by itself; only operands that mean something else (axes, sizes, states) need a row.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx

from onedispatch.operators.declarations.registry import OpMapping, all_mappings
from tests.ops.case import OPSET, Case, Input, case, f32, integers, value, weight

MICROSOFT = "com.microsoft"
SIDE = 1024
PLANES = (1, 64, 128, 128)  # a million elements as images
INDICES = np.random.default_rng(0)


def ints(*given: int) -> Input:
    return value(list(given), "int64")


def at_random(most: int, *shape: int) -> Input:
    return value(INDICES.integers(0, most, shape), "int64", const=False)


def _quantised(scale: float, zero: int) -> tuple[Input, Input]:
    return value(scale), value(zero, "int8")


def qlinear_conv(x: Input, weights: tuple[int, ...], **attributes: Any) -> Case:
    """Of bytes by int8, with a scale for each channel and a bias."""
    scales, zeros = weight(weights[0], kind="positive"), value(np.zeros(weights[0]), "int8")
    given = (value(0.02), value(128, "uint8"), integers("int8", *weights, const=True), scales, zeros)
    made = value(40.0), value(120, "uint8"), integers("int32", weights[0], const=True)
    return case("QLinearConv", x, *given, *made, **attributes)


_SCALED = value(0.02), value(120, "uint8")  # scale and zero point


def _qlinear(op: str, x: Input, operands: int = 1, shape: tuple[int, ...] = (), **attributes: Any) -> Case:
    """Of bytes, with the scale and zero point of each operand and of the result: a form of onnxruntime's."""
    result = replace(x, shape=shape or x.shape)
    return case(op, *(x, *_SCALED) * operands, *_SCALED, domain=MICROSOFT, result=result, **attributes)


def _recurrent(op: str, gates: int, **attributes: Any) -> Case:
    steps, batch, size = 32, 1, 256
    ways = 2 if attributes.get("direction") == "bidirectional" else 1
    weights = [value(INDICES.standard_normal((ways, gates * size, size)) / 16) for _ in "wr"]
    return case(op, f32(steps, batch, size), *weights, hidden_size=size, **attributes)


def _everywhere(op: str) -> list[Case]:
    """A reduction of rows, of columns, of the middle, and of everything."""
    axes = {"rows": (1,), "columns": (0,), "all": (0, 1)}
    made = [case(op, _NEAR_ONE, ints(*a), note=note) for note, a in axes.items()]
    return [*made, case(op, f32(64, 128, 128, kind="near one"), ints(1), note="middle")]


def _typed(op: str, *dtypes: str, **attributes: Any) -> list[Case]:
    count = onnx.defs.get_schema(op, OPSET).min_input
    return [
        case(op, *[Input((SIDE, SIDE), t, "positive", False) for _ in range(count)], **attributes)
        for t in dtypes
    ]


_X = f32(SIDE, SIDE)
_NEAR_ONE = f32(SIDE, SIDE, kind="near one")
_IMAGE = f32(*PLANES)
_BYTES = integers("uint8", 1, 64, 64, 64)
_TWICE = value([1.0, 1.0, 2.0, 2.0])
_POOLED = (1, 64, 64, 64)
_PLACES = value(4 * np.arange(64**3).reshape(_POOLED), "int64", const=False)
_CHANNELS = tuple(weight(PLANES[1], kind="positive") for _ in range(4))
_REDUCTIONS = (
    "L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare",
)  # fmt: skip

ROWS: dict[str, list[Case]] = {
    **{f"Reduce{kind}": _everywhere(f"Reduce{kind}") for kind in _REDUCTIONS},
    **{op: [case(op, _X, axis=axis) for axis in (1, 0)] for op in ("ArgMax", "ArgMin", "Softmax")},
    "CumSum": [case("CumSum", _X, value(axis, "int64"), note=f"axis {axis}") for axis in (1, 0)],
    "CumProd": [
        case("CumProd", _NEAR_ONE, value(axis, "int64"), note=f"axis {axis}", opset=26)
        for axis in (1, 0)
    ],
    "Cast": [
        *(case("Cast", _X, to=to) for to in (10, 3, 7)),
        case("Cast", integers("int8", SIDE, SIDE), to=1),
    ],
    "CastLike": [case("CastLike", _X, integers("int8", 1))],
    "Clip": [case("Clip", _X, value(-1.0), value(1.0))],
    "PRelu": [case("PRelu", _X, weight(SIDE))],
    "Add": [case("Add", _X, _X), case("Add", _X, f32(SIDE, 1)), *_typed("Add", "int8", "int32")],
    "Mul": [case("Mul", _X, _X), *_typed("Mul", "float16")],
    "Relu": [case("Relu", _X), *_typed("Relu", "float16", "int8")],
    "BitShift": _typed("BitShift", "uint8", "uint32", direction="LEFT"),
    "Mod": _typed("Mod", "float32", fmod=1) + _typed("Mod", "int32"),
    "Where": [case("Where", Input((SIDE, SIDE), "bool"), _X, _X)],
    "Not": _typed("Not", "bool"),
    "Attention": [
        case("Attention", *(f32(1, 8, 256, 64) for _ in "qkv"), opset=23),
    ],
    "RotaryEmbedding": [
        case("RotaryEmbedding", f32(1, 16, SIDE, 64), *(weight(1, SIDE, 32) for _ in "cs"), opset=23)
    ],
    "AveragePool": [case("AveragePool", _IMAGE, kernel_shape=[3, 3], strides=[2, 2])],
    "LpPool": [case("LpPool", _IMAGE, kernel_shape=[3, 3], strides=[2, 2])],
    "MaxPool": [
        case("MaxPool", _IMAGE, kernel_shape=[3, 3], strides=[2, 2]),
        case("MaxPool", _IMAGE, kernel_shape=[2, 2], strides=[2, 2], outputs=2),
    ],
    "MaxUnpool": [
        case("MaxUnpool", f32(*_POOLED), _PLACES, kernel_shape=[2, 2], strides=[2, 2])
    ],
    "GlobalAveragePool": [case("GlobalAveragePool", _IMAGE)],
    "GlobalMaxPool": [case("GlobalMaxPool", _IMAGE)],
    "GlobalLpPool": [case("GlobalLpPool", _IMAGE)],
    "BatchNormalization": [case("BatchNormalization", _IMAGE, *_CHANNELS)],
    "LRN": [case("LRN", _IMAGE, size=5)],
    "GroupNormalization": [case("GroupNormalization", _IMAGE, *_CHANNELS[:2], num_groups=8)],
    "InstanceNormalization": [
        case("InstanceNormalization", _IMAGE, *_CHANNELS[:2]),
        case("InstanceNormalization", f32(1, 4, 512, 512), *(weight(4) for _ in "sb")),
    ],
    "LayerNormalization": [case("LayerNormalization", _X, weight(SIDE), weight(SIDE))],
    "RMSNormalization": [case("RMSNormalization", _X, weight(SIDE), opset=23)],
    "SimplifiedLayerNormalization": [case("SimplifiedLayerNormalization", _X, weight(SIDE))],
    "MeanVarianceNormalization": [case("MeanVarianceNormalization", _IMAGE, axes=[0, 2, 3])],
    "Conv": [
        case("Conv", f32(1, 64, 64, 64), weight(64, 64, 3, 3), pads=[1] * 4),
        case("Conv", f32(1, 256, 32, 32), weight(512, 256, 1, 1)),
        case("Conv", _IMAGE, weight(64, 1, 3, 3), group=64, pads=[1] * 4),
    ],
    "ConvInteger": [case("ConvInteger", _BYTES, integers("int8", 64, 64, 3, 3, const=True), pads=[1] * 4)],
    "QLinearConv": [
        qlinear_conv(_BYTES, (64, 64, 3, 3), pads=[1] * 4),
        qlinear_conv(integers("uint8", 1, 256, 32, 32), (512, 256, 1, 1)),
        qlinear_conv(integers("uint8", 1, 64, 128, 128), (64, 1, 3, 3), group=64, pads=[1] * 4),
    ],
    **{op: [_qlinear(op, _BYTES, 2)] for op in ("QLinearAdd", "QLinearMul")},
    "QLinearSigmoid": [_qlinear("QLinearSigmoid", _BYTES)],
    "QLinearGlobalAveragePool": [_qlinear("QLinearGlobalAveragePool", _BYTES, 1, (1, 64, 1, 1))],
    "QLinearAveragePool": [
        _qlinear("QLinearAveragePool", _BYTES, 1, (1, 64, 31, 31), kernel_shape=[3, 3], strides=[2, 2])
    ],
    "QuantizeLinear": [case("QuantizeLinear", _X, *_SCALED)],
    "DequantizeLinear": [case("DequantizeLinear", integers("uint8", SIDE, SIDE), *_SCALED)],
    "DynamicQuantizeLinear": [case("DynamicQuantizeLinear", _X, outputs=3)],
    "ConvTranspose": [case("ConvTranspose", f32(1, 64, 64, 64), weight(64, 32, 2, 2), strides=[2, 2])],
    "Col2Im": [case("Col2Im", f32(1, 16 * 9, 126 * 126), ints(128, 128), ints(3, 3))],
    "MatMul": [
        case("MatMul", f32(512, 512), f32(512, 512)),
        case("MatMul", f32(SIDE, SIDE), f32(SIDE, SIDE)),
        case("MatMul", f32(1, SIDE), weight(SIDE, SIDE)),
    ],
    "Gemm": [case("Gemm", f32(512, 512), weight(512, 512), weight(512))],
    "MatMulInteger": [
        case("MatMulInteger", *[integers("int8", side, side) for _ in "ab"]) for side in (512, SIDE)
    ],
    "QLinearMatMul": [
        case(
            "QLinearMatMul",
            *(x for at in (1, 2) for x in (integers("int8", 512, 512), *_quantised(0.02, at))),
            *_quantised(1.5, 3),
        )
    ],
    "Einsum": [case("Einsum", f32(8, 128, 256), f32(8, 256, 128), equation="bij,bjk->bik")],
    "LSTM": [_recurrent("LSTM", 4), _recurrent("LSTM", 4, direction="bidirectional")],
    "GRU": [_recurrent("GRU", 3)],
    "RNN": [_recurrent("RNN", 1)],
    "Pad": [case("Pad", _X, ints(3, 3, 3, 3)), case("Pad", _X, ints(3, 3, 3, 3), mode="reflect")],
    "CenterCropPad": [case("CenterCropPad", _X, ints(900, 1100))],
    "Concat": [case("Concat", f32(SIDE, 512), f32(SIDE, 512), axis=axis) for axis in (0, 1)],
    "Transpose": [
        case("Transpose", _X),
        case("Transpose", _IMAGE, perm=[0, 2, 3, 1]),
        *_typed("Transpose", "int8"),
    ],
    "Reshape": [case("Reshape", _X, ints(-1))],
    "Squeeze": [case("Squeeze", f32(1, SIDE, SIDE))],
    "Unsqueeze": [case("Unsqueeze", _X, ints(0))],
    "Tile": [
        case("Tile", f32(512, 512), ints(2, 2)),
        case("Tile", integers("int8", 512, 512), ints(2, 2)),
        case("Tile", integers("int8", 64, 1), ints(16, SIDE)),
    ],
    "Expand": [
        case("Expand", f32(SIDE, 1), ints(SIDE, SIDE)),
        case("Expand", f32(SIDE), ints(SIDE, SIDE)),
        case("Expand", integers("int8", SIDE, 1), ints(SIDE, SIDE)),
    ],
    "DepthToSpace": [case("DepthToSpace", _IMAGE, blocksize=2)],
    "SpaceToDepth": [case("SpaceToDepth", _IMAGE, blocksize=2)],
    "ConstantOfShape": [case("ConstantOfShape", value([SIDE, SIDE], "int64", const=False))],
    "EyeLike": [case("EyeLike", _X)],
    "Range": [case("Range", *(value(v, const=False) for v in (0.0, SIDE * SIDE, 1.0)))],
    "Gather": [case("Gather", _X, at_random(SIDE, SIDE)), case("Gather", _X, at_random(SIDE, SIDE), axis=1)],
    "GatherElements": [case("GatherElements", _X, at_random(SIDE, SIDE, SIDE), axis=1)],
    "GatherND": [case("GatherND", _X, at_random(SIDE, SIDE, 1))],
    "ReverseSequence": [
        case("ReverseSequence", f32(SIDE, SIDE), value([SIDE // 2] * SIDE, "int64", const=False))
    ],
    "GridSample": [
        case("GridSample", f32(1, 16, 256, 256), f32(1, 256, 256, 2), opset=20)
    ],
    "OneHot": [case("OneHot", at_random(SIDE, SIDE), value(SIDE, "int64"), value([0.0, 1.0]))],
    "Scatter": [case("Scatter", _X, at_random(SIDE, 64, SIDE), f32(64, SIDE), opset=10)],
    "ScatterElements": [case("ScatterElements", _X, at_random(SIDE, 64, SIDE), f32(64, SIDE))],
    "ScatterND": [case("ScatterND", _X, at_random(SIDE, 64, 1), f32(64, SIDE))],
    "TensorScatter": [
        case("TensorScatter", f32(1, 16, SIDE, 64), f32(1, 16, 8, 64), value([5], "int64", False), opset=24)
    ],
    "Resize": [
        case("Resize", f32(1, 16, 128, 128), None, _TWICE, mode=mode) for mode in ("nearest", "linear")
    ],
    "Upsample": [case("Upsample", f32(1, 16, 128, 128), _TWICE, opset=9)],
    "Slice": [
        case("Slice", _X, ints(1, 1), ints(SIDE, SIDE), ints(0, 1), ints(s, s), note=f"step {s}")
        for s in (1, 2)
    ],
    "Split": [case("Split", _X, num_outputs=2, axis=1, outputs=2)],
    "TopK": [case("TopK", _X, ints(8), outputs=2)],
}  # fmt: skip


def large(mapping: OpMapping) -> Case:
    """As many operands as the schema requires, a million elements each."""
    schema = onnx.defs.get_schema(mapping.op_type, mapping.domain)
    if onnx.defs.has(mapping.op_type, OPSET, mapping.domain):
        schema = onnx.defs.get_schema(mapping.op_type, OPSET, mapping.domain)
    dtype = "float32" if mapping.dtypes[0] in ("any", "float32") else mapping.dtypes[0]
    operand = Input((SIDE, SIDE), dtype, "positive" if mapping.op_type != "Abs" else "normal")
    made = Case(mapping.op_type, (operand,) * max(1, schema.min_input), domain=mapping.domain)
    return replace(made, opset=max(OPSET, schema.since_version))


def cases() -> list[Case]:
    """Of every registered operator of ONNX, by name, and of those of another domain that have a row."""
    named = [mapping for mapping in all_mappings() if not mapping.domain or mapping.op_type in ROWS]
    own = {mapping.op_type: mapping for mapping in named if mapping.op_type}
    return [made for name, mapping in own.items() for made in ROWS.get(name) or [large(mapping)]]
