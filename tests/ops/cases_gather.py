# SPDX-License-Identifier: Apache-2.0
"""Cases of the operators whose data decides addresses: Gather and its kin."""

from __future__ import annotations

import zlib

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from tests.ops.case import Case, Input, case, f32, integers, value, weight
from tests.ops.strategies import DEVICES

SMALL_DEVICES = ("npu1", "npu2_1col", "npu1_2col")
WIDTHS = ("float32", "float16", "int8", "uint16", "int32", "bool", "int64", "float64", "uint8", "int16")


def indices(extent: int, *shape: int, dtype: str = "int64", const: bool = False) -> Input:
    """Random indices along an axis, every second one counted from its end."""
    random = np.random.default_rng(zlib.crc32(f"{extent} {shape}".encode()))
    at = random.integers(-extent, extent, shape)
    return value(at.tolist() if at.size else np.zeros(shape), dtype, const)


def gather() -> list[Case]:
    table: list[tuple[tuple[int, ...], tuple[int, ...], int]] = [
        ((7, 5), (3,), 0), ((5, 9), (2, 3), 1), ((2, 3, 11), (), 1), ((3, 4, 5), (2, 1, 2), -2),
        ((9,), (), 0), ((6, 1000), (1,), 0),
    ]  # fmt: skip
    cases = [case("Gather", f32(*x), indices(x[axis], *at), axis=axis) for x, at, axis in table]
    cases += [
        case("Gather", Input((6, 3, 5), dtype, "small"), indices(5, 2, 3, dtype="int32"), axis=2)
        for dtype in ("float16", "uint8", "bool", "int64")
    ]
    cases += [
        case("Gather", integers("int8", 7, 3), indices(7, 4), axis=0),
        case("Gather", Input((5, 6, 3), "float16"), value(-3, "int64", False), axis=2),
        case("Gather", Input((9,), "float16"), value(4, "int64", False)),
        case("Gather", f32(4, 40000, kind="special"), indices(40000, 33), axis=1),  # no core holds the axis
        case("Gather", weight(3000, 96), indices(3000, 2, 64)),
        case("Gather", f32(9, 4), value([8, 0, 0, -1, 3], "int64")),
        case("Gather", f32(5, 9, 4), value([1, 3, 5], "int64"), axis=1),  # steps: a strided copy
        case("Gather", integers("int16", 5, 9), value([[8, 7], [6, -4]], "int64"), axis=1),
        case("Gather", f32(0, 3), indices(3, 2), axis=1),
        *case("Gather", f32(33, 70), indices(33, 9, 2)).on(*SMALL_DEVICES),
    ]
    return cases


def elements() -> list[Case]:
    table: list[tuple[tuple[int, ...], tuple[int, ...], int]] = [
        ((5, 7), (5, 3), 1), ((5, 7), (9, 7), 0), ((2, 6, 5), (2, 4, 5), -2), ((7, 3, 4, 5), (6, 2, 3, 3), 1),
    ]  # fmt: skip
    cases = [case("GatherElements", f32(*x), indices(x[axis], *at), axis=axis) for x, at, axis in table]
    cases += [
        case("GatherElements", Input(x, dtype, "small"), indices(x[axis], *at, dtype="int32"), axis=axis)
        for dtype, (x, at, axis) in zip(("float16", "int8", "int64", "bool"), table, strict=True)
    ]
    return [
        *cases,
        case("GatherElements", f32(4, 9000), indices(9000, 4, 50), axis=1),
        *case("GatherElements", f32(9, 33), indices(33, 8, 7, const=True), axis=1).on(*SMALL_DEVICES),
    ]


def tuples(bounds: tuple[int, ...], *shape: int, const: bool = False) -> Input:
    """Random tuples of indices, [..., len(bounds)]."""
    random = np.random.default_rng(zlib.crc32(f"{bounds} {shape}".encode()))
    at = np.stack([random.integers(-n, n, shape) for n in bounds], axis=-1)
    return value(at.tolist() if at.size else np.zeros(at.shape), "int64", const)


