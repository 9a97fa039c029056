# SPDX-License-Identifier: Apache-2.0
"""Products of 16-bit integers, counted by hand."""

from __future__ import annotations

from typing import Any

import numpy as np

from onedispatch.operators.kernels.matmul import MatMul, ProductOptions
from onedispatch.transactions import Device
from tests.ops.test_counted_work import DEVICES, cycles, tensor


@DEVICES
def test_accumulators_of_16_bits_times_8_are_added_up_by_256(device: Device) -> None:
    """To sums of 64 bits: three operations on words. Those of 16 bits times 16 have as many by themselves."""

    def scaled(k: int, dtype: Any) -> float:
        a, b, scale = tensor("a", (16, k), np.int16), tensor("b", (k, 32), dtype), tensor("s", (1,))
        return cycles(
            MatMul("p", a, b, tensor("y", (16, 32), np.int16), device, ProductOptions(scale=scale)), device
        )

    words = 16 * 32 / device.constant("kernel.i32_lanes")
    for dtype, rate, more in ((np.int8, "i16_i8", 2 * words * 3), (np.int16, "i16_i16", 0)):
        products = 256 * 16 * 32 / device.constant(f"kernel.{rate}_macs_per_cycle")
        assert scaled(512, dtype) - scaled(256, dtype) == products + more
        assert scaled(256, dtype) - scaled(128, dtype) == products / 2
