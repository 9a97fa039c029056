# SPDX-License-Identifier: Apache-2.0
"""What the search takes a kernel call to cost is what the simulator charges for it, to the cycle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from operator import le

import numpy as np
import pytest

import onedispatch.cpp_ext._core as core
from onedispatch.operators.declarations.params import HEADER
from onedispatch.operators.declarations.registry import all_kernels
from onedispatch.operators.emission.emitter import BoundNest
from onedispatch.operators.kernels.elementwise import KERNEL
from onedispatch.operators.scheduling.call_cost import CallCost, op_cycles
from onedispatch.operators.scheduling.index_space import F32, OUTPUT, Access, Dim, Operand
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.operators.scheduling.schedule import Schedule
from onedispatch.operators.scheduling.solution import Mapping, Solution
from onedispatch.transactions import Device, find_device
from onedispatch.transactions.machine import registers as reg
from tests.ops.cases import CASES
from tests.ops.lowered import lower
from tests.tables import NIGHTLY

CALLS, SCRATCHES = 10_000 if NIGHTLY else 3_000, 1_000
BUFFER_BYTES = 60_000  # of a core's data memory, so that two slots of everything fit
# The last with rates as no device of AMD's has them.
DEVICES = (
    find_device("npu1"),
    find_device("npu2"),
    find_device("npu2").with_constants(
        kernel__f32_lanes=3,
        kernel__vector_bytes=48,
        kernel__row_cycles=0,
        kernel__f32_mul_cycles=0.75,
        kernel__i8_i8_macs_per_cycle=0.5,
        kernel__f32_native_k=5,
    ),
)


@cache
def nests() -> list[Nest]:
    """The nests of every case. Nothing is searched for them: tiles are drawn here."""
    return [nest for case in CASES for _, op in lower(case).ops for nest in op._nests]


def combination(nest: Nest) -> tuple[str, ...]:
    """The kernel, and the element types of its operands in order."""
    bound = nest.bound
    return nest.kernel.name, *(bound[t.name].dtype.name for t in nest.kernel.tensors if t.name in bound)


def random_schedule(nest: Nest, device: Device, random: np.random.Generator) -> Schedule | None:
    """The nest on one core with tiles that no search found."""
    tiles = []
    for dim in nest.dims:
        most = min(dim.extent, dim.max_tile, 64)
        tile = dim.extent if dim.whole else int(random.integers(1, most + 1))
        tiles.append(min(dim.extent, -(-tile // dim.multiple) * dim.multiple))
    k_tile = 1
    if nest.reduces and nest.k_extent:
        k_tile = min(nest.k_extent, int(random.integers(1, 65)))
        k_tile = min(nest.k_extent, -(-k_tile // nest.k_multiple) * nest.k_multiple)
        k_tile = nest.k_extent if nest.k_whole else k_tile
    mapping = Mapping(None, None, 1, frozenset(), False, tuple(range(len(nest.dims))))
    schedule = Schedule(nest, device, Solution(nest.kernel.name, mapping, tuple(tiles), k_tile))
    words = 2 * schedule.port_words(0) + 2 * schedule.out_words + schedule.scratch_words
    return schedule if words * 4 <= BUFFER_BYTES else None


def expected(schedule: Schedule) -> list[int]:
    """Cycles of the steps of one tile, by the formula that the search uses."""
    nest, steps = schedule.nest, schedule.inner_steps
    cost = CallCost(nest, schedule.device, schedule.tiles, schedule.k_tile)
    cycles = []
    for step in range(steps):
        count = min(schedule.k_tile, nest.k_extent - step * schedule.k_tile) if nest.reduces else 0
        cycles.append(int(cost(max(count, 0), int(step == steps - 1))))
    return cycles


def rounds() -> Iterator[Nest]:
    """Nests by turns: every combination of kernel and element types as often as any other."""
    kinds: dict[tuple[str, ...], list[Nest]] = {}
    for nest in nests():
        kinds.setdefault(combination(nest), []).append(nest)
    random = np.random.default_rng(3)
    while True:
        for alike in kinds.values():
            yield alike[int(random.integers(len(alike)))]


def test_search_and_simulator_agree_on_random_calls() -> None:
    random = np.random.default_rng(8)
    compared: Counter[tuple[str, ...]] = Counter()
    for nest in rounds():
        device = DEVICES[int(random.integers(len(DEVICES)))]
        schedule = random_schedule(nest, device, random)
        if schedule is None or schedule.inner_steps > 500:
            continue
        block = BoundNest(schedule, dict.fromkeys(range(8), 1), 1, 0).param_block
        wanted = expected(schedule)
        opened = core.device.from_description(device.description())
        setup, *charged = core.charged_cycles(block, opened, most=1 + min(64, 4 * len(wanted)))
        assert setup == op_cycles(nest, device)
        assert charged == (wanted * len(charged))[: len(charged)], schedule.explain()
        compared[combination(nest)] += len(charged)
        if compared.total() >= CALLS:
            break
    assert {name for name, *_ in compared} == {kernel.name for kernel in all_kernels()}


def test_both_take_as_much_scratch_for_random_calls() -> None:
    random = np.random.default_rng(9)
    compared: Counter[tuple[str, ...]] = Counter()
    some = 0
    scratching = (nest for nest in rounds() if nest.kernel.scratches)
    while compared.total() < SCRATCHES:
        nest, device = next(scratching), DEVICES[int(random.integers(len(DEVICES)))]
        schedule = random_schedule(nest, device, random)
        if schedule is None:
            continue
        given = BoundNest(schedule, dict.fromkeys(range(8), 1), 1, 0).param_block
        block, taken = np.frombuffer(given, "<u4").copy(), 4 * schedule.scratch_words
        room = device.count("core.data_memory_bytes") - device.count("core.stack_bytes")
        opened = core.device.from_description(device.description())
        last = reg.CORE_VIEW_MEMORY + room - taken if taken else 0  # an address that no scratch may have
        block[HEADER["scratch"]] = last
        assert core.charged_cycles(block.tobytes(), opened, most=1), schedule.explain()
        block[HEADER["scratch"]] = last + 4
        if taken:
            with pytest.raises(ValueError, match=f"scratch.*the {taken} bytes"):
                core.charged_cycles(block.tobytes(), opened, most=1)
        compared[combination(nest)] += 1
        some += taken > 0
    assert {name for name, *_ in compared} == {kernel.name for kernel in all_kernels() if kernel.scratches}
    assert some > SCRATCHES / 4


def test_wider_vectors_are_never_dearer() -> None:
    random = np.random.default_rng(6)
    compared: Counter[tuple[str, ...]] = Counter()
    cheaper = 0
    for nest in rounds():
        device = DEVICES[int(random.integers(2))]
        vector = device.count("kernel.vector_bytes")
        schedule = random_schedule(nest, device, random)
        if schedule is None or schedule.inner_steps > 50:
            continue
        cycles = expected(schedule)
        for times in (2, 4):
            wider = expected(
                replace(schedule, device=device.with_constants(kernel__vector_bytes=times * vector))
            )
            assert all(map(le, wider, cycles)), (times, schedule.explain())
            cheaper += sum(wider) < sum(cycles)
            cycles = wider
        compared[combination(nest)] += 1
        if compared.total() >= CALLS:
            break
    assert {name for name, *_ in compared} == {kernel.name for kernel in all_kernels()}
    assert cheaper > CALLS / 10


def up_sampling(random: np.random.Generator) -> Nest:
    """A copy of [c, h, w] at exact fractions of its axes, or whole ones."""
    ups, downs = random.integers(1, 4, 2), random.integers(1, 4, 2)
    c, h, w = (int(n) for n in random.integers(1, 12, 3))
    sizes = [c, *((n - 1) * int(up) // int(down) + 1 for n, up, down in zip((h, w), ups, downs, strict=True))]
    steps = [Access(d + 1, int(downs[d]), den=int(ups[d])) for d in range(2)]
    x = Operand("x0", 0, F32, (c, h, w), (h * w, w, 1), (Access(0), *steps))
    strides = (sizes[1] * sizes[2], sizes[2], 1)
    out = Operand("out", OUTPUT, F32, tuple(sizes), strides, tuple(map(Access, range(3))))
    dims = tuple(Dim(name, size) for name, size in zip("chw", sizes, strict=True))
    return Nest(KERNEL, dims, (x,), (out,), scalars={"func": "copy"})


def test_both_agree_on_members_at_fractions() -> None:
    random = np.random.default_rng(4)
    for _ in range(300):
        device = DEVICES[int(random.integers(2))]
        schedule = random_schedule(up_sampling(random), device, random)
        if schedule is None:
            continue
        block = BoundNest(schedule, dict.fromkeys(range(8), 1), 1, 0).param_block
        _, *charged = core.charged_cycles(block, device.name, most=2)
        assert charged == expected(schedule), schedule.explain()


def test_arrays_of_tilings_cost_what_each_costs() -> None:
    random = np.random.default_rng(5)
    for nest in nests()[:: len(nests()) // 60]:
        device = find_device("npu2")
        if nest.is_empty:
            continue
        tiles = [random.integers(1, dim.extent + 1, 9) for dim in nest.dims]
        k_tiles = random.integers(1, max(nest.k_extent, 1) + 1, 9)
        together = CallCost(nest, device, tiles, k_tiles)(k_tiles, 1)
        alone = [
            CallCost(nest, device, [int(t[i]) for t in tiles], int(k_tiles[i]))(int(k_tiles[i]), 1)
            for i in range(9)
        ]
        assert np.broadcast_to(together, 9).tolist() == alone
