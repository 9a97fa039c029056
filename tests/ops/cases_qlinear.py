# SPDX-License-Identifier: Apache-2.0
"""Cases of the operators that onnxruntime's quantiser writes: bit for bit as onnxruntime."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from onedispatch.operators.declarations.registry import MICROSOFT
from tests.ops.case import Case, Input, case, integers, value
from tests.ops.strategies import DEVICES, shapes

BYTES = ("int8", "uint8")
FLAT = [(5,), (), (2, 3, 7, 5), (0, 3)]


def every(dtype: str) -> Input:
    """All 256 numbers of a type."""
    return value(np.arange(256, dtype=np.uint8).view(dtype), dtype, const=False)


def zero(dtype: str, point: int) -> Input:
    """A zero point, counted from the middle of the type."""
    return value(point + (128 if dtype == "uint8" else 0), dtype)


def quantised(x: Input, scale: float, point: int) -> tuple[Input, Input, Input]:
    """An operand with its scale and its zero point."""
    return x, value(scale), zero(x.dtype, point)


def unary(op_type: str, x: Input, scales: tuple[float, int, float, int], **attributes: Any) -> Case:
    scale, point, made, placed = scales
    made_by = value(made), zero(x.dtype, placed)
    note = ",".join(f"{given:g}" for given in scales)
    return case(op_type, *quantised(x, scale, point), *made_by, domain=MICROSOFT, note=note, **attributes)


def tables() -> list[Case]:
    wide, narrow = (0.043, -17, 1 / 256, -128), (0.0019, 90, 0.0041, -3)
    return [
        *(unary("QLinearSigmoid", every(dtype), scales) for dtype in BYTES for scales in (wide, narrow)),
        *(
            unary("QLinearLeakyRelu", every(dtype), (0.043, -17, 0.039, -100), **alpha)
            for dtype in BYTES
            for alpha in ({}, {"alpha": 0.3})
        ),
        *(unary("QLinearSigmoid", integers("uint8", *shape), wide) for shape in FLAT),
        *unary("QLinearSigmoid", integers("int8", 37, 61), wide).on("npu1", "npu2_1col"),
        case(
            "QLinearLeakyRelu", integers("int8", 3, 7), value(0.1), None, value(0.2), None,
            domain=MICROSOFT, note="no zero points",
        ),
    ]  # fmt: skip


@st.composite
def random_unary(draw: st.DrawFn) -> Case:
    op_type, dtype = (
        draw(st.sampled_from(["QLinearSigmoid", "QLinearLeakyRelu"])),
        draw(st.sampled_from(BYTES)),
    )
    scales = (draw(SCALES), draw(POINTS), draw(SCALES), draw(POINTS))
    return replace(unary(op_type, integers(dtype, *draw(shapes(rank=5))), scales), device=draw(DEVICES))


def binary(op_type: str, a: Input, b: Input, scales: Sequence[float], points: Sequence[int]) -> Case:
    operands = (*quantised(a, scales[0], points[0]), *quantised(b, scales[1], points[1]))
    note = ",".join(f"{given:g}" for given in (*scales, *points))
    made = value(scales[2]), zero(a.dtype, points[2])
    result = Input(np.broadcast_shapes(a.shape, b.shape), a.dtype)
    return case(op_type, *operands, *made, domain=MICROSOFT, note=note, result=result)


def pairs() -> list[Case]:
    """All pairs of bytes with scales of few bits and of many; shapes that are broadcast either way."""
    rounds, usual = (0.03125, 0.0625, 0.125), (0.0123, 0.0391, 0.0457)
    broadcasts = [
        ((5,), (5,)),
        ((37, 61), (37, 61)),
        ((3, 1), (1, 7)),
        ((4, 3, 5), (3, 1)),
        ((1, 1), (1,)),
        ((), (7,)),
        ((6, 1), ()),
        ((2, 7, 5, 3), (7, 1, 1)),
        ((2, 1, 5, 6), (2, 7, 1, 6)),
        ((0, 3), (3,)),
    ]
    found = []
    for op_type in ("QLinearAdd", "QLinearMul"):
        for dtype in BYTES:
            rows = value(every(dtype).value, dtype, const=False)
            column = replace(rows, shape=(256, 1))
            for scales, points in ((rounds, (-30, 20, -7)), (usual, (3, -90, 110))):
                found += [binary(op_type, column, rows, scales, points)]
        for i, (a, b) in enumerate(broadcasts):
            dtype = BYTES[i % 2]
            found += [binary(op_type, integers(dtype, *a), integers(dtype, *b), usual, (3, -90, 11))]
        both = [integers("uint8", 37, 61), integers("uint8", 37, 61, const=True)]
        found += binary(op_type, both[0], both[1], usual, (3, -90, 11)).on("npu1", "npu2_1col")
    return found


@st.composite
def random_pair(draw: st.DrawFn) -> Case:
    op_type, dtype = draw(st.sampled_from(["QLinearAdd", "QLinearMul"])), draw(st.sampled_from(BYTES))
    whole = draw(shapes(rank=5))
    several = [tuple(1 if draw(st.booleans()) else n for n in whole) for _ in range(2)]
    several[draw(st.integers(0, 1))] = whole
    a, b = (integers(dtype, *shape, const=draw(st.booleans())) for shape in several)
    a = a if not (a.const and b.const) else replace(a, const=False)
    one = binary(op_type, a, b, [draw(SCALES) for _ in range(3)], [draw(POINTS) for _ in range(3)])
    return replace(one, device=draw(DEVICES))


def averages() -> list[Case]:
    """Scales of windows of 3 x 3 among them that make halves of averages."""

    def pooled(
        op_type: str, shape: tuple[int, ...], made: tuple[int, ...], dtype: str, **attributes: Any
    ) -> Case:
        scales = (0.0391, -9, 0.0391 * 4 / 9, 31)
        return unary(op_type, integers(dtype, *shape), scales, result=Input(made, dtype), **attributes)

    square = {"kernel_shape": [3, 3]}
    return [
        *(
            pooled("QLinearGlobalAveragePool", shape, (*shape[:2], *[1] * (len(shape) - 2)), dtype)
            for dtype in BYTES
            for shape in [(2, 37, 7, 7), (1, 5, 8, 12), (3, 4, 9), (1, 2, 1, 1)]
        ),
        pooled("QLinearGlobalAveragePool", (2, 7, 7, 37), (2, 1, 1, 37), "uint8", channels_last=1),
        pooled("QLinearGlobalAveragePool", (1, 4, 4, 8), (1, 1, 1, 8), "int8", channels_last=1),
        pooled("QLinearAveragePool", (1, 5, 9, 11), (1, 5, 7, 9), "uint8", **square),
        pooled(
            "QLinearAveragePool", (1, 5, 9, 11), (1, 5, 9, 6), "int8",
            pads=[1, 1, 1, 1], strides=[1, 2], **square,
        ),
        pooled(
            "QLinearAveragePool", (2, 5, 9, 11), (2, 5, 9, 11), "uint8",
            pads=[1, 1, 1, 1], count_include_pad=1, **square,
        ),
        pooled("QLinearAveragePool", (2, 3, 8), (2, 3, 4), "uint8", kernel_shape=[2], strides=[2]),
        pooled("QLinearAveragePool", (2, 16, 3, 3), (2, 16, 1, 1), "int8", **square),
        pooled("QLinearAveragePool", (2, 16, 3, 3), (2, 16, 3, 3), "int8", pads=[1, 1, 1, 1], **square),
    ]  # fmt: skip


def joined() -> list[Case]:
    """Parts of the result's scale and of others, joined along rows inside words too."""
    found = []
    for dtype, axis, shapes_ in [
        ("uint8", 1, [(2, 3, 5, 4), (2, 1, 5, 4), (2, 8, 5, 4)]),
        ("int8", 1, [(3, 5), (3, 7)]),
        ("uint8", -1, [(2, 4, 8), (2, 4, 4)]),
        ("int8", 0, [(2, 6), (1, 6), (3, 6)]),
    ]:
        scales = (0.0391, 0.0123, 0.0391)
        made = value(0.0391), zero(dtype, -9)
        parts = [
            x
            for shape, scale in zip(shapes_, scales, strict=False)
            for x in quantised(integers(dtype, *shape), scale, -9)
        ]
        whole = list(shapes_[0])
        whole[axis] = sum(shape[axis] for shape in shapes_)
        result = Input(tuple(whole), dtype)
        found += [case("QLinearConcat", *made, *parts, axis=axis, domain=MICROSOFT, result=result)]
    for dtype, shapes_ in [("uint8", [(6, 7), (6, 7), (7,)]), ("int8", [(5, 1), (1, 8), (5, 8)])]:
        condition = Input(shapes_[0], "bool")
        operands = (
            *quantised(integers(dtype, *shapes_[1]), 0.0391, -9),
            *quantised(integers(dtype, *shapes_[2]), 0.0123, 44),
        )
        result = Input(np.broadcast_shapes(*shapes_), dtype)
        made = value(0.0391), zero(dtype, -9)
        found += [case("QLinearWhere", condition, *operands, *made, domain=MICROSOFT, result=result)]
    return found


