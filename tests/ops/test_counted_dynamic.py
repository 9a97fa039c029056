# SPDX-License-Identifier: Apache-2.0
"""Hand counts of what quantises by what a tensor holds, and of sums of bytes that become floats."""

from __future__ import annotations

import numpy as np

from onedispatch.operators.kernels.dynamic_quantise import Extremes, QuantisationOf
from onedispatch.transactions import Device
from tests.ops.test_counted_work import DEVICES, cycles, requantised, tensor


@DEVICES
def test_extremes_cost_two_comparisons_and_their_quantisation_one_division_or_two(device: Device) -> None:
    lanes = int(device.constant("kernel.f32_lanes"))
    x, ends = tensor("x", (16, 64)), tensor("e", (1, 2))
    halves = lanes.bit_length() - 1
    # One line: every vector is compared twice, then the halves of two; the pair is stored.
    compared = 2 * 4 * (1024 // lanes) + 2 * halves * (1 + 4)
    assert cycles(Extremes("x", x, ends, device), device) == 100 + 10 + compared + 1
    # 32 pairs, both ends against 0, a difference, its quotient, whether that is 0; one store.
    pairs, scale, zero = tensor("p", (32, 2)), tensor("s", ()), tensor("z", (), np.uint8)
    shared = 100 + 10 + 2 * 4 * (64 // lanes) + 2 * halves * 5 + 2 * 4 + 1 + 104 + 4 + 1
    assert cycles(QuantisationOf("s", pairs, scale, device), device) == shared
    # The other quotient, taken from 0, between bounds, made an integer, made narrow.
    assert cycles(QuantisationOf("z", pairs, zero, device), device) == shared + 104 + 1 + 8 + 2 + 1


@DEVICES
def test_sums_of_bytes_as_floats_are_converted_and_multiplied(device: Device) -> None:
    lanes, split = (device.constant(f"kernel.f32_{name}") for name in ("lanes", "pack_cycles"))
    scale, words = tensor("s", (1,)), 64 * 64 / lanes
    plain, floats = requantised(device, np.int32), requantised(device, np.float32)
    assert floats - plain == words * 2
    # The scales of 64 columns are split into parts once.
    scaled = requantised(device, np.float32, scale=scale) - floats
    assert scaled == words * (19 - split) + 64 / lanes * split
