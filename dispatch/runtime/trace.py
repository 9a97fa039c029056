# SPDX-License-Identifier: Apache-2.0
"""Kernel calls of a run, one by one and summed: modelled cycles, and what they took on this machine.

Off unless a session asks for it. All calls are counted; as many as the session says are kept one by one, for
the timeline and for medians.
"""

from __future__ import annotations

import csv
import io
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from onedispatch.dispatch.base import arguments
from onedispatch.dispatch.base.native import core as native
from onedispatch.dispatch.compiler.executable import DeviceStep
from onedispatch.transactions.base.text import counted, tile_name

TRACED_CALLS = 100_000  # that are kept, where the session says nothing else
SET_UP = "(parameters and print rings)"  # in place of a kernel's name

COLUMNS = ("kernel", "calls", "cycles self", "average", "cycles total", "host us", "median us")


@dataclass(frozen=True)
class TracedCall:
    """One call. ``start`` and ``cycles`` are of the array's clock, counted from the first dispatch on without
    what the host takes in between; ``nanoseconds`` are of the machine that simulates; ``core`` is
    (column, row) of the tile; ``op``: the operator of the report."""

    op: str
    kernel: str
    core: tuple[int, int]
    start: int
    cycles: int
    nanoseconds: int


@dataclass(frozen=True)
class KernelTime:
    """All calls of one kernel, on all cores.

    ``cycles``: of the calls alone (self). ``span``: from the first call of an operation to the end of its
    last, waits for data included, summed over cores and operations (total). ``nanoseconds``: of the machine
    that simulates; ``median_ns``: of a call, of those that were kept; None without any.
    """

    kernel: str
    calls: int
    cycles: int
    span: int
    nanoseconds: int
    median_ns: float | None = None

    @property
    def average(self) -> float:
        """Cycles of a call."""
        return self.cycles / self.calls if self.calls else 0.0


@dataclass(frozen=True)
class Trace:
    """What ``session.last_run.trace`` is. ``calls``: the first ones; ``cut``: how many more there were."""

    kernels: Sequence[KernelTime]
    calls: Sequence[TracedCall]
    cut: int
    array_hz: float

    def rows(self) -> list[tuple[str, ...]]:
        """Texts under ``COLUMNS``."""
        return [
            (
                one.kernel,
                f"{one.calls:,}",
                f"{one.cycles:,}",
                f"{one.average:,.1f}",
                f"{one.span:,}",
                f"{one.nanoseconds / 1e3:,.1f}",
                "" if one.median_ns is None else f"{one.median_ns / 1e3:,.2f}",
            )
            for one in self.kernels
        ]

    @property
    def note(self) -> str:
        """What is missing, for people; empty where nothing is."""
        if not self.cut:
            return ""
        return f"{counted(len(self.calls), 'call')} kept, {self.cut:,} more counted only"

    def csv(self) -> str:
        """A line per kernel, numbers as they are: cycles, and nanoseconds of this machine."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        head = ("calls", "cycles_self", "cycles_average", "cycles_total", "host_ns", "host_ns_median")
        writer.writerow(("kernel", *head))
        for one in self.kernels:
            median_ns = "" if one.median_ns is None else one.median_ns
            numbers = (one.calls, one.cycles, one.average, one.span, one.nanoseconds, median_ns)
            writer.writerow((one.kernel, *numbers))
        return text.getvalue()

    def chrome(self) -> dict[str, Any]:
        """A timeline per core for Perfetto or chrome://tracing: microseconds of the modelled clock."""
        cores = sorted({call.core for call in self.calls})
        rows = {core: number for number, core in enumerate(cores)}
        us = 1e6 / self.array_hz
        events: list[dict[str, Any]] = [
            {
                "name": "thread_name",
                "ph": "M",
                "pid": 0,
                "tid": n,
                "args": {"name": f"core {tile_name(*core)}"},
            }
            for core, n in rows.items()
        ]
        events += [
            {
                "name": call.kernel,
                "cat": call.op,
                "ph": "X",
                "pid": 0,
                "tid": rows[call.core],
                "ts": call.start * us,
                "dur": call.cycles * us,
                "args": {"op": call.op, "cycles": call.cycles, "host_ns": call.nanoseconds},
            }
            for call in self.calls
        ]
        kept = {"calls": len(self.calls), "calls_cut": self.cut, "array_hz": self.array_hz}
        return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": kept}


def trace_of(raw: Mapping[str, Any], step: DeviceStep, array_hz: float) -> Trace | None:
    """What the simulator's report says of the calls of a step; None where they were not traced."""
    found = raw.get("trace")
    if found is None:
        return None
    marks = sorted((cycle, timer) for timer, cycle in raw["timers"])
    ends = {op.timer: op.name for op in step.ops}
    cycles = [cycle for cycle, _ in marks]

    def op_at(end: int) -> str:
        at = bisect_left(cycles, end)
        return ends.get(marks[at][1], "") if at < len(marks) else ""

    calls = [
        TracedCall(op_at(start + took), name or SET_UP, (column, row), start, took, ns)
        for column, row, name, start, took, ns in found["calls"]
    ]
    sums = [KernelTime(name or SET_UP, *numbers) for name, *numbers in found["kernels"]]
    return _whole(sums, calls, array_hz)


def joined(traces: Iterable[tuple[int, Trace | None]]) -> Trace | None:
    """Traces of dispatches as one; with each, the cycle that it begins at."""
    sums: dict[str, KernelTime] = {}
    calls: list[TracedCall] = []
    hz = 0.0
    for begin, trace in traces:
        if trace is None:
            continue
        hz = trace.array_hz
        calls += [replace(call, start=call.start + begin) for call in trace.calls]
        for one in trace.kernels:
            before = sums.get(one.kernel, KernelTime(one.kernel, 0, 0, 0, 0))
            sums[one.kernel] = KernelTime(
                one.kernel,
                before.calls + one.calls,
                before.cycles + one.cycles,
                before.span + one.span,
                before.nanoseconds + one.nanoseconds,
            )
    return _whole(sums.values(), calls, hz) if hz else None


def _whole(sums: Iterable[KernelTime], calls: Sequence[TracedCall], hz: float) -> Trace:
    times: dict[str, list[int]] = {}
    for call in calls:
        times.setdefault(call.kernel, []).append(call.nanoseconds)
    kernels = [
        replace(one, median_ns=median(times[one.kernel]) if one.kernel in times else None)
        for one in sorted(sums, key=lambda one: (-one.cycles, one.kernel))
    ]
    calls = sorted(calls, key=lambda call: (call.start, call.core))
    return Trace(tuple(kernels), tuple(calls), sum(one.calls for one in kernels) - len(calls), hz)


def traced_calls(trace: object) -> int | None:
    """How many calls are kept, None without a trace. Raises ``InputError``."""
    if trace is None or trace is False:
        return None
    return TRACED_CALLS if trace is True else arguments.integer("trace", trace, 0, native.MOST_TRACED_CALLS)