def products() -> list[Case]:
    m, k, n = 17, 33, 21

    def product(
        a: str,
        b: str,
        c: Input | None,
        per_column: bool = False,
        narrow: bool = True,
        const: bool = True,
        **attributes: Any,
    ) -> Case:
        x = integers(a, k, m) if attributes.get("transA") else integers(a, m, k)
        y = integers(b, *((n, k) if attributes.get("transB") else (k, n)), const=const)
        scales = value(np.linspace(0.001, 0.05, n)) if per_column else value(0.0123)
        zeros = value(np.arange(n) % 7 + (125 if b == "uint8" else -3), b) if per_column else zero(b, 5)
        made = (value(3.7), zero(a, -9)) if narrow else ()
        result = Input((m, n), a if narrow else "float32")
        note = f"{c.kind}" if c is not None else ""
        return case(
            "QGemm", *quantised(x, 0.0391, -30), y, scales, zeros, c, *made,
            domain=MICROSOFT, result=result, note=note, **attributes,
        )  # fmt: skip

    row, matrix = value(np.arange(n) * 100 - 900, "int32"), integers("int32", m, n)
    return [
        product("uint8", "int8", row),
        product("uint8", "uint8", row, per_column=True, alpha=0.75),
        product("int8", "int8", None, transB=1),
        product("uint8", "int8", row, narrow=False, per_column=True),
        product("uint8", "int8", None, narrow=False, transA=1, const=False),
        product("uint8", "int8", matrix, alpha=1.7),
        product("int8", "int8", matrix, narrow=False, transA=1, transB=1),
        product("uint8", "int8", value(-700, "int32"), const=False, per_column=True),
        product("uint8", "int8", value(np.arange(m).reshape(m, 1) * 50, "int32")),
    ]  # fmt: skip


