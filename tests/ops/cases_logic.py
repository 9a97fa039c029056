# SPDX-License-Identifier: Apache-2.0
"""Cases of what compares, selects, works on bits or on int64: operands of several widths, any rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
from hypothesis import strategies as st

from onedispatch.operators.declarations.dtypes import DTYPES, INTEGERS
from tests.ops.case import Case, Input, case, f32, value
from tests.ops.strategies import DEVICES

ROWS = (1, 2, 3, 5, 7, 33)
SMALL_DEVICES = ("npu1", "npu2_1col")
COMPARED: dict[str, Any] = {
    "Equal": np.equal,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
}
LOGIC: dict[str, Any] = {"And": np.logical_and, "Or": np.logical_or, "Xor": np.logical_xor}
BITS: dict[str, Any] = {
    "BitwiseAnd": np.bitwise_and,
    "BitwiseOr": np.bitwise_or,
    "BitwiseXor": np.bitwise_xor,
}
WHOLE = tuple(str(DTYPES[name].numpy) for name in INTEGERS.split())
HUGE = [
    2**63 - 1,
    -(2**63),
    2**40 + 3,
    2**40 + 2,
    2**32,
    0,
    -1,
]  # words alone would be told apart in another way
OTHER = [2**63 - 1, 2**63 - 1, 2**40 + 2, 2**40 + 3, 0, 2**32, -(2**32) - 1]


def ints(dtype: str, *shape: int, kind: str = "small") -> Input:
    return Input(shape, dtype, kind)


def bools(*shape: int) -> Input:
    return Input(shape, "bool")


def answered(one: Case, function: Callable[..., Any]) -> Case:
    """The case with NumPy's answer, for types that onnxruntime has no kernel for."""
    with np.errstate(all="ignore"):
        return replace(one, answer=np.asarray(function(*one.arrays)))


def comparisons() -> list[Case]:
    cases = []
    for op in COMPARED:
        cases += [
            case(op, ints("int32", 3, 5), ints("int32", 5)),
            case(op, f32(9, 33, kind="special"), f32(9, 33, kind="special")),
            case(op, value(HUGE, "int64", const=False), value(OTHER, "int64")),
            case(op, ints("int64", 2, 3, 1, 7), ints("int64", 3, 4, 1)),
            case(op, ints("int32", 2, 1, 3, 1, 2, 5), ints("int32", 1, 4, 1, 2, 1, 5)),
            case(op, f32(), f32()),
            case(op, f32(0, 3), f32(3)),
        ]
    cases += [case("Equal", ints("int32", 4, n), ints("int32", 4, n)) for n in ROWS]
    cases += [
        case("Equal", bools(3, 7), bools(7)),
        case("Equal", bools(), bools(5, 1)),
        case("Less", f32(3, 5), f32(3, 5), opset=8),
    ]
    cases += case("Less", f32(37, 61), f32(61)).on(*SMALL_DEVICES)
    for op in ("IsNaN", "IsInf"):
        cases += [
            case(op, f32(*shape, kind="special")) for shape in [(9, 7), (33,), (), (0, 2), (2, 3, 1, 5)]
        ]
        cases += case(op, f32(5, 31, kind="special")).on(*SMALL_DEVICES)
    cases += [
        case("IsInf", f32(5, 7, kind="special"), detect_positive=positive, detect_negative=negative)
        for positive, negative in [(0, 1), (1, 0), (0, 0)]
    ]
    return cases


def logic() -> list[Case]:
    cases = [case("Not", bools(*shape)) for shape in [(3, 5), (33,), (), (0, 2), (2, 3, 1, 7)]]
    for op in LOGIC:
        cases += [case(op, bools(3, n), Input((n,), "bool", "positive")) for n in (1, 3, 33)]
        cases += [case(op, bools(2, 1, 3, 1, 2, 5), bools(4, 1, 1, 2, 1)), case(op, bools(), bools(7))]
        cases += case(op, bools(37, 61), bools(37, 1)).on(*SMALL_DEVICES)
    for op, function in BITS.items():
        cases += [
            answered(case(op, Input((3, 7), dtype), Input((7,), dtype)), function)
            for dtype in (*WHOLE, "int64")
        ]
    cases += [answered(case("BitwiseNot", Input((3, 7), dtype)), np.invert) for dtype in (*WHOLE, "int64")]
    for direction, function in (("LEFT", np.left_shift), ("RIGHT", np.right_shift)):
        for dtype in ("uint8", "uint16", "uint32"):
            top = 8 * np.dtype(dtype).itemsize
            amounts = value([0, 1, 3, top - 1, 5], dtype, const=False)
            one = case("BitShift", Input((3, 5), dtype), amounts, direction=direction)
            cases.append(answered(one, function) if dtype == "uint16" else one)
    return cases


