# SPDX-License-Identifier: Apache-2.0
"""What calls cost, beside what was counted by hand: shapes and orders cost what they take."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from onedispatch.operators.declarations.dtypes import DTYPES
from onedispatch.operators.declarations.functions import ACTIVATIONS, ELTWISE, REDUCTIONS, Activation
from onedispatch.operators.declarations.kernel import FunctionTable
from onedispatch.operators.interface.operator import Operator, TensorSpec
from onedispatch.operators.kernels.combine import Combine
from onedispatch.operators.kernels.conv import Conv
from onedispatch.operators.kernels.conv_integer import IntegerConv, RequantParams
from onedispatch.operators.kernels.elementwise import KERNEL, Eltwise, Layout, View
from onedispatch.operators.kernels.matmul import MatMul, ProductOptions
from onedispatch.operators.kernels.matmul_nbits import MatMulNBits
from onedispatch.operators.kernels.pool import Pool
from onedispatch.operators.kernels.quant_params import QuantParams
from onedispatch.operators.kernels.quantise import Dequantise, Quantise, ScaleAxis
from onedispatch.operators.kernels.reduce import Reduce
from onedispatch.operators.kernels.softmax import Softmax
from onedispatch.operators.kernels.table import Table
from onedispatch.operators.kernels.window import Window
from onedispatch.operators.scheduling.call_cost import CallCost, scratch_words
from onedispatch.operators.scheduling.index_space import F32, OUTPUT, Access, Dim, Operand
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
    # A row of 8: three loops, one vector (compared, centred, added up), a division, and the halvings of 8
    # lanes for the maximum and for the sum. What it is scaled by is split once for the row.
    vector, across = 4 + 1 + 143 + 1 + (5 + 9), 3 * (1 + 4) + 3 * (1 + 1)
    assert softmax(device, 2, 8) - softmax(device, 1, 8) == 3 * 10 + vector + 104 + 5 + across


def conv(device: Device, channels: int, kernel: int, dtype: Any = BFLOAT16, size: int = 14) -> float:
    """32 output channels of ``size`` x ``size``, ``channels`` times ``kernel`` x ``kernel`` products each."""
    return cycles(convolution(device, channels, kernel, dtype, size), device)


def convolution(
    device: Device, channels: int, kernel: int, dtype: Any, size: int = 14, depthwise: bool = False
) -> Conv:
    pads = (kernel // 2,) * 4
    window = Window((kernel, kernel), (1, 1), (1, 1), pads)
    weights, outputs = ((channels, 1), channels) if depthwise else ((32, channels), 32)
    shapes = (1, channels, size, size), (*weights, kernel, kernel), (1, outputs, size, size)
    x, w, y = (tensor(name, shape, dtype) for name, shape in zip("xwy", shapes, strict=True))
    w = TensorSpec("w", w.dtype, w.shape, np.zeros(w.shape, w.dtype))
    return Conv("c", (x, w), y, window, channels if depthwise else 1, device)


def placed(line: float, vector: float, block: float) -> float:
    """Loads and shuffles of a line, whose vectors exchange by halves the blocks that they hold."""
    whole = np.ceil(line / vector) - 1
    last = np.ceil((line - whole * vector) / block)
    return float(whole * (1 + np.log2(vector / block)) + 1 + np.ceil(np.log2(last)))


@DEVICES
def test_wide_windows_cost_their_columns(device: Device) -> None:
    wide, narrow = conv(device, 8, 7), conv(device, 8 * 49, 1)
    vector = device.constant("kernel.vector_bytes")
    # im2col: every vector of a column is shifted, and its blocks go to the native products.
    block = 2 * device.constant("kernel.bf16_native_n")
    columns = 8 * (49 * 14 * placed(14 * 2, vector, block) + 10)
    planes = 8 * (14 * np.ceil(14 * 2 / vector) + 10)  # copied with their borders
    assert wide > narrow
    assert wide - narrow == pytest.approx(columns + planes, abs=2)


@DEVICES
@pytest.mark.parametrize("size", (7, 14, 28, 56))
def test_wide_windows_of_f32_cost_more_than_splitting_as_many_planes(device: Device, size: int) -> None:
    wide, narrow = (conv(device, c, k, np.float32, size) for c, k in ((32, 7), (32 * 49, 1)))
    lanes, vector = device.constant("kernel.f32_lanes"), device.constant("kernel.vector_bytes")
    row = np.ceil(size * 6 / vector)  # vectors of three parts
    block = 2 * device.constant("kernel.f32_native_n")
    columns = 32 * (49 * size * placed(size * 6, vector, block) + 10)
    planes = 32 * (size * row + 10)
    # All planes lie in one run: 48 of 49 need no splitting where windows are wide.
    split = 5 * (np.ceil(32 * 49 * size**2 / lanes) - np.ceil(32 * size**2 / lanes))
    assert wide - narrow == pytest.approx(columns + planes - split, abs=2)
    assert wide > narrow


def move(device: Device, shape: tuple[int, int], strides: tuple[int, int]) -> float:
    x, y = tensor("x", shape), tensor("y", shape)
    return cycles(Eltwise("m", "copy", [x], y, device, layout=Layout([View(strides)], shape)), device)


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


def up_sampled(device: Device, shape: tuple[int, int], up: int, down: int, axes: str = "hw") -> float:
    """A copy of [h, w] whose element i is element floor(i * down / up) of the source, along ``axes``."""
    (h, w), (oh, ow) = (
        shape,
        (n * up // down if axis in axes else n for axis, n in zip("hw", shape, strict=True)),
    )
    steps = [Access(d, down, den=up) if axis in axes else Access(d) for d, axis in enumerate("hw")]
    x = Operand("x0", 0, F32, (h, w), (w, 1), tuple(steps))
    out = Operand("out", OUTPUT, F32, (oh, ow), (ow, 1), (Access(0), Access(1)))
    nest = Nest(KERNEL, (Dim("h", oh), Dim("w", ow)), (x,), (out,), scalars={"func": "copy"})
    return call(nest, device, [oh, ow], 1)


@DEVICES
def test_members_at_fractions_take_a_shuffle_for_every_vector(device: Device) -> None:
    lanes = int(device.constant("kernel.vector_bytes") // 4)
    rows, row = 32, 4 * lanes
    stores = rows * row // lanes
    # Rows that repeat are read again, as they lie: two vectors in a cycle, one stored.
    assert up_sampled(device, (16, row), 2, 1, "h") == 100 + rows * 10 + stores
    # Elements that repeat: one load and shuffle for every vector of results, as many as are stored.
    assert up_sampled(device, (rows, row // 2), 2, 1, "w") == 100 + 10 + stores  # doubled rows join
    assert up_sampled(device, (16, row // 2), 2, 1) == 100 + rows * 10 + stores
    # Three of two: two vectors of three hold what three of results take.
    assert up_sampled(device, (rows, row), 3, 2, "w") == 100 + 10 + 3 * stores / 2
    # Two of three: what is stored takes half as many vectors again.
    skipping = up_sampled(device, (rows, 3 * row), 2, 3, "w")
    assert skipping == 100 + 10 + 3 * stores
    assert skipping > move(device, (rows, 2 * row), (2 * row, 1))


def requantised(device: Device, out: Any, **others: TensorSpec) -> float:
    a, b, y = tensor("a", (64, 96), np.int8), tensor("b", (96, 64), np.int8), tensor("y", (64, 64), out)
    return cycles(MatMul("p", a, b, y, device, ProductOptions(**others)), device)


@DEVICES
def test_requantisation_is_f32_work_on_every_sum(device: Device) -> None:
    scale, zero = tensor("s", (64,)), tensor("z", (1,), np.int8)
    words = 64 * 64 / device.constant("kernel.f32_lanes")
    plain = requantised(device, np.int32)
    scaled = requantised(device, np.int32, scale=scale)
    # To f32 and back, two each, a multiplication by the scale, which is split once, and narrowing.
    split = 5 * 64 / device.constant("kernel.f32_lanes")
    assert scaled - plain == words * (2 + 14 + 2 + 1) + split
    shifted = requantised(device, np.int8, scale=scale, out_zero=zero)
    assert shifted - requantised(device, np.int8, scale=scale) == words
    # Narrow results pay as much: the accumulators cost less to write, the arithmetic is the same.
    narrow = 64 * 64 * device.constant("kernel.i8_i8_output_cycles")
    assert shifted == pytest.approx(
        64 * 96 * 64 / device.constant("kernel.i8_i8_macs_per_cycle") + narrow + words * 20 + split, abs=1
    )


@DEVICES
def test_zero_points_take_sums_and_correct_every_output(device: Device) -> None:
    one, each = tensor("z", (1,), np.int8), tensor("z", (64,), np.int8)
    lanes = device.constant("kernel.i32_lanes")
    adds = 64 * 96 / device.constant("kernel.i8_lanes") * device.constant("kernel.i8_sum_cycles")
    mul, words = device.constant("kernel.i32_mul_cycles"), 64 * 64 / lanes
    plain = requantised(device, np.int32)
    for name in ("a_zero", "b_zero"):
        assert requantised(device, np.int32, **{name: one}) - plain == adds + 64 / lanes * mul + words
        assert requantised(device, np.int32, **{name: each}) - plain == adds + words * mul + words


WIDTHS = {"f32": 4, "bf16": 2, "f16": 2, "i32": 4, "i16": 2, "i8": 1}


def of_bits(table: FunctionTable) -> list[str]:
    """Functions that move and compare, and do nothing else."""
    return [row.name for row in table.rows if {term for term, _ in row.work} <= {"move", "compare"}]


def taken(table: FunctionTable, name: str) -> list[str]:
    return [dtype for dtype in WIDTHS if table[name].takes(dtype)]


def is_no_dearer(costs: dict[str, float]) -> None:
    """Narrow elements cost at most what wide ones of their kind do."""
    for narrow, wide in (("bf16", "f32"), ("f16", "f32"), ("i16", "i32"), ("i8", "i16")):
        if narrow in costs and wide in costs:
            assert costs[narrow] <= costs[wide], (narrow, costs)


@DEVICES
@pytest.mark.parametrize("name", of_bits(ACTIVATIONS))
def test_narrow_elements_are_no_dearer_to_move(device: Device, name: str) -> None:
    def run(dtype: str) -> float:
        x, y = (tensor(t, (64, 512), DTYPES[dtype].numpy) for t in "xy")
        return cycles(Eltwise("m", "copy", [x], y, device, activation=Activation(name)), device)

    is_no_dearer({dtype: run(dtype) for dtype in taken(ACTIVATIONS, name)})


@DEVICES
@pytest.mark.parametrize("name", [n for n in of_bits(ELTWISE) if n not in ("copy", "fill")])
def test_narrow_elements_are_no_dearer_to_compare(device: Device, name: str) -> None:
    def run(dtype: str) -> float:
        x, z, y = (tensor(t, (64, 512), DTYPES[dtype].numpy) for t in "xzy")
        return cycles(Eltwise("m", name, [x, z], y, device), device)

    is_no_dearer({dtype: run(dtype) for dtype in taken(ELTWISE, name)})


@DEVICES
@pytest.mark.parametrize("name", of_bits(REDUCTIONS))
@pytest.mark.parametrize("axes", ((0, 1), (1, 2)))
def test_narrow_elements_are_no_dearer_to_reduce(device: Device, name: str, axes: tuple[int, int]) -> None:
    shapes = ("x", (64, 512)), ("y", (512,) if axes == (0, 1) else (64,))

    def run(dtype: str) -> float:
        x, y = (tensor(t, shape, DTYPES[dtype].numpy) for t, shape in shapes)
        return cycles(Reduce("r", name, x, y, axes, device), device)

    is_no_dearer({dtype: run(dtype) for dtype in taken(REDUCTIONS, name)})


@DEVICES
def test_rows_of_narrow_results_are_reduced_as_they_lie(device: Device) -> None:
    x, y = tensor("x", (64, 512), BFLOAT16), tensor("y", (64,), BFLOAT16)
    lanes, vector = device.constant("kernel.bf16_lanes"), device.constant("kernel.vector_bytes")
    row = 10 + 512 / lanes + np.log2(lanes) * (0.5 + 1)  # compared, shifted by halves and compared
    results = 2 * 64 * 2 / vector
    assert cycles(Reduce("r", "max", x, y, (1, 2), device), device) == 100 + 64 * row + results


@DEVICES
@pytest.mark.parametrize("steps", ((1, 1), (2, 2)))
def test_narrow_elements_are_no_dearer_to_pool(device: Device, steps: tuple[int, int]) -> None:
    window = Window((3, 3), steps, (1, 1), (1, 1, 1, 1))

    def run(dtype: str) -> float:
        shapes = (1, 8, 56, 56), (1, 8, 56 // steps[0], 56 // steps[1])
        x, y = (tensor(t, shape, DTYPES[dtype].numpy) for t, shape in zip("xy", shapes, strict=True))
        return cycles(Pool("p", "max", x, y, window, device), device)

    is_no_dearer({dtype: run(dtype) for dtype in ("f32", "bf16", "f16", "i16", "i8")})


@DEVICES
def test_a_largest_of_nine_is_nine_comparisons(device: Device) -> None:
    lanes, vector = device.constant("kernel.f32_lanes"), device.constant("kernel.vector_bytes")
    x, y = tensor("x", (1, 8, 28, 64)), tensor("y", (1, 8, 28, 64))
    pool = Pool("p", "max", x, y, Window((3, 3), (1, 1), (1, 1), (1, 1, 1, 1)), device)
    planes = 8 * (28 * 64 * 4 / vector + 10)  # copied with their borders, and not split into parts
    taps = 8 * 28 * (64 / lanes) * (9 * (4 + 1) + 10)  # a load that is shifted, and a comparison of bits
    assert cycles(pool, device) == 100 + planes + taps


@DEVICES
@pytest.mark.parametrize("function", ("div", "sqrt"))
def test_quotients_and_roots_cost_what_their_digits_take(device: Device, function: str) -> None:
    costs = [device.constant(f"kernel.{dtype}_{function}_cycles") for dtype in ("bf16", "f16", "f32")]
    assert costs[0] < costs[1] < costs[2]


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


def scratch(op: Operator, device: Device, k: int = 0) -> int:
    """Bytes of scratch of the operator's one nest in one tile, in steps of ``k`` or in one step."""
    (nest,) = op.nests()
    tiles = [dim.extent for dim in nest.dims]
    return 4 * int(scratch_words(nest, device, tiles, max(k or nest.k_extent, 1)))


