# SPDX-License-Identifier: Apache-2.0
"""Cases of the operators that place updates by indices, and of TopK."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.ops.case import Case, Input, Tolerance, case, f32, integers, value
from tests.ops.cases_gather import SMALL_DEVICES, WIDTHS, indices, tuples
from tests.ops.strategies import DEVICES

CHAIN = Tolerance(ulp=1)  # onnxruntime may contract a product with what follows


def distinct(extent: int, *shape: int, axis: int = 0, const: bool = False) -> Input:
    """Indices without repetition along ``axis``."""
    random = np.random.default_rng(extent + sum(shape))
    lines = random.permuted(
        np.broadcast_to(np.arange(extent), (*shape[:axis], *shape[axis + 1 :], extent)), axis=-1
    )
    at = np.moveaxis(lines[..., : shape[axis]], -1, axis)
    return value((at - extent * (at % 2)).tolist(), "int64", const)


def elements() -> list[Case]:
    def of(x: Input, at: Input, axis: int, **more: Any) -> Case:
        given = Input(at.shape, x.dtype, x.kind)
        return case("ScatterElements", x, at, given, axis=axis, **more)

    return [
        of(f32(5, 7), distinct(7, 5, 3, axis=1), 1),
        of(f32(5, 7), distinct(5, 3, 6), 0),
        of(f32(2, 6, 5), distinct(6, 2, 4, 5, axis=1), -2),
        of(f32(5, 4, 3, 6), distinct(4, 3, 4, 2, 5, axis=1), 1),
        of(f32(7, 9), indices(7, 12, 9), 0),  # several for one element: the last one stays
        *(
            of(f32(4, 6), indices(6, 4, 9), 1, reduction=how, tolerance=CHAIN)
            for how in ("add", "mul", "max", "min")
        ),
        of(integers("int32", 5, 3), indices(5, 8, 3), 0, reduction="add"),
        of(Input((3, 5, 3), "int8", "small"), indices(5, 2, 7, 2), 1),
        of(Input((4, 7), "float16"), indices(7, 4, 5), 1),
        of(Input((4, 7), "int64"), distinct(4, 3, 5), 0),
        *of(f32(33, 40), indices(40, 30, 20), 1, reduction="max").on("npu1", "npu2_1col"),
    ]


def nd() -> list[Case]:
    def of(x: Input, at: Input, **more: Any) -> Case:
        shape = (*at.shape[:-1], *x.shape[at.shape[-1] :])
        return case("ScatterND", x, at, Input(shape, x.dtype, x.kind), **more)

    return [
        of(f32(8, 5), value([[4], [3], [1], [-1]], "int64", False)),
        of(f32(4, 5, 6), value([[[0, 1], [3, -2]], [[2, 2], [1, 0]]], "int64")),
        of(f32(9), value([[4], [3], [1], [8]], "int64", False)),
        *(
            of(f32(6, 5), tuples((6,), 9), reduction=how, tolerance=CHAIN)
            for how in ("add", "mul", "max", "min")
        ),
        of(integers("int32", 4, 5), tuples((4, 5), 11), reduction="add"),
        of(Input((4, 3), "float16"), value([[0, 2], [3, 1]], "int64", False)),
        of(
            Input((4, 3), "int8", "small"),
            value([[[0, 2], [1, 1], [2, 0]], [[3, 0], [3, 1], [3, 2]]], "int64", False),
        ),
        of(Input((4, 3), "int64"), value([[2], [0]], "int64", False)),
        of(f32(4, 3), Input((2, 0), "int64"), reduction="max"),  # tuples of nothing: all of it, each time
        *of(f32(60, 33), tuples((60,), 20), reduction="max").on(*SMALL_DEVICES),
    ]


def box(begin: tuple[int, ...], extents: tuple[int, ...]) -> Input:
    """Tuples of indices that count through a box, as exporters write what is put into a slice."""
    at = np.indices(extents).reshape(len(extents), -1).T + np.array(begin)
    return value(at.reshape(*extents, len(extents)).tolist(), "int64")


def slices() -> list[Case]:
    def of(x: Input, at: Input) -> Case:
        shape = (*at.shape[:-1], *x.shape[at.shape[-1] :])
        return case("ScatterND", x, at, Input(shape, x.dtype, x.kind))

    return [
        of(f32(2, 3, 5), box((0, 0, 0), (2, 3, 5))),  # all of it
        of(Input((3, 5), "int8", "small"), box((0,), (3,))),
        of(f32(1, 3, 23, 21), box((0, 0, 1, 1), (1, 3, 22, 20))),  # all but a class token's
        of(Input((4, 30, 41), "int8", "small"), box((0, 0, 1), (4, 30, 40))),
        of(Input((4, 30, 41), "float16"), box((1, 0, 0), (2, 30, 41))),
        of(Input((40, 30), "int64"), box((2, 1), (38, 28))),
        of(f32(700, 4, 3), box((100,), (600,))),
        of(f32(60, 60), box((5, 4), (50, 52))),
        of(f32(9, 9), box((2, 3), (4, 5))),  # too few for copies of what is beside them
    ]


def rounded() -> Case:
    """Sums of half precision: every update rounds, and onnxruntime has none of them."""
    random = np.random.default_rng(5)
    x, at = random.standard_normal((4, 5)).astype(np.float16), random.integers(-4, 4, (12, 5))
    updates, result = random.standard_normal((12, 5)).astype(np.float16), x.copy()
    for k, j in np.ndindex(at.shape):
        result[at[k, j], j] += updates[k, j]
    inputs = value(x.tolist(), "float16", False), value(at.tolist(), "int64", False)
    given = value(updates.tolist(), "float16", False)
    return case("ScatterElements", *inputs, given, axis=0, reduction="add", answer=result)


def others() -> list[Case]:
    """A cache with updates, which onnxruntime lacks; and what ScatterElements was called before."""
    x, updates = (np.arange(n, dtype=np.float32) + 1 for n in (24, 12))
    cache, new = x.reshape(2, 4, 3), -updates.reshape(2, 2, 3)
    begins = {"linear": [2, 1], "circular": [3, 1]}
    wanted = {mode: cache.copy() for mode in begins}
    for mode, first in begins.items():
        for b, k in np.ndindex(2, 2):
            wanted[mode][b, (first[b] + k) % 4] = new[b, k]
    tensors = value(cache.tolist(), "float32", False), value(new.tolist(), "float32", False)
    return [
        *(
            case(
                "TensorScatter",
                *tensors,
                value(first, "int64", const),
                mode=mode,
                opset=24,
                answer=wanted[mode],
            )
            for mode, first in begins.items()
            for const in (True, False)
        ),
        case("Scatter", f32(5, 7), distinct(7, 5, 3, axis=1), f32(5, 3), axis=1, opset=9),
        case("Scatter", f32(5, 7), distinct(5, 3, 7), f32(3, 7), opset=9),
        case("Scatter", f32(2, 5, 3), distinct(5, 2, 4, 2, axis=1), f32(2, 4, 2), axis=1, opset=9),
    ]


def one_hot() -> list[Case]:
    def of(at: Input, depth: int, values: Input, kind: str = "int64", **more: Any) -> Case:
        return case("OneHot", at, value(depth, kind), values, **more)

    pair = value([2.0, 5.0])
    return [
        of(value([1, 7, -2, 0, 12, -30], "int64", False), 9, pair),
        of(value([2.0**32, -1.0, 2.0, -(2.0**32)], const=False), 4, pair, "float32"),  # int32 would wrap
        of(indices(5, 3, 4), 5, f32(2), axis=1),
        of(indices(5, 3, 3, dtype="int32"), 5, pair, "int32", axis=0),
        of(indices(3, 4, 5), 3, value([2, 7], "int64", False), axis=-2),
        of(value([[1.0, -1.0], [3.0, 2.0]], "float32", False), 6, pair, "float32"),
        *of(indices(70, 40), 70, pair).on("npu1", "npu2_1col"),
    ]


def top_k() -> list[Case]:
    def of(x: Input, k: int, **more: Any) -> Case:
        return case("TopK", x, value([k], "int64"), outputs=2, **more)

    return [
        of(f32(3, 9), 4),
        of(f32(3, 9), 4, largest=0),
        of(f32(4, 7, 5), 3, axis=1),
        of(f32(7, 33), 7, axis=0, largest=0),
        of(f32(5, 5000), 20),
        of(f32(2, 30), 30),
        of(Input((6, 40), "int32", "small"), 25),  # many equals: in their order
        of(integers("int32", 3, 11), 2, largest=0),
        of(f32(3, 20, kind="infinite"), 9),
        *of(f32(33, 50), 6).on(*SMALL_DEVICES),
    ]


@st.composite
def scattered(draw: st.DrawFn) -> Case:
    shape = tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=4)))
    axis = draw(st.integers(0, len(shape) - 1))
    at = tuple(draw(st.integers(1, 12 if d == axis else n)) for d, n in enumerate(shape))
    how = draw(st.sampled_from(["none", "add", "max"]))
    dtype = draw(st.sampled_from(WIDTHS if how == "none" else ["float32", "int32"]))
    x, updates = Input(shape, dtype, "small"), Input(at, dtype, "small")
    found = indices(shape[axis], *at, const=draw(st.booleans()))
    return case("ScatterElements", x, found, updates, axis=axis, reduction=how, device=draw(DEVICES))


@st.composite
def best(draw: st.DrawFn) -> Case:
    shape = tuple(draw(st.lists(st.one_of(st.integers(1, 9), st.integers(1, 300)), min_size=1, max_size=3)))
    axis = draw(st.integers(0, len(shape) - 1))
    k = value([draw(st.integers(1, shape[axis]))], "int64")
    x = Input(shape, draw(st.sampled_from(["float32", "int32"])), "small")
    return case("TopK", x, k, axis=axis, largest=draw(st.integers(0, 1)), device=draw(DEVICES), outputs=2)


CASES = [*elements(), rounded(), *nd(), *slices(), *others(), *one_hot(), *top_k()]
FAMILIES = {"scatter": scattered(), "top_k": best()}