def remainders() -> list[Case]:
    cases = []
    for dtype in (*WHOLE, "int64"):
        by = [3, 5, 7, 11, 13] if dtype.startswith("u") else [3, -5, 7, -11, -1]
        for fmod in (0, 1):
            cases.append(
                case("Mod", Input((4, 5), dtype), value(by, dtype, const=False), fmod=fmod, note=dtype)
            )
    cases += [
        case("Mod", f32(5, 33, kind="wide"), f32(33, kind="positive"), fmod=1),
        case("Mod", Input((5, 7), "float16", "wide"), Input((7,), "float16", "positive"), fmod=1),
        answered(case("Mod", f32(5, 33, kind="wide"), f32(33, kind="wide"), fmod=0, opset=28), np.mod),
        answered(
            case("Mod", Input((5, 7), "float16", "wide"), Input((7,), "float16", "wide"), fmod=0, opset=28),
            np.mod,
        ),
        case("Mod", f32(9, 11, kind="special"), f32(9, 11, kind="special"), fmod=1),
        case(
            "Mod",
            Input((3, 7), "int64", "value", value=[*HUGE, *OTHER, *HUGE]),
            value([7, -7, 2**33 + 1, -3, 5, 9, 2], "int64"),
        ),
    ]
    return cases


def selections() -> list[Case]:
    kinds = (
        "float32",
        "float64",
        "int64",
        "int32",
        "uint8",
        "int64",
        "float16",
        "bool",
        "uint64",
        "int8",
        "int16",
    )
    answers = ("float64", "float16", "bool", "uint64", "int8", "int16")  # onnxruntime lacks some of these
    cases = []
    for i, dtype in enumerate(kinds):
        n = ROWS[i % len(ROWS)]
        one = case("Where", bools(3, n), Input((3, n), dtype), Input((n,), dtype), note=dtype)
        cases.append(answered(one, np.where) if dtype in answers else one)
    cases += [case("Where", bools(4, n), f32(4, n), f32(n)) for n in ROWS]
    cases += [
        case("Where", bools(3, 1), f32(3, 5), f32()),
        case("Where", bools(5), f32(3, 1), f32(2, 1, 1)),
        case("Where", bools(), f32(3, 7), f32(7)),
        case("Where", bools(2, 1, 3, 1, 2, 5), f32(4, 1, 1, 2, 1), f32(1, 1, 1, 1, 1, 5)),
        case("Where", bools(0, 5), f32(5), f32(1)),
        case("Where", bools(3, 5), f32(3, 5, kind="special"), value(float("-inf"))),
        *case("Where", bools(37, 61), f32(37, 61), f32(61)).on(*SMALL_DEVICES),
        *case("Where", bools(37, 1), ints("int64", 37, 5), ints("int64", 5)).on(*SMALL_DEVICES),
    ]
    return cases


def wide() -> list[Case]:
    """Arithmetic of int64, which wraps."""
    big, by = (
        value([HUGE, OTHER], "int64", const=False),
        value([5, -7, 2**33 + 1, 3, -(2**40), 9, 11], "int64"),
    )
    cases = [case(op, big, by, note="huge") for op in ("Add", "Sub", "Mul", "Div")]
    for op in ("Add", "Mul", "Max", "Min"):
        cases += [
            case(op, ints("int64", 3, 5), ints("int64", 3, 1)),
            case(op, ints("int64"), ints("int64", 2, 1, 7)),
        ]
    cases += [
        case("Max", big, by, big, note="huge"),
        case("Max", ints("int64", 3, 5)),
        case("Clip", ints("int64", 3, 5), value(-1, "int64"), value(2**40, "int64")),
        case("Clip", big, value(-(2**40), "int64", const=False), note="low"),
        case("Clip", ints("int64", 7), note="no-bounds"),
        *case("Add", ints("int64", 37, 61), ints("int64", 61)).on(*SMALL_DEVICES),
    ]
    return cases


