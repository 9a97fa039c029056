# SPDX-License-Identifier: Apache-2.0
"""Taps that meet no data are left out, and no result changes."""

from __future__ import annotations

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from onedispatch.operators.kernels.window import WindowAxis
from onedispatch.operators.lowering.live_taps import live_taps

FEW = st.integers(1, 6)


def windows_of(axis: WindowAxis, extent: int, made: int, taps: range) -> list[list[int]]:
    """The elements of data that each result reads, by tap: -1 where it is padding."""
    data = np.r_[np.full(axis.begin, -1), np.arange(extent), np.full(axis.end, -1)]
    return [
        [int(data[i * axis.stride + t * axis.dilation]) for t in range(axis.kernel) if t in taps]
        for i in range(made)
    ]


@given(FEW, FEW, FEW, FEW, st.integers(0, 9), st.integers(0, 9))
def test_fewer_taps_read_the_same_data(
    extent: int, kernel: int, stride: int, dilation: int, begin: int, end: int
) -> None:
    axis = WindowAxis(kernel, stride, dilation, begin, end)
    room = extent + begin + end - dilation * (kernel - 1) - 1
    assume(room >= 0)
    made = room // stride + 1
    taps, kept = live_taps(axis, extent, made)
    whole = windows_of(axis, extent, made, range(kernel))
    assert windows_of(kept, extent, made, range(kept.kernel)) == [[row[t] for t in taps] for row in whole], (
        "what is left reads what it read"
    )
    left_out = [row[t] for row in whole for t in range(kernel) if t not in taps]
    assert set(left_out) <= {-1}, "what is left out read padding alone"


def test_a_pyramid_on_a_small_plane_has_one_tap() -> None:
    assert live_taps(WindowAxis(3, 1, 24, 24, 24), 16, 16) == (range(1, 2), WindowAxis(1, 1, 24, 0, 0))


def test_windows_of_padding_alone_stay() -> None:
    axis = WindowAxis(2, 9, 1, 2, 6)
    assert live_taps(axis, 1, 1) == (range(2), axis)
