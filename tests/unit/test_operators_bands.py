# SPDX-License-Identifier: Apache-2.0
"""Bands of loop nests: which rows they read, and how they see tensors."""

from __future__ import annotations

import numpy as np
import pytest

from onedispatch.operators.declarations.tensor import TensorSpec, Unsupported
from onedispatch.operators.kernels.conv import Conv
from onedispatch.operators.kernels.softmax import Softmax
from onedispatch.operators.kernels.window import Window
from onedispatch.operators.scheduling.bands import BandedNest, Stripe, cut_into_rows
from onedispatch.operators.scheduling.index_space import OUTPUT
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.transactions import find_device

NPU2 = find_device("npu2")
F32 = np.dtype(np.float32)
PLANE, ROW = 120, 10


def conv(stride: int = 1) -> Nest:
    """Windows of 3 x 3 over planes of 12 rows."""
    x, y = TensorSpec("x", F32, (1, 8, 12, ROW)), TensorSpec("y", F32, (1, 8, 12 // stride, ROW))
    w = TensorSpec("w", F32, (8, 8, 3, 3), np.zeros((8, 8, 3, 3), np.float32))
    window = Window((3, 3), (stride, 1), (1, 1), (1, 1, 1, 1))
    (nest,) = Conv("c", [x, w], y, window, 1, NPU2).plain_nests
    return nest


def softmax() -> Nest:
    """Rows of 16, of which 6 x 4 are one after the other."""
    shape = (6, 4, 16)
    (nest,) = Softmax("s", TensorSpec("x", F32, shape), TensorSpec("y", F32, shape), (2, 3), NPU2).plain_nests
    return nest


@pytest.mark.parametrize(
    ("stride", "begin", "end", "rows"),
    [(1, 0, 4, (0, 5)), (1, 4, 8, (3, 9)), (1, 8, 12, (7, 12)), (2, 0, 3, (0, 6)), (2, 3, 6, (5, 12))],
)
def test_windows_reach_rows_beside_a_band(stride: int, begin: int, end: int, rows: tuple[int, int]) -> None:
    nest, walked = cut_into_rows(conv(stride), PLANE // stride)
    band = BandedNest(nest, walked.dim, begin, end)
    (x,) = nest.strided_inputs
    first, last = rows
    assert band.reads(x) == Stripe(PLANE, first * ROW, last * ROW)
    made = band.made({})
    (seen,), (out,) = made.strided_inputs, made.outputs
    assert made.dims[walked.dim].extent == end - begin
    at = x.shape.index(12)
    assert (seen.shape[at], seen.offset, seen.strides) == (last - first, first * ROW, x.strides)
    assert seen.access[at].start == stride * begin - 1 - first  # rows before the first are padding
    assert (out.offset, out.strides) == (begin * ROW, nest.outputs[0].strides)


def test_what_lies_between_has_rows_of_its_own() -> None:
    nest, walked = cut_into_rows(conv(), PLANE)
    stripe = Stripe(PLANE, 3 * ROW, 9 * ROW)
    made = BandedNest(nest, walked.dim, 4, 8).made({0: stripe, OUTPUT: Stripe(PLANE, 4 * ROW, 8 * ROW)})
    (seen,), (out,) = made.strided_inputs, made.outputs
    assert PLANE in nest.outputs[0].strides and PLANE not in out.strides
    assert 6 * ROW in seen.strides and 4 * ROW in out.strides
    assert seen.offset == out.offset == 0


def test_a_dimension_over_several_periods_is_cut() -> None:
    whole = softmax()
    _, heads = cut_into_rows(whole, 6 * 4 * 16)
    assert heads.step == 16  # all rows are rows of one period
    nest, rows = cut_into_rows(whole, 4 * 16)
    assert rows.step == 16 and nest.dims[rows.dim].extent == 4
    (x,) = nest.strided_inputs
    assert BandedNest(nest, rows.dim, 1, 3).reads(x) == Stripe(4 * 16, 16, 3 * 16)


def test_stripes_that_hold_both() -> None:
    one, other = Stripe(64, 16, 32), Stripe(64, 24, 48)
    assert one.beside(other) == other.beside(one) == Stripe(64, 16, 48) and one.beside(None) == one
    with pytest.raises(Unsupported, match="periods of 32 and 64"):
        one.beside(Stripe(32, 0, 16))


def test_what_cannot_be_parted() -> None:
    nest = conv()
    with pytest.raises(Unsupported, match="no dimension walks the rows of 7 elements"):
        cut_into_rows(nest, 7)
    channels, walked = cut_into_rows(nest, 8 * PLANE)
    band = BandedNest(channels, walked.dim, 0, 4)
    with pytest.raises(Unsupported, match="constants that bands have parts of"):
        band.made({})
    with pytest.raises(Unsupported, match="every band reads all of x"):
        band.reads(channels.strided_inputs[0])
    rows, along = cut_into_rows(nest, PLANE)
    with pytest.raises(Unsupported, match="x walks no rows of 60 elements"):
        BandedNest(rows, along.dim, 0, 4).made({0: Stripe(60, 0, 50)})
