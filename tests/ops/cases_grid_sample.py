# SPDX-License-Identifier: Apache-2.0
"""Cases of GridSample: modes, paddings, corners, dimensions, images larger than a core's memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.ops.case import Case, Tolerance, case, f32, value
from tests.ops.strategies import DEVICES

MODES, PADDINGS = ("nearest", "linear", "cubic"), ("zeros", "border", "reflection")
# A place is rounded to 6e-8 of the image; neighbours differ by twice what is largest, cubic weights by 1.75.
NEAR = Tolerance(scale=5e-5)


def sampled(x: tuple[int, ...], places: tuple[int, ...], seed: int = 0, **attributes: Any) -> Case:
    """``x`` [N, C, ...] at ``places``, a few of them outside; nearest ones are not between two elements."""
    grid = np.random.default_rng(seed).uniform(-1.4, 1.4, (x[0], *places, len(x) - 2))
    if attributes.get("mode") == "nearest":
        sizes = np.array(x[:1:-1], np.float64)
        last = sizes - 1 if attributes.get("align_corners") else sizes
        first = 0 if attributes.get("align_corners") else 0.5
        at = np.rint((grid + 1) / 2 * last - first) + 0.2
        grid = 2 * (at + first) / np.maximum(last, 1) - 1
    return case("GridSample", f32(*x), value(grid, const=False), tolerance=NEAR, **attributes)


@st.composite
def grid_sample(draw: st.DrawFn) -> Case:
    spatial = draw(st.lists(st.integers(2, 20), min_size=2, max_size=2))
    places = draw(st.lists(st.integers(1, 12), min_size=2, max_size=2))
    x = (draw(st.integers(1, 3)), draw(st.integers(1, 4)), *spatial)
    attributes = {"mode": draw(st.sampled_from(MODES)), "padding_mode": draw(st.sampled_from(PADDINGS))}
    corners, device = draw(st.integers(0, 1)), draw(DEVICES)
    return sampled(
        x, tuple(places), draw(st.integers(0, 99)), align_corners=corners, device=device, **attributes
    )


CASES = [
    *(
        sampled((1, 2, 5, 7), (4, 3), mode=mode, padding_mode=padding, align_corners=corners)
        for mode, padding, corners in [
            ("nearest", "zeros", 1), ("nearest", "reflection", 0), ("linear", "zeros", 0),
            ("linear", "border", 1), ("linear", "reflection", 1), ("cubic", "zeros", 1),
            ("cubic", "border", 0), ("cubic", "reflection", 0),
        ]
    ),
    sampled((2, 3, 4, 5, 6), (3, 2, 4), mode="linear"),
    sampled((1, 2, 3, 5, 4), (2, 3, 4), mode="nearest", padding_mode="border"),
    sampled((1, 3, 150, 180), (40, 30), mode="linear"),
    sampled((2, 3, 9, 11), (5, 6), mode="bilinear", opset=16),
    *sampled((2, 5, 13, 11), (9, 7), mode="linear").on("npu1", "npu2_1col"),
]  # fmt: skip
FAMILIES = {"grid_sample": grid_sample()}
