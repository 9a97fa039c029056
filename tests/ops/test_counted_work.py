# SPDX-License-Identifier: Apache-2.0
"""What calls cost, beside what was counted by hand: shapes and orders cost what they take."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product as product_of
from typing import Any

import numpy as np
import pytest

from onedispatch.operators.declarations.dtypes import DTYPES
from onedispatch.operators.families.conv import Conv
from onedispatch.operators.families.elementwise import Eltwise, View
from onedispatch.operators.families.matmul import MatMul
from onedispatch.operators.families.rows import Softmax
from onedispatch.operators.families.window import Window
from onedispatch.operators.interface.operator import Operator, TensorSpec
from onedispatch.operators.scheduling.call_cost import CallCost
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.transactions import Device, find_device

BFLOAT16 = DTYPES["bf16"].numpy
NPU1, NPU2 = find_device("npu1"), find_device("npu2")
DEVICES = pytest.mark.parametrize("device", (NPU1, NPU2), ids=("npu1", "npu2"))


def tensor(name: str, shape: Iterable[int], dtype: Any = np.float32) -> TensorSpec:
    return TensorSpec(name, np.dtype(dtype), tuple(shape))


def cycles(op: Operator, device: Device) -> float:
    """Of the operator's one nest in one call."""
    (nest,) = op.nests()
    return call(nest, device, [dim.extent for dim in nest.dims], nest.k_extent)


def call(nest: Nest, device: Device, tiles: list[int], k: int) -> float:
    return float(CallCost(nest, device, tiles, max(k, 1))(k, 1))


def softmax(device: Device, rows: int, length: int) -> float:
    x, y = (tensor(name, (rows, length)) for name in "xy")
    return cycles(Softmax("s", x, y, (1, 2), device), device)


@DEVICES
def test_short_rows_cost_more_than_long_ones_of_as_many_elements(device: Device) -> None:
    lanes = device.constant("kernel.f32_lanes")
    # Half a vector or more is empty, and every row has its loops, its sums across lanes and its division.
    ratio = softmax(device, 65_536, 8) / softmax(device, 512, 1024)
    assert ratio > lanes / 8
    # A row of 8: three loops, one vector, a division, and twice the halvings of 8 lanes.
    assert softmax(device, 2, 8) - softmax(device, 1, 8) == 3 * 10 + (3 + 143 + 19) + 104 + 2 * 3 * 2


