# SPDX-License-Identifier: Apache-2.0
"""Cases of Conv, MaxPool, AveragePool, GlobalAveragePool, BatchNormalization and LRN."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.ops.case import Case, Tolerance, case, f32, value, weight

SMALL_DEVICES = ("npu1", "npu2_1col", "npu1_2col")


def conv() -> list[Case]:
    def one(x: tuple[int, ...], w: tuple[int, ...], bias: bool = True, **attributes: Any) -> Case:
        extra = [weight(w[0])] if bias else []
        return case("Conv", f32(*x), weight(*w), *extra, **attributes)

    cases = [
        one((1, 1, 1, 1), (1, 1, 1, 1)),
        one((1, 3, 8, 8), (4, 3, 1, 1)),
        one((37, 1, 8, 8), (8, 1, 3, 3), pads=[1, 1, 1, 1]),
        one((1, 3, 11, 13), (5, 3, 3, 3)),
        one((2, 3, 11, 13), (5, 3, 3, 3), bias=False),
        one((1, 3, 11, 13), (5, 3, 5, 1), pads=[2, 0, 2, 0]),
        one((1, 3, 11, 13), (5, 3, 1, 5), pads=[0, 2, 0, 2]),
        one((1, 3, 11, 13), (5, 3, 3, 3), pads=[0, 1, 2, 3]),
        one((1, 3, 11, 13), (5, 3, 3, 3), pads=[3, 2, 1, 0], strides=[2, 3]),
        one((1, 3, 5, 5), (5, 3, 3, 3), pads=[3, 3, 3, 3]),
        one((1, 3, 2, 2), (2, 3, 5, 5), pads=[2, 2, 2, 2]),
        one((1, 4, 17, 19), (6, 4, 3, 3), strides=[2, 2]),
        one((1, 4, 17, 19), (6, 4, 2, 2), strides=[3, 4]),
        one((1, 4, 17, 19), (6, 4, 1, 1), strides=[2, 2]),
        one((1, 4, 17, 19), (6, 4, 3, 3), dilations=[2, 3], pads=[2, 3, 2, 3]),
        one((1, 4, 17, 19), (6, 4, 3, 3), dilations=[4, 1], strides=[2, 1]),
        one((1, 3, 224, 31), (8, 3, 7, 7), strides=[2, 2], pads=[3, 3, 3, 3]),
        one((1, 64, 14, 14), (96, 64, 3, 3), pads=[1, 1, 1, 1]),
        one((3, 131, 7, 7), (67, 131, 1, 1)),
        one((1, 512, 7, 7), (128, 512, 3, 3), pads=[1, 1, 1, 1]),
        one((1, 1, 97, 101), (1, 1, 11, 11)),
        # groups, depthwise, depthwise with a multiplier
        one((1, 6, 9, 9), (4, 3, 3, 3), group=2),
        one((2, 12, 9, 9), (8, 3, 3, 3), group=4, pads=[1, 1, 1, 1]),
        one((1, 9, 9, 9), (9, 1, 3, 3), group=9, pads=[1, 1, 1, 1]),
        one((37, 5, 7, 7), (5, 1, 3, 3), group=5, strides=[2, 2]),
        one((1, 7, 9, 9), (14, 1, 3, 3), group=7),
        one((1, 96, 14, 14), (96, 1, 5, 5), group=96, pads=[2, 2, 2, 2]),
        one((1, 7, 13, 15), (7, 1, 3, 5), group=7, dilations=[2, 1], pads=[2, 2, 2, 2], bias=False),
        # one dimension
        one((1, 3, 31), (5, 3, 3)),
        one((37, 3, 31), (5, 3, 4), strides=[3], pads=[1, 2]),
        one((2, 6, 1000), (6, 1, 7), group=6, dilations=[2], pads=[6, 6]),
        one((1, 4, 4099), (2, 4, 3), pads=[1, 1]),
        # automatic padding
        one((1, 2, 10, 11), (3, 2, 3, 4), auto_pad="SAME_UPPER"),
        one((1, 2, 10, 11), (3, 2, 3, 4), auto_pad="SAME_LOWER"),
        one((1, 2, 10, 11), (3, 2, 3, 4), auto_pad="SAME_UPPER", strides=[2, 3]),
        one((1, 2, 10, 11), (3, 2, 3, 4), auto_pad="SAME_LOWER", strides=[3, 2]),
        one((1, 2, 10, 11), (3, 2, 3, 4), auto_pad="VALID", strides=[2, 2]),
        one((1, 3, 31), (5, 3, 4), auto_pad="SAME_UPPER"),
        # empty, and special values at the border
        one((0, 3, 8, 8), (4, 3, 3, 3)),
        case("Conv", f32(1, 2, 9, 9, kind="nonfinite"), weight(3, 2, 3, 3), pads=[1, 1, 1, 1]),
        case("Conv", f32(1, 4, 9, 9, kind="nonfinite"), weight(4, 1, 3, 3), group=4),
        one((1, 3, 9, 9), (4, 3, 3, 3), opset=1, kernel_shape=[3, 3]),
        one((1, 3, 9, 9), (4, 3, 3, 3), opset=11, pads=[1, 1, 1, 1]),
    ]
    cases += one((3, 5, 13, 17), (7, 5, 3, 3), pads=[1, 1, 1, 1]).on(*SMALL_DEVICES)
    cases += one((2, 9, 9, 9), (9, 1, 3, 3), group=9, pads=[1, 1, 1, 1]).on(*SMALL_DEVICES)
    return cases


def convolutions_of_nothing() -> list[Case]:
    """The bias, or zeros; onnxruntime does not come back from the second."""
    zeros = np.zeros((2, 3, 4, 4), np.float32)
    return [
        case("Conv", f32(2, 3, 3, 0), weight(5, 3, 1, 1), weight(5), pads=[1, 1, 1, 1]),
        case("Conv", f32(2, 0, 4, 4), weight(3, 0, 1, 1), answer=zeros),
    ]


def pools() -> list[Case]:
    shared: list[tuple[tuple[int, ...], dict[str, Any]]] = [
        ((1, 1, 2, 2), {"kernel_shape": [2, 2]}),
        ((1, 1, 1, 1), {"kernel_shape": [1, 1]}),
        ((37, 3, 8, 8), {"kernel_shape": [2, 2], "strides": [2, 2]}),
        ((1, 5, 13, 17), {"kernel_shape": [3, 3]}),
        ((1, 5, 13, 17), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
        ((1, 5, 13, 17), {"kernel_shape": [5, 2], "strides": [1, 3], "pads": [0, 1, 2, 0]}),
        ((1, 5, 13, 17), {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
        ((1, 5, 7, 7), {"kernel_shape": [1280, 9], "strides": [1280, 4], "ceil_mode": 1}),
        ((1, 5, 14, 17), {"kernel_shape": [3, 3], "strides": [3, 2], "pads": [1, 1, 0, 0], "ceil_mode": 1}),
        ((1, 5, 13, 17), {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_UPPER"}),
        ((1, 5, 13, 17), {"kernel_shape": [2, 4], "strides": [2, 3], "auto_pad": "SAME_LOWER"}),
        ((1, 5, 13, 17), {"kernel_shape": [2, 2], "auto_pad": "VALID"}),
        ((1, 5, 13, 17), {"kernel_shape": [3, 2], "dilations": [2, 3]}),
        ((1, 64, 56, 56), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
        ((1, 2, 101, 103), {"kernel_shape": [13, 13]}),
        ((1, 3, 7, 7), {"kernel_shape": [7, 7]}),
        ((1, 3, 31), {"kernel_shape": [3], "strides": [2], "pads": [1, 1]}),
        ((2, 3, 4099), {"kernel_shape": [4]}),
        ((0, 3, 8, 8), {"kernel_shape": [2, 2]}),
    ]
    cases = []
    for shape, attributes in shared:
        cases += [case(op, f32(*shape), **attributes) for op in ("MaxPool", "AveragePool")]
        if attributes.keys() & {"pads", "ceil_mode"} or "SAME" in attributes.get("auto_pad", ""):
            cases.append(case("AveragePool", f32(*shape), count_include_pad=1, **attributes))
    window: dict[str, Any] = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
    cases += [
        # Which of a window's values stands beside a NaN depends on onnxruntime's vector width, so NaN
        # goes through windows of one, and through dilated ones, which it has plain loops for; infinities
        # through all.
        case(
            "MaxPool", f32(2, 3, 9, 11, kind="nan"), kernel_shape=[2, 3], dilations=[2, 1], pads=[1, 1, 1, 1]
        ),
        case("MaxPool", f32(2, 3, 31, kind="nan"), kernel_shape=[4], dilations=[3], pads=[2, 3], strides=[2]),
        case("MaxPool", f32(1, 2, 17, 19, kind="nan"), kernel_shape=[3, 2], dilations=[1, 2], strides=[2, 3]),
        case("MaxPool", f32(1, 3, 9, 9, kind="special"), kernel_shape=[1, 1], strides=[2, 1]),
        case("MaxPool", f32(2, 3, 19, 9, kind="infinite"), **window),
        case("AveragePool", f32(1, 3, 9, 9, kind="nonfinite"), **window),
        case("MaxPool", f32(1, 3, 9, 9), opset=8, **window),
        case("MaxPool", f32(1, 3, 9, 9), opset=1, **window),
        case("AveragePool", f32(1, 3, 9, 9), opset=7, **window),
    ]
    for op in ("MaxPool", "AveragePool"):
        cases += case(op, f32(3, 5, 13, 17), **window).on(*SMALL_DEVICES)
    for shape in [(1, 1, 1, 1), (1, 3, 7, 7), (37, 5, 3, 3), (2, 1000, 13, 11), (1, 2, 211, 223), (3, 4, 17),
                  (2, 3, 4, 5, 6), (0, 3, 4, 4), (1, 2, 300, 300)]:  # fmt: skip
        # Means of tens of thousands: positive, or the answer would be what is left of cancelled sums.
        long = Tolerance(scale=1.5e-6) if shape[-1] > 200 else None
        cases.append(case("GlobalAveragePool", f32(*shape, kind="positive"), tolerance=long))
    cases.append(case("GlobalAveragePool", f32(2, 3, 5, 5, kind="nonfinite")))
    cases += case("GlobalAveragePool", f32(3, 17, 5, 7)).on(*SMALL_DEVICES)
    return cases


def _last_channel_special() -> list[Any]:
    x = np.random.default_rng(5).standard_normal((1, 6, 5, 5)).astype(np.float32)
    x[:, -1].reshape(-1)[:5] = [np.nan, np.inf, -np.inf, -0.0, 1e-40]
    listed: list[Any] = x.tolist()
    return listed


def normalisations() -> list[Case]:
    def batch(shape: tuple[int, ...], const: bool, **attributes: Any) -> Case:
        sizes = shape[1:2] if attributes.get("spatial", 1) else shape[1:]
        make = weight if const else f32
        kinds = ("normal", "normal", "normal", "positive")
        return case("BatchNormalization", f32(*shape), *(make(*sizes, kind=k) for k in kinds), **attributes)

    cases = []
    for shape in [(1, 1, 1, 1), (37, 3, 5, 5), (2, 67, 7, 7), (1, 3, 101, 103), (5, 7), (3, 4, 9),
                  (2, 3, 2, 3, 2), (0, 3, 4, 4), (1, 1031, 1, 1)]:  # fmt: skip
        cases += [batch(shape, True), batch(shape, False)]
    cases += [
        batch((2, 3, 4, 4), True, epsilon=0.01),
        batch((2, 3, 4, 4), True, opset=9),
        batch((2, 3, 4, 4), True, opset=7),
        *(batch((2, 3, 4, 5), const, opset=8, spatial=0) for const in (True, False)),
        batch((3, 5), True, opset=8, spatial=0),
        batch((2, 3, 4, 4), False, opset=14, momentum=0.5),
        case(
            "BatchNormalization",
            f32(2, 3, 4, 4, kind="special"),
            *(value(v) for v in ([1.5, -2, 0.25], [0, 1, -1], [0.5, 0, 2], [1, 4, 0.5])),
        ),
    ]
    cases += batch((3, 5, 7, 9), True).on(*SMALL_DEVICES)
    for shape, size in [((1, 1, 1, 1), 1), ((1, 5, 7, 7), 3), ((37, 6, 5, 5), 5), ((1, 7, 9, 11), 7),
                        ((1, 64, 13, 13), 5), ((2, 97, 5, 3), 3), ((1, 3, 4, 4), 9), ((0, 3, 4, 4), 3),
                        ((1, 1000, 2, 2), 5)]:  # fmt: skip
        cases.append(case("LRN", f32(*shape), size=size))
    cases += [
        case("LRN", f32(1, 6, 5, 5), size=3, alpha=0.5, beta=0.5, bias=2.0),
        case("LRN", f32(1, 6, 5, 5), size=3, alpha=0.9, beta=1.25, bias=0.5),
        # onnxruntime keeps a running sum: after a NaN all later channels are NaN. Here none is later.
        case("LRN", value(_last_channel_special(), const=False), size=3, note="special"),
        case("LRN", f32(1, 6, 5, 5), size=3, opset=1),
    ]
    cases += case("LRN", f32(2, 11, 5, 7), size=5, alpha=0.1).on(*SMALL_DEVICES)
    return cases


def conv_with_computed_weights() -> list[Case]:
    """Weights or bias or both are inputs."""
    return [
        case("Conv", f32(1, 3, 11, 13), f32(5, 3, 3, 3), f32(5), pads=[1, 1, 1, 1]),
        case("Conv", f32(1, 3, 11, 13), f32(5, 3, 3, 3), weight(5), pads=[1, 0, 2, 1]),
        case("Conv", f32(1, 3, 11, 13), weight(5, 3, 3, 3), f32(5), strides=[2, 2]),
        case("Conv", f32(2, 12, 9, 9), f32(8, 3, 3, 3), group=4, pads=[1, 1, 1, 1]),
        case("Conv", f32(1, 9, 9, 9), f32(9, 1, 3, 3), f32(9), group=9, pads=[1, 1, 1, 1]),
        case("Conv", f32(1, 131, 7, 7), f32(67, 131, 3, 3), f32(67), pads=[1, 1, 1, 1]),
        case("Conv", f32(1, 64, 28, 28), f32(96, 64, 1, 1)),
    ]


CASES = [*conv(), *convolutions_of_nothing(), *conv_with_computed_weights(), *pools(), *normalisations()]
