# SPDX-License-Identifier: Apache-2.0
"""What the search takes a kernel call to cost is what the simulator charges for it, to the cycle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

import onedispatch.cpp_ext._core as core
from onedispatch.operators.declarations.registry import all_kernels
from onedispatch.operators.emission.emitter import BoundNest
from onedispatch.operators.interface.operator import Unsupported
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.operators.scheduling.schedule import Schedule
from onedispatch.operators.scheduling.solution import Mapping, Solution
from onedispatch.transactions import Device
from tests.ops.cases import CASES
from tests.ops.lowered import lower

CALLS = 10_000
BUFFER_BYTES = 60_000  # of a core's data memory, so that two slots of everything fit


def nests() -> Iterator[tuple[Nest, Device]]:
    """The nests of every case that is small enough to be lowered quickly."""
    for case in CASES:
        try:
            lowered = lower(case)
        except (Unsupported, KeyError):
            continue
        for _, op in lowered.ops:
            for schedule in op.schedules:
                yield schedule.nest, op.device


def random_schedule(nest: Nest, device: Device, random: np.random.Generator) -> Schedule | None:
    """The nest on one core with tiles that nobody searched for."""
    tiles = []
    for dim in nest.dims:
        most = min(dim.extent, dim.max_tile, 64)
        tile = dim.extent if dim.whole else int(random.integers(1, most + 1))
        tiles.append(min(dim.extent, -(-tile // dim.multiple) * dim.multiple))
    k_tile = 1
    if nest.reduces and nest.k_extent:
        k_tile = min(nest.k_extent, int(random.integers(1, 65)))
        k_tile = min(nest.k_extent, -(-k_tile // nest.k_multiple) * nest.k_multiple)
    mapping = Mapping(None, None, 1, frozenset(), False, tuple(range(len(nest.dims))))
    schedule = Schedule(nest, device, Solution(nest.kernel.name, mapping, tuple(tiles), k_tile))
    words = 2 * schedule.port_words(0) + 2 * schedule.out_words
    return schedule if words * 4 <= BUFFER_BYTES else None


def expected(schedule: Schedule) -> list[int]:
    """Cycles of the steps of one tile, by the formula that the search uses."""
    nest, steps = schedule.nest, schedule.inner_steps
    cycles = []
    for step in range(steps):
        count = min(schedule.k_tile, nest.k_extent - step * schedule.k_tile) if nest.reduces else 0
        last = step == steps - 1
        cycles.append(
            int(nest.call_cycles(schedule.device, schedule.tiles, schedule.k_tile, max(count, 0), last))
        )
    return cycles


def test_search_and_simulator_agree_on_random_calls() -> None:
    random = np.random.default_rng(8)
    compared: Counter[str] = Counter()
    found = list(nests())
    while compared.total() < CALLS:
        nest, device = found[int(random.integers(len(found)))]
        schedule = random_schedule(nest, device, random)
        if schedule is None or schedule.inner_steps > 500:
            continue
        block = BoundNest(schedule, dict.fromkeys(range(8), 1), 1, 0).param_block()
        wanted = expected(schedule)
        charged = core.charged_cycles(block, device.name, most=min(64, 4 * len(wanted)))
        assert charged == (wanted * len(charged))[: len(charged)], schedule.explain()
        compared[nest.kernel.name] += len(charged)
    assert compared.keys() == {kernel.name for kernel in all_kernels()}