def conv(device: Device, channels: int, kernel: int) -> float:
    """32 output channels of 14 x 14, ``channels`` times ``kernel`` x ``kernel`` products each."""
    pads = (kernel // 2,) * 4
    window = Window((kernel, kernel), (1, 1), (1, 1), pads)
    shapes = (1, channels, 14, 14), (32, channels, kernel, kernel), (1, 32, 14, 14)
    x, w, y = (tensor(name, shape, BFLOAT16) for name, shape in zip("xwy", shapes, strict=True))
    w = TensorSpec("w", w.dtype, w.shape, np.zeros(w.shape, w.dtype))
    op = Conv("c", x, w, None, y, window, 1, device)
    return cycles(op, device)


@DEVICES
def test_wide_windows_cost_their_columns(device: Device) -> None:
    wide, narrow = conv(device, 8, 7), conv(device, 8 * 49, 1)
    vector = device.constant("kernel.vector_bytes")
    columns = 8 * 49 * (14 * np.ceil(14 * 2 / vector) + 10)  # im2col
    planes = 8 * (14 * np.ceil(14 * 2 / vector) + 10)  # copied with their borders
    assert wide > narrow
    assert wide - narrow == pytest.approx(columns + planes, abs=2)


def move(device: Device, shape: tuple[int, int], strides: tuple[int, int]) -> float:
    x, y = tensor("x", shape), tensor("y", shape)
    return cycles(Eltwise("m", "copy", [x], y, device, views=[View(strides)], shape=shape), device)


@DEVICES
def test_transposed_reads_cost_more_than_straight_ones(device: Device) -> None:
    straight, crosswise = move(device, (64, 64), (64, 1)), move(device, (64, 64), (1, 64))
    lanes = device.constant("kernel.vector_bytes") / 4
    # One element per cycle instead of vectors (the store takes one per cycle), and a loop for each row.
    assert straight == 100 + 10 + 64 * 64 / lanes
    assert crosswise == 100 + 64 * 10 + 64 * 64


@DEVICES
def test_rows_that_fill_no_vector_cost_a_whole_one(device: Device) -> None:
    lanes = int(device.constant("kernel.vector_bytes") // 4)

    def rows(n: int) -> float:
        x, column, y = (
            tensor(name, shape) for name, shape in zip("xcy", ((64, n), (64, 1), (64, n)), strict=True)
        )
        return cycles(Eltwise("a", "max", [x, column], y, device), device)

    assert rows(lanes) == rows(lanes - 1) == rows(1 + lanes // 2)


def product(device: Device, m: int, k: int, n: int, dtype: Any = np.int8, out: Any = np.int32) -> float:
    a, b = tensor("a", (m, k), dtype), tensor("b", (k, n), dtype)
    return cycles(MatMul("p", a, b, tensor("y", (m, n), out), device), device)


@DEVICES
def test_products_run_in_whole_native_ones(device: Device) -> None:
    m, k, n = (int(device.constant(f"kernel.i8_native_{d}")) for d in "mkn")
    assert product(device, 64, 64, 1) == pytest.approx(product(device, 64, 64, n), rel=0.01)  # not an eighth
    assert product(device, 1, 64, 64) == product(device, m, 64, 64)
    assert product(device, 64, 3, 64) == product(device, 64, k, 64)


# arXiv 2512.13282: MAC per cycle of single-core kernels.
@pytest.mark.parametrize(
    ("device", "out", "m", "k", "n", "rate"),
    [
        (NPU1, "i8", 64, 232, 64, 233.0),
        (NPU1, "i8", 112, 112, 112, 212.5),
        (NPU1, "i16", 64, 216, 64, 217.6),
        (NPU1, "i16", 96, 112, 96, 192.0),
        (NPU1, "i16", 80, 104, 128, 186.9),
        (NPU1, "i32", 48, 280, 48, 192.0),
        (NPU1, "i32", 80, 88, 96, 146.0),
        (NPU1, "bf16", 64, 104, 64, 112.6),
        (NPU1, "bf16", 96, 56, 96, 99.8),
        (NPU1, "bf16", 96, 48, 112, 97.3),
        (NPU2, "i8", 64, 232, 64, 450.6),
        (NPU2, "i8", 144, 72, 144, 343.0),
        (NPU2, "i16", 64, 216, 64, 419.8),
        (NPU2, "i16", 128, 72, 112, 307.2),
        (NPU2, "i32", 48, 280, 48, 384.0),
        (NPU2, "i32", 96, 64, 96, 256.0),
        (NPU2, "bf16", 48, 152, 48, 158.1),
        (NPU2, "bf16", 112, 48, 96, 137.2),
    ],
)
def test_constants_meet_the_published_kernels(
    device: Device, out: str, m: int, k: int, n: int, rate: float
) -> None:
    of = "bf16" if out == "bf16" else "i8"
    per_output, per_call = (
        device.constant(f"kernel.{of}_{out}_{name}") for name in ("output_cycles", "product_call_cycles")
    )
    native = [device.constant(f"kernel.{of}_native_{d}") for d in "mkn"]
    rows, inner, columns = (-(-size // whole) * whole for size, whole in zip((m, k, n), native, strict=True))
    spent = rows * inner * columns / device.constant(f"kernel.{of}_{of}_macs_per_cycle")
    spent += rows * columns * per_output + per_call
    assert m * k * n / spent == pytest.approx(rate, rel=0.013)


@DEVICES
def test_f32_products_take_nine_bfloat16_ones(device: Device) -> None:
    plain = 128  # MAC per cycle of bfloat16 without shared exponents
    assert device.constant("kernel.f32_f32_macs_per_cycle") == pytest.approx(plain / 9, rel=1e-4)


def parts(x: np.ndarray[Any, Any], count: int) -> list[np.ndarray[Any, Any]]:
    """``x`` as a sum of bfloat16 numbers, each the rounded rest."""
    found, rest = [], x
    for _ in range(count):
        found.append(rest.astype(BFLOAT16).astype(np.float32))
        rest = rest - found[-1]
    return found


def test_three_bfloat16_parts_are_f32_and_nine_products_are_exact() -> None:
    random = np.random.default_rng(9)
    a, b = (random.standard_normal(20_000).astype(np.float32) for _ in range(2))
    assert (sum(parts(a, 3)) == a).all()
    exact = a.astype(np.float64) * b
    pairs = product_of(enumerate(parts(a, 3)), enumerate(parts(b, 3)))
    products = {(i, j): x.astype(np.float64) * y for (i, x), (j, y) in pairs}

    def error(most: int) -> float:
        """The largest relative error of the products of parts whose places add up to ``most`` at most."""
        total = sum(product for (i, j), product in products.items() if i + j <= most)
        return float(np.max(np.abs(total - exact) / np.abs(exact)))

    assert error(4) == 0  # all nine
    assert 2**-28 < error(2) < 2**-22  # six
    assert 2**-19 < error(1) < 2**-14  # three
