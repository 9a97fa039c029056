# SPDX-License-Identifier: Apache-2.0
"""The C++ simulator agrees with the Python model on random programs of control packets."""

from __future__ import annotations

from collections import Counter

import pytest

from onedispatch.transactions import find_device
from tests.array_model.compare import disagreement, empty_overlay, run_cpp
from tests.array_model.packets import make_packet_program
from tests.array_model.programs import Abandon, RandomChoose

DEVICES = ("npu2_1col", "npu1_2col", "npu2_3col")


@pytest.mark.parametrize("faults", [0, 100], ids=["sound", "spoilt"])
@pytest.mark.parametrize("block", range(3))
def test_packets_by_seed(block: int, faults: int) -> None:
    kinds = Counter[str]()
    for seed in range(block * 60, block * 60 + 60):
        choose = RandomChoose(seed)
        device = find_device(DEVICES[choose.int(0, len(DEVICES) - 1)])
        try:
            program = make_packet_program(choose, device, faults)
        except Abandon:
            continue
        found = disagreement(program)
        assert not found, f"seed {seed} of {device.name}, faults {faults}:\n{found}"
        if found is None:
            ended = run_cpp(device, empty_overlay(device), program.transaction, program.buffers)
            kinds[ended.kind] += 1
    assert kinds.total() >= 30, "the generator gave up too often"
    assert kinds["ok"] == kinds.total() if not faults else kinds["packet"] > 10 and kinds["register"], kinds
