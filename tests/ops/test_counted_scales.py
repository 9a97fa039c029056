# SPDX-License-Identifier: Apache-2.0
"""Hand counts of products of f32 with numbers that stay: they are split into three parts once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onedispatch.operators.interface.operator import TensorSpec
from onedispatch.operators.kernels.combine import Combine
from onedispatch.operators.kernels.quant_params import QuantParams
from onedispatch.operators.kernels.quantise import Dequantise, ScaleAxis
from onedispatch.transactions import Device
from tests.ops.test_counted_work import DEVICES, cycles, tensor


@DEVICES
@pytest.mark.parametrize(
    ("dtype", "product"), ((np.int8, 1 + 3), (np.int16, 3 + 2 * 3), (np.int32, 5 + 3 * 3)), ids=str
)
def test_products_with_scales_are_those_of_the_parts_of_both(
    device: Device, dtype: Any, product: int
) -> None:
    x, q = tensor("x", (16, 128)), tensor("q", (16, 128), dtype)

    def made(scales: TensorSpec, axis: int | None) -> float:
        return cycles(Dequantise("d", [q, scales], x, device, ScaleAxis(axis)), device)

    lanes = {name: int(device.constant(f"kernel.{name}_lanes")) for name in ("f32", "i8", "i16")}
    wide = 16 * 128 // lanes[np.dtype(dtype).name.replace("nt", "")] if dtype != np.int32 else 0
    words = 16 * 128 // lanes["f32"]
    shared = 100 + wide + words * (2 + product)
    assert made(tensor("s", ()), None) == shared + 10 + 5
    # One scale for a row, of its own parts; one for every element of a row, and parts of every vector.
    assert made(tensor("s", (16,)), 0) == shared + 16 * (10 + 5)
    assert made(tensor("s", (128,)), 1) == shared + 16 * 10 + words * 5


@DEVICES
def test_quantised_sums_of_16_bits_have_one_product_in_parts_and_one_that_is_rounded_with_it(
    device: Device,
) -> None:
    a, b, y = (tensor(name, (16, 64), np.int16) for name in "aby")
    words, narrow = (16 * 64 // int(device.constant(f"kernel.{name}_lanes")) for name in ("f32", "i16"))
    scales = [QuantParams(np.float32(1), 0)] * 3
    # Differences of words, made floats; a product of two parts, another one, a sum; made integers, the zero
    # point added, made narrow.
    shared = 2 * (1 + 2) + 2 + 1 + 1
    total = cycles(Combine("c", False, [a, b], scales, y, device), device)
    assert total == 100 + 10 + 2 * narrow + 2 * 5 + words * (shared + 3 + 6 + 19 + 1)
    # The product of both, then with the scale.
    product = cycles(Combine("c", True, [a, b], scales, y, device), device)
    assert product == 100 + 10 + 2 * narrow + 5 + words * (shared + 19 + 5 + 9)
