# SPDX-License-Identifier: Apache-2.0
"""Cases of QuantizeLinear and DequantizeLinear: bit for bit as onnxruntime."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st
from onnx import TensorProto, helper

from onedispatch.operators.declarations.registry import MICROSOFT
from tests.ops.case import Array, Case, Input, case, f32, integers, value, weight
from tests.ops.strategies import DEVICES, shapes

NARROW = ("int8", "uint8", "int16", "uint16")
OUTPUT = {
    "int8": TensorProto.INT8,
    "uint8": TensorProto.UINT8,
    "int16": TensorProto.INT16,
    "uint16": TensorProto.UINT16,
}
FLAT = [(37, 11), (5,), (), (2, 3, 7, 5), (0, 3)]
# Shape, axis, block size, shape of the scales: blocks in whole words and within them, along rows and across,
# with a shorter last one, one that is longer than the axis.
BLOCKS = [
    ((3, 16), 1, 4, (3, 4)),
    ((3, 10), 1, 4, (3, 3)),
    ((3, 11), -1, 3, (3, 4)),
    ((5, 7), 1, 9, (5, 1)),
    ((5, 7), 1, 7, (5, 1)),
    ((4, 6), 1, 1, (4, 6)),
    ((10, 7), 0, 4, (3, 7)),
    ((2, 9, 5), 1, 3, (2, 3, 5)),
    ((2, 3, 4, 2, 8), 2, 2, (2, 3, 2, 2, 8)),
]


def of_scale(x: Array, scale: Array, zero: Array, step: type = np.float32) -> Array:
    """The formula, for what onnxruntime has no kernel for or another answer."""
    divided = (x.astype(step).astype(np.float32), scale.astype(step).astype(np.float32))
    quotient = (divided[0] / divided[1]).astype(step).astype(np.float64)
    info = np.iinfo(zero.dtype)
    with np.errstate(invalid="ignore"):
        placed = np.nan_to_num(np.rint(quotient), nan=-np.inf) + zero
    return np.clip(placed, info.min, info.max).astype(zero.dtype)


def answered(one: Case, step: type = np.float32) -> Case:
    """``one`` of one scale, with the formula's answer."""
    x, scale, zero = one.arrays
    assert x is not None and scale is not None and zero is not None
    with np.errstate(all="ignore"):
        return replace(one, answer=of_scale(x, scale, zero, step))


def quantised() -> list[Case]:
    scale, found = value(0.05), value(0.05, const=False)
    half = Input((9, 7), "float16", "nonfinite")
    return [
        *(
            case("QuantizeLinear", f32(*shape, kind="wide"), scale, value(3, dtype))
            for dtype in NARROW
            for shape in FLAT
        ),
        *(case("QuantizeLinear", f32(29, 7, kind="special"), scale, value(5, dtype)) for dtype in NARROW),
        # Halves are rounded to even, both ends saturate.
        case("QuantizeLinear", value(np.arange(-600, 600) / 2, const=False), value(1.0), value(-7, "int8")),
        *case("QuantizeLinear", f32(37, 61, kind="wide"), scale, value(-7, "int8")).on("npu1", "npu2_1col"),
        case("QuantizeLinear", f32(3, 5), value([0.02]), value([131], "uint8")),
        case("QuantizeLinear", f32(3, 5), scale),
        *(case("QuantizeLinear", f32(3, 5), scale, output_dtype=OUTPUT[dtype]) for dtype in NARROW),
        case("QuantizeLinear", f32(3, 5, kind="wide"), found, value(7, "uint8", const=False)),
        case("QuantizeLinear", f32(3, 5, kind="wide"), found),
        case("QuantizeLinear", f32(3, 5, kind="wide"), found, value(7, "uint8", const=False), opset=10),
        case("QuantizeLinear", f32(3, 5, kind="wide"), scale, value(7, "uint8"), opset=13, axis=7),
        case("QuantizeLinear", f32(3, 5, kind="wide"), scale, value(7, "int8"), saturate=0),
        case("QuantizeLinear", f32(3, 5, kind="wide"), scale, value(7, "int8"), opset=25),
        case(
            "QuantizeLinear", f32(3, 5), scale, value(7, "int8"), opset=25, precision=TensorProto.FLOAT
        ),
        # Types whose kernels differ in onnxruntime: the formula, in float16.
        answered(
            case(
                "QuantizeLinear", f32(33, 7), value(0.003), value(7, "int16"),
                opset=25, precision=TensorProto.FLOAT16,
            ),
            np.float16,
        ),
        # From opset 23 on the precision is that of the scale unless said otherwise.
        *(
            case("QuantizeLinear", Input((33, 7), dtype), value(0.0031, scale), value(7, zero), opset=opset)
            for dtype, scale in (("float16", "float16"), ("float32", "float16"), ("float16", "float32"))
            for zero in ("uint16", "int8")
            for opset in (23, 25)
        ),
        case("QuantizeLinear", Input((33, 7), "float16"), value(0.0031, "float16"), value(7, "int16")),
        # Infinities are the least int32 there before they saturate, and wrap.
        answered(case("QuantizeLinear", half, value(1, "float16"), value(-7, "int8"))),
    ]  # fmt: skip


def zeros(dtype: str, const: bool, *shape: int) -> Input:
    """Zero points: the same in whichever type the data is."""
    first = -3 if dtype.startswith("int") else 125
    return value((first + np.arange(np.prod(shape, dtype=int)) % 7).reshape(shape), dtype, const)


