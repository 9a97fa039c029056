# SPDX-License-Identifier: Apache-2.0
"""Cases of ConvTranspose and Col2Im, and of convolutions and pools over three dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from tests.ops.case import SUMS, Case, Input, Tolerance, case, f32, value, weight
from tests.ops.strategies import DEVICES, sums_of

SMALL_DEVICES = ("npu1", "npu2_1col")
AVERAGES = Tolerance(scale=2e-6)


def volumes() -> list[Case]:
    def one(x: tuple[int, ...], w: tuple[int, ...], bias: bool = True, **attributes: Any) -> Case:
        return case("Conv", f32(*x), weight(*w), *([weight(w[0])] if bias else []), **attributes)

    pads = [1, 1, 1, 1, 1, 1]
    mixed = {"strides": [2, 1, 2], "dilations": [1, 2, 1], "pads": [1, 0, 1, 0, 2, 1]}
    return [
        *one((1, 3, 5, 6, 7), (4, 3, 3, 3, 3), pads=pads).on("npu2", *SMALL_DEVICES),
        one((2, 4, 5, 6, 7), (4, 2, 2, 3, 3), group=2, **mixed),  # images, frames and groups
        one((1, 4, 9, 6, 7), (6, 4, 2, 1, 2), bias=False, dilations=[5, 1, 1], pads=[9, 0, 0, 0, 0, 1]),
        one((2, 4, 5, 6, 7), (4, 1, 3, 3, 3), group=4, pads=pads),
        one((2, 4, 5, 6, 7), (4, 1, 1, 3, 3), group=4, strides=[2, 1, 1], pads=[0, 1, 1, 0, 1, 1]),
        one((2, 4, 5, 6, 7), (6, 4, 1, 3, 3), pads=[0, 1, 1, 0, 1, 1], strides=[3, 1, 1]),
        # dimensions that are one: the last two, the first two, all
        one((2, 4, 5, 6, 7), (6, 4, 3, 1, 1), pads=[1, 0, 0, 1, 0, 0], strides=[2, 1, 1]),
        one((2, 4, 5, 6, 7), (6, 4, 1, 1, 3), pads=[0, 0, 1, 0, 0, 1]),
        one((2, 4, 5, 6, 7), (6, 4, 1, 1, 1)),
        one((1, 3, 5, 6, 7), (4, 3, 3, 3, 3), auto_pad="SAME_LOWER", strides=[2, 2, 1]),
        case("Conv", f32(1, 3, 4, 5, 6), f32(4, 3, 2, 3, 3), f32(4), pads=pads),
        case("Conv", f32(1, 3, 0, 5, 6), weight(4, 3, 1, 1, 1), weight(4), pads=[1, 0, 0, 1, 0, 0]),
    ]


def small_planes() -> list[Case]:
    """Windows some of whose taps meet padding alone, which are left out."""

    def one(x: tuple[int, ...], w: tuple[int, ...], **attributes: Any) -> Case:
        return case("Conv", f32(*x), weight(*w), weight(w[0]), **attributes)

    infinite = np.ones((4, 3, 3, 3), np.float32)
    infinite[0, 0, 0, 0] = np.inf  # times the zeros around the data it is no number
    return [
        *one((1, 6, 5, 4), (8, 6, 3, 3), dilations=[6, 6], pads=[6, 6, 6, 6]).on("npu2", *SMALL_DEVICES),
        one((1, 6, 1, 1), (8, 6, 3, 3), pads=[1, 1, 1, 1], strides=[2, 2]),
        one((2, 6, 2, 3), (6, 1, 5, 5), group=6, pads=[2, 2, 2, 2]),
        one((1, 4, 3), (5, 4, 7), pads=[6, 3]),
        one((1, 3, 1, 4, 2), (4, 3, 3, 3, 3), pads=[1, 1, 1, 1, 1, 1]),
        one((1, 3, 7, 2), (4, 3, 3, 2), dilations=[1, 3], pads=[0, 3, 1, 1]),
        case("Conv", f32(1, 3, 1, 1), value(infinite), pads=[1, 1, 1, 1]),
    ]


def pools() -> list[Case]:
    box: dict[str, Any] = {"kernel_shape": [3, 2, 2], "strides": [2, 1, 2], "pads": [1, 0, 1, 1, 1, 0]}
    flat: dict[str, Any] = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 0, 1]}
    lp = ("LpPool", f32(2, 3, 9, 7))
    image = f32(1, 2, 5, 6, 7)
    return [
        *(case(op, image, tolerance=AVERAGES, **box) for op in ("MaxPool", "AveragePool", "LpPool")),
        *(case(op, image, tolerance=AVERAGES, ceil_mode=1, **box) for op in ("MaxPool", "AveragePool")),
        case("AveragePool", image, tolerance=AVERAGES, count_include_pad=1, ceil_mode=1, **box),
        case("MaxPool", f32(2, 1, 9, 8, 7), kernel_shape=[2, 3, 2], dilations=[3, 1, 2]),
        case("MaxPool", Input((1, 2, 4, 5, 7), "int8", "integer"), kernel_shape=[2, 2, 3]),
        *(case(*lp, tolerance=AVERAGES, p=p, **flat) for p in (1, 2, 3)),
        *case(*lp, tolerance=AVERAGES, **flat).on(*SMALL_DEVICES),
        case("LpPool", f32(2, 3, 31), tolerance=AVERAGES, kernel_shape=[4], auto_pad="SAME_UPPER"),
        case("LpPool", f32(2, 3, 9, 7), tolerance=AVERAGES, kernel_shape=[3, 2], dilations=[2, 3], opset=18),
        *(case("GlobalLpPool", f32(2, 3, 9, 7), tolerance=AVERAGES, p=p) for p in (1, 2, 3)),
        case("GlobalLpPool", f32(3, 2, 3, 4, 5), tolerance=AVERAGES),
        case("GlobalMaxPool", f32(3, 2, 3, 4, 5)),
        *case("GlobalLpPool", f32(2, 17, 31), tolerance=AVERAGES).on(*SMALL_DEVICES),
    ]


def positions() -> list[Case]:
    """MaxPool and where its values lie; the first of equal ones counts."""
    window: dict[str, Any] = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
    ties = value(np.arange(60).reshape(1, 2, 5, 6) // 4 % 3, const=False)
    column = {"storage_order": 1}
    return [
        *case("MaxPool", f32(2, 3, 9, 11), outputs=2, **window).on("npu2", *SMALL_DEVICES),
        case("MaxPool", f32(2, 3, 9, 11), outputs=2, **column, **window),
        case("MaxPool", ties, outputs=2, kernel_shape=[2, 3]),
        case(
            "MaxPool", f32(1, 3, 31, kind="infinite"), outputs=2, kernel_shape=[4], strides=[3], pads=[2, 1]
        ),
        case("MaxPool", f32(1, 2, 9, 9), outputs=2, kernel_shape=[2, 2], dilations=[3, 2], ceil_mode=1),
        case("MaxPool", Input((1, 3, 6, 7), "int8", "integer"), outputs=2, **window),
    ]


def unpooled() -> list[Case]:
    """Values at places within what was pooled, each another one's. Of those with ``output_shape`` inference
    does not know the shape; onnx's own node test has one."""

    def one(shape: tuple[int, ...], whole: int, *sizes: Input, **attributes: Any) -> Case:
        places = np.random.default_rng(3).permutation(whole)[: int(np.prod(shape))].reshape(shape)
        return case("MaxUnpool", f32(*shape), value(places, "int64", const=False), *sizes, **attributes)

    half: dict[str, Any] = {"kernel_shape": [2, 2], "strides": [2, 2]}
    return [
        *one((2, 3, 4, 5), 2 * 3 * 8 * 10, **half).on("npu2", *SMALL_DEVICES),
        *one((1, 1, 128, 128), 256 * 256, **half).on("npu1_1col"),  # two tiles for a core
        one((1, 2, 7), 42, kernel_shape=[3], strides=[3]),
        one((1, 2, 3, 3), 50, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
    ]


def lonely(*shape: int) -> Input:
    """Small numbers, one infinity and one NaN."""
    data = np.arange(np.prod(shape), dtype=np.float32) % 7
    data[1], data[data.size // 2] = np.inf, np.nan
    return value(data.reshape(shape), const=False)


def transposed() -> list[Case]:
    def one(x: tuple[int, ...], w: tuple[int, ...], *bias: Input, **attributes: Any) -> Case:
        return case("ConvTranspose", f32(*x), weight(*w), *bias, tolerance=SUMS, **attributes)

    half, same = {"strides": [2, 2]}, [1, 1, 1, 1]
    return [
        one((1, 3, 4, 5), (3, 2, 3, 3)),  # a plain convolution
        one((1, 3, 4, 5), (3, 2, 2, 2), weight(2), **half),  # all phases at once
        *one((2, 4, 4, 5), (4, 3, 3, 3), weight(6), group=2, pads=same, output_padding=[1, 1], **half).on(
            "npu2", *SMALL_DEVICES
        ),  # phase by phase
        one((1, 4, 4, 5), (4, 3, 4, 3), weight(3), strides=[3, 2], pads=[1, 0, 2, 1], dilations=[2, 1]),
        one((1, 4, 4, 5), (4, 3, 3, 3), dilations=[2, 2], output_padding=[1, 0], **half),  # phases of no tap
        one((1, 4, 9), (4, 3, 8), weight(3), strides=[4], pads=[2, 2]),
        one((1, 4, 4, 5), (4, 3, 4, 4), weight(3), pads=same, **half),  # outputs cut off on both sides
        one((2, 4, 6, 5), (4, 1, 3, 3), weight(4), group=4, pads=same, **half),
        one((1, 3, 4, 5), (3, 2, 3, 3), output_shape=[10, 8], **half),
        one((1, 3, 4, 5), (3, 2, 3, 3), auto_pad="SAME_LOWER", **half),
        one((1, 4, 3, 4, 5), (4, 2, 3, 3, 3), weight(4), group=2, strides=[2, 1, 2], pads=[1] * 6),
        # What is cut off, and where: VALID says nothing of it beside an output_shape.
        *(
            one((1, 3, 4, 5), (3, 2, 3, 3), output_shape=shape, auto_pad=mode, **half)
            for mode in ("VALID", "SAME_UPPER", "SAME_LOWER")
            for shape in ([8, 10], [7, 8], [10, 12])
        ),
        # Infinities and NaN are in the outputs that they are taps of, in no others.
        *(
            case("ConvTranspose", lonely(1, 3, 4, 5), w(3, 2, *kernel), tolerance=SUMS, strides=[s, s])
            for w in (weight, f32)
            for kernel, s in (((3, 3), 2), ((2, 2), 3), ((4, 4), 2), ((1, 2), 2))
        ),
        # onnxruntime refuses to run it.
        case(
            "ConvTranspose",
            f32(5, 4, 0),
            f32(4, 3, 1),
            answer=np.zeros((5, 3, 0), np.float32),
            auto_pad="SAME_UPPER",
        ),
        case("ConvTranspose", lonely(1, 3, 9), weight(3, 2, 2), tolerance=SUMS, strides=[3]),
        case("ConvTranspose", f32(1, 3, 3, 4), f32(3, 2, 3, 3), f32(2), tolerance=SUMS, **half),
        case("ConvTranspose", f32(1, 2, 2, 3, 2), f32(2, 2, 3, 2, 1), tolerance=SUMS, strides=[2, 1, 3]),
    ]


def columns() -> list[Case]:
    def one(x: tuple[int, ...], image: list[int], block: list[int], **attributes: Any) -> Case:
        sizes = value(image, "int64"), value(block, "int64")
        return case("Col2Im", f32(*x), *sizes, tolerance=SUMS, **attributes)

    return [
        one((1, 5, 5), [5, 5], [1, 5]),
        *one((2, 27, 25), [5, 5], [3, 3], pads=[1, 1, 1, 1]).on("npu2", *SMALL_DEVICES),
        one((2, 12, 9), [6, 6], [2, 2], strides=[2, 2]),
        one((1, 10, 12), [3, 4, 5], [1, 1, 5]),
        one((2, 8, 16), [9, 5], [2, 2], dilations=[2, 3], strides=[3, 1], pads=[1, 1, 2, 1]),
        one((1, 6, 7), [15], [3], strides=[2]),
        case("Col2Im", lonely(2, 27, 25), value([5, 5], "int64"), value([3, 3], "int64"), pads=[1] * 4),
        case("Col2Im", lonely(1, 12, 4), value([6, 5], "int64"), value([2, 2], "int64"), strides=[3, 3]),
    ]


CASES = [*volumes(), *small_planes(), *pools(), *positions(), *unpooled(), *transposed(), *columns()]


@st.composite
def volume(draw: st.DrawFn) -> Case:
    """Convolutions and pools over three dimensions."""
    size = [draw(st.integers(1, 7)) for _ in range(3)]
    kernel = [draw(st.integers(1, 3)) for _ in size]
    dilations = [draw(st.sampled_from([1, 1, 2])) for _ in size]
    pads = [draw(st.integers(0, k - 1)) for k in kernel * 2]
    for d in range(3):
        assume(size[d] + pads[d] + pads[d + 3] > (kernel[d] - 1) * dilations[d])
        assume(dilations[d] == 1 or pads[d] + pads[d + 3] == 0)
    window = {"pads": pads, "dilations": dilations, "strides": [draw(st.integers(1, 3)) for _ in size]}
    n, inside, group, device = (draw(st.sampled_from(s)) for s in ([1, 2], [1, 3], [1, 2], ["npu2", "npu1"]))
    x = f32(n, inside * group, *size)
    op = draw(st.sampled_from(["Conv", "Conv", "MaxPool", "AveragePool"]))
    if op != "Conv":
        return case(op, x, tolerance=AVERAGES, kernel_shape=kernel, device=device, **window)
    weights = draw(st.sampled_from([weight, f32]))(group * draw(st.integers(1, 3)), inside, *kernel)
    allowed = sums_of(inside * int(np.prod(kernel)))
    return case(op, x, weights, tolerance=allowed, group=group, device=device, **window)


@st.composite
def transposed_convolution(draw: st.DrawFn) -> Case:
    size = [draw(st.integers(1, 9)) for _ in range(draw(st.sampled_from([1, 2, 2, 3])))]
    kernel = [draw(st.integers(1, 4)) for _ in size]
    strides, dilations = ([draw(st.integers(1, most)) for _ in size] for most in (4, 2))
    further = [draw(st.integers(0, s - 1)) for s in strides]
    pads = [draw(st.integers(0, 1)) for _ in size * 2]
    rank = len(size)
    for d in range(rank):
        reach = (size[d] - 1) * strides[d] + (kernel[d] - 1) * dilations[d] + 1 + further[d]
        assume(reach > pads[d] + pads[d + rank])
    group, inside = draw(st.sampled_from([1, 1, 2])), draw(st.integers(1, 3))
    x = f32(draw(st.integers(1, 2)), group * inside, *size)
    weights = draw(st.sampled_from([weight, weight, f32]))(group * inside, draw(st.integers(1, 3)), *kernel)
    steps = {"strides": strides, "dilations": dilations, "pads": pads, "output_padding": further}
    bias = [draw(st.sampled_from([weight, f32]))(weights.shape[1] * group)] if draw(st.booleans()) else []
    allowed = sums_of(inside * int(np.prod(kernel)))
    return case(
        "ConvTranspose", x, weights, *bias, tolerance=allowed, group=group, device=draw(DEVICES), **steps
    )


FAMILIES: dict[str, st.SearchStrategy[Case]] = {
    "volume": volume(),
    "transposed_convolution": transposed_convolution(),
}
