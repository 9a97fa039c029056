# SPDX-License-Identifier: Apache-2.0
"""The C++ simulator agrees with the Python model on random small programs.

Same bytes in all buffers and the same registers, or the same kind of error. A program whose
result depends on the order in which agents act (the model tries several) proves nothing and
is left out; the generator makes few of those.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, assume, given, note, settings
from hypothesis import strategies as st

from onedispatch.transactions import Transaction, find_device
from tests.array_model.array import CONTROLLER_LAST
from tests.array_model.compare import Outcome, empty_overlay, run_cpp, run_model
from tests.array_model.programs import Abandon, Program, RandomChoose, make_program

DEVICES = ("npu2_1col", "npu1_2col", "npu2_3col")
SHUFFLES = (None, CONTROLLER_LAST, 0, 1, 2, 3)
MAX_ROUNDS = 200_000


@dataclass(frozen=True)
class Drawn:
    """Numbers from hypothesis, so that a failing program shrinks."""

    data: st.DataObject

    def int(self, low: int, high: int) -> int:
        return self.data.draw(st.integers(low, high))


def model_outcomes(program: Program) -> Iterator[Outcome]:
    """What the model says, in its own order of agents and in others."""
    device = program.device
    for shuffle in SHUFFLES:
        yield run_model(
            device,
            empty_overlay(device),
            program.transaction,
            program.buffers,
            shuffle=shuffle,
            max_rounds=MAX_ROUNDS,
        )


def disagreement(program: Program) -> str | None:
    """None when both agree, the reason when they do not; "" when the program proves nothing."""
    model, *others = model_outcomes(program)
    if model.kind == "livelock" or not all(model.same(other) for other in others):
        return ""
    cpp = run_cpp(program.device, empty_overlay(program.device), program.transaction, program.buffers)
    if model.same(cpp):
        return None
    listing = "\n".join(str(op) for op in Transaction.from_bytes(program.transaction).ops)
    wrong = [i for i, pair in enumerate(zip(model.buffers, cpp.buffers, strict=False)) if pair[0] != pair[1]]
    seen = [(a, b) for a, b in zip(model.registers, cpp.registers, strict=False) if a != b]
    return (
        f"model: {model.kind} {model.text}\nC++: {cpp.kind} {cpp.text}\nbuffers {wrong} differ, "
        f"registers {seen} differ\n" + "\n".join(program.notes) + f"\n{listing}"
    )


@given(st.data(), st.sampled_from(DEVICES), st.sampled_from([0, 60]))
@settings(
    max_examples=60,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
def test_small_programs(data: st.DataObject, device: str, faults: int) -> None:
    try:
        program = make_program(Drawn(data), find_device(device), faults)
    except Abandon:
        assume(False)
    for line in program.notes:
        note(line)
    found = disagreement(program)
    assume(found != "")
    assert found is None, found


@pytest.mark.parametrize("faults", [0, 95], ids=["sound", "spoilt"])
@pytest.mark.parametrize("block", range(4))
def test_programs_by_seed(block: int, faults: int) -> None:
    """More programs, larger ones: these do not shrink, but their seed names them."""
    compared = 0
    for seed in range(block * 60, block * 60 + 60):
        choose = RandomChoose(seed)
        device = find_device(DEVICES[choose.int(0, len(DEVICES) - 1)])
        try:
            program = make_program(choose, device, faults)
        except Abandon:
            continue
        found = disagreement(program)
        assert not found, f"seed {seed} of {device.name}, faults {faults}:\n{found}"
        compared += found is None
    assert compared >= 20, "the generator gave up too often"
