# SPDX-License-Identifier: Apache-2.0
"""Cases of what takes, repeats and pads parts of tensors: Slice, Split, Pad, Tile, space and depth."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from tests.ops.case import Case, Input, case, f32, integers, value
from tests.ops.strategies import DEVICES, MOVABLE, odd_shapes


def numbers(*given: int, const: bool = True) -> Input:
    """A list of int64: bounds, sizes, axes."""
    return value(list(given), "int64", const)


def slices() -> list[Case]:
    least = int(np.iinfo(np.int64).min)
    return [
        case("Slice", f32(5, 70, 9), numbers(1, 3), numbers(4, 60), note="two"),
        case("Slice", f32(5, 70, 9), numbers(-60, 0), numbers(1000, -2), numbers(1, -1), note="beyond"),
        case("Slice", f32(5, 70, 9), numbers(2), numbers(66), numbers(1), numbers(3), note="step"),
        case("Slice", f32(4, 7, 9), numbers(-1, 5), numbers(least, 0), numbers(2, 1), numbers(-2, -1)),
        case("Slice", f32(2, 3, 4, 5, 2, 3), numbers(1, 1), numbers(4, 3), numbers(3, 5), note="inner"),
        case("Slice", f32(5, 7), numbers(4), numbers(2), numbers(0), note="empty"),
        case("Slice", f32(37, 3, kind="special"), numbers(0, 0), numbers(99, 99), note="whole"),
        case("Slice", f32(5, 7), opset=9, starts=[1, -3], ends=[9, -1], axes=[0, 1]),
        case("Slice", integers("int8", 7, 31), numbers(1, 2), numbers(6, 30), numbers(0, 1), numbers(2, 3)),
        case("Slice", Input((3, 5, 7), "bool"), numbers(1), numbers(4), numbers(2)),
        case("Slice", integers("int64", 9, 5), numbers(7), numbers(0), numbers(0), numbers(-3)),
        case("Slice", f32(5, 70, 9), value([60], "int32"), value([3], "int32"), value([1], "int32"),
             value([-19], "int32"), device="npu1_2col"),
    ]  # fmt: skip


def splits() -> list[Case]:
    return [
        case("Split", f32(6, 35), axis=0, num_outputs=3, outputs=3),
        case("Split", f32(4, 3, 64), axis=-1, num_outputs=3, outputs=3, note="smaller-last"),
        case("Split", f32(4, 10, 3), numbers(1, 0, 7, 2), axis=1, outputs=4),
        case("Split", f32(4, 9), numbers(9), axis=1, outputs=1),
        case("Split", f32(4, 9), opset=11, split=[2, 7], axis=1, outputs=2),
        case("Split", f32(4, 9), opset=12, axis=1, outputs=3),
        case("Split", integers("int8", 5, 11), numbers(3, 8), axis=1, outputs=2),
        case("Split", Input((2, 9, 3), "float16"), numbers(4, 5), axis=1, outputs=2, device="npu2_1col"),
        case("Split", integers("int64", 5, 4), axis=1, num_outputs=2, outputs=2),
    ]  # fmt: skip


def pads() -> list[Case]:
    return [
        case("Pad", f32(1, 3, 15, 13), numbers(0, 0, 1, 1, 0, 0, 2, 1)),
        case("Pad", f32(5, 7), numbers(1, -2, 3, 4), value(2.5), note="crops"),
        case("Pad", f32(5, 7), numbers(4, -3, -8, 3), value(-1.5), note="all-but-nothing"),
        case("Pad", f32(5, 7), numbers(1, 2, 3, 4), value(2.5, const=False), note="computed"),
        case("Pad", f32(5, 7), numbers(2, 3), value(1.0), numbers(-1), note="axes"),
        case("Pad", f32(2, 5, 7), numbers(0, 4, 3, 0, 2, 6), mode="reflect"),
        case("Pad", f32(5, 40), numbers(0, 37, 0, 38), mode="reflect", note="far"),
        case("Pad", f32(2, 400, 700), numbers(0, 2, 0, 1, 3, 4), mode="reflect"),  # around a large one
        case("Pad", f32(2, 5, 7), numbers(1, 2, 0, 0, 9, 2), mode="edge"),
        case("Pad", f32(2, 5, 7), numbers(1, 12, 0, -1, 9, 3), mode="wrap"),
        case("Pad", f32(5, 7), opset=10, pads=[1, 0, 2, 3], value=1.5),
        case("Pad", integers("int8", 5, 7), numbers(1, 2, 0, 3), value(7, "int8")),
        case("Pad", integers("int8", 5, 7), numbers(1, 2, 0, 3), value([7], "int8", False), note="list"),
        case("Pad", integers("uint8", 5, 7), numbers(0, 2, 1, 3), mode="reflect"),
        case("Pad", integers("int64", 5, 7), numbers(1, 2, 0, -3), value(1 << 40, "int64"), device="npu1"),
    ]  # fmt: skip


def crops() -> list[Case]:
    return [
        case("CenterCropPad", f32(20, 7, 3), numbers(10, 10, 3)),
        case("CenterCropPad", f32(20, 7, 3), numbers(9, 6), axes=[-3, 1]),
        case("CenterCropPad", Input((5, 7), "float16"), numbers(8), axes=[1]),
    ]  # fmt: skip


def blocks() -> list[Case]:
    cases = [
        case("DepthToSpace", f32(2, 12, 5, 7), blocksize=2),
        case("DepthToSpace", f32(2, 12, 5, 7), blocksize=2, mode="CRD"),
        case("DepthToSpace", f32(1, 48, 16, 16), blocksize=4, mode="CRD"),
        case("DepthToSpace", integers("uint8", 1, 9, 3, 5), blocksize=3),
        case("DepthToSpace", f32(1, 8, 4, 1), blocksize=2, opset=10),
        case("SpaceToDepth", f32(2, 3, 6, 10), blocksize=2),
        case("SpaceToDepth", f32(1, 3, 64, 64), blocksize=4, device="npu2_1col"),
        case("SpaceToDepth", f32(1, 3, 5, 7), blocksize=1),
    ]
    return cases


def tiles() -> list[Case]:
    return [
        case("Tile", f32(5, 7, 2), numbers(2, 3, 2)),
        case("Tile", f32(37, 11), numbers(1, 1)),
        case("Tile", f32(1, 64), numbers(49, 1), note="broadcast"),
        case("Tile", f32(5, 7), numbers(2, 0), note="empty"),
        case("Tile", f32(), value([], "int64")),
        case("Tile", f32(2, 3, 2, 3), numbers(2, 3, 2, 3)),
        case("Tile", f32(3, 5), numbers(4, 2), opset=6, device="npu1"),
        case("Tile", integers("int8", 5, 7), numbers(3, 2)),
        case("Tile", integers("int8", 5, 8), numbers(3, 2)),
        case("Tile", Input((3, 5), "bool"), numbers(2, 1)),
        case("Tile", integers("int64", 3, 5), numbers(2, 3)),
    ]


def triangles() -> list[Case]:
    return [
        case("Trilu", f32(5, 7)),
        case("Trilu", f32(3, 37, 64, kind="special"), value(-2, "int64"), upper=0, note="-2"),
        case("Trilu", f32(2, 3, 5, 5), value(1, "int64"), note="1"),
        case("Trilu", f32(4, 4), value(99, "int64"), upper=0, note="all"),
        case("Trilu", integers("int64", 7, 5), value(-1, "int64"), upper=1, note="-1"),
        case("Trilu", Input((5, 9), "bool"), upper=0, device="npu2_1col"),
    ]


CASES = [*slices(), *splits(), *pads(), *crops(), *blocks(), *tiles(), *triangles()]


@st.composite
def slice_case(draw: st.DrawFn) -> Case:
    shape, dtype = draw(odd_shapes(1500)), draw(MOVABLE)
    axes = draw(st.lists(st.integers(0, len(shape) - 1), min_size=1, max_size=3, unique=True))
    columns: list[list[int]] = [[], [], [], []]
    for axis in axes:
        n = shape[axis]
        step = draw(st.sampled_from([1, 1, 1, 2, 3, 7, -1, -2]))
        if step < 0:
            assume(n <= 300)
        bound = st.one_of(st.integers(-n - 2, n + 2), st.sampled_from([-(1 << 62), 1 << 62]))
        for column, number in zip(
            columns,
            (draw(bound), draw(bound), draw(st.sampled_from([axis, axis - len(shape)])), step),
            strict=True,
        ):
            column.append(number)
    return case(
        "Slice", Input(shape, dtype, "integer"), *(numbers(*c) for c in columns), device=draw(DEVICES)
    )


@st.composite
def pad_case(draw: st.DrawFn) -> Case:
    shape = draw(odd_shapes(1000))
    dtype = draw(
        st.sampled_from(["float32", "int8", "uint8", "int32", "int64", "float64", "float16", "bool"])
    )
    mode = draw(st.sampled_from(["constant", "reflect", "edge", "wrap"]))
    given: list[list[int]] = [[], []]
    for n in shape:
        most = n - 1 if mode == "reflect" else 9
        before, after = (draw(st.integers(0, min(most, 9))) for _ in range(2))
        if mode == "constant" and n > 3 and draw(st.booleans()):
            before = -draw(st.integers(0, 2))
        for side, pad in zip(given, (before, after), strict=True):
            side.append(pad)
    assume(np.prod([n + a + b for n, a, b in zip(shape, *given, strict=True)]) <= 6000)
    inputs: list[Any] = [Input(shape, dtype, "integer"), numbers(*given[0], *given[1])]
    if mode == "constant" and draw(st.booleans()):
        inputs.append(value(1, dtype, const=draw(st.booleans())))
    return case("Pad", *inputs, mode=mode, device=draw(DEVICES))


@st.composite
def tile_case(draw: st.DrawFn) -> Case:
    shape, dtype = draw(odd_shapes(400).filter(lambda s: len(s) < 5)), draw(MOVABLE)
    repeats = [draw(st.integers(1, 3)) for _ in shape]
    return case("Tile", Input(shape, dtype, "integer"), numbers(*repeats), device=draw(DEVICES))


@st.composite
def split_case(draw: st.DrawFn) -> Case:
    shape, dtype = draw(odd_shapes(1500)), draw(MOVABLE)
    axis = draw(st.integers(0, len(shape) - 1))
    cuts = sorted(draw(st.lists(st.integers(0, shape[axis]), max_size=3)))
    sizes = np.diff([0, *cuts, shape[axis]]).tolist()
    x = Input(shape, dtype, "integer")
    return case("Split", x, numbers(*sizes), axis=axis, outputs=len(sizes), device=draw(DEVICES))


FAMILIES: dict[str, st.SearchStrategy[Case]] = {
    "boxes": st.one_of(slice_case(), slice_case(), pad_case(), split_case(), tile_case())
}
