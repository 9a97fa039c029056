# SPDX-License-Identifier: Apache-2.0
"""Cases of attention whose queries, keys and values are one product of bytes."""

from __future__ import annotations

from typing import Any

import numpy as np

from onedispatch.operators.declarations.registry import MICROSOFT
from tests.ops.case import Case, Input, Tolerance, case, f32, integers, value, weight

# What Attention itself is held to: exp of a library and of a kernel, sums in another order.
NEAR = Tolerance(ulp=16, scale=4e-6)


def attention(
    batch: int,
    rows: int,
    heads: int,
    size: int,
    mask: Input | None = None,
    past: int | None = None,
    types: tuple[str, str] = ("uint8", "int8"),
    several: bool = False,
    **attributes: Any,
) -> Case:
    inner, columns = 12, 3 * heads * size
    one, other = types
    by = value(np.linspace(0.002, 0.02, columns), "float32") if several else value(0.01)
    before = None if past is None else f32(2, batch, heads, past, size)
    zeros = value(120 if one == "uint8" else -5, one), value(130 if other == "uint8" else 0, other)
    inputs = (
        integers(one, batch, rows, inner), integers(other, inner, columns, const=True), weight(columns),
        value(0.02), by, mask, *zeros, before,
    )  # fmt: skip
    return case(
        "QAttention", *inputs, domain=MICROSOFT, num_heads=heads, tolerance=NEAR,
        result=Input((batch, rows, heads * size)), outputs=1 if past is None else 2, **attributes,
    )  # fmt: skip


def keys(*counts: int) -> Input:
    return value(np.array(counts), "int32", const=False)


def seen(*shape: int, seed: int = 3) -> Input:
    return value(np.random.default_rng(seed).integers(0, 2, shape), "int32", const=False)


CASES = [
    attention(1, 5, 2, 8),
    attention(2, 7, 3, 4, several=True, unidirectional=1),
    attention(2, 5, 2, 8, mask=keys(3, 5)),
    attention(2, 6, 2, 8, mask=keys(6, 4, 2, 1)),  # ends, then beginnings
    attention(2, 6, 2, 8, mask=seen(2, 6), types=("uint8", "uint8"), mask_filter_value=-50.0),
    attention(2, 4, 2, 4, mask=seen(2, 4, 7), past=3),
    attention(1, 3, 2, 8, past=4, unidirectional=1, scale=0.3),
]
