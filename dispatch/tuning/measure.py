# SPDX-License-Identifier: Apache-2.0
"""What a solution costs: cycles of the simulated device, by its clock, without data."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onedispatch.dispatch.base.forks import ForkLock
from onedispatch.dispatch.compiler import memory
from onedispatch.dispatch.compiler.emit import timer_mark
from onedispatch.dispatch.compiler.executable import DeviceStep, OpInfo
from onedispatch.dispatch.runtime.device import DeviceSession, TimedStep
from onedispatch.dispatch.tuning.alone import Alone
from onedispatch.operators.declarations.tensor import Unsupported
from onedispatch.operators.scheduling.problem import Problem
from onedispatch.operators.scheduling.solution import Solution
from onedispatch.transactions import ArgKind, ArgMap, Bindings, Device, find_device, fuse
from onedispatch.transactions.base.boundary import public
from onedispatch.transactions.base.errors import SolutionError
from onedispatch.transactions.fusion.ahead import written_ahead
from onedispatch.transactions.fusion.fuse import FusePart
from onedispatch.transactions.machine.device import DeviceName


@public
def measure(problem: Problem, solution: Solution, device: Device | DeviceName) -> int:
    """Cycles of the array's clock that a nest takes within a network when it is solved so.

    The simulator's clock runs the nest three times in one transaction, as the compiler puts operators behind
    each other, and counts the second: what it had written ahead, and what it writes ahead for the next one.
    So what only the first nest of a transaction waits for is no part of it, nor what the host takes to launch
    a run, nor reloads of program memory. Of nests that find a constant in the cores, those that do are
    counted. No kernel runs and no data is read: the same arguments give the same cycles, in any thread or
    process.

    Args:
        problem: what a ``Selector`` is asked, or what ``Problem.from_data`` reads.
        solution: one of the problem.
        device: the one that the problem names, or its name.

    Raises:
        SolutionError: the solution does not fit, the problem is of another device or of a kernel that is not
            declared (so), or a custom kernel's.
        DeviceError: no such device.
        SimulationError: the device cannot run it.
    """
    target = device if isinstance(device, Device) else find_device(device)
    try:
        once = Alone(problem, solution, target)
        if not problem.nest.resident_operands:
            return _cycles([once, once, once])[1]
        twice = Alone(problem, solution, target, times=2)
        _, brings, keeps, _ = _cycles([once, once, twice, once])
        return keeps - brings
    except Unsupported as error:
        raise SolutionError(
            f"problem of {problem.kernel}", str(error), "views that a nest can have"
        ) from error


def _cycles(operators: Sequence[Alone]) -> list[int]:
    """The cycles of each of these operators, one behind the other."""
    device = operators[0].device
    step = _step(operators)
    session = _SESSIONS.take(device)
    timed = TimedStep(session, step)
    report = timed.report()
    timed.reset()
    _SESSIONS.keep(device, session)
    return [row.cycles for row in report.ops]


def _step(operators: Sequence[Alone]) -> DeviceStep:
    """These operators as one transaction, as the compiler makes it. They read and write the same memory."""
    device, entries = operators[0].device, operators[0].arg_map()
    plans = {kind: _packed(entries, kind) for kind in (ArgKind.INPUT, ArgKind.OUTPUT)}
    tensors = {n: (int(kind), at) for kind, plan in plans.items() for n, at in plan.offsets.items()}
    parts: list[FusePart] = [timer_mark(device, 0)]
    params = bytearray()
    turned = False
    for number, operator in enumerate(operators):
        placed = operator.in_turn(turned)
        turned ^= bool(len(operator.schedules) % 2)
        bindings = Bindings({int(n): place for n, place in tensors.items()}, params=len(params))
        parts += [(placed.transaction(), placed.arg_map(), bindings), timer_mark(device, number + 1)]
        params += placed.super_kernel_params()
        params += bytes(-len(params) % memory.ALIGNMENT)
    sizes = (
        plans[ArgKind.INPUT].size,
        plans[ArgKind.OUTPUT].size,
        0,
        operators[0].const_bytes,
        len(params),
    )
    transaction = written_ahead(fuse(parts, dict(enumerate(sizes)))).to_bytes()
    infos = tuple(OpInfo(op.name, op.kind, (), n) for n, op in enumerate(operators, 1))
    return DeviceStep(transaction, sizes, _NOTHING, bytes(params), (), (), infos, image=operators[0].image)


_NOTHING = np.zeros(0, np.uint8)


def _packed(entries: Sequence[ArgMap], kind: ArgKind) -> memory.MemoryPlan:
    """Where the tensors of a kind lie in their buffer, by their numbers."""
    return memory.pack((str(e.onnx_arg_idx), e.size) for e in entries if e.kind is kind)


class _Sessions:
    """Clocks that serve again. A caller has the one that it takes alone, so any number of threads may
    measure; nothing of a measurement is left in it."""

    _MOST = 16

    def __init__(self) -> None:
        self._kept: list[tuple[str, DeviceSession]] = []
        self._lock = ForkLock()

    def take(self, device: Device) -> DeviceSession:
        with self._lock.guard:
            for kept in self._kept:
                if kept[0] == device.identity:
                    self._kept.remove(kept)
                    return kept[1]
        return DeviceSession(device, clock=True)

    def keep(self, device: Device, session: DeviceSession) -> None:
        with self._lock.guard:
            self._kept.append((device.identity, session))
            del self._kept[: -self._MOST]


_SESSIONS = _Sessions()
