# SPDX-License-Identifier: Apache-2.0
"""Cases of reductions, LogSoftmax and GlobalMaxPool."""

from __future__ import annotations

import numpy as np

from tests.ops.case import Case, Tolerance, case, f32, value

SMALL_DEVICES = ("npu1", "npu2_1col", "npu1_2col")
REDUCE = ("ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare")
LONG = Tolerance(scale=3e-6)


def beside_nan(op: str) -> list[Case]:
    """A NaN wins wherever it lies, as in NumPy: in onnxruntime that depends on its vectors."""
    x = np.random.default_rng(3).standard_normal((9, 4, 31)).astype(np.float32)
    x[::3, 1, 7] = x[2, 3, 0] = x[4, 0, 30] = np.nan
    if op == "GlobalMaxPool":
        return [case(op, value(x, const=False), answer=x.max(axis=2, keepdims=True), note="nan")]
    largest = np.max if op == "ReduceMax" else np.min
    return [
        case(
            op,
            value(x, const=False),
            value([axis], "int64"),
            answer=largest(x, axis=axis, keepdims=True),
            note=f"nan{axis}",
        )
        for axis in (0, 1, 2)
    ]


def many_factors() -> Case:
    """Roundings of 505 factors in two orders, onnxruntime's and ours, differ by more than is allowed: what
    counts is the product itself."""
    x = (1 + np.random.default_rng(4).standard_normal((5, 101)) / 16).astype(np.float32)
    product = np.float32(np.prod(x, dtype=np.float64))
    listed = value([0, 1], "int64")
    return case("ReduceProd", value(x, const=False), listed, keepdims=0, answer=product, note="many")


def reductions() -> list[Case]:
    cases = []
    for op in REDUCE:
        # Products of many values leave the range of floats: their factors are near one.
        kind = {"ReduceMean": "positive", "ReduceSum": "positive", "ReduceProd": "near one"}.get(op, "normal")
        for shape, along in [
            ((7,), (0,)), ((37, 10), (1,)), ((37, 10), (0,)), ((3, 5, 7), (1,)), ((2, 3, 4, 5), (1, 2)),
            ((2, 3, 4, 5), (-1,)), ((2, 3, 1, 5, 1, 2), (4, 5)), ((5, 101), (0, 1)),
        ]:  # fmt: skip
            listed, note = value(list(along), "int64"), "axes" + ",".join(map(str, along))
            if op == "ReduceProd" and shape == (5, 101):
                cases.append(many_factors())
                continue
            cases.append(case(op, f32(*shape, kind=kind), listed, keepdims=len(shape) % 2, note=note))
        cases += [
            case(op, f32(kind=kind)),
            case(op, f32(3, 4, kind=kind)),
            case(op, f32(3, 4), value([], "int64"), noop_with_empty_axes=1),
            case(op, f32(0, 4), value([1], "int64"), keepdims=0),
            case(op, f32(5, 6, kind=kind), axes=[-1], opset=9),
            case(op, f32(5, 6, kind=kind), axes=[0, 1], keepdims=0, opset=11),
            *case(op, f32(37, 61, kind=kind), value([0], "int64")).on(*SMALL_DEVICES),
        ]
        if op != "ReduceProd":
            long = None if op in ("ReduceMax", "ReduceMin") else LONG
            cases.append(case(op, f32(3, 4099, kind=kind), value([1], "int64"), tolerance=long))
        if op in ("ReduceMax", "ReduceMin"):
            cases.append(case(op, f32(9, 31, kind="infinite"), value([1], "int64")))
            cases += beside_nan(op)
    nothing = {"ReduceProd": 1.0, "ReduceSum": 0.0, "ReduceSumSquare": 0.0}
    nothing |= {"ReduceMax": float("-inf"), "ReduceMin": float("inf")}
    for op, result in nothing.items():  # onnxruntime knows some of them; ONNX says all
        cases.append(
            case(
                op, f32(3, 0), value([1], "int64"), answer=np.full((3, 1), result, np.float32), note="nothing"
            )
        )
    return cases


def log_softmax() -> list[Case]:
    cases = [
        case("LogSoftmax", f32(*shape), axis=axis, tolerance=LONG if max(shape) > 4000 else None)
        for shape, axis in [
            ((1,), 0), ((7,), -1), ((37, 10), -1), ((37, 10), 0), ((3, 5, 7), 1), ((2, 3, 4, 5), 2),
            ((2, 1, 3, 1, 2, 3), 4), ((1, 1000), 1), ((5, 4099), 1), ((2, 30011), 1), ((0, 4), 1),
            ((3, 1), 1),
        ]
    ]  # fmt: skip
    return [
        *cases,
        case("LogSoftmax", f32(37, 10)),
        case("LogSoftmax", f32(2, 3, 4), opset=11, axis=1),
        case("LogSoftmax", f32(2, 3, 4), opset=9),
        case("LogSoftmax", f32(9, 31, kind="wide"), axis=-1),
        *case("LogSoftmax", f32(37, 61), axis=1).on(*SMALL_DEVICES),
    ]


def global_max_pool() -> list[Case]:
    shapes = [
        (1, 1, 1, 1),
        (1, 3, 7, 7),
        (37, 5, 3, 3),
        (2, 131, 13, 11),
        (3, 4, 17),
        (2, 3, 4, 5, 6),
        (0, 3, 4, 4),
    ]
    return [
        *(case("GlobalMaxPool", f32(*shape)) for shape in shapes),
        case("GlobalMaxPool", f32(2, 3, 5, 5, kind="infinite")),
        *beside_nan("GlobalMaxPool"),
        *case("GlobalMaxPool", f32(3, 17, 5, 7)).on(*SMALL_DEVICES),
    ]


CASES = [*reductions(), *log_softmax(), *global_max_pool()]
