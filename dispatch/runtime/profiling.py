# SPDX-License-Identifier: Apache-2.0
"""Runs of a session as one file of events, under onnxruntime's names: ``end_profiling`` writes it."""

from __future__ import annotations

import json
import time
from datetime import datetime
from typing import Any

from onedispatch.dispatch.ort.providers import PROVIDER
from onedispatch.dispatch.runtime.report import RunReport
from onedispatch.dispatch.runtime.trace import TRACED_CALLS
from onedispatch.transactions.base.errors import InputError

_RUNS, _CORES = 0, 1  # processes of the timeline


class Profiling:
    """Events of all runs in microseconds of the modelled clock, one run after the other.

    ``cat`` is ``Session`` for runs and ``Node`` for device operators, as in onnxruntime; calls of kernels, of
    which the first ``TRACED_CALLS`` are kept, have the operator there.
    """

    def __init__(self, prefix: str) -> None:
        self.start_ns = time.monotonic_ns()
        self._prefix = prefix
        self._events: list[dict[str, Any]] = []
        self._now = 0.0
        self._calls = 0

    def add(self, report: RunReport) -> None:
        """Adds a run behind those that are there."""
        us = report.seconds * 1e6 / report.cycles if report.cycles else 0.0
        cost = {
            "cycles": report.cycles,
            "dispatches": report.dispatches,
            "wall_us": report.wall_seconds * 1e6,
            "host_us": report.host_seconds * 1e6,
        }
        self._event("Session", "model_run", self._now, report.cycles * us, cost)
        at = self._now
        for op in report.ops:
            said = {"op_name": op.op_type, "provider": PROVIDER, "cycles": op.cycles, "nodes": list(op.nodes)}
            self._event("Node", f"{op.name}_kernel_time", at, op.cycles * us, said)
            at += op.cycles * us
        self._add_calls(report)
        self._now += report.cycles * us

    def _event(self, cat: str, name: str, at: float, took: float, said: dict[str, Any]) -> None:
        place = {"pid": _RUNS, "tid": 0, "ts": at, "dur": took}
        self._events.append({"cat": cat, "name": name, "ph": "X", **place, "args": said})

    def _add_calls(self, report: RunReport) -> None:
        if report.trace is None:
            return
        for event in report.trace.chrome()["traceEvents"]:
            if event["ph"] == "X":
                self._calls += 1
                event["ts"] += self._now
            if self._calls <= TRACED_CALLS:
                self._events.append({**event, "cat": "Core", "pid": _CORES})

    def write(self) -> str:
        """Writes the events and returns the file's name. Raises ``InputError`` where it cannot be written."""
        stamp = datetime.now().strftime("%Y-%m-%d_%H-%M-%S_%f")
        name = f"{self._prefix}_{stamp}.json"
        try:
            with open(name, "w", encoding="utf-8") as file:
                json.dump(self._events, file)
        except OSError as error:
            accepted = "the beginning of a path that can be written"
            where = "SessionOptions.profile_file_prefix"
            raise InputError(where, f"{self._prefix!r}: {error.strerror}", accepted) from error
        return name
