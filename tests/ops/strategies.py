# SPDX-License-Identifier: Apache-2.0
"""Random operator cases: shapes and attributes per family, as Hypothesis strategies."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from onedispatch.operators.declarations.functions import ACTIVATIONS
from tests.ops.case import OPSET, Case, Input, Tolerance, case, f32, integers, value, weight

DEVICES = st.sampled_from(["npu2", "npu2", "npu1", "npu2_1col", "npu2_3col", "npu1_2col"])
SMALL = st.integers(1, 12)
SIDE = st.one_of(st.integers(1, 9), st.integers(1, 70), st.sampled_from([127, 128, 257]))
LONG = st.one_of(SIDE, st.sampled_from([1009, 4096, 4099]))


def shapes(rank: int = 6, most: int = 6000, empty: bool = True) -> st.SearchStrategy[tuple[int, ...]]:
    """Shapes of up to ``rank`` dimensions and ``most`` elements; now and then an empty one."""
    side = st.one_of(st.integers(1, 7), LONG)
    drawn = st.lists(side, max_size=rank).map(tuple).filter(lambda s: np.prod(s) <= most)
    if not empty:
        return drawn
    return st.one_of(drawn, drawn, drawn, drawn.map(lambda s: (*s[:2], 0, *s[3:])[: max(len(s), 1)]))


def sums_of(terms: int) -> Tolerance:
    """For results that may all be what is left of cancelled sums of so many normal products.

    Partial sums grow like sqrt(n) and each of n roundings is 3e-8 of one: 3e-8 * n, five times.
    """
    return Tolerance(scale=2.5e-6, absolute=2.5e-6 + 1.5e-7 * terms)


def _input(shape: tuple[int, ...], const: bool) -> Input:
    return weight(*shape) if const else f32(*shape)


@st.composite
def matmul(draw: st.DrawFn) -> Case:
    m, k, n = draw(SIDE), draw(LONG), draw(SIDE)
    batch = draw(st.lists(st.integers(1, 3), max_size=3))
    lead_a = [draw(st.sampled_from([1, b])) for b in batch][draw(st.integers(0, 2)) :]
    lead_b = [draw(st.sampled_from([1, b])) for b in batch][draw(st.integers(0, 3)) :]
    a, b = (*lead_a, m, k), (*lead_b, k, n)
    assume(np.prod(a) <= 40000 and np.prod(b) <= 40000 and m * n * k * np.prod(batch) < 4e6)
    inputs = f32(*a), _input(b, draw(st.booleans()))
    return case("MatMul", *inputs, tolerance=sums_of(k), device=draw(DEVICES))


@st.composite
def gemm(draw: st.DrawFn) -> Case:
    m, k, n = draw(SIDE), draw(SIDE), draw(SIDE)
    ta, tb = draw(st.booleans()), draw(st.booleans())
    a, b = ((k, m) if ta else (m, k)), ((n, k) if tb else (k, n))
    c = draw(st.sampled_from([None, (), (n,), (1, n), (m, 1), (m, n)]))
    factors = {key: draw(st.sampled_from([1.0, 0.5, -1.5])) for key in ("alpha", "beta")}
    inputs = [f32(*a), _input(b, draw(st.booleans()))]
    inputs += [] if c is None else [_input(c, draw(st.booleans()))]
    transposed = {"transA": int(ta), "transB": int(tb)}
    return case("Gemm", *inputs, tolerance=sums_of(k), device=draw(DEVICES), **transposed, **factors)


@st.composite
def matmul_integer(draw: st.DrawFn) -> Case:
    m, k, n = draw(SIDE), draw(LONG), draw(SIDE)
    assume(k * n <= 100000)
    kinds = draw(st.sampled_from([("int8", "int8"), ("uint8", "int8"), ("uint8", "uint8")]))
    lead = tuple(draw(st.lists(st.integers(1, 3), max_size=1)))
    const = draw(st.booleans())
    zeros: list[Input | None] = [
        value(draw(st.integers(0, 100)), kind) if draw(st.booleans()) else None for kind in kinds
    ]
    a, b = integers(kinds[0], *lead, m, k), integers(kinds[1], k, n, const=const)
    return case("MatMulInteger", a, b, *zeros, device=draw(DEVICES))


@st.composite
def _window(draw: st.DrawFn, size: tuple[int, ...]) -> dict[str, Any]:
    """Attributes of a window that fits ``size`` at least once."""
    kernel = [draw(st.integers(1, 5)) for _ in size]
    strides = [draw(st.integers(1, 4)) for _ in size]
    dilations = [draw(st.sampled_from([1, 1, 2, 3])) for _ in size]
    pads = [draw(st.integers(0, k - 1)) for k in kernel * 2]
    rank = len(size)
    for d in range(rank):
        # every window has a tap inside: what the maximum of none is, ONNX does not say
        assume(dilations[d] == 1 or pads[d] + pads[d + rank] == 0 or size[d] > kernel[d] * dilations[d])
        assume(size[d] + pads[d] + pads[d + rank] >= (kernel[d] - 1) * dilations[d] + 1)
    return {"kernel_shape": kernel, "strides": strides, "dilations": dilations, "pads": pads}


@st.composite
def conv(draw: st.DrawFn) -> Case:
    size = tuple(draw(st.lists(st.integers(1, 40), min_size=1, max_size=2)))
    attributes = draw(_window(size))
    group = draw(st.sampled_from([1, 1, 1, 2, 3, 5]))
    inside, outside = draw(SMALL), draw(st.sampled_from([1, 1, 2, 7]))
    if draw(st.booleans()):
        inside, group = 1, draw(st.integers(2, 20))  # depthwise
    n, c, m = draw(st.sampled_from([1, 2, 3])), inside * group, outside * group
    made, made_bias = draw(st.sampled_from([weight, weight, f32])), draw(st.sampled_from([weight, f32]))
    bias = [made_bias(m)] if draw(st.booleans()) else []
    weights = made(m, inside, *attributes["kernel_shape"])
    allowed = sums_of(inside * int(np.prod(attributes["kernel_shape"])))
    inputs = f32(n, c, *size), weights, *bias
    return case("Conv", *inputs, tolerance=allowed, group=group, device=draw(DEVICES), **attributes)


@st.composite
def pool(draw: st.DrawFn) -> Case:
    size = tuple(draw(st.lists(st.integers(1, 40), min_size=1, max_size=2)))
    attributes = draw(_window(size))
    op = draw(st.sampled_from(["MaxPool", "AveragePool"]))
    if op == "AveragePool":
        attributes["count_include_pad"] = draw(st.integers(0, 1))
    shape = (draw(st.integers(1, 3)), draw(st.integers(1, 20)), *size)
    return case(op, f32(*shape), device=draw(DEVICES), **attributes)


@st.composite
def binary(draw: st.DrawFn) -> Case:
    shape = draw(shapes())
    op = draw(st.sampled_from(["Add", "Sub", "Mul", "Div", "Sum"]))

    def narrowed() -> tuple[int, ...]:
        own = tuple(draw(st.sampled_from([n, n, 1])) if n != 0 else n for n in shape)
        return own[draw(st.integers(0, len(own))) :]

    kinds = ("special", "special") if draw(st.integers(0, 3)) == 0 else ("normal", "positive")
    inputs = [f32(*narrowed(), kind=kinds[0]), f32(*narrowed(), kind=kinds[1])]
    return case(op, *inputs, device=draw(DEVICES))


@st.composite
def unary(draw: st.DrawFn) -> Case:
    op = draw(st.sampled_from([*ACTIVATIONS.by_onnx, "Identity"]))
    kind = draw(st.sampled_from(["wide", "positive", "special"]))
    opset = 24 if op == "Swish" else OPSET
    return case(op, f32(*draw(shapes()), kind=kind), device=draw(DEVICES), opset=opset)


@st.composite
def powers(draw: st.DrawFn) -> Case:
    """Pow and PRelu: a second operand that broadcasts to the first, constant or computed."""
    shape = draw(shapes())
    own = tuple(draw(st.sampled_from([n, n, 1])) if n != 0 else n for n in shape)
    own = own[draw(st.integers(0, len(own))) :]
    second = _input(own, draw(st.booleans()))
    if draw(st.booleans()):
        return case("PRelu", f32(*shape, kind=draw(st.sampled_from(["wide", "special"]))), second)
    if draw(st.booleans()):
        second = value(draw(st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.0, -1.0, 1.7, -2.5])))
    kind = draw(st.sampled_from(["positive", "special"]))
    return case("Pow", f32(*shape, kind=kind), second, device=draw(DEVICES), tolerance=Tolerance(ulp=2))


@st.composite
def rows(draw: st.DrawFn) -> Case:
    shape = draw(shapes(4, empty=False).filter(lambda s: len(s) > 0))
    return case(
        "Softmax", f32(*shape), axis=draw(st.integers(-len(shape), len(shape) - 1)), device=draw(DEVICES)
    )


@st.composite
def channels(draw: st.DrawFn) -> Case:
    """BatchNormalization, LRN, GlobalAveragePool of [N, C, ...]."""
    inner = draw(st.lists(st.integers(1, 20), min_size=1, max_size=2))
    n, c = draw(st.integers(1, 5)), draw(st.one_of(st.integers(1, 9), SIDE))
    op = draw(st.sampled_from(["BatchNormalization", "LRN", "GlobalAveragePool"]))
    if op == "LRN":
        size = draw(st.sampled_from([1, 3, 5, 9]))
        image = f32(n, c, inner[0], inner[-1])
        return case("LRN", image, size=size, alpha=draw(st.sampled_from([1e-4, 0.3])), device=draw(DEVICES))
    x = f32(n, c, *inner, kind="positive")
    if op == "GlobalAveragePool":
        return case(op, x, device=draw(DEVICES))
    const = draw(st.booleans())
    make = weight if const else f32
    kinds = ("normal", "normal", "normal", "positive")
    return case(op, x, *(make(c, kind=kind) for kind in kinds), device=draw(DEVICES))


@st.composite
def movement(draw: st.DrawFn) -> Case:
    shape = draw(shapes(5, 3000).filter(lambda s: len(s) > 0))
    if draw(st.booleans()):
        return case(
            "Transpose", f32(*shape), perm=draw(st.permutations(range(len(shape)))), device=draw(DEVICES)
        )
    axis = draw(st.integers(0, len(shape) - 1))
    parts = draw(st.lists(st.integers(1, 6), min_size=1, max_size=5))
    inputs = [f32(*shape[:axis], n, *shape[axis + 1 :]) for n in parts]
    return case("Concat", *inputs, axis=axis, device=draw(DEVICES))


# Element types whose answers onnxruntime gives; rows of the narrow ones rarely end with a word.
NUMBERS = st.sampled_from(["int8", "uint8", "int16", "uint16", "int32", "uint32", "float16"])
MOVABLE = st.one_of(NUMBERS, st.sampled_from(["bool", "int64", "float64"]))
ODD = st.one_of(st.integers(1, 9), st.sampled_from([15, 17, 31, 33, 63, 67, 131, 257, 1009]))


def odd_shapes(most: int = 4000) -> st.SearchStrategy[tuple[int, ...]]:
    sides = st.lists(ODD, min_size=1, max_size=5)
    return sides.map(tuple).filter(lambda s: np.prod(s) <= most)


@st.composite
def typed_elements(draw: st.DrawFn) -> Case:
    """Arithmetic in every element type. Nothing is divided: onnxruntime stops the process for some."""
    shape, dtype = draw(odd_shapes()), draw(NUMBERS)
    op = draw(st.sampled_from(["Add", "Sub", "Mul"] if dtype.endswith("t16") else _ORDERED))

    def narrowed() -> Input:
        own = tuple(draw(st.sampled_from([n, n, 1])) for n in shape)
        return Input(own[draw(st.integers(0, len(own))) :], dtype, "integer")

    if op in ("Abs", "Neg"):
        return case(op, Input(shape, "int8" if op == "Neg" else dtype, "integer"), device=draw(DEVICES))
    if op == "Clip":
        bounds = [value(n, dtype, const=draw(st.booleans())) for n in (3, 90)]
        return case(op, Input(shape, dtype, "integer"), *bounds, device=draw(DEVICES))
    return case(op, narrowed(), narrowed(), device=draw(DEVICES))


_ORDERED = ["Add", "Sub", "Mul", "Max", "Min", "Abs", "Neg", "Clip"]


@st.composite
def typed_movement(draw: st.DrawFn) -> Case:
    """Rows that begin, end and are cut inside words."""
    shape, dtype = draw(odd_shapes()), draw(MOVABLE)
    op = draw(st.sampled_from(["Transpose", "Concat", "Concat", "Reshape"]))
    if op == "Transpose":
        perm = draw(st.permutations(range(len(shape))))
        return case(op, Input(shape, dtype, "integer"), perm=perm, device=draw(DEVICES))
    if op == "Reshape":
        wanted = draw(st.permutations(shape)) if draw(st.booleans()) else [shape[0], -1]
        return case(op, Input(shape, dtype, "integer"), value(list(wanted), "int64"), device=draw(DEVICES))
    axis = draw(st.integers(0, len(shape) - 1))
    parts = draw(st.lists(st.integers(1, 9), min_size=1, max_size=5))
    const = draw(st.booleans())
    inputs = [
        Input((*shape[:axis], n, *shape[axis + 1 :]), dtype, "integer", const and i == 0)
        for i, n in enumerate(parts)
    ]
    return case(op, *inputs, axis=axis, device=draw(DEVICES))


FAMILIES: dict[str, st.SearchStrategy[Case]] = {
    "matmul": matmul(),
    "gemm": gemm(),
    "matmul_integer": matmul_integer(),
    "conv": conv(),
    "pool": pool(),
    "binary": binary(),
    "unary": unary(),
    "powers": powers(),
    "rows": rows(),
    "channels": channels(),
    "movement": movement(),
    "typed_elements": typed_elements(),
    "typed_movement": typed_movement(),
}
