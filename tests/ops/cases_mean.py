# SPDX-License-Identifier: Apache-2.0
"""Cases of Mean."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.ops.case import Case, Tolerance, case, f32, weight
from tests.ops.strategies import DEVICES, shapes

CLOSE = Tolerance(scale=3e-7)  # a third is no float: two roundings where a division has one


@st.composite
def mean(draw: st.DrawFn) -> Case:
    shape = draw(shapes())
    terms = [
        tuple(draw(st.sampled_from([n, n, min(n, 1)])) for n in shape) for _ in range(draw(st.integers(1, 4)))
    ]
    return case("Mean", *(f32(*term) for term in terms), tolerance=CLOSE, device=draw(DEVICES))


CASES = [
    *(case("Mean", *[f32(37, 11)] * n, tolerance=CLOSE) for n in (1, 2, 3, 5)),
    case("Mean", f32(3, 4), f32(4), tolerance=CLOSE),
    case("Mean", f32(5, 1), weight(1, 7), f32(), tolerance=CLOSE),
    case("Mean", f32(2, 0), f32(2, 1), tolerance=CLOSE),
    *case("Mean", f32(37, 61), f32(61), tolerance=CLOSE).on("npu1", "npu2_1col"),
]
FAMILIES = {"mean": mean()}
