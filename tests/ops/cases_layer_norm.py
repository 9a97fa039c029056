# SPDX-License-Identifier: Apache-2.0
"""Cases of LayerNormalization."""

from __future__ import annotations

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from tests.ops.case import Case, Tolerance, case, f32, weight
from tests.ops.strategies import DEVICES, shapes

CLOSE = Tolerance(scale=2e-6, absolute=2e-6)  # sums in another order, then values around zero


@st.composite
def layer_norm(draw: st.DrawFn) -> Case:
    shape = draw(shapes(4, empty=False).filter(lambda s: len(s) > 0))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    assume(np.prod(shape[axis:]) > 1)  # of one value the variance is 0: what is left is epsilon's
    parameters = [draw(st.sampled_from([f32, weight]))(*shape[axis:]) for _ in range(draw(st.integers(1, 2)))]
    return case(
        "LayerNormalization", f32(*shape), *parameters, axis=axis, tolerance=CLOSE, device=draw(DEVICES)
    )


def norm(shape: tuple[int, ...], axis: int = -1, bias: bool = True, epsilon: float = 1e-5) -> Case:
    parameters = [weight(*shape[axis:])] * (1 + bias)
    return case("LayerNormalization", f32(*shape), *parameters, axis=axis, epsilon=epsilon, tolerance=CLOSE)


CASES = [
    *(norm(shape) for shape in [(7,), (37, 10), (3, 5, 7), (2, 64, 768), (1031, 3), (5, 1009)]),
    norm((37, 10), bias=False),
    norm((37, 10), epsilon=0.1),
    norm((2, 3, 4, 5), 2),
    norm((2, 3, 4, 5), 0),
    case("LayerNormalization", f32(9, 31), f32(31), f32(31), tolerance=CLOSE),
    norm((3, 20011)),  # longer than a core holds
    *norm((37, 61)).on("npu1", "npu2_1col"),
]
FAMILIES = {"layer_norm": layer_norm()}
