# SPDX-License-Identifier: Apache-2.0
"""A clock without data: what runs of a compiled model cost, on the simulator's engine, without running it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from onedispatch.dispatch.artifact.model import CompiledModel
from onedispatch.dispatch.compiler.executable import Executable
from onedispatch.dispatch.driver.executable_cache import prepared
from onedispatch.dispatch.runtime.device import DeviceSession, TimedStep
from onedispatch.dispatch.runtime.report import RunReport, summed
from onedispatch.transactions.base.errors import InputError


def timing(model: CompiledModel, shapes: Mapping[str, Sequence[int]] | None = None) -> RunReport:
    """See ``CompiledModel.timing``."""
    start = time.perf_counter()
    executable = _executable(model, shapes)
    session = DeviceSession(model.target, clock=True)
    reports = [TimedStep(session, step).report() for step in executable.device_steps]
    return summed(reports, (), time.perf_counter() - start)


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
