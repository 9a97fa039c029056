# SPDX-License-Identifier: Apache-2.0
"""Cases of the element-wise operators and of Softmax."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from onedispatch.operators.declarations.functions import ACTIVATIONS
from tests.ops.case import Case, Tolerance, case, f32, integers, value, weight

SMALL_DEVICES = ("npu1", "npu2_1col", "npu1_2col")
LONG_ROWS = Tolerance(scale=3e-6)  # onnxruntime adds them up one by one
BINARY = ("Add", "Sub", "Mul", "Div")
UNARY = tuple(ACTIVATIONS.by_onnx)
FIRST = UNARY[: UNARY.index("Softsign") + 1]  # see every shape: the others are the same kernel's
POSITIVE = ("Sqrt", "Log", "Reciprocal")

# Shapes that every unary operator sees: scalars, ranks 1 to 6, primes, batch 37, empty ones.
SHAPES = [(), (1,), (7,), (1009,), (37, 10), (1, 3, 5, 7), (2, 3, 1, 5, 1, 7), (131, 257), (0,), (2, 0, 3)]

# Pairs for broadcasting, most of them both ways round.
PAIRS: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((), ()), ((7,), ()), ((), (3, 5)), ((1,), (1,)), ((37,), (1,)), ((3, 5), (5,)), ((3, 1), (1, 5)),
    ((3, 1), (5,)), ((2, 3, 4), (3, 1)), ((2, 3, 4), (2, 1, 4)), ((2, 3, 4), (1, 3, 1)),
    ((1, 67, 7, 7), (67, 1, 1)), ((37, 3, 5, 5), (1, 3, 1, 1)), ((2, 1, 4, 1, 6), (3, 1, 5, 1)),
    ((2, 1, 3, 1, 2, 1), (1, 3, 1, 4, 1, 5)), ((101, 103), (101, 103)), ((1, 1, 1, 1), (7,)),
    ((5, 1, 1009), (1009,)), ((1013, 1), (1, 31)), ((0,), (1,)), ((3, 0), (3, 1)), ((2, 0, 3), (2, 0, 3)),
    ((9, 4000), (9, 1)),
]  # fmt: skip


def binary() -> list[Case]:
    cases = []
    for index, (a, b) in enumerate(PAIRS):
        for op in BINARY if index % 3 == 0 else (BINARY[index % 4],):
            cases.append(case(op, f32(*a), f32(*b, kind="positive")))
        op = BINARY[(index + 1) % 4]
        cases.append(case(op, f32(*b), weight(*a, kind="positive")))
    for op in BINARY:
        cases += [
            case(op, f32(9, 11, kind="special"), f32(9, 11, kind="special"), note="both"),
            case(op, f32(9, 11, kind="special"), f32(1, kind="normal")),
            case(op, f32(9, 11), value(0.0), note="zero"),
            case(op, f32(9, 11), value(float("inf")), note="infinity"),
            case(op, weight(9, 1), f32(9, 11)),
            case(op, f32(2, 3), f32(3), opset=7),
            case(op, f32(2, 3), f32(3), opset=13),
        ]
        cases += case(op, f32(37, 1, 61), f32(5, 1)).on(*SMALL_DEVICES)
    return cases


def sums() -> list[Case]:
    return [
        case("Sum", f32(37, 5)),
        case("Sum", f32()),
        case("Sum", f32(3, 4), f32(3, 4)),
        case("Sum", f32(3, 4), f32(4), f32(3, 1)),
        case("Sum", f32(1, 4), f32(3, 1), f32(2, 1, 1), f32()),
        case("Sum", f32(37, 101), weight(101), f32(37, 101), f32(1)),
        case("Sum", f32(0, 4), f32(4)),
        case("Sum", f32(3, 4, kind="special"), f32(3, 4, kind="special"), f32(4)),
        case("Sum", f32(3, 4), f32(3, 4), opset=8),
        *case("Sum", f32(7, 31), f32(31), f32(7, 31)).on(*SMALL_DEVICES),
        *(
            chosen
            for op in ("Max", "Min")
            for chosen in (
                case(op, f32(37, 5)),
                case(op, f32(3, 4), f32(4), f32(3, 1)),
                case(op, f32(37, 101), weight(101)),
                case(op, f32(9, 11, kind="special"), f32(9, 11, kind="special")),
                case(op, f32(3, 4), f32(3, 4), opset=12),
                *case(op, f32(7, 31), f32(31)).on(*SMALL_DEVICES),
            )
        ),
    ]


def unary() -> list[Case]:
    cases = []
    for op in FIRST:
        for shape in SHAPES:
            cases.append(case(op, f32(*shape, kind="positive" if op in POSITIVE else "wide")))
        cases.append(case(op, f32(9, 31, kind="special")))
        cases.append(case(op, f32(3, 7, kind="positive"), opset=9))
        cases += case(op, f32(37, 101, kind="positive")).on(*SMALL_DEVICES)
    cases += [
        case("LeakyRelu", f32(37, 11), alpha=0.3),
        case("LeakyRelu", f32(37, 11), alpha=-1.5),
        case("LeakyRelu", f32(37, 11), alpha=0.0),
        case("Sqrt", f32(37, 11), note="negative"),
        case("Exp", f32(37, 11, kind="wide"), opset=6),
    ]
    return cases


UNIT = ("Asin", "Acos", "Atanh")  # defined between -1 and 1


def later() -> list[Case]:
    """Functions that came after the table was sealed; all are rows of the one kernel."""
    cases = []
    for op in (op for op in UNARY if op not in FIRST):
        kind = "normal" if op in UNIT else "positive" if op == "Acosh" else "wide"
        opset = 24 if op == "Swish" else 21
        for shape in [(), (1009,), (37, 10), (2, 3, 1, 5, 1, 7), (2, 0, 3)]:
            cases.append(case(op, f32(*shape, kind=kind), opset=opset))
        cases.append(case(op, f32(9, 31, kind="special"), opset=opset))
        cases += case(op, f32(37, 101, kind=kind), opset=opset).on("npu1")
    huge = value([1e30, -1e30, 3.4e38, 123456.7, -7654321.0, 1048576.5, 1e-30, 22.0, 355.0], const=False)
    return cases + [
        *(case(op, huge, note="huge") for op in ("Sin", "Cos", "Tan")),
        case("Elu", f32(37, 11), alpha=0.3),
        case("Elu", f32(37, 11), alpha=-1.5),
        case("Selu", f32(37, 11), alpha=0.7, gamma=2.5),
        case("Celu", f32(37, 11, kind="wide"), alpha=2.5),
        case("HardSigmoid", f32(37, 11), alpha=0.6, beta=-0.1),
        case("ThresholdedRelu", f32(37, 11), alpha=-0.25),
        case("Shrink", f32(37, 11), lambd=0.75, bias=0.5),
        case("Shrink", f32(37, 11), lambd=0.25, bias=-1.5),
        case("Swish", f32(37, 11), alpha=1.702, opset=24),
        case("Gelu", f32(37, 11), approximate="tanh", tolerance=Tolerance(ulp=4, absolute=1e-6)),
        case("Gelu", f32(131, 257), approximate="none"),
        case("Round", value([0.5, 1.5, 2.5, -0.5, -1.5, 8388607.5, 0.49999997], const=False)),
        case("Elu", f32(9, 31), opset=7),
        case("HardSwish", f32(9, 31), opset=14),
        case("Sin", f32(9, 31), opset=7),
    ]


def powers_of_narrow_floats() -> list[Case]:
    """Exponents that the type of the base does not have: rounded to it they would make other powers."""
    cases = []
    for dtype in ("float16", "bfloat16"):
        base = value([2.5, -2.0, 1.5], dtype, const=False)
        exponents = [value([10.02, 10.02, -3.01], kind, const) for kind, const in _EXPONENTS]
        for exponent in (*exponents, value([9, 257, 14], "int32", const=False)):
            one = case("Pow", base, exponent, note="narrow")
            x, y = (np.asarray(a).astype(np.float64) for a in one.arrays)
            with np.errstate(all="ignore"):
                answer = np.power(x, y).astype(np.dtype(dtype))
            cases.append(replace(one, answer=answer, tolerance=Tolerance(ulp=1)))
    return cases


_EXPONENTS = (("float32", False), ("float32", True), ("float64", True))


def powers() -> list[Case]:
    """Exponents that the model says, of one kind each, and computed ones."""
    base = f32(37, 11, kind="positive")
    cases = [
        *(
            case("Pow", base, value(e), note=f"to {e}")
            for e in (0.0, 0.5, 1.0, 2.0, 3.0, -1.0, -0.5, 2.7, 40.0)
        ),
        *(
            case("Pow", f32(9, 31, kind="special"), value(e), note=f"to {e}")
            for e in (0.5, 2.0, 3.0, 5.0, -2.0, 0.3)
        ),
        case("Pow", base, value(2, "int64")),
        case("Pow", base, value([[3]], "int32")),
        case("Pow", base, value(0.5, "float64")),
        case("Pow", base, f32(11)),
        case("Pow", f32(1, 11, kind="positive"), weight(5, 1)),
        case("Pow", f32(11, kind="special"), value([[2.0], [-1.0], [0.5], [3.0]], const=False)),
        case("Pow", base, integers("int32", 1, 11), note="whole"),
        case("Pow", f32(3, 11, kind="positive"), value([[2], [0], [-3]], "int64", const=False)),
        case("Pow", value([2, -3, 5], "int32", const=False), value([5, 3, 0], "int64", const=False)),
        case(
            "Pow",
            value([2, -3, 1, -1, 0, 7], "int32", const=False),
            value([3, 3, -4, -5, 2, 0], "int32", const=False),
        ),
        case("Pow", value([2, -3, 5], "int32", const=False), value(3, "int64")),
        case("Pow", value([2, 4, 5], "int32", const=False), value([0.5, 1.5, 2.0], const=False)),
        case("Pow", f32(3, 4, kind="positive"), f32(4), opset=7),
        *case("Pow", f32(7, 31, kind="positive"), f32(31)).on("npu1"),
    ]
    return [replace(one, tolerance=Tolerance(ulp=2)) for one in cases]


def slopes() -> list[Case]:
    return [
        *(case("PRelu", f32(*x), weight(*slope)) for x, slope in [
            ((37, 11), (11,)), ((2, 3, 5, 7), (3, 1, 1)), ((4,), (1,)), ((), ()), ((3, 5), (3, 5)),
            ((0, 3), (3,)),
        ]),
        case("PRelu", f32(9, 31, kind="special"), f32(31)),
        case("PRelu", f32(9, 31), f32(9, 31, kind="special")),
        case("PRelu", f32(2, 3, 4), f32(1, 4), opset=7),
        *case("PRelu", f32(7, 31), f32(31)).on("npu1"),
    ]  # fmt: skip


def clips() -> list[Case]:
    low, high = value(-0.5), value(0.75)
    cases = [
        case("Clip", f32(*shape), low, high) for shape in [(), (1,), (37, 11), (2, 3, 4, 5), (0, 3), (4099,)]
    ]
    cases += [
        case("Clip", f32(37, 11)),
        case("Clip", f32(37, 11), low, note="low"),
        case("Clip", f32(37, 11), None, high, note="high"),
        case("Clip", f32(37, 11), high, low, note="crossed"),
        case("Clip", f32(37, 11), f32(), value(2.0)),
        case("Clip", f32(37, 11), value(-0.5, const=False), value(0.75, const=False), note="computed"),
        case("Clip", f32(37, 11), value(-0.5, const=False), note="computed-low"),
        case("Clip", f32(37, 11), None, value(0.25, const=False), note="computed-high"),
        case("Clip", f32(37, 11, kind="special"), value(-0.5, const=False), note="special-low"),
        case("Clip", f32(37, 11, kind="special"), None, value(0.25, const=False), note="special-high"),
        case("Clip", f32(9, 31, kind="special"), low, high),
        case("Clip", f32(9, 31, kind="special"), note="no-bounds"),
        case("Clip", f32(9, 31, kind="special"), value(-0.5, const=False), value(0.5, const=False)),
        case("Clip", f32(9, 31), value(float("-inf")), value(float("inf")), note="infinite"),
        case("Clip", f32(9, 31), value(0.0), value(6.0), note="relu6"),
        case("Clip", f32(9, 31), opset=6, min=0.0, max=6.0),
        case("Clip", f32(9, 31), opset=6),
        *case("Clip", f32(37, 61), low, high).on(*SMALL_DEVICES),
    ]
    return cases


def softmax() -> list[Case]:
    cases = [
        case("Softmax", f32(*shape), axis=axis, tolerance=LONG_ROWS if max(shape) > 4000 else None)
        for shape, axis in [
            ((1,), 0), ((7,), -1), ((37, 10), -1), ((37, 10), 0), ((3, 5, 7), 1), ((2, 3, 4, 5), 2),
            ((2, 1, 3, 1, 2, 3), 4), ((1, 1000), 1), ((5, 4099), 1), ((2, 30011), 1), ((4099, 3), 0),
            ((101, 103), 1), ((0, 4), 1), ((3, 1), 1),
        ]
    ]  # fmt: skip
    cases += [
        case("Softmax", f32(37, 10)),
        case("Softmax", f32(2, 3, 4), opset=11, axis=1),
        case("Softmax", f32(2, 3, 4), opset=11, axis=0),
        case("Softmax", f32(2, 3, 4), opset=9),
        case("Softmax", f32(9, 31, kind="wide"), axis=-1),
        case("Softmax", f32(9, 31, kind="special"), axis=-1),
        case("Softmax", value([[3e38, -3e38, 0.0], [1e30, 1e30, 1e30]], const=False), axis=1, note="huge"),
        case("Softmax", value([[float("-inf"), 0.0, 1.0]], const=False), axis=1, note="infinity"),
        *case("Softmax", f32(37, 61), axis=1).on(*SMALL_DEVICES),
        *case("Softmax", f32(5, 37, 3), axis=1).on(*SMALL_DEVICES),
    ]
    return cases


CASES = [
    *binary(),
    *sums(),
    *unary(),
    *later(),
    *powers(),
    *powers_of_narrow_floats(),
    *slopes(),
    *clips(),
    *softmax(),
]