def nd() -> list[Case]:
    x, narrow = f32(4, 5, 6), Input((4, 5, 3), "float16")
    return [
        case("GatherND", x, tuples((4,), 3)),
        case("GatherND", x, tuples((4, 5), 2, 3)),
        case("GatherND", x, tuples((4, 5, 6), 7)),
        case("GatherND", x, tuples((5,), 4, 2), batch_dims=1),
        case("GatherND", x, tuples((6,), 4, 5), batch_dims=2),
        case("GatherND", Input((4, 5, 6), "int64"), tuples((5, 6), 4, 3), batch_dims=1),
        case("GatherND", narrow, tuples((4, 5, 3), 2, 5)),
        case("GatherND", narrow, Input((3, 0), "int64")),  # tuples of nothing: all of it, each time
        case("GatherND", narrow, tuples((4, 5), 3)),
        case("GatherND", Input((4, 5, 3), "int8"), tuples((3,), 4, 5), batch_dims=2),
        *case("GatherND", f32(30, 50, 7), tuples((30, 50), 61)).on("npu1", "npu2_1col"),
    ]


def reverse_sequence() -> list[Case]:
    def lengths(*given: int, const: bool = False) -> Input:
        return value(list(given), "int64", const)

    return [
        case("ReverseSequence", f32(4, 3, 5), lengths(4, 1, 3), time_axis=0, batch_axis=1),
        case("ReverseSequence", f32(3, 4, 5), lengths(4, 2, 3), time_axis=1, batch_axis=0),
        case("ReverseSequence", f32(5, 7), lengths(7, 1, 2, 3, 6), time_axis=1, batch_axis=0),
        case("ReverseSequence", f32(5, 3), lengths(5, 1, 2, const=True)),
        case("ReverseSequence", f32(3, 4, 1), lengths(4, 2, 3), time_axis=1, batch_axis=0),  # one word each
        case("ReverseSequence", Input((4, 3, 5), "float16"), lengths(4, 1, 3)),
        case("ReverseSequence", Input((4, 3), "int8"), lengths(4, 1, 3)),
        case("ReverseSequence", Input((4, 3, 2), "int64"), lengths(4, 1, 3)),
        *case("ReverseSequence", f32(20, 6, 33), lengths(20, 3, 7, 1, 19, 5)).on(*SMALL_DEVICES),
    ]


@st.composite
def gathered(draw: st.DrawFn) -> Case:
    shape = tuple(draw(st.lists(st.one_of(st.integers(1, 9), st.integers(1, 70)), min_size=1, max_size=4)))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    extent = draw(st.one_of(st.just(shape[axis]), st.sampled_from([1000, 4099])))
    at = tuple(draw(st.lists(st.integers(1, 9), max_size=3)))
    shape = tuple(extent if d == axis % len(shape) else size for d, size in enumerate(shape))
    assume(np.prod(shape) <= 60_000 and np.prod(shape) // extent * np.prod(at) <= 60_000)
    x = Input(shape, draw(st.sampled_from(WIDTHS)), "small")
    found = indices(extent, *at, dtype=draw(st.sampled_from(["int32", "int64"])), const=draw(st.booleans()))
    return case("Gather", x, found, axis=axis, device=draw(DEVICES))


@st.composite
def by_element(draw: st.DrawFn) -> Case:
    shape = tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=4)))
    axis = draw(st.integers(0, len(shape) - 1))
    at = tuple(draw(st.integers(1, 9 if d == axis else n)) for d, n in enumerate(shape))
    found = indices(shape[axis], *at, dtype=draw(st.sampled_from(["int32", "int64"])))
    x = Input(shape, draw(st.sampled_from(WIDTHS)), "small")
    return case("GatherElements", x, found, axis=axis, device=draw(DEVICES))


@st.composite
def by_tuple(draw: st.DrawFn) -> Case:
    shape = tuple(draw(st.lists(st.integers(1, 7), min_size=1, max_size=5)))
    batch = draw(st.integers(0, len(shape) - 1))
    deep = draw(st.integers(1, len(shape) - batch))
    least = 0 if batch else 1  # of one tuple alone onnx infers no shape
    at = tuple(draw(st.lists(st.integers(1, 5), min_size=least, max_size=2)))
    const = draw(st.booleans())
    found = tuples(shape[batch : batch + deep], *shape[:batch], *at, const=const)
    x = Input(shape, draw(st.sampled_from(WIDTHS)), "small")
    return case("GatherND", x, found, batch_dims=batch, device=draw(DEVICES))


CASES = [*gather(), *elements(), *nd(), *reverse_sequence()]
FAMILIES = {"gather": st.one_of(gathered(), by_element(), by_tuple())}
