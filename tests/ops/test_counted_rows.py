# SPDX-License-Identifier: Apache-2.0
"""What rows of mean 0 and variance 1 cost: walks, pairs of sums, integers at their ends."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from onedispatch.operators.kernels.moments import Moments
from onedispatch.operators.kernels.normalise import Normalise
from onedispatch.operators.scheduling.call_cost import scratch_words
from onedispatch.transactions import Device
from tests.ops.test_counted_work import DEVICES, NPU1, cycles, tensor


@DEVICES
def test_a_residual_is_one_more_walk_of_every_row(device: Device) -> None:
    x, r, y = (tensor(name, (8, 250)) for name in "xry")
    parameters = [tensor(name, (250,)) for name in "sb"]
    alone = Normalise("n", [x, *parameters], y, device, sizes=(1, 8, 250), epsilon=1e-5)
    lanes, div, root = (device.constant(f"kernel.f32_{n}") for n in ("lanes", "div_cycles", "sqrt_cycles"))
    # Six loops: the residual is added, the rest added up, centred, its squares added up, divided by the
    # deviation, scaled and moved. Both sums are combined across lanes, and three times something is divided.
    # The mean's sums are pairs, of seven additions; squares are added in two halves.
    # The deviation is split once.
    vector = 1 + 7 + 1 + (19 + 2) + (5 + 9) + (19 + 1)
    across = np.log2(lanes) * ((1 + 7) + (1 + 1))
    row = 6 * 10 + np.ceil(250 / lanes) * vector + across + 3 * div + root + 5
    summed = cycles(alone.with_residual(x, r), device)
    assert summed == 100 + 8 * row
    assert summed - cycles(alone, device) == 8 * (10 + np.ceil(250 / lanes))
    # Where the sum is a result, it is stored there instead of where the rows are held.
    assert cycles(alone.with_residual(x, r, tensor("t", (8, 250))), device) == summed


@DEVICES
def test_rows_of_integers_become_floats_and_integers_in_walks_of_their_own(device: Device) -> None:
    floats, x, y = tensor("f", (8, 256)), tensor("x", (8, 256), np.uint8), tensor("y", (8, 256), np.int16)
    one = np.array(0.5, np.float32)
    alone = Normalise("n", [floats], floats, device, sizes=(1, 8, 256), epsilon=1e-5)
    words, narrow = (256 / device.constant(f"kernel.{name}_lanes") for name in ("i32", "i8"))
    read, written = alone.of_integers(x, one), alone.to_integers(y, one)
    # Bytes are made wide; of a vector of words: a difference, a float, which bfloat16 holds, times the three
    # parts of the scale, which are made once.
    assert cycles(read, device) - cycles(alone, device) == 5 + 8 * (10 + narrow + words * (1 + 2 + 1 + 3))
    # And back: a division, an integer, a zero point, made narrow.
    assert cycles(written, device) - cycles(alone, device) == 8 * (10 + words * (104 + 2 + 1 + 1))
    tiles = [dim.extent for dim in alone.nests()[0].dims]
    assert [int(scratch_words(op.nests()[0], device, tiles, 1)) for op in (alone, read, written)] == [
        0,
        256,
        256,
    ]


def test_statistics_of_narrow_floats_are_plain_sums() -> None:
    x = tensor("x", (8, 256), ml_dtypes.bfloat16)
    rows = Normalise("n", [x], x, NPU1, sizes=(1, 8, 256), epsilon=1e-5)
    # Divided by a constant count, which is a product with what is split once.
    vector = 2 + 2 + (2 + 2) + 14  # summed, centred, squares added; scaled in float32: its root is one
    across = np.log2(16) * ((1 + 2) + (1 + 2))
    assert cycles(rows, NPU1) == 100 + 5 + 8 * (4 * 10 + 256 / 16 * vector + across + 2 * 14 + 104 + 132 + 5)


@DEVICES
def test_moments_of_rows_are_two_walks(device: Device) -> None:
    x, mean, spread = (tensor(name, shape) for name, shape in (("x", (8, 256)), ("m", (8,)), ("s", (8,))))
    parts = Moments("m", [x], (mean, spread), device, count=1, centre=True, epsilon=None)
    # The sum in pairs, of seven additions; centred, squared, and added in two halves; the count divides.
    vector = 7 + 1 + 19 + 2
    lanes = device.constant("kernel.f32_lanes")
    across = np.log2(lanes) * ((1 + 7) + (1 + 1))
    assert cycles(parts, device) == 100 + 8 * (2 * 10 + 256 / lanes * vector + across + 104)
    whole = parts.replaced(epsilon=1e-5)  # the variance, its root, one by that
    assert cycles(whole, device) - cycles(parts, device) == 8 * (2 * 104 + 132)
