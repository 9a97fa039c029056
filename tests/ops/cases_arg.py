# SPDX-License-Identifier: Apache-2.0
"""Cases of ArgMax, ArgMin and Hardmax."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tests.ops.case import Case, Input, case, f32, value
from tests.ops.strategies import DEVICES, shapes

TYPES = ("float32", "float16", "int8", "uint8", "int32")


def ties(*shape: int, dtype: str = "int32") -> Input:
    """Few values, so that most are there several times."""
    return Input(shape, dtype, "small")


def beside_nan(op: str) -> list[Case]:
    """A NaN is found where it comes first, and nowhere else."""
    return [
        case(op, f32(9, 4, 31, kind="nan"), axis=axis, select_last_index=last)
        for axis, last in ((0, 0), (1, 1), (2, 0), (2, 1))
    ]


def places() -> list[Case]:
    cases = []
    for op in ("ArgMax", "ArgMin"):
        cases += [
            *(case(op, f32(*shape), axis=axis, keepdims=len(shape) % 2) for shape, axis in [
                ((7,), 0), ((37, 10), 1), ((37, 10), 0), ((3, 5, 7), 1), ((2, 3, 4, 5), -2), ((3, 40000), 1),
                ((4000, 3), 0),
            ]),
            case(op, f32(5, 6)),
            *(case(op, ties(9, 31), axis=1, select_last_index=last) for last in (0, 1)),
            case(op, ties(5, 7, 3, dtype="int8"), axis=1, select_last_index=1),
            case(op, f32(9, 31, kind="infinite"), axis=0, opset=11),
            case(op, f32(0, 4), axis=1),
            *beside_nan(op),
            *case(op, f32(37, 61), axis=1, keepdims=0).on("npu1", "npu2_1col"),
        ]  # fmt: skip
    return cases


def hardmax() -> list[Case]:
    op = "Hardmax"
    return [
        *(case(op, f32(*shape), axis=axis) for shape, axis in [
            ((7,), 0), ((37, 10), 1), ((37, 10), 0), ((3, 5, 7), 1), ((2, 3, 4, 5), -1), ((3, 40000), 1),
        ]),
        case(op, f32(5, 6)),
        case(op, f32(2, 3, 4), opset=11, axis=1),
        case(op, f32(2, 3, 4), opset=9),
        case(op, f32(37, 1, 5), axis=1),
        case(op, value(np.arange(279).reshape(9, 31) % 4 // 2, const=False), note="ties"),
        *case(op, f32(37, 61), axis=0).on("npu1"),
    ]  # fmt: skip


@st.composite
def arg(draw: st.DrawFn) -> Case:
    shape = draw(shapes(4, 3000, empty=False).filter(lambda s: len(s) > 0))
    axis, op = (
        draw(st.integers(-len(shape), len(shape) - 1)),
        draw(st.sampled_from(["ArgMax", "ArgMin", "Hardmax"])),
    )
    if op == "Hardmax":
        return case(op, f32(*shape), axis=axis, device=draw(DEVICES))
    # Of one row onnxruntime finds a NaN wherever it is, of several where it comes first: ``beside_nan``.
    kind = st.sampled_from(["small", "normal", "nonfinite" if len(shape) > 1 else "infinite"])
    dtype = draw(st.sampled_from(TYPES))
    x = ties(*shape, dtype=dtype) if "int" in dtype else Input(shape, dtype, draw(kind))
    flags = {key: draw(st.integers(0, 1)) for key in ("keepdims", "select_last_index")}
    return case(op, x, axis=axis, device=draw(DEVICES), **flags)


CASES = [*places(), *hardmax()]
FAMILIES = {"arg": arg()}
