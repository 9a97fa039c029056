# SPDX-License-Identifier: Apache-2.0
"""Cases of the operators that change no value: Concat, Transpose, Reshape and their kin."""

from __future__ import annotations

from itertools import permutations

from tests.ops.case import Case, Input, case, f32, integers, value, weight

SMALL_DEVICES = ("npu1", "npu2_1col", "npu1_2col")


def numbers(*given: int) -> Input:
    """A constant list of int64: shapes and axes."""
    return value(list(given), "int64")


def concat() -> list[Case]:
    groups: list[tuple[int, list[tuple[int, ...]]]] = [
        (0, [(1,)]), (0, [(3,), (4,)]), (0, [(1,), (1,), (1,)]), (-1, [(37, 3), (37, 8)]),
        (0, [(3, 7), (1, 7), (5, 7)]), (1, [(1, 64, 7, 7), (1, 64, 7, 7)]), (1, [(2, 3, 5, 5), (2, 7, 5, 5)]),
        (2, [(2, 3, 1, 2), (2, 3, 4, 2), (2, 3, 3, 2)]), (3, [(1, 2, 3, 1), (1, 2, 3, 1)]),
        (1, [(3, 0), (3, 4)]), (0, [(0, 4), (0, 4)]), (5, [(1, 2, 1, 2, 1, 3), (1, 2, 1, 2, 1, 2)]),
        (1, [(101, 1), (101, 103), (101, 2)]), (0, [(1009,)] * 5), (1, [(2, 3)] * 17),
    ]  # fmt: skip
    cases = [case("Concat", *(f32(*shape) for shape in shapes), axis=axis) for axis, shapes in groups]
    cases += [
        case("Concat", f32(3, 4), weight(3, 5), axis=1),
        case("Concat", integers("int32", 3, 4), integers("int32", 3, 5), axis=1),
        case("Concat", f32(3, 4, kind="special"), f32(3, 5, kind="special"), axis=1),
        case("Concat", f32(3, 4), f32(3, 5), axis=1, opset=4),
        *case("Concat", f32(3, 7, 5), f32(3, 4, 5), axis=1).on(*SMALL_DEVICES),
        *case("Concat", integers("int8", 5, 3), integers("int8", 5, 6), axis=1).on("npu2", *SMALL_DEVICES),
    ]
    return cases


def transpose() -> list[Case]:
    cases = [case("Transpose", f32(2, 3, 5, 7), perm=list(perm)) for perm in permutations(range(4))]
    cases += [
        case("Transpose", f32(*shape), perm=perm)
        for shape, perm in [
            ((1,), [0]), ((7,), [0]), ((1009, 3), [1, 0]), ((3, 1009), [1, 0]), ((101, 103), [1, 0]),
            ((37, 1, 10), [2, 1, 0]), ((5, 6, 7), [1, 2, 0]), ((2, 3, 4, 5, 6), [4, 3, 2, 1, 0]),
            ((2, 3, 4, 5, 6), [2, 0, 4, 1, 3]), ((2, 1, 3, 1, 4, 5), [5, 4, 3, 2, 1, 0]),
            ((1, 64, 14, 14), [0, 2, 3, 1]), ((1, 14, 14, 64), [0, 3, 1, 2]), ((0, 3), [1, 0]),
            ((2, 0, 3), [2, 0, 1]), ((300, 500), [1, 0]), ((2, 3, 4, 3, 2, 5), [5, 4, 3, 2, 1, 0]),
            ((2, 3, 2, 3, 2, 3, 2), [6, 3, 0, 5, 2, 1, 4]),
        ]
    ]  # fmt: skip
    cases += [
        case("Transpose", f32(3, 4, 5)),
        case("Transpose", f32()),
        case("Transpose", integers("int32", 5, 7, 3), perm=[2, 0, 1]),
        case("Transpose", f32(9, 31, kind="special"), perm=[1, 0]),
        *case("Transpose", f32(7, 31, 5), perm=[2, 0, 1]).on(*SMALL_DEVICES),
    ]
    return cases


def aliases() -> list[Case]:
    """No data moves; the answers are the inputs' bytes."""
    return [
        case("Reshape", f32(37, 6), numbers(37, 2, 3), note="split"),
        case("Reshape", f32(2, 3, 4), numbers(-1), note="flat"),
        case("Reshape", f32(2, 3, 4), numbers(0, -1), note="keep"),
        case("Reshape", f32(2, 3, 4), numbers(4, 1, 6), note="mixed"),
        case("Reshape", f32(1), value([], "int64"), note="to-scalar"),
        case("Reshape", f32(), numbers(1, 1), note="from-scalar"),
        case("Reshape", f32(0, 3), numbers(3, 0), note="empty", allowzero=1),
        case("Reshape", f32(2, 3, kind="special"), numbers(6), note="flat"),
        case("Reshape", integers("int32", 4, 5), numbers(2, 10)),
        case("Flatten", f32(2, 3, 4, 5)),
        case("Flatten", f32(2, 3, 4, 5), axis=0),
        case("Flatten", f32(2, 3, 4, 5), axis=4),
        case("Flatten", f32(2, 3, 4, 5), axis=-2),
        case("Flatten", f32(37, 4)),
        case("Flatten", f32(0, 4, 2)),
        case("Flatten", f32(2, 3, 4), opset=9, axis=2),
        case("Squeeze", f32(1, 3, 1, 5)),
        case("Squeeze", f32(1, 3, 1, 5), numbers(0)),
        case("Squeeze", f32(1, 3, 1, 5), numbers(-2), note="negative"),
        case("Squeeze", f32(1, 1)),
        case("Squeeze", f32(1, 3, 1, 5), opset=11, axes=[0, 2]),
        case("Unsqueeze", f32(3, 5), numbers(0)),
        case("Unsqueeze", f32(3, 5), numbers(1, 3)),
        case("Unsqueeze", f32(3, 5), numbers(-1), note="negative"),
        case("Unsqueeze", f32(), numbers(0)),
        case("Unsqueeze", f32(0, 5), numbers(1)),
        case("Unsqueeze", f32(3, 5), opset=11, axes=[0, 3]),
        case("Identity", f32(37, 11)),
        case("Identity", f32()),
        case("Identity", f32(0, 3)),
        case("Identity", f32(9, 31, kind="special")),
        case("Identity", integers("int32", 3, 5)),
        case("Identity", integers("int8", 3, 5)),
        case("Dropout", f32(37, 11)),
        case("Dropout", f32(37, 11), value(0.75)),
        case("Dropout", f32(37, 11), value(0.75), value(False, "bool")),
        case("Dropout", f32(37, 11), opset=10, ratio=0.3),
        case("Dropout", f32(37, 11), opset=7, ratio=0.3),
        *case("Identity", f32(5, 7)).on(*SMALL_DEVICES),
    ]


CASES = [*concat(), *transpose(), *aliases()]