@DEVICES
def test_products_take_scratch_for_the_parts_of_both_operands_and_for_sums_that_wait(device: Device) -> None:
    def product(dtype: Any, k: int = 0) -> int:
        a, b, y = (tensor(n, s, dtype) for n, s in (("a", (64, 96)), ("b", (96, 32)), ("y", (64, 32))))
        return scratch(MatMul("p", a, b, y, device), device, k)

    both, sums = 64 * 96 + 96 * 32, 4 * 64 * 32
    assert product(np.float32) == 6 * both
    assert product(np.float32, 48) == 3 * both  # sums wait in the chunk of the results
    assert product(np.float16) == 4 * both
    assert product(np.float16, 48) == sums + 2 * both
    assert product(BFLOAT16) == 0 and product(BFLOAT16, 48) == sums  # nothing is split
    a, b, y = (tensor(n, (64, 64), dtype) for n, dtype in (("a", np.int8), ("b", np.int8), ("y", np.int32)))
    assert scratch(MatMul("p", a, b, y, device), device) == 0


@DEVICES
def test_convolutions_take_scratch_for_parts_and_for_a_block_of_columns(device: Device) -> None:
    def taken(kernel: int, dtype: Any, k: int = 0) -> int:
        return scratch(convolution(device, 8, kernel, dtype), device, k)

    planes, weights = 8 * 14 * 14, 32 * 8
    # Of every channel and tap, as many pixels as a native product takes.
    columns, narrow = (8 * 9 * device.constant(f"kernel.{dtype}_native_n") for dtype in ("f32", "bf16"))
    assert taken(1, np.float32) == 6 * (planes + weights)  # windows of one element have no columns
    assert taken(3, np.float32) == 6 * (planes + 9 * weights + columns)
    assert taken(3, np.float32, 4) == 3 * (planes + 9 * weights + columns)
    assert taken(1, BFLOAT16) == 0
    assert taken(3, BFLOAT16) == 2 * narrow
    assert taken(3, BFLOAT16, 4) == 4 * 32 * 14 * 14 + narrow


