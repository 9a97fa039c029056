# SPDX-License-Identifier: Apache-2.0
"""Runs one scenario in the model and in the C++ simulator, and says where they differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from onedispatch.cpp_ext import _core
from onedispatch.transactions import Device, Transaction, TransactionBuilder, Xclbin
from onedispatch.transactions.base.errors import SimulationError
from tests.array_model.array import CONTROLLER_LAST, Array, Loader, no_programs
from tests.array_model.memory import ModelFault
from tests.array_model.scenarios import Scenario

SHUFFLES = (None, CONTROLLER_LAST, 0, 1, 2, 3)
MAX_ROUNDS = 200_000


@dataclass(frozen=True)
class Outcome:
    """How a run ended: "ok", or the kind of its error; and what it left behind.

    ``buffers`` are whole kernel arguments; ``registers`` is what READ_REGS operations saw.
    """

    kind: str
    text: str = ""
    buffers: tuple[bytes, ...] = ()
    registers: tuple[tuple[int, int], ...] = ()

    def same(self, other: Outcome) -> bool:
        return (self.kind, self.buffers, self.registers) == (other.kind, other.buffers, other.registers)


def empty_overlay(device: Device) -> bytes:
    """An overlay that configures nothing."""
    builder = TransactionBuilder.for_device(device)
    builder.noop()
    return builder.to_bytes()


def run_model(
    device: Device,
    overlay: bytes,
    transaction: bytes,
    buffers: Sequence[bytes | int],
    loader: Loader = no_programs,
    shuffle: int | None = None,
    max_rounds: int = 2_000_000,
) -> Outcome:
    array = Array(device.columns, loader, shuffle, device.device_generation, max_rounds, device)
    try:
        array.load(overlay)
        left = array.run(transaction, buffers)
    except ModelFault as fault:
        return Outcome(fault.kind, str(fault))
    return Outcome("ok", "", tuple(left), tuple(array.registers_read))


def run_cpp(device: Device, overlay: bytes, transaction: bytes, buffers: Sequence[bytes | int]) -> Outcome:
    core: Any = _core
    simulated = core.device.from_description(device.description())
    simulated.set_threads(1)
    simulated.set_event_limit(200_000)
    binary = core.xclbin(Xclbin(device.name, {0: overlay}).to_bytes())
    simulated.register_xclbin(binary)
    try:
        context = core.hw_context(simulated, binary.get_uuid())
        kernel = core.kernel(context, binary.get_kernels()[0].get_name())
        instructions = core.bo(simulated, len(transaction), core.bo.cacheable, kernel.group_id(1))
        instructions.write(transaction)
        bos = []
        for i, content in enumerate(buffers):
            size = content if isinstance(content, int) else len(content)
            bos.append(core.bo(simulated, -(-size // 4) * 4, core.bo.host_only, kernel.group_id(3 + i)))
            if isinstance(content, bytes):
                bos[-1].write(content.ljust(-(-size // 4) * 4, b"\0"))
        run = kernel(3, instructions, len(transaction), *bos)
        run.wait()
    except SimulationError as error:
        return Outcome(str(getattr(error, "kind", "?")), str(error))
    return Outcome("ok", "", tuple(bytes(bo.read()) for bo in bos), tuple(run.report()["registers"]))


def model_outcomes(scenario: Scenario) -> Iterator[Outcome]:
    """What the model says, in its own order of agents and in others."""
    device = scenario.device
    for shuffle in SHUFFLES:
        yield run_model(
            device,
            empty_overlay(device),
            scenario.transaction,
            scenario.buffers,
            shuffle=shuffle,
            max_rounds=MAX_ROUNDS,
        )


def disagreement(scenario: Scenario) -> str | None:
    """None when both agree, the reason when they do not; "" when the scenario proves nothing."""
    model, *others = model_outcomes(scenario)
    if model.kind == "livelock" or not all(model.same(other) for other in others):
        return ""
    cpp = run_cpp(scenario.device, empty_overlay(scenario.device), scenario.transaction, scenario.buffers)
    if model.same(cpp):
        return None
    listing = "\n".join(str(op) for op in Transaction.from_bytes(scenario.transaction).ops)
    wrong = [i for i, pair in enumerate(zip(model.buffers, cpp.buffers, strict=False)) if pair[0] != pair[1]]
    seen = [(a, b) for a, b in zip(model.registers, cpp.registers, strict=False) if a != b]
    return (
        f"model: {model.kind} {model.text}\nC++: {cpp.kind} {cpp.text}\nbuffers {wrong} differ, "
        f"registers {seen} differ\n" + "\n".join(scenario.notes) + f"\n{listing}"
    )
