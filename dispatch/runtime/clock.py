# SPDX-License-Identifier: Apache-2.0
"""A clock without data: what runs of a compiled model cost, on the simulator's engine, without running it."""

from __future__ import annotations

import time
import weakref
from collections import OrderedDict
from collections.abc import Mapping, Sequence

from onedispatch.dispatch.artifact.model import CompiledModel
from onedispatch.dispatch.base.forks import ForkLock
from onedispatch.dispatch.compiler.executable import Executable, NodePlacement
from onedispatch.dispatch.driver.executable_cache import prepared
from onedispatch.dispatch.runtime.device import DeviceSession, TimedStep
from onedispatch.dispatch.runtime.report import RunReport, summed
from onedispatch.dispatch.runtime.summary import Summary, summary_of
from onedispatch.dispatch.runtime.trace import traced_calls
from onedispatch.transactions import Device
from onedispatch.transactions.base.errors import InputError, SimulationError, TransactionError


def timing(
    model: CompiledModel, shapes: Mapping[str, Sequence[int]] | None = None, trace: bool | int = False
) -> RunReport:
    """See ``CompiledModel.timing``."""
    return report_of(_executable(model, shapes), model.target, traced_calls(trace))


def report_of(executable: Executable, target: Device, traced: int | None = None) -> RunReport:
    """What a run of the executable would report; raises what ``timing`` does. ``traced``: how many calls and
    spans are kept; None traces nothing."""
    start = time.perf_counter()
    reports = _reports(executable, target, traced)
    return summed(reports, (), time.perf_counter() - start)


def timed_summary(
    model: CompiledModel,
    executable: Executable,
    placement: Sequence[NodePlacement],
    report: RunReport | None = None,
) -> Summary:
    """The verdict on one of a model's executables, by ``report`` or else by this clock; without times where
    no clock tells them."""
    try:
        known = report or report_of(executable, model.target)
        return summary_of(model.device, executable, placement, known)
    except (SimulationError, TransactionError) as error:
        return summary_of(model.device, executable, placement, None, error.statement())


def _reports(executable: Executable, target: Device, traced: int | None = None) -> list[RunReport]:
    """Of each dispatch. Steps that are traced are not kept for the next time."""
    if traced is not None:
        return [step.report() for step in _steps(executable, target, traced)]
    steps = _KEPT.take(executable, target)
    if steps is None:
        steps = _steps(executable, target)
    reports = [step.report() for step in steps]
    for step in steps:
        step.reset()
    _KEPT.keep(executable, target, steps)
    return reports


def _steps(executable: Executable, target: Device, traced: int | None = None) -> tuple[TimedStep, ...]:
    session = DeviceSession(target, clock=True, profile=True, traced_calls=traced)
    return tuple(TimedStep(session, step) for step in executable.device_steps)


_Kept = tuple[weakref.ref[Executable], Device, tuple[TimedStep, ...]]


class _KeptSteps:
    """Steps that were timed, of the executables timed last: their devices and buffers serve again.

    What a run decides it decides anew each time, on an array that nothing ran on before. A caller that takes
    steps has them alone, so any number of threads may ask. Custom kernels may be declared again: those of
    executables that have some are not kept.
    """

    _MOST = 2

    def __init__(self) -> None:
        self._steps: OrderedDict[int, _Kept] = OrderedDict()
        self._lock = ForkLock()

    def take(self, executable: Executable, target: Device) -> tuple[TimedStep, ...] | None:
        with self._lock.guard:
            kept = self._steps.pop(id(executable), None)
        if kept is None:
            return None
        of, device, steps = kept
        return steps if of() is executable and device == target else None

    def keep(self, executable: Executable, target: Device, steps: tuple[TimedStep, ...]) -> None:
        if executable.kernels:
            return
        key = id(executable)
        gone = weakref.ref(executable, lambda _: self._steps.pop(key, None))
        with self._lock.guard:
            self._steps[key] = gone, target, steps
            while len(self._steps) > self._MOST:
                self._steps.popitem(last=False)


_KEPT = _KeptSteps()


def _executable(model: CompiledModel, shapes: Mapping[str, Sequence[int]] | None) -> Executable:
    if shapes and model.deciding:
        deciding = ", ".join(sorted(model.deciding))
        raise InputError(
            "CompiledModel.timing",
            f"shapes for a model whose executables depend on values of {deciding}, too",
            "no shapes: the executable used last is timed",
            "run it once on such values, and time the session's model",
        )
    latest = prepared(model, shapes).latest
    if latest is None:
        unknown = ", ".join([str(v) for v in model.inputs if not v.is_concrete] + sorted(model.deciding))
        remedy = "run it once, and time the session's model"
        if not model.deciding:
            remedy = f"give shapes={{input: sizes}}, or {remedy}"
        raise InputError("CompiledModel.timing", f"nothing yet of {unknown}", "known shapes", remedy)
    return latest[1]