def integer_conv(
    device: Device, kernel: int, out: Any = np.int8, groups: int = 1, **meaning: TensorSpec
) -> float:
    """32 output channels of 14 x 14, ``kernel`` x ``kernel`` products of each of 32 channels or of one."""
    plain = convolution(device, 32, kernel, np.int8, depthwise=groups > 1)
    weights = TensorSpec("w", np.dtype(np.int8), plain.weights.shape, np.ones(plain.weights.shape, np.int8))
    y = tensor("y", plain.output.shape, out)
    given = (plain.x, weights), y, plain.window, groups, device
    return cycles(IntegerConv("c", *given, RequantParams(**meaning)), device)


def constant(dtype: Any, *values: float) -> TensorSpec:
    return TensorSpec("z", np.dtype(dtype), (len(values),), np.array(values, dtype))


@DEVICES
def test_integer_convolutions_cost_products_columns_of_bytes_and_their_scales(device: Device) -> None:
    def price(name: str) -> float:
        return device.constant(f"kernel.{name}")

    scale = constant(np.float32, *np.linspace(0.1, 1, 32))
    pixels = 14 * 16  # rows fill up words, and all of them native products
    words, vector = pixels / price("i32_lanes"), price("vector_bytes")
    whole = 32 * 32 * pixels / price("i8_i8_macs_per_cycle") + price("i8_i8_product_call_cycles")
    whole += 32 * pixels * price("i8_i8_output_cycles")
    narrow = 32 * words * (2 + 14 + 2 + 1) + 32 * 5
    assert integer_conv(device, 1, scale=scale) == pytest.approx(whole + narrow, abs=1)
    # Windows: planes are copied, and vectors of a column go to the products whose pixels they have.
    columns = 32 * (9 * 14 * placed(14, vector, price("i8_native_n")) + 10)
    planes = 32 * (14 * np.ceil(14 / vector) + 10)
    products = 8 * 32 * 32 * pixels / price("i8_i8_macs_per_cycle")
    wide = integer_conv(device, 3, scale=scale) - integer_conv(device, 1, scale=scale)
    assert wide == pytest.approx(columns + planes + products, abs=1)
    # A zero point of x that is known is a bias; else weights are summed, and each sum is multiplied.
    known = integer_conv(device, 1, scale=scale, x_zero=constant(np.int8, 3))
    assert known - integer_conv(device, 1, scale=scale) == 32 * pixels / price("i32_lanes")
    sums = 32 * 32 / price("i8_lanes") * price("i8_sum_cycles")
    sums += 32 / price("i32_lanes") * price("i32_mul_cycles")
    computed = integer_conv(device, 1, scale=scale, x_zero=tensor("z", (1,), np.int8))
    assert computed - integer_conv(device, 1, scale=scale) == pytest.approx(sums + 32 * words, abs=1)


