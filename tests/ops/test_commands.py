# SPDX-License-Identifier: Apache-2.0
"""What the search counts of commands is what is emitted, and counting them pays."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import onedispatch as od
from onedispatch.operators.declarations.tensor import TensorSpec
from onedispatch.operators.emission.emitter import BoundNest, emit_nests
from onedispatch.operators.kernels.elementwise import Eltwise
from onedispatch.operators.scheduling.commands import controller_cycles
from onedispatch.operators.scheduling.problem import Problem
from onedispatch.operators.scheduling.schedule import Schedule
from onedispatch.operators.scheduling.search import search, shortlist
from onedispatch.operators.scheduling.solution import Mapping, Solution
from onedispatch.transactions import Device, Transaction, find_device
from tests.ops.cases import CASES
from tests.ops.lowered import lower

DEVICES = [find_device(name) for name in ("npu1", "npu2", "npu2_4col")]
DEVICE = DEVICES[1]
EVERY = 29  # of the operator cases, one of so many


def _emitted(schedule: Schedule) -> float:
    """Array cycles that the controller takes for all operations of a nest."""
    device = schedule.device
    bound = BoundNest(schedule, dict.fromkeys(range(8), 0), 0, 0)
    found = Counter(
        str(op).split()[0] for op in Transaction.from_bytes(emit_nests([bound], device, 0).transaction).ops
    )
    constant = device.constant
    other = constant("controller.other_cycles")
    each = {
        "BLOCKWRITE": constant("controller.blockwrite_cycles")
        + 8 * constant("controller.blockwrite_word_cycles"),
        "WRITE": constant("controller.write_cycles"),
        **dict.fromkeys(("DDR_PATCH", "TCT", "MASKPOLL"), other),
    }
    cycles = sum(count * each[name] for name, count in found.items())
    return float(cycles * constant("clock.array_mhz") / constant("controller.clock_mhz"))


@pytest.mark.daily(3)
@pytest.mark.parametrize("number", range(0, len(CASES), EVERY), ids=lambda n: CASES[n].id)
def test_as_much_is_counted_as_is_emitted(number: int) -> None:
    device = DEVICES[number % len(DEVICES)]
    for _, op in lower(CASES[number]).ops:
        for nest in op._nests:
            schedule = Schedule(nest, device, search(nest, device))
            counted = controller_cycles(schedule, loads_resident=True)
            assert counted == pytest.approx(_emitted(schedule)), schedule.explain()


@pytest.mark.parametrize("extent", [9, 33, 130, 515])
@pytest.mark.parametrize("columns", [2, 3, 4, 8])
def test_columns_without_tiles_are_counted_as_they_are(extent: int, columns: int) -> None:
    """Rows and columns over one dimension that tiles do not divide: some columns redo tiles, others idle."""
    x = TensorSpec("x", np.dtype(np.float32), (extent,))
    (nest,) = Eltwise("y", "copy", [x], x, DEVICE).nests()
    for tile in (1, 2, 4, 7):
        mapping = Mapping(0, 0, columns, frozenset(), False, (0,))
        schedule = Schedule(nest, DEVICE, Solution(nest.kernel.name, mapping, (tile,), 1))
        assert controller_cycles(schedule) == pytest.approx(_emitted(schedule)), schedule.explain()


def test_counting_ends_where_it_costs_too_much() -> None:
    (_, op), *_ = lower(CASES[0]).ops
    for nest in op._nests:
        schedule = Schedule(nest, DEVICE, search(nest, DEVICE))
        cycles = controller_cycles(schedule)
        assert controller_cycles(schedule, cycles) == cycles > 0
        assert controller_cycles(schedule, cycles * (1 - 1e-9)) == np.inf


class _Estimated:
    """A selector that goes by the estimate alone."""

    def select(self, problem: Problem, device: Device) -> Solution:
        found = shortlist(problem.nest, device)
        _, mapping, at = found.best
        return found.model.solution(mapping, at)


def test_counting_finds_what_the_estimate_does_not_see() -> None:
    """Rows of a tensor with a halo break the progressions of descriptors."""
    weights = np.random.default_rng(5).standard_normal((96, 1, 3, 3)).astype(np.float32)
    shape = [1, 96, 54, 54]
    x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name in "xy")
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1] * 4, group=96)
    graph = helper.make_graph([node], "depthwise", [x], [y], [numpy_helper.from_array(weights, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    feed = {"x": np.random.default_rng(6).standard_normal(shape).astype(np.float32)}
    cycles = []
    for selector in (None, _Estimated()):
        session = od.InferenceSession(od.compile(model, device="npu2", selector=selector))
        session.run(None, feed)
        cycles.append(session.last_run.cycles)
    assert cycles[0] < 0.97 * cycles[1]
