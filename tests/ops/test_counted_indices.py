# SPDX-License-Identifier: Apache-2.0
"""What calls cost whose work is no plain arithmetic, beside what was counted by hand: kernels that look at
indices, keep places, read tables, or take a step of a recurrent layer. Each operator is one call."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import ceil, log2
from typing import Any

import numpy as np
import pytest

from onedispatch.operators.interface.operator import Operator
from onedispatch.operators.scheduling.call_cost import CallCost
from onedispatch.transactions import Device
from tests.ops.case import Case, Input, case, f32, value
from tests.ops.lowered import lower
from tests.ops.test_counted_work import DEVICES, call, cycles

ENTRY, ROW = 100, 10
OP, MOVE, COMPARE, MUL, TANH, SIGMOID = 1, 1, 4, 19, 351, 143 + 104 + 4  # on a vector of f32
PLACE = 1  # each operation on a vector of 32-bit places, or indices


def operators(one: Case, device: Device) -> list[Operator]:
    """The device operators of a case on ``device``."""
    return [op for _, op in lower(replace(one, device=device.name)).ops]


def whole(device: Device, op_type: str, *inputs: Input | None, **attributes: Any) -> float:
    """Cycles of a node that is one operator, in one call."""
    (op,) = operators(case(op_type, *inputs, **attributes), device)
    return cycles(op, device)


def at(*shape: int, most: int = 32, dtype: str = "int32") -> Input:
    """Computed indices, no two of them at a step."""
    flat = np.arange(int(np.prod(shape))) ** 2 % most
    return value(flat.reshape(shape), dtype, const=False)


def words(members: float, device: Device) -> float:
    """Vectors of so many words."""
    return ceil(members / device.constant("kernel.f32_lanes"))


def stored(members: float, device: Device) -> float:
    """Loads, or stores, of so many words."""
    return ceil(4 * members / device.constant("kernel.vector_bytes"))


def scanned(members: int, device: Device, dtype: str = "i32") -> float:
    """Brought to 32 bits, compared with zero, turned, and compared with what is there."""
    lanes, converted = (device.constant(f"kernel.{dtype}_{name}") for name in ("lanes", "convert_cycles"))
    return ceil(members / lanes) * converted + words(members, device) * 3 * PLACE


@DEVICES
def test_an_index_that_names_a_row_takes_a_copy_of_it(device: Device) -> None:
    rows = whole(device, "Gather", f32(64, 256), at(8), axis=0)
    assert rows == ENTRY + ROW + scanned(8, device) + 8 * (ROW + stored(256, device))
    # Indices of 64 bits are made words, a vector of half as many lanes in four cycles.
    assert device.constant("kernel.i64_convert_cycles") == 4
    long = whole(device, "Gather", f32(64, 256), at(80, dtype="int64"), axis=0)
    short = whole(device, "Gather", f32(64, 256), at(80), axis=0)
    assert long - short == scanned(80, device, "i64") - scanned(80, device)


@DEVICES
def test_elements_with_indices_of_their_own_take_two_cycles_each(device: Device) -> None:
    alone = whole(device, "GatherElements", f32(4, 512), at(4, 96), axis=1)
    assert alone == ENTRY + ROW + scanned(4 * 96, device) + 2 * 4 * 96


@DEVICES
def test_parts_of_an_axis_are_looked_through_whole_and_share_what_is_moved(device: Device) -> None:
    (op,) = operators(case("Gather", f32(64, 256), at(8), axis=0), device)
    (nest,) = op.nests()
    tiles = [dim.extent for dim in nest.dims]
    half = float(CallCost(nest, device, tiles, 32)(32, 2))
    assert half == ENTRY + ROW + scanned(8, device) + 4 * (ROW + stored(256, device))


@DEVICES
@pytest.mark.parametrize(("reduction", "work"), [("none", 0), ("add", OP), ("mul", MUL), ("max", COMPARE)])
def test_updates_cost_the_tile_and_the_rows_that_fall_into_it(
    device: Device, reduction: str, work: int
) -> None:
    def scatter(rows: int) -> float:
        """Of a tile of so many of 64 rows."""
        x, updates = f32(64, 256), f32(8, 256)
        (op,) = operators(case("ScatterND", x, at(8, 1, dtype="int64"), updates, reduction=reduction), device)
        (nest,) = op.nests()
        tiles = [rows if dim.name == "a" else dim.extent for dim in nest.dims]
        return call(nest, device, tiles, nest.k_extent)

    row = ROW + 2 * stored(256, device) + words(256, device) * work  # the old one and the new one are loaded
    for rows in (64, 16):
        copied = ROW + rows * stored(256, device)
        applied = 8 * rows / 64 * row
        assert scatter(rows) == ceil(ENTRY + ROW + copied + scanned(8, device, "i64") + applied)


@DEVICES
def test_updates_with_indices_of_their_own_take_an_address_two_loads_and_a_store(device: Device) -> None:
    cost = whole(device, "ScatterElements", f32(16, 64), at(8, 64, most=16), f32(8, 64), axis=0)
    copied = ROW + 16 * stored(64, device)
    assert cost == ENTRY + ROW + copied + scanned(8 * 64, device) + 8 * 64 * 3


@DEVICES
def test_the_best_are_taken_out_one_by_one_or_sorted(device: Device) -> None:
    def best(n: int) -> float:
        return whole(device, "TopK", f32(4, 256), value([n], "int64"), outputs=2)

    lanes, exchange = device.constant("kernel.f32_lanes"), COMPARE + 4 * MOVE
    loads = 4 * stored(256, device) / device.constant("kernel.loads_per_cycle")

    def rest(n: int) -> float:
        merged = (ceil(log2(n)) + 1) * (ROW + 2 * words(n, device) * exchange)
        return ENTRY + loads + stored(4 * n, device) + 2 * stored(2 * 4 * n, device) + 4 * merged

    scan = ROW + words(256, device) * (COMPARE + MOVE) + log2(lanes) * (MOVE + exchange)
    assert best(5) == rest(5) + 4 * 5 * scan
    stages = 8 * 9 / 2 * (ROW + words(256, device) * exchange)
    assert best(200) == rest(200) + 4 * stages
    assert 200 * scan > stages


@DEVICES
def test_places_of_the_largest_are_selected_beside_them(device: Device) -> None:
    along = whole(device, "ArgMax", f32(64, 512), axis=1)
    lanes = device.constant("kernel.f32_lanes")
    vectors = words(512, device) * (COMPARE + MOVE + 2 * PLACE)  # the place counts on, and is selected
    across = log2(lanes) * (MOVE + COMPARE + MOVE + PLACE)
    results = stored(2 * 1, device)
    assert along == ENTRY + 64 * (ROW + vectors + across + 4 * stored(1, device) + results)


@DEVICES
def test_a_largest_with_its_place_is_nine_comparisons_and_two_selections_each(device: Device) -> None:
    x, window = f32(1, 8, 28, 64), {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    first, *_ = operators(case("MaxPool", x, outputs=2, **window), device)
    planes = 8 * (28 * stored(64, device) + ROW)  # copied with their borders
    vectors = words(64, device)
    tap = ROW + vectors * (MOVE + COMPARE + MOVE) + vectors * 2 * PLACE
    begun = ROW + vectors * 3 * PLACE  # the positions of the first taps
    assert cycles(first, device) == ENTRY + planes + 8 * 28 * (9 * tap + begun)


@DEVICES
def test_weighted_places_are_a_product_for_every_tap(device: Device) -> None:
    across = whole(device, "Resize", f32(4, 32, 64), None, value([1, 2, 1]), mode="linear")
    vectors = words(64, device)
    # Two places, two weights, which are split once for the row; their products, a store.
    row = ROW + 2 * (2 + 5) + vectors * (1 + 2 * (5 + 9 + OP))
    assert across == ENTRY + 4 * 64 * row
    # Along the rows every vector of x that is touched is shuffled; places and weights are vectors too.
    along = whole(device, "Resize", f32(4, 30), None, value([1, 2]), mode="linear")
    touched = stored(30, device) + words(60, device)
    loads = 2 / device.constant("kernel.loads_per_cycle")
    tap = touched + words(60, device) * (loads + MUL + OP)
    assert along == ENTRY + 4 * (ROW + words(60, device) + 2 * tap)


@DEVICES
@pytest.mark.parametrize(("mode", "taps"), [("nearest", 1), ("linear", 2), ("cubic", 4)])
def test_places_on_a_plane_are_counted_once_for_all_channels(device: Device, mode: str, taps: int) -> None:
    cost = whole(device, "GridSample", f32(1, 3, 16, 16), f32(1, 8, 8, 2), mode=mode)
    points, vectors = taps**2, words(64, device)
    place = 2 * MUL + 4 * OP + 4 * COMPARE
    weights = {1: 0, 2: OP, 4: OP + 12 * (MUL + OP)}[taps]
    places = vectors * (2 * (place + weights) + points * (2 * MUL + 2 * OP))
    product = MUL if taps > 1 else 0
    channel = ROW + points * (64 + vectors * (product + OP))  # a load and a shuffle for each
    assert cost == ENTRY + ROW + places + 3 * channel


def step(device: Device, op_type: str, gates: int, batch: int, hidden: int, **attributes: Any) -> float:
    """One step of a layer, in one call."""
    sizes = gates * hidden
    weights = [value(np.ones(shape)) for shape in ((1, sizes, 8), (1, sizes, hidden))]
    layer = case(op_type, f32(1, batch, 8), *weights, outputs=2, hidden_size=hidden, **attributes)
    (op,) = (op for op in operators(layer, device) if op.kind == "recurrent")
    return cycles(op, device)


@DEVICES
def test_a_step_of_a_layer_is_a_product_and_its_gates(device: Device) -> None:
    def product(gates: int) -> float:
        """4 x 64 x 64 for each gate, both factors made parts before."""
        columns = gates * 64
        split = words(4 * 64, device) + words(64 * columns, device)
        native = 4 * 64 * columns / device.constant("kernel.f32_f32_macs_per_cycle")
        sums = 4 * columns * device.constant("kernel.f32_f32_output_cycles")
        return split * device.constant("kernel.f32_pack_cycles") + native + sums

    begun = device.constant("kernel.f32_f32_product_call_cycles")
    vectors = 4 * words(64, device)
    found = {
        "RNN": (1, TANH),
        "GRU": (3, 2 * SIGMOID + TANH + 3 * MUL + 3 * OP),
        "LSTM": (4, 3 * SIGMOID + 2 * TANH + 3 * MUL + OP),
    }
    for op_type, (gates, work) in found.items():
        more = {"linear_before_reset": 1} if op_type == "GRU" else {}
        expected = begun + product(gates) + 4 * ROW + vectors * (gates * OP + work)
        assert step(device, op_type, gates, 4, 64, **more) == pytest.approx(expected, abs=1)


@DEVICES
def test_gates_of_a_bound_layer_are_compared_with_both_ends(device: Device) -> None:
    free, bound = (step(device, "LSTM", 4, 4, 64, **more) for more in ({}, {"clip": 1.0}))
    assert bound - free == 4 * words(64, device) * 4 * 2 * COMPARE


@DEVICES
def test_sums_along_a_row_take_the_halvings_of_a_vector(device: Device) -> None:
    row, column = (whole(device, "CumSum", f32(64, 512), value(axis, "int64")) for axis in (1, 0))
    each = log2(device.constant("kernel.f32_lanes")) * (MOVE + OP) + MOVE + OP
    assert row == ENTRY + 64 * (ROW + words(512, device) * each)
    assert column == ENTRY + ROW + words(512, device) * 64 * OP


@DEVICES
def test_tuples_of_indices_are_read_apart_and_multiplied_out(device: Device) -> None:
    costs = []
    for terms in (2, 3):
        first, *_ = operators(case("GatherND", f32(4, 5, 6, 7), at(80, terms, most=4, dtype="int64")), device)
        costs.append(cycles(first, device))
        turned = scanned(80, device, "i64") - words(80, device) * PLACE  # compared with nothing yet
        multiplied = words(80, device) * (2 * PLACE + device.constant("kernel.i32_mul_cycles"))
        loads = terms * min(80, stored(2 * 80 * terms, device)) * device.constant("kernel.gather_cycles")
        assert costs[-1] == ENTRY + terms * ROW + max(loads, terms * (turned + multiplied))
    assert all(a < b for a, b in pairwise(costs))
