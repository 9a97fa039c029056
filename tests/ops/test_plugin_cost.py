# SPDX-License-Identifier: Apache-2.0
"""What a call of a custom kernel costs: one formula for search and simulator, of counted work."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onedispatch.cpp_ext import _core
from onedispatch.operators.codegen.spec_data import spec_data
from onedispatch.operators.emission.emitter import BoundNest
from onedispatch.operators.plugin.custom_kernel import CustomKernel
from onedispatch.operators.plugin.instance import Interval, KernelInstance
from onedispatch.operators.plugin.operands import In, Out, Scratch
from onedispatch.operators.scheduling.call_cost import CallCost, op_cycles
from onedispatch.operators.scheduling.schedule import Schedule
from onedispatch.operators.scheduling.solution import Mapping, Solution
from onedispatch.transactions import find_device
from tests.ops.members import operator_of, prepare_for, whole_numbers
from tests.ops.test_plugin_placements import random_placement

DEVICE = find_device("npu2")
BUFFER_BYTES = 60_000


def charged(schedule: Schedule, kernel: CustomKernel) -> list[int]:
    """Cycles of setting up and of the first call, as the simulator charges them."""
    _core.register_kernel(spec_data(kernel), {"prepare": prepare_for(kernel)})
    try:
        block = BoundNest(schedule, dict.fromkeys(range(8), 1), 1, 0).param_block
        return list(_core.charged_cycles(block, _core.device.from_description(DEVICE.description()), most=2))
    finally:
        _core.unregister_kernel(kernel.name)


def schedule_of(nest: Any, rng: np.random.Generator) -> Schedule | None:
    tiles = []
    for dim in nest.dims:
        tile = dim.extent if dim.whole else int(rng.integers(1, dim.extent + 1))
        tiles.append(min(dim.extent, -(-tile // dim.multiple) * dim.multiple))
    mapping = Mapping(None, None, 1, frozenset(), False, tuple(range(len(nest.dims))))
    schedule = Schedule(nest, DEVICE, Solution(nest.kernel.name, mapping, tuple(tiles), 1))
    words = 2 * schedule.port_words(0) + 2 * schedule.out_words + schedule.scratch_words
    return schedule if words * 4 <= BUFFER_BYTES else None


def test_search_and_simulator_agree_on_random_calls() -> None:
    compared = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        inputs, outputs, space, access, pads, fills = random_placement(rng)
        kernel = CustomKernel(
            "acme::costs",
            tuple(In(name, dtype, pad=pads.get(name)) for name, (dtype, _) in inputs.items()),
            tuple(Out(name, dtype, fill=fills.get(name)) for name, (dtype, _) in outputs.items()),
            scratch_tensors=(Scratch("tmp"),),
        )
        arrays = {name: whole_numbers(rng, dtype, shape) for name, (dtype, shape) in inputs.items()}
        instance = KernelInstance(outputs, space, access, scratch={"tmp": int(rng.integers(1, 200))})
        for nest in operator_of(kernel, instance, arrays, DEVICE).nests():
            schedule = schedule_of(nest, rng)
            if schedule is None:
                continue
            cost = CallCost(nest, DEVICE, schedule.tiles, 1)
            setup, call = charged(schedule, kernel)
            assert (setup, call) == (op_cycles(nest, DEVICE), int(cost(0, 1))), schedule.explain()
            compared += 1
    assert compared > 60


@pytest.mark.parametrize(
    ("work", "per_vector"), [({"op": 3}, 3), ({"mul": 1, "op": 1}, 20), ({"exp": 2}, 286)]
)
def test_work_is_charged_as_it_is_counted(work: dict[str, float], per_vector: int) -> None:
    """f32 has 32 lanes; a product takes 19 cycles, an exponential 143."""
    kernel = CustomKernel("acme::work", (In("x", rank=1),), (Out("z", rank=1),), work=tuple(work.items()))
    arrays = {"x": np.zeros(1024, np.float32)}
    whole = {name: (Interval(0),) for name in "xz"}
    instance = KernelInstance({"z": ("f32", (1024,))}, (1024,), whole, work=work)
    (nest,) = operator_of(kernel, instance, arrays, DEVICE).nests()
    schedule = Schedule(
        nest, DEVICE, Solution(nest.kernel.name, Mapping(None, None, 1, frozenset(), False, (0,)), (1024,), 1)
    )
    _, call = charged(schedule, kernel)
    vectors, entry, row = 1024 // 32, 100, 10
    stores = 1024 * 4 // int(DEVICE.constant("kernel.vector_bytes"))
    assert call == entry + row + max(vectors * per_vector, stores)