def by_axis(op_type: str, dtype: str, shape: tuple[int, ...], axis: int, const: bool) -> Case:
    n = shape[axis]
    x = f32(*shape, kind="wide") if op_type == "QuantizeLinear" else integers(dtype, *shape)
    scale = Input((n,), kind="positive", const=const)
    return case(op_type, x, scale, zeros(dtype, const, n), axis=axis)


def in_blocks(
    op_type: str,
    dtype: str,
    shape: tuple[int, ...],
    axis: int,
    block: int,
    scales: tuple[int, ...],
    const: bool,
) -> Case:
    x = f32(*shape, kind="wide") if op_type == "QuantizeLinear" else integers(dtype, *shape)
    scale, zero = Input(scales, kind="positive", const=const), zeros(dtype, const, *scales)
    return case(op_type, x, scale, zero, axis=axis, block_size=block)


def narrowed(one: Case) -> Case:
    """The answer in the type that the attribute names, of which onnxruntime knows nothing."""
    x, scale = one.arrays
    assert x is not None and scale is not None
    to = helper.tensor_dtype_to_np_dtype(one.attributes["output_dtype"])
    return replace(one, answer=(x.astype(np.float32) * scale).astype(to))


def dequantised() -> list[Case]:
    scale, found = value(0.05), value(0.05, const=False)
    return [
        *(
            case("DequantizeLinear", integers(dtype, *shape), scale, value(3, dtype))
            for dtype in NARROW
            for shape in FLAT
        ),
        *(case("DequantizeLinear", integers("int32", *shape), scale) for shape in FLAT),
        case("DequantizeLinear", integers("int32", 5, 7), weight(7, kind="positive"), axis=1),
        *case("DequantizeLinear", integers("uint8", 37, 61), scale, value(131, "uint8")).on(
            "npu1", "npu2_1col"
        ),
        *(
            case("DequantizeLinear", integers(dtype, 3, 7), value(0.05, "float16"), value(3, dtype))
            for dtype in NARROW
        ),
        case("DequantizeLinear", integers("int32", 3, 7), value(0.05, "float16")),
        case("DequantizeLinear", integers("uint8", 3, 5), found, value(7, "uint8", const=False)),
        case("DequantizeLinear", integers("uint8", 3, 5), found),
        case("DequantizeLinear", integers("int8", 3, 5), found, opset=10),
        *(
            narrowed(case("DequantizeLinear", integers("int8", 33, 7), scale, opset=23, output_dtype=to))
            for to in (TensorProto.FLOAT16, TensorProto.BFLOAT16)
        ),
    ]


@st.composite
def scaled(draw: st.DrawFn) -> Case:
    shape, op_type = draw(shapes(rank=5)), draw(st.sampled_from(["QuantizeLinear", "DequantizeLinear"]))
    dtype, const = draw(st.sampled_from(NARROW)), draw(st.booleans())
    if not shape or not draw(st.booleans()):
        x = f32(*shape, kind="wide") if op_type == "QuantizeLinear" else integers(dtype, *shape)
        one = case(op_type, x, value(0.05, const=const), zeros(dtype, const))
    else:
        axis = draw(st.integers(0, len(shape) - 1))
        # onnxruntime has no blocks of lists.
        block = draw(st.integers(0, 9)) if np.prod(shape) and len(shape) > 1 else 0
        if block:
            scales = (*shape[:axis], -(-shape[axis] // block), *shape[axis + 1 :])
            one = in_blocks(op_type, dtype, shape, axis, block, scales, const)
        else:
            one = by_axis(op_type, dtype, shape, axis, const)
    return replace(one, device=draw(DEVICES))


def by_members() -> list[Case]:
    return [
        by_axis(op_type, dtype, shape, axis, const)
        for dtype, shape, axis, const in [
            ("int8", (2, 5, 3, 7), 1, True),
            ("int16", (2, 5, 3, 7), -1, False),
            ("uint8", (9, 6), 0, False),
            ("uint16", (3, 16), 1, True),
            ("int8", (7,), 0, True),
        ]
        for op_type in ("QuantizeLinear", "DequantizeLinear")
    ]


def by_blocks() -> list[Case]:
    return [
        in_blocks(op_type, dtype, *block, const)
        for block in BLOCKS
        for dtype, const in (("int8", True), ("uint16", False))
        for op_type in ("QuantizeLinear", "DequantizeLinear")
    ]


def of_onnxruntime() -> list[Case]:
    """Its own forms, which had 16 bits and float16 before ONNX had."""
    x, half = f32(9, 7, kind="wide"), Input((9, 7), "float16", "wide")
    return [
        case("QuantizeLinear", x, value(0.05), value(3, dtype), domain=MICROSOFT, result=Input((9, 7), dtype))
        for dtype in NARROW
    ] + [
        case(
            "QuantizeLinear", half, value(0.05, "float16"), value(3, "int8"),
            domain=MICROSOFT, result=Input((9, 7), "int8"),
        ),
        case(
            "QuantizeLinear", x, weight(9, kind="positive"), zeros("uint16", True, 9),
            domain=MICROSOFT, axis=0, result=Input((9, 7), "uint16"),
        ),
        case(
            "DequantizeLinear", integers("uint16", 9, 7), value(0.05), value(300, "uint16"),
            domain=MICROSOFT, result=Input((9, 7)),
        ),
        case(
            "DequantizeLinear", integers("int8", 9, 7), weight(7, kind="positive"), zeros("int8", True, 7),
            domain=MICROSOFT, axis=1, result=Input((9, 7)),
        ),
    ]  # fmt: skip


# GoogleTest has the first cases of each operator too.
CASES = [*by_members()[:6], *by_blocks(), *by_members()[6:], *quantised(), *dequantised(), *of_onnxruntime()]
FAMILIES = {"scaled": scaled()}