def expansions() -> list[Case]:
    shapes = [
        ((3, 1), (3, 5)), ((1,), (7,)), ((), (2, 3)), ((3, 1), (2, 1, 7)), ((5,), (5,)), ((2, 1, 3), (4, 1)),
        ((1, 0), (3, 1)), ((2, 1, 2, 1, 3, 1), (1, 3, 1, 2, 1, 5)),
    ]  # fmt: skip
    cases = [case("Expand", f32(*a), value(list(b), "int64")) for a, b in shapes]
    for i, dtype in enumerate(("int64", "float64", "float16", "int8", "bool", "uint16")):
        n = ROWS[i]
        cases.append(
            case("Expand", Input((3, 1, n), dtype), value([2, n if n > 1 else 5], "int64"), note=dtype)
        )
        cases.append(case("Expand", Input((3, 1), dtype), value([2, 3, n], "int64"), note=dtype))
    return cases


# -- random shapes and types ---------------------------------------------------------------------

KINDS = st.sampled_from(["float32", "float16", "bfloat16", *WHOLE, "int64", "int64"])


@st.composite
def broadcast_shapes(draw: st.DrawFn, count: int) -> list[tuple[int, ...]]:
    """Of up to six dimensions, which broadcast together; now and then an empty one."""
    side = st.one_of(st.sampled_from(ROWS), st.integers(1, 9))
    whole = draw(st.lists(side, max_size=6).filter(lambda s: np.prod(s) <= 4000))
    if whole and draw(st.integers(0, 9)) == 0:
        whole[draw(st.integers(0, len(whole) - 1))] = 0
    found = []
    for _ in range(count):
        own = tuple(draw(st.sampled_from([n, n, n, 1])) for n in whole)
        found.append(own[draw(st.sampled_from([0, 0, draw(st.integers(0, len(own)))])) :])
    return found


def drawn(draw: st.DrawFn, shape: tuple[int, ...], dtype: str) -> Input:
    """Small numbers, so that many are equal; of floats NaN and infinities too."""
    if np.dtype(dtype).kind in "iub":
        return Input(shape, dtype, "small")
    kind = draw(st.sampled_from(["nonfinite", "normal"]))
    return Input(shape, dtype, kind if dtype == "float32" else "normal")


@st.composite
def comparison(draw: st.DrawFn) -> Case:
    op, dtype = draw(st.sampled_from(sorted(COMPARED))), draw(KINDS)
    dtype = draw(st.sampled_from([dtype, "bool"])) if op == "Equal" else dtype
    inputs = [drawn(draw, shape, dtype) for shape in draw(broadcast_shapes(2))]
    opset = 22 if dtype == "bfloat16" else 21
    return answered(case(op, *inputs, device=draw(DEVICES), opset=opset), COMPARED[op])


@st.composite
def logical(draw: st.DrawFn) -> Case:
    op, device = draw(st.sampled_from([*LOGIC, *BITS, "Mod"])), draw(DEVICES)
    first, second = draw(broadcast_shapes(2))
    if op in LOGIC:
        return case(op, bools(*first), bools(*second), device=device)
    dtype = draw(st.sampled_from([*WHOLE, "int64"]))
    if op in BITS:
        return answered(case(op, Input(first, dtype), Input(second, dtype), device=device), BITS[op])
    fmod = draw(st.integers(0, 1))
    inputs = Input(first, dtype), Input(second, dtype, "positive")
    return answered(case(op, *inputs, fmod=fmod, device=device), np.fmod if fmod else np.mod)


@st.composite
def selection(draw: st.DrawFn) -> Case:
    dtype = draw(st.one_of(KINDS, st.sampled_from(["bool", "uint64", "float64"])))
    condition, x, y = draw(broadcast_shapes(3))
    one = case("Where", bools(*condition), Input(x, dtype), Input(y, dtype), device=draw(DEVICES))
    return answered(one, np.where)


@st.composite
def expansion(draw: st.DrawFn) -> Case:
    dtype = draw(st.one_of(KINDS, st.sampled_from(["bool", "uint64", "float64"])))
    x, shape = draw(broadcast_shapes(2))
    one = case("Expand", Input(x, dtype), value(list(shape), "int64"), device=draw(DEVICES))
    return answered(one, lambda array, _: np.broadcast_to(array, np.broadcast_shapes(x, shape)))


BFLOAT16 = ml_dtypes.bfloat16
CASES = [*comparisons(), *logic(), *remainders(), *selections(), *wide(), *expansions()]
FAMILIES = {
    "comparison": comparison(),
    "logical": logical(),
    "selection": selection(),
    "expansion": expansion(),
}