@DEVICES
def test_depthwise_integers_cost_a_product_per_tap_and_their_scales(device: Device) -> None:
    scale = constant(np.float32, 0.1)
    more = integer_conv(device, 5, groups=32, scale=scale) - integer_conv(device, 3, groups=32, scale=scale)
    taps = 32 * 14 * (25 - 9) * device.constant("kernel.i8_window_mac_cycles")  # a row is one vector
    loops = (32 * 14 - 32) * 10  # one for each of these vectors, where small windows have one for a channel
    assert more == taps + loops
    narrow = integer_conv(device, 3, groups=32, scale=scale) - integer_conv(device, 3, np.int32, groups=32)
    assert narrow == 32 * 14 * (2 + 14 + 2 + 1) + 32 * 5


@DEVICES
def test_convolutions_that_look_their_results_up_pay_what_a_table_does(device: Device) -> None:
    scale, table = constant(np.float32, 0.1), constant(np.int8, *range(-128, 128))
    laid, members = 4 * 256 / device.constant("kernel.vector_bytes"), 32 * 14 * 16
    words, narrow = (members / device.constant(f"kernel.{name}_lanes") for name in ("i32", "i8"))
    for groups in (1, 32):
        alone = integer_conv(device, 3, groups=groups, scale=scale)
        more = integer_conv(device, 3, groups=groups, scale=scale, table=table) - alone
        assert more == laid + narrow + words + members / 4


