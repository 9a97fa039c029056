# SPDX-License-Identifier: Apache-2.0
"""The C++ simulator agrees with the Python model on random scenarios of control packets."""

from __future__ import annotations

from collections import Counter

import pytest

from onedispatch.transactions import find_device
from tests.array_model.compare import disagreement, empty_overlay, run_cpp
from tests.array_model.packets import make_packet_scenario
from tests.array_model.scenarios import Abandon, RandomChoose
from tests.tables import examples

DEVICES = ("npu2_1col", "npu1_2col", "npu2_3col")


@pytest.mark.parametrize("faults", [0, 100], ids=["sound", "spoilt"])
@pytest.mark.parametrize("block", range(examples(8)))
def test_packets_by_seed(block: int, faults: int) -> None:
    kinds = Counter[str]()
    for seed in range(block * 60, block * 60 + 60):
        choose = RandomChoose(seed)
        device = find_device(DEVICES[choose.int(0, len(DEVICES) - 1)])
        try:
            scenario = make_packet_scenario(choose, device, faults)
        except Abandon:
            continue
        found = disagreement(scenario)
        assert not found, f"seed {seed} of {device.name}, faults {faults}:\n{found}"
        if found is None:
            ended = run_cpp(device, empty_overlay(device), scenario.transaction, scenario.buffers)
            kinds[ended.kind] += 1
    assert kinds.total() >= 30, "the generator gave up too often"
    assert kinds["ok"] == kinds.total() if not faults else kinds["packet"] > 10 and kinds["register"], kinds
