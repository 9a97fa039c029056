# SPDX-License-Identifier: Apache-2.0
"""Cases of results that follow from shapes, and of Range, whose length does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from tests.ops.case import Case, Tolerance, case, f32, integers, value
from tests.ops.strategies import DEVICES, odd_shapes


def filled(*shape: int, fill: float, dtype: str = "float32", device: str = "npu2") -> Case:
    """ConstantOfShape whose shape is given at run time."""
    sizes = value(list(shape), "int64", const=False)
    note = f"{'x'.join(map(str, shape))}:{dtype}"
    return case("ConstantOfShape", sizes, value=np.array([fill], dtype), device=device, note=note)


def ranged(dtype: str, start: float, limit: float, delta: float, const: bool = False) -> Case:
    """Numbers that are given at run time. Of floats onnxruntime adds up steps; ONNX, and we, multiply."""
    operands = [value(n, dtype, const=const and i > 0) for i, n in enumerate((start, limit, delta))]
    return case("Range", *operands, note=f"{start},{limit},{delta}", tolerance=Tolerance(scale=2e-6))


CASES = [
    filled(5, 70, fill=2.5),
    filled(5, 7, fill=-3, dtype="int8"),
    filled(3, 5, fill=1 << 40, dtype="int64"),
    filled(3, 5, 2, fill=1, dtype="bool", device="npu2_1col"),
    filled(fill=2.5),
    filled(4, 0, fill=1),
    case("ConstantOfShape", value([2, 3], "int64", const=False)),
    case("EyeLike", f32(5, 9)),
    case("EyeLike", f32(9, 5), k=-2, dtype=7),
    case("EyeLike", integers("int32", 7, 7), k=3),
    case("EyeLike", f32(3, 4), k=9),
    ranged("float32", 1.5, 140.0, 2.7),
    ranged("float32", 3, -20, -1, const=True),
    ranged("int32", -7, 1000, 13),
    ranged("int32", 5, 105, 1, const=True),
    ranged("int16", 9, 0, -2),
    ranged("int64", 1 << 40, (1 << 40) + 90, 7),
    ranged("float32", 5, 5, 1),
    ranged("float32", 1.4, 10.33, 0.47),  # one more, if the difference were rounded
    ranged("float32", -0.7, 9.3, 0.5),  # one less
    ranged("int32", -(1 << 31), (1 << 31) - 1, 1 << 30),
    case("Shape", f32(2, 3, 5)),
    case("Shape", f32(2, 3, 5), start=-2, end=9),
    case("Shape", integers("int8", 2, 3, 5), opset=13),
    case("Size", f32(2, 3, 5)),
    case("Size", integers("int64", 0, 5)),
    case("Size", f32()),
]


@st.composite
def range_case(draw: st.DrawFn) -> Case:
    delta = draw(st.sampled_from([1, 2, 7, -1, -3]))
    start, count = draw(st.integers(-50, 50)), draw(st.sampled_from([1, 2, 3, 31, 64, 257, 1009]))
    limit = start + delta * count - draw(st.integers(0, abs(delta) - 1)) * (1 if delta > 0 else -1)
    dtype = draw(st.sampled_from(["float32", "int16", "int32", "int64"]))
    return replace(ranged(dtype, start, limit, delta, draw(st.booleans())), device=draw(DEVICES))


@st.composite
def filled_case(draw: st.DrawFn) -> Case:
    dtype = draw(
        st.sampled_from(["float32", "float16", "int8", "uint16", "int32", "int64", "float64", "bool"])
    )
    return filled(*draw(odd_shapes()), fill=draw(st.integers(1, 100)), dtype=dtype, device=draw(DEVICES))


FAMILIES: dict[str, st.SearchStrategy[Case]] = {"constants": st.one_of(range_case(), filled_case())}
