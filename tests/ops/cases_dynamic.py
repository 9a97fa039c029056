# SPDX-License-Identifier: Apache-2.0
"""Cases of quantisation by what a tensor holds: bit for bit as onnxruntime."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from tests.ops.case import Case, Input, Tolerance, case, f32, integers, value, weight
from tests.ops.strategies import DEVICES, shapes


def dynamic(*shape: int, kind: str = "wide") -> Case:
    return case("DynamicQuantizeLinear", f32(*shape, kind=kind), outputs=3)


def of(*values: float) -> Case:
    given = value(np.array(values, np.float32), const=False)
    return case("DynamicQuantizeLinear", given, outputs=3, note=f"up to {max(values):g}")


def bytes_(*shape: int, dtype: str = "uint8", const: bool = True) -> Input:
    return integers(dtype, *shape, const=const)


def scales(*shape: int, const: bool = True) -> Input:
    return Input(shape, kind="positive", const=const)


def product(
    a: Input, b: Input, b_scale: Input, a_zero: Input | None, b_zero: Input | None, bias: Input | None
) -> Case:
    result = Input((*a.shape[:-1], b.shape[-1]))
    inputs = (a, b, value(0.02, const=False), b_scale, a_zero, b_zero, bias)
    return case("MatMulIntegerToFloat", *inputs, domain="com.microsoft", result=result, tolerance=SUMS)


def dynamic_product(a: Input, b: Input, b_scale: Input, b_zero: Input | None, bias: Input | None) -> Case:
    result = Input((*a.shape[:-1], b.shape[-1]))
    inputs = (a, b, b_scale, b_zero, bias)
    return case("DynamicQuantizeMatMul", *inputs, domain="com.microsoft", result=result, tolerance=SUMS)


# onnxruntime scales and adds a bias in one step where the processor has it.
SUMS = Tolerance(ulp=2, scale=1e-6)


def products() -> list[Case]:
    three = value(3, "uint8")
    return [
        product(bytes_(5, 12, const=False), bytes_(12, 7), scales(7), three, value(5, "uint8"), weight(7)),
        product(bytes_(2, 3, 40, const=False), bytes_(40, 9, dtype="int8"), scales(), None, None, None),
        product(
            bytes_(5, 12, dtype="int8", const=False),
            bytes_(12, 8, dtype="int8", const=False),
            scales(8, const=False),
            value(-3, "int8", const=False),
            integers("int8", 8, const=True),
            f32(8),
        ),
        dynamic_product(f32(5, 33), bytes_(33, 10, dtype="int8"), scales(), value(2, "int8"), weight(10)),
        dynamic_product(f32(2, 4, 33), bytes_(33, 10), scales(10), integers("uint8", 10, const=True), None),
        dynamic_product(f32(7, 16), bytes_(16, 6), scales(), None, f32(6)),
    ]


def lstm(
    dtype: str,
    steps: int,
    batch: int,
    size: int,
    hidden: int,
    direction: str,
    several: bool,
    *more: Input | None,
) -> Case:
    ways = 2 if direction == "bidirectional" else 1
    shape = (ways, 4 * hidden) if several else (ways,)
    by = value(np.full(shape, 0.004), "float32")
    zero = value(np.full(shape, 0 if dtype == "int8" else 128), dtype)  # it takes no others
    weights = (integers(dtype, ways, n, 4 * hidden, const=True) for n in (size, hidden))
    given = (*more, *[None] * (5 - len(more)))
    return case(
        "DynamicQuantizeLSTM", f32(steps, batch, size), *weights, *given, by, zero, by, zero,
        domain="com.microsoft", direction=direction, hidden_size=hidden, tolerance=STATES,
        result=Input((steps, ways, batch, hidden)),
    )  # fmt: skip


# onnxruntime makes bytes of the state before every step: half a step of 1/127 for each member, times weights
# of about a quarter, of which half a dozen add up.
STATES = Tolerance(absolute=0.03)


CASES = [
    dynamic(3, 70),
    dynamic(2, 3, 5, 7),
    dynamic(61, 173),  # several lines, and a last one that counts elements twice
    dynamic(4, 2048),
    dynamic(33, kind="positive"),  # 0 is among the numbers
    of(-3.5),
    of(-0.25, -7.0, -1.0),
    of(0.0, 0.0, -0.0, 0.0),  # of zeros alone the scale is 1
    of(1e-40, 0.0, 1e-41),
    of(3e38, -3e38, 1.0),  # a range beyond float32
    dynamic(),
    *dynamic(37, 61).on("npu1", "npu2_1col"),
    *products(),
    lstm("int8", 5, 1, 12, 8, "forward", False),
    lstm("uint8", 4, 3, 20, 16, "bidirectional", True, f32(2, 128)),
    lstm("int8", 6, 2, 9, 12, "reverse", True),
]


@st.composite
def dynamically(draw: st.DrawFn) -> Case:
    shape = draw(shapes(rank=4).filter(lambda one: 0 not in one))
    return replace(dynamic(*shape, kind=draw(st.sampled_from(["wide", "positive"]))), device=draw(DEVICES))


FAMILIES = {"dynamically": dynamically()}