@DEVICES
def test_depthwise_convolutions_take_scratch_for_parts(device: Device) -> None:
    for dtype, size in ((np.float32, 6), (np.float16, 4), (BFLOAT16, 0)):
        op = convolution(device, 16, 3, dtype, depthwise=True)
        assert scratch(op, device) == size * 16 * (14 * 14 + 9)


@DEVICES
def test_quantisation_costs_a_division_and_its_way_back_a_product(device: Device) -> None:
    words, narrow = (16 * 64 // int(device.constant(f"kernel.{name}_lanes")) for name in ("f32", "i8"))
    x, q = tensor("x", (16, 64)), tensor("q", (16, 64), np.int8)
    scale, zero = tensor("s", ()), tensor("z", (), np.int8)

    def both(*zeros: TensorSpec) -> tuple[float, float]:
        return (
            cycles(Quantise("q", [x, scale, *zeros], q, device, ScaleAxis()), device),
            cycles(Dequantise("d", [q, scale, *zeros], x, device, ScaleAxis()), device),
        )

    # One run: a division, made an integer, made narrow; back: made wide, made a float, which bfloat16 holds,
    # and times the three parts of the scale, which are made once.
    assert both() == (100 + 10 + words * (104 + 2 + 1), 100 + 10 + narrow + 5 + words * (2 + 1 + 3))
    assert both(zero) == tuple(cost + words for cost in both())


@DEVICES
def test_a_table_is_laid_out_four_times_and_looked_up_four_times_in_a_cycle(device: Device) -> None:
    x, y, table = (
        tensor(name, shape, np.int8) for name, shape in (("x", (3, 640)), ("y", (3, 640)), ("t", (256,)))
    )
    laid = 4 * 256 // int(device.constant("kernel.vector_bytes"))
    words, narrow = (3 * 640 / device.constant(f"kernel.{name}_lanes") for name in ("i32", "i8"))
    loads = 3 * 640 / device.constant("kernel.vector_bytes") / 2
    # Indices made wide, a fourth of a cycle for each, results made narrow.
    assert (
        cycles(Table("t", x, table, y, device), device)
        == laid + 100 + 10 + loads + narrow + words + 3 * 640 / 4
    )


@DEVICES
def test_quantised_sums_cost_two_products_and_quantised_products_one(device: Device) -> None:
    a, b, y = (tensor(name, (16, 64), np.int8) for name in "aby")
    words, narrow = (16 * 64 // int(device.constant(f"kernel.{name}_lanes")) for name in ("f32", "i8"))
    scales = [QuantParams(np.float32(1), 0)] * 3
    # Both are made words; made floats, which bfloat16 holds, times three parts of a scale; what two of these
    # come to and the third one are exact. Their sum with what there is: both parts of it, of six additions,
    # the lower product, and both together. Made integers and narrow.
    total = cycles(Combine("c", False, [a, b], scales, y, device), device)
    assert total == 100 + 10 + 2 * narrow + 2 * 5 + words * (2 * (2 + 1 + 3 + 6 + 1 + 1) + 2 + 1)
    # Differences and their product of 16 bits, made floats, of two parts; multiplied and added; made integers
    # and narrow.
    product = cycles(Combine("c", True, [a, b], scales, y, device), device)
    times = device.constant("kernel.i16_mul_cycles")
    assert product == 100 + 10 + 2 * narrow + 5 + words * (2 + times + 2 + 3 + 6 + 1 + 2 + 1)


def packed_product(device: Device, bits: int, dtype: Any, zeros: Any = None) -> MatMulNBits:
    """16 rows, 64 columns, four blocks of 32."""
    b, scales = tensor("b", (64, 4, 32 * bits // 8), np.uint8), tensor("s", (64, 4), dtype)
    points = None if zeros is None else tensor("z", (64, 4), zeros)
    a, y = tensor("a", (16, 128), dtype), tensor("y", (16, 64), dtype)
    operands = [a, b, scales] if points is None else [a, b, scales, points]
    return MatMulNBits("p", operands, y, device, bits=bits)


@DEVICES
def test_packed_weights_are_widened_once_and_sums_of_f32_scaled_block_by_block(device: Device) -> None:
    def price(name: str) -> float:
        return device.constant(f"kernel.{name}")

    bytes_, words, outputs = 32 * 64 / price("i8_lanes"), 32 * 64 / price("f32_lanes"), 16 * 64
    # Of a block: a loop; nibbles apart, bytes wide; a difference, two conversions to floats, one to bfloat16.
    widened = {4: 10 + bytes_ * 2 + words * 4, 8: 10 + bytes_ + words * 4}
    macs = 16 * 32 * 64
    for bits, of_block in widened.items():
        # bfloat16: weights are scaled; products and accumulators as of any others.
        product = macs / price("bf16_bf16_macs_per_cycle")
        whole = 4 * (of_block + words * 2 + product) + outputs * price("bf16_bf16_output_cycles")
        assert cycles(packed_product(device, bits, BFLOAT16), device) == pytest.approx(whole, abs=1)
        # f32: data in three parts, weights in one; sums leave the accumulators and are scaled and added.
        product = macs / (128 / 3) + price("f32_f32_product_call_cycles")
        # The scales of a block's columns are split once for all rows.
        product += outputs * (price("f32_f32_output_cycles") + (5 + 9 + 1) / price("f32_lanes"))
        product += 64 / price("f32_lanes") * 5
        split = 16 * 128 / price("f32_lanes") * 5
        found = cycles(packed_product(device, bits, np.float32), device)
        assert found == pytest.approx(split + 4 * (of_block + product), rel=1e-4)
    # Zero points that are no whole numbers: differences are split in three parts, and products are nine.
    more = 4 * (words * (5 - 1) + macs * (9 - 3) / 128)
    split_too = cycles(packed_product(device, 8, np.float32, np.float32), device)
    assert split_too == pytest.approx(found + more, rel=1e-4)


@DEVICES
def test_packed_weights_take_scratch_as_bfloat16(device: Device) -> None:
    weights, data, sums = 128 * 64, 16 * 128, 4 * 16 * 64
    for dtype, zeros, size in (
        (np.float32, None, 2 * weights + 6 * data),
        (np.float32, np.uint8, 2 * weights + 6 * data),
        (np.float32, np.float32, 6 * weights + 6 * data),
        (BFLOAT16, None, 2 * weights),
        (np.float16, np.float16, 4 * weights + 4 * data),
    ):
        assert scratch(packed_product(device, 4, dtype, zeros), device) == size
    assert scratch(packed_product(device, 4, BFLOAT16), device, 2) == weights + sums