def softmax(x: Input, scale: float, made: float, placed: int, axis: int = -1, opset: int = 13) -> Case:
    one = unary("QLinearSoftmax", x, (scale, 9, made, placed), axis=axis)
    return replace(one, attributes={**one.attributes, "opset": opset})  # the node's own, not the model's


def lattice(dtype: str, steps: int) -> Input:
    """Rows [.., 3] of the maximum and two below it, each ``steps`` from the next: all that lies between."""
    below = np.arange(0, 256, steps)
    rows = np.stack(np.meshgrid(0, below, below, indexing="ij"), -1).reshape(-1, 3)
    return value((255 - rows).astype(np.uint8) if dtype == "uint8" else 127 - rows, dtype, const=False)


def softmaxes() -> list[Case]:
    """Lengths around those of the table and of vectors; several axes, with padding in their rows and without;
    sums that are rounded at every step; halves; results that are saturated at either end."""
    last = [(5,), (1, 1), (3, 7), (2, 5, 255), (2, 256), (3, 257), (2, 4, 1000), (0, 3), (3, 0), (2, 3, 4, 5)]
    inner = [((4, 37, 6), 1), ((9, 5), 0), ((2, 300, 33), 1), ((3, 2, 5, 7), -3)]
    flat = [((3, 4, 8), 1), ((3, 5, 7), 1), ((2, 3, 5), 0), ((4, 3, 300), -1), ((2, 3, 2, 3), -2)]
    found = []
    for at, dtype in enumerate(BYTES):
        found += [
            *(softmax(integers(dtype, *shape), 0.05, 1 / 256, -128) for shape in last[at::2]),
            *(softmax(integers(dtype, *shape), 0.03, 0.005, -90, axis=axis) for shape, axis in inner[at::2]),
            *(softmax(integers(dtype, *shape), 0.02, 0.001, 5, axis=axis, opset=11) for shape, axis in flat),
            softmax(lattice(dtype, 5), 0.01, 1 / 187, -128),
            softmax(lattice(dtype, 5), 0.03, 1e-4, -128),
            softmax(value([[120, 120, *[0] * 10]] * 2, dtype, const=False), 1.0, 1.0, -128),
            softmax(value([[100] * 6], dtype, const=False), 0.4, 1 / 579, -128),
            softmax(integers(dtype, 40, 16), 1e-4, 3.0, 127),
            *softmax(integers(dtype, 37, 61), 0.04, 1 / 256, -128).on("npu1", "npu2_1col"),
        ]
    found += [softmax(integers("uint8", 2, 9000), 0.01, 2e-6, -128)]
    return found


@st.composite
def random_softmax(draw: st.DrawFn) -> Case:
    shape = draw(shapes(rank=5)) or (5,)
    axis, opset = draw(st.integers(-len(shape), len(shape) - 1)), draw(st.sampled_from([11, 13]))
    x, made = integers(draw(st.sampled_from(BYTES)), *shape), draw(st.floats(1e-5, 1.0))
    one = softmax(x, draw(SCALES), made, draw(POINTS), axis=axis, opset=opset)
    return replace(one, device=draw(DEVICES))


SCALES = st.floats(1e-3, 0.3)
POINTS = st.integers(-128, 127)
CASES = [*pairs()[:4], *tables(), *averages(), *joined(), *products(), *softmaxes(), *pairs()[4:]]
FAMILIES = {
    "quantised by table": random_unary(),
    "quantised pairs": random_pair(),
    "softmax of bytes": random_softmax(),
}
