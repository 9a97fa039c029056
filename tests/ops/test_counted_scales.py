# SPDX-License-Identifier: Apache-2.0
"""Hand counts of products of f32 with numbers that stay: they are split into three parts once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from onedispatch.operators.interface.operator import TensorSpec
from onedispatch.operators.kernels.channel_norm import Lrn
from onedispatch.operators.kernels.combine import Combine
from onedispatch.operators.kernels.elementwise import Eltwise
from onedispatch.operators.kernels.matmul import MatMul, ProductOptions
from onedispatch.operators.kernels.quant_params import QuantParams
from onedispatch.operators.kernels.quantise import Dequantise, ScaleAxis
from onedispatch.transactions import Device
from tests.ops.test_counted_work import BFLOAT16, DEVICES, call, cycles, tensor

NEW, STAYS, SPLIT = 5 + 5 + 9, 5 + 9, 5


def f32_vectors(members: int, device: Device) -> int:
    return members // int(device.constant("kernel.f32_lanes"))


def product(device: Device, *shape: int, dtype: Any = np.float32, function: str = "mul") -> float:
    """Of 16 x 128 elements and what is broadcast to them."""
    x, y, z = (tensor(name, (16, 128), dtype) for name in "xyz")
    operands = [x, tensor("c", shape, dtype), *([z] if function == "muladd" else [])]
    return cycles(Eltwise("m", function, operands, y, device), device)


@DEVICES
@pytest.mark.parametrize(("function", "beside"), (("mul", 0), ("muladd", 1), ("prelu", 2)))
def test_an_operand_that_stays_along_a_row_is_split_once_for_it(
    device: Device, function: str, beside: int
) -> None:
    vectors = f32_vectors(16 * 128, device)
    assert product(device, 1, function=function) == 100 + 10 + SPLIT + vectors * (STAYS + beside)
    assert product(device, 16, 1, function=function) == 100 + 16 * (10 + SPLIT) + vectors * (STAYS + beside)
    for shape, rows in (((16, 128), 1), ((128,), 16)):
        assert product(device, *shape, function=function) == 100 + rows * 10 + vectors * (NEW + beside)


@DEVICES
def test_what_is_multiplied_as_it_is_costs_the_same_by_a_number_that_stays(device: Device) -> None:
    for dtype in (BFLOAT16, np.int32):
        assert product(device, 1, dtype=dtype) == product(device, 16, 128, dtype=dtype)


@DEVICES
def test_scales_of_sums_are_split_once_for_a_call(device: Device) -> None:
    x, z, y = (tensor(name, (16, 128)) for name in "xzy")
    (nest,) = Eltwise("a", "add", [x, z], y, device).nests()

    def scaled(**scales: float) -> float:
        scalars = {**nest.scalars, **scales}
        return call(replace(nest, scalars=scalars), device, [dim.extent for dim in nest.dims], 1)

    vectors = f32_vectors(16 * 128, device)
    assert scaled(beta=0.5) == 100 + 10 + SPLIT + vectors * (1 + STAYS)
    assert scaled(alpha=2.0, beta=0.5) == 100 + 10 + 2 * SPLIT + vectors * (1 + 2 * STAYS)


@DEVICES
def test_alpha_of_gemm_is_split_once(device: Device) -> None:
    a, b, y = (tensor(name, shape) for name, shape in (("a", (32, 64)), ("b", (64, 32)), ("y", (32, 32))))
    plain, scaled = (
        cycles(MatMul("p", a, b, y, device, ProductOptions(alpha=alpha)), device) for alpha in (1.0, 0.5)
    )
    assert scaled - plain == SPLIT + f32_vectors(32 * 32, device) * STAYS


@DEVICES
def test_lrn_has_two_products_with_numbers_of_the_call(device: Device) -> None:
    x, y = (tensor(name, (1, 8, 32, 32)) for name in "xy")
    normalised = cycles(Lrn("n", x, y, device, size=5, alpha=1e-4, beta=0.75, bias=1.0), device)
    # Squares of five, added; alpha, the bias, a logarithm, beta, an exponential, the product with x.
    vector = 5 * (NEW + 1) + STAYS + 1 + 202 + STAYS + 143 + NEW
    assert normalised == 100 + 2 * SPLIT + f32_vectors(8 * 1024, device) * (10 + vector)


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
