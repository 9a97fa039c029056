# SPDX-License-Identifier: Apache-2.0
"""Cases of RotaryEmbedding, ONNX's and onnxruntime's."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.ops.case import Case, Input, Tolerance, case, f32, value, weight
from tests.ops.strategies import DEVICES

ROUNDED = Tolerance(ulp=2, absolute=2e-3)  # onnxruntime rounds products to float16, too
CLOSE = Tolerance(scale=5e-7, absolute=5e-7)  # two products, of either sign


def rotary(*inputs: Input, device: str = "npu2", **attributes: Any) -> Case:
    given = case("RotaryEmbedding", *inputs, tolerance=CLOSE, device=device, **attributes)
    return replace(given, opset=23)


def half(*shape: int) -> Input:
    return Input(shape, "float16")


def own(*inputs: Input, device: str = "npu2", **attributes: Any) -> Case:
    """onnxruntime's: (x, position_ids, cos_cache, sin_cache)."""
    domain = "com.microsoft"
    return case(
        "RotaryEmbedding", *inputs, tolerance=CLOSE, device=device, domain=domain, note="own", **attributes
    )


@st.composite
def random_rotary(draw: st.DrawFn) -> Case:
    batch, heads, places = (draw(st.integers(1, most)) for most in (3, 4, 9))
    half, rest = draw(st.integers(1, 9)), draw(st.sampled_from([0, 0, 2, 4]))
    size, attributes = 2 * half + rest, {"interleaved": draw(st.integers(0, 1))}
    x = f32(batch, heads, places, size)
    if rest or draw(st.booleans()):  # onnxruntime wants both together
        x = f32(batch, places, heads * size)
        attributes["num_heads"] = heads
    attributes |= {"rotary_embedding_dim": 2 * half} if rest else {}
    table = draw(st.sampled_from([f32, weight]))
    if draw(st.booleans()):
        given = draw(st.sampled_from([(1,), (batch, places)]))
        ids = draw(st.lists(st.integers(0, 11 - places), min_size=prod(given), max_size=prod(given)))
        at = value(np.reshape(ids, given), "int64", const=draw(st.booleans()))
        return own(x, at, table(12, half), table(12, half), device=draw(DEVICES), **attributes)
    if draw(st.booleans()):
        ids = [[draw(st.integers(0, 11)) for _ in range(places)] for _ in range(batch)]
        tables = table(12, half), table(12, half), value(ids, "int64", const=draw(st.booleans()))
        return rotary(x, *tables, device=draw(DEVICES), **attributes)
    tables_by_place = table(batch, places, half), table(batch, places, half)
    return rotary(x, *tables_by_place, device=draw(DEVICES), **attributes)


CASES = [
    rotary(f32(2, 4, 7, 16), f32(2, 7, 8), f32(2, 7, 8)),
    rotary(f32(2, 4, 7, 16), weight(2, 7, 8), weight(2, 7, 8), interleaved=1),
    rotary(f32(2, 7, 64), f32(2, 7, 8), f32(2, 7, 8), num_heads=4),
    rotary(f32(2, 7, 64), f32(2, 7, 4), f32(2, 7, 4), num_heads=4, rotary_embedding_dim=8),
    rotary(f32(1, 4, 3, 16), f32(9, 8), f32(9, 8), value([[4, 0, 8]], "int64")),
    rotary(f32(1, 4, 3, 16), f32(9, 8), f32(9, 8), value([[4, 0, 8]], "int64", const=False)),
    own(
        f32(2, 4, 7, 16), value([[3, 1, 4, 1, 5, 8, 2], [6, 5, 3, 5, 8, 7, 8]], "int64"), f32(9, 8), f32(9, 8)
    ),
    own(f32(2, 4, 7, 16), value([2], "int64"), weight(9, 8), weight(9, 8), interleaved=1),
    own(f32(2, 7, 64), value([2], "int64", const=False), f32(9, 8), f32(9, 8)),
    own(
        f32(1, 1, 64),
        value([[8]], "int64", const=False),
        f32(9, 4),
        f32(9, 4),
        num_heads=4,
        rotary_embedding_dim=8,
    ),
    replace(rotary(f32(2, 4, 37, 64), weight(2, 37, 32), weight(2, 37, 32)), device="npu1"),
    replace(own(half(2, 7, 64), value([2], "int64", const=False), half(9, 8), half(9, 8)), tolerance=ROUNDED),
]
FAMILIES = {"rotary": random_rotary()}
