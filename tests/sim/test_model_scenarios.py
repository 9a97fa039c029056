# SPDX-License-Identifier: Apache-2.0
"""The C++ simulator agrees with the Python model on random small scenarios.

Same bytes in all buffers and the same registers, or the same kind of error. A scenario whose
result depends on the order in which agents act (the model tries several) proves nothing and
is left out; the generator makes few of those.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, assume, given, note, settings
from hypothesis import strategies as st

from onedispatch.transactions import find_device
from tests.array_model.compare import disagreement
from tests.array_model.scenarios import Abandon, RandomChoose, make_scenario
from tests.tables import examples

DEVICES = ("npu2_1col", "npu1_2col", "npu2_3col")


@dataclass(frozen=True)
class Drawn:
    """Numbers from hypothesis, so that a failing scenario shrinks."""

    data: st.DataObject

    def int(self, low: int, high: int) -> int:
        return self.data.draw(st.integers(low, high))


@given(st.data(), st.sampled_from(DEVICES), st.sampled_from([0, 60]))
@settings(
    max_examples=examples(60),
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
def test_small_scenarios(data: st.DataObject, device: str, faults: int) -> None:
    try:
        scenario = make_scenario(Drawn(data), find_device(device), faults)
    except Abandon:
        assume(False)
    for line in scenario.notes:
        note(line)
    found = disagreement(scenario)
    assume(found != "")
    assert found is None, found


@pytest.mark.parametrize("faults", [0, 95], ids=["sound", "spoilt"])
def test_scenarios_across_borders(faults: int) -> None:
    """Buffers, rings and patterns that begin in one memory tile and end in the next."""
    crossing = 0
    for seed in range(1000, 1040):
        choose = RandomChoose(seed)
        try:
            scenario = make_scenario(choose, find_device(DEVICES[choose.int(1, 2)]), faults, across=100)
        except Abandon:
            continue
        found = disagreement(scenario)
        assert not found, f"seed {seed} of {scenario.device.name}, faults {faults}:\n{found}"
        crossing += found is None and any("across the border" in line for line in scenario.notes)
    assert crossing >= 8, "too few of them cross a border"


@pytest.mark.parametrize("faults", [0, 95], ids=["sound", "spoilt"])
@pytest.mark.parametrize("block", range(examples(8)))
def test_scenarios_by_seed(block: int, faults: int) -> None:
    """More scenarios, larger ones: these do not shrink, but their seed names them."""
    compared = 0
    for seed in range(block * 80, block * 80 + 80):
        choose = RandomChoose(seed)
        device = find_device(DEVICES[choose.int(0, len(DEVICES) - 1)])
        try:
            scenario = make_scenario(choose, device, faults)
        except Abandon:
            continue
        found = disagreement(scenario)
        assert not found, f"seed {seed} of {device.name}, faults {faults}:\n{found}"
        compared += found is None
    assert compared >= 20, "the generator gave up too often"
