# SPDX-License-Identifier: Apache-2.0
"""Cases of MatMul, Gemm, MatMulInteger and QLinearMatMul."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tests.ops.case import EXACT, Case, case, f32, integers, value, weight

SMALL_DEVICES = ("npu1", "npu2_1col", "npu1_2col")


def matmul() -> list[Case]:
    cases = [
        case("MatMul", f32(m, k), b(k, n))
        for m, k, n in [
            (1, 1, 1), (1, 7, 1), (2, 3, 4), (37, 1, 5), (1, 64, 10), (37, 64, 10), (5, 131, 3),
            (64, 64, 64), (97, 101, 103), (256, 33, 1), (1, 33, 257), (3, 1009, 2), (130, 600, 70),
            (127, 127, 127),
        ]
        for b in (weight, f32)
    ]  # fmt: skip
    cases += [
        case("MatMul", f32(1, 2048), weight(2048, 1000)),
        case("MatMul", f32(1, 5000), f32(5000, 3)),
        case("MatMul", f32(1031, 17), weight(17, 3)),
        # ranks: vectors, batches, broadcast batches
        case("MatMul", f32(7), f32(7)),
        case("MatMul", f32(7), weight(7, 5)),
        case("MatMul", f32(7), f32(7, 5)),
        case("MatMul", f32(3, 7), f32(7)),
        case("MatMul", f32(3, 7), weight(7)),
        case("MatMul", f32(2, 3, 7), f32(7)),
        case("MatMul", f32(7), f32(2, 7, 3)),
        case("MatMul", f32(4, 5, 6), weight(6, 7)),
        case("MatMul", f32(4, 5, 6), f32(6, 7)),
        case("MatMul", f32(4, 5, 6), f32(4, 6, 7)),
        case("MatMul", f32(1, 5, 6), f32(4, 6, 7)),
        case("MatMul", f32(5, 6), f32(4, 6, 7)),
        case("MatMul", f32(3, 1, 5, 6), f32(2, 6, 7)),
        case("MatMul", f32(2, 3, 4, 5, 6), f32(2, 3, 4, 6, 7)),
        case("MatMul", f32(2, 1, 2, 1, 3, 4), f32(1, 3, 1, 2, 4, 5)),
        case("MatMul", f32(2, 1, 3, 4), weight(1, 3, 4, 5)),
        # weights on the left, both computed from one tensor's shape
        case("MatMul", weight(9, 11), f32(11, 13)),
        case("MatMul", weight(9, 11), f32(2, 11, 13)),
        # empty tensors, empty reduction
        case("MatMul", f32(0, 4), f32(4, 3)),
        case("MatMul", f32(3, 4), f32(4, 0)),
        case("MatMul", f32(3, 0), f32(0, 4)),
        case("MatMul", f32(2, 3, 0), f32(2, 0, 4)),
        case("MatMul", f32(0, 3, 4), f32(0, 4, 5)),
        # NaN and infinities reach the rows and columns that they should
        case("MatMul", f32(6, 5, kind="nonfinite"), f32(5, 4)),
        case("MatMul", f32(6, 5, kind="nonfinite"), weight(5, 4)),
        case("MatMul", f32(37, 64), weight(64, 10), opset=9),
        case("MatMul", f32(37, 64), weight(64, 10), opset=1),
    ]
    for one in (case("MatMul", f32(37, 61), weight(61, 29)), case("MatMul", f32(3, 5, 6), f32(3, 6, 7))):
        cases += one.on(*SMALL_DEVICES)
    return cases


def whole_factors() -> list[Case]:
    """Integers times whole numbers, which onnxruntime has no Gemm for."""
    a, b, c = np.arange(-7, 8).reshape(3, 5), np.arange(10).reshape(5, 2) % 4, np.array([5, -9])
    given = [value(x, "int32", const=False) for x in (a, b, c)]
    products = (a @ b).astype(np.int32)
    return [
        case("Gemm", *given, alpha=3.0, beta=-2.0, answer=3 * products - 2 * c.astype(np.int32)),
        case("Gemm", *given[:2], alpha=-1.0, answer=-products),
    ]


def gemm() -> list[Case]:
    cases = []
    for ta in (0, 1):
        for tb in (0, 1):
            a, b = (13, 37) if ta else (37, 13), (11, 13) if tb else (13, 11)
            cases += [
                case("Gemm", f32(*a), weight(*b), weight(11), transA=ta, transB=tb),
                case("Gemm", f32(*a), f32(*b), f32(11), transA=ta, transB=tb),
            ]
    for c in [(), (1,), (11,), (1, 11), (37, 1), (37, 11), (1, 1)]:
        cases += [
            case("Gemm", f32(37, 13), weight(13, 11), weight(*c)),
            case("Gemm", f32(37, 13), weight(13, 11), f32(*c), alpha=0.5, beta=-2.0),
        ]
    cases += [
        case("Gemm", f32(1, 1), weight(1, 1), weight(1)),
        case("Gemm", f32(5, 13), weight(13, 11)),
        case("Gemm", f32(5, 13), weight(13, 11), None, alpha=0.25),
        case("Gemm", f32(5, 13), weight(13, 11), weight(11), beta=0.0),
        case("Gemm", f32(5, 13), weight(13, 11), weight(11), alpha=1.5, beta=0.25),
        case("Gemm", f32(37, 512), weight(10, 512), weight(10), transB=1),
        case("Gemm", f32(1, 4096), weight(127, 4096), weight(127), transB=1),
        case("Gemm", f32(211, 199), weight(199, 197), weight(197)),
        case("Gemm", f32(3, 5), weight(5, 2), weight(2), opset=9),
        *whole_factors(),
        case("Gemm", f32(3, 5), weight(5, 2), weight(2), opset=7),
        case("Gemm", f32(0, 5), weight(5, 2), weight(2)),
        case("Gemm", f32(3, 0), f32(0, 2), f32(2)),
        case("Gemm", f32(3, 0), weight(0, 2), weight(2)),
        case("Gemm", f32(3, 5), f32(5, 0), f32(1)),
        case("Gemm", f32(6, 5, kind="nonfinite"), weight(5, 4), weight(4)),
    ]
    cases += case("Gemm", f32(37, 61), weight(29, 61), weight(29), transB=1).on(*SMALL_DEVICES)
    return cases


def matmul_integer() -> list[Case]:
    cases = [
        case("MatMulInteger", integers(a, m, k), integers(b, k, n, const=const))
        for a, b in [("int8", "int8"), ("uint8", "int8"), ("uint8", "uint8"), ("int8", "uint8")]
        for m, k, n in [(1, 1, 1), (3, 5, 7), (37, 64, 10)]
        for const in (True, False)
        if not (a == "int8" and b == "uint8")  # onnxruntime has no kernel for it
    ]
    a8, b8 = integers("uint8", 37, 61), integers("int8", 61, 29, const=True)
    zero_a, zero_b = value(131, "uint8"), value(-7, "int8")
    cases += [
        case("MatMulInteger", a8, b8, zero_a, note="zero-a"),
        case("MatMulInteger", a8, b8, zero_a, zero_b, note="zero-both"),
        case("MatMulInteger", a8, b8, None, zero_b, note="zero-b"),
        case("MatMulInteger", a8, integers("int8", 61, 29), value(3, "uint8", const=False), zero_b),
        case("MatMulInteger", a8, b8, zero_a, integers("int8", 29, const=True), note="per-column"),
        case("MatMulInteger", a8, integers("int8", 61, 29), zero_a, integers("int8", 29), note="per-column"),
        case("MatMulInteger", integers("uint8", 3, 5, 9), integers("int8", 9, 6, const=True), zero_a),
        case("MatMulInteger", integers("uint8", 3, 5, 9), integers("int8", 3, 9, 6), zero_a),
        case(
            "MatMulInteger",
            integers("uint8", 3, 5, 9),
            integers("int8", 9, 6, const=True),
            zero_a,
            integers("int8", 6, const=True),
            note="per-column",
        ),
        case("MatMulInteger", integers("uint8", 2, 1, 5, 12), integers("int8", 3, 12, 6)),
        case("MatMulInteger", integers("uint8", 1, 3001), integers("int8", 3001, 2, const=True), zero_a),
        case("MatMulInteger", integers("int8", 128, 256), integers("int8", 256, 96, const=True)),
        case("MatMulInteger", integers("int8", 67, 257), integers("int8", 257, 131, const=True)),
        case("MatMulInteger", integers("int8", 0, 4), integers("int8", 4, 3)),
        # onnxruntime leaves the output of an empty reduction as it finds it
        case(
            "MatMulInteger", integers("int8", 3, 0), integers("int8", 0, 4), answer=np.zeros((3, 4), np.int32)
        ),
    ]
    cases += case("MatMulInteger", a8, b8, zero_a, note="zero-a").on(*SMALL_DEVICES)
    assert all(c.allowed == EXACT for c in cases)
    return cases


def qlinear(
    types: tuple[str, str, str],
    sizes: tuple[int, int, int],
    scales: tuple[float, float | list[float], float],
    zeros: tuple[int, int | list[int], int],
    *,
    const: bool = True,
    lead: tuple[int, ...] = (),
) -> Case:
    """A QLinearMatMul of [*lead, M, K] and [K, N]."""
    (a, b, y), (m, k, n) = types, sizes
    return case(
        "QLinearMatMul",
        *(integers(a, *lead, m, k), value(scales[0]), value(zeros[0], a)),
        *(integers(b, k, n, const=const), value(scales[1]), value(zeros[1], b)),
        *(value(scales[2]), value(zeros[2], y)),
        note=f"{scales[2]:g}",
    )


def qlinear_matmul() -> list[Case]:
    byte, signed, mixed = ("uint8", "uint8", "uint8"), ("int8", "int8", "int8"), ("uint8", "int8", "uint8")
    cases = [
        qlinear(types, sizes, (0.02, 0.01, scale), zeros, const=const)
        for types, zeros in [(byte, (128, 113, 121)), (signed, (3, -7, -5)), (mixed, (7, 0, 0))]
        for sizes, scale in [
            ((1, 1, 1), 0.1),
            ((5, 7, 10), 0.25),
            ((37, 64, 29), 0.6),
            ((3, 301, 33), 0.0001),
        ]
        for const in (True, False)
    ]
    per_column = [0.004 * (i + 1) for i in range(13)]
    cases += [
        qlinear(mixed, (9, 31, 13), (0.02, per_column, 0.5), (7, [0] * 13, 3)),
        qlinear(byte, (9, 31, 13), (0.02, 0.01, 0.5), (7, 9, 3), const=False, lead=(2, 3)),
        qlinear(signed, (70, 1500, 40), (0.02, 0.01, 0.6), (0, 0, 0)),
    ]
    columns = [100 + i for i in range(13)]
    cases += [
        qlinear(byte, (9, 31, 13), (0.02, per_column, 0.5), (7, columns, 3), lead=(2, 3), const=const)
        for const in (True, False)
    ]
    computed = qlinear(signed, (9, 31, 13), (0.02, 0.01, 0.3), (3, 2, 7))
    inputs = [replace(x, const=False) if x else x for x in computed.inputs]
    cases.append(replace(computed, inputs=tuple(inputs), note="computed"))
    cases += qlinear(byte, (37, 61, 29), (0.02, 0.01, 0.5), (128, 100, 7)).on(*SMALL_DEVICES)
    assert all(c.allowed == EXACT for c in cases)
    return cases


CASES = [*matmul(), *gemm(), *matmul_integer(), *qlinear_matmul()]
