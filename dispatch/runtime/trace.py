# SPDX-License-Identifier: Apache-2.0
"""Kernel calls of a run, one by one and summed: modelled cycles, and what they took on this machine. And what
DMA channels, device memory and the controller did, span by span.

Off unless a session or a clock is asked for it. All calls and spans are counted; as many of each kind as the
session says are kept one by one, for the timeline and for medians.
"""

from __future__ import annotations

import csv
import io
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from onedispatch.dispatch.base import arguments
from onedispatch.dispatch.base.native import core as native
from onedispatch.dispatch.compiler.executable import DeviceStep
from onedispatch.transactions.base.text import counted, tile_name

TRACED_CALLS = 100_000  # that are kept, and as many spans of each kind, where nothing else is said
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


# The kinds of spans.
TASK = "task"  # a DMA channel had a task; ``detail``: its first descriptor
BD = "bd"  # of it, one descriptor, and the bytes that it moved
LOCK = "lock"  # a channel waited for a lock; without a channel: a core within an operation did
STREAM = "stream"  # a channel could move data, and waited for the other side of its stream
MEMORY = "memory"  # a shim's channel waited for device memory
REQUEST = "request"  # device memory served a channel; bytes in whole bursts
TOKEN = "token"  # the controller waited for tokens, first for this channel's; ``detail``: the operation
POLL = "poll"  # the controller waited for a register of this tile


_NOUNS = {
    TASK: "task",
    BD: "descriptor",
    LOCK: "lock wait",
    STREAM: "stream wait",
    MEMORY: "memory wait",
    REQUEST: "request",
    TOKEN: "token wait",
    POLL: "poll",
}


@dataclass(frozen=True)
class Span:
    """Something that took time beside kernel calls, on the same clock. ``channel`` is "MM2S0" and the like,
    "" where it is the tile's; ``packets``: the descriptor moved control packets."""

    column: int
    row: int
    channel: str
    start: int
    cycles: int
    bytes: int = 0
    detail: int = 0
    packets: bool = False


@dataclass(frozen=True)
class Spans:
    """All spans of a kind: how many, their cycles, the first ones, and how many of them are not kept."""

    count: int = 0
    cycles: int = 0
    kept: Sequence[Span] = field(default=(), repr=False)
    cut: int = 0


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
    """What ``session.last_run.trace`` is. ``calls``: the first ones; ``cut``: how many more there were.
    ``spans``, by kind: what DMA channels, device memory and the controller did."""

    kernels: Sequence[KernelTime]
    calls: Sequence[TracedCall]
    cut: int
    array_hz: float
    spans: Mapping[str, Spans] = field(default_factory=dict)

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
        kinds = [("call", len(self.calls), self.cut)]
        kinds += [(_NOUNS[kind], len(one.kept), one.cut) for kind, one in self.spans.items()]
        return "; ".join(
            f"{counted(kept, noun)} kept, {cut:,} more counted only" for noun, kept, cut in kinds if cut
        )

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
    spans = {kind: _spans(raw["cycles"], *rest) for kind, rest in found["spans"].items()}
    return _whole(sums, calls, array_hz, spans)


def _spans(end: int, count: int, cycles: int, kept: Sequence[tuple[Any, ...]]) -> Spans:
    """What goes on behind the last operation of the run is cut off there."""
    found = [
        Span(column, row, f"{direction}{channel}" if direction else "", start, min(took, end - start), *rest)
        for column, row, direction, channel, start, took, *rest in kept
        if start <= end
    ]
    return Spans(count, cycles, tuple(found), count - len(kept))


def joined(traces: Iterable[tuple[int, Trace | None]]) -> Trace | None:
    """Traces of dispatches as one; with each, the cycle that it begins at."""
    sums: dict[str, KernelTime] = {}
    calls: list[TracedCall] = []
    spans: dict[str, Spans] = {}
    hz = 0.0
    for begin, trace in traces:
        if trace is None:
            continue
        hz = trace.array_hz
        calls += [replace(call, start=call.start + begin) for call in trace.calls]
        for kind, one in trace.spans.items():
            spans[kind] = _added(spans.get(kind, Spans()), one, begin)
        for kernel in trace.kernels:
            before = sums.get(kernel.kernel, KernelTime(kernel.kernel, 0, 0, 0, 0))
            sums[kernel.kernel] = KernelTime(
                kernel.kernel,
                before.calls + kernel.calls,
                before.cycles + kernel.cycles,
                before.span + kernel.span,
                before.nanoseconds + kernel.nanoseconds,
            )
    return _whole(sums.values(), calls, hz, spans) if hz else None


def _added(first: Spans, second: Spans, begin: int) -> Spans:
    kept = (*first.kept, *(replace(span, start=span.start + begin) for span in second.kept))
    return Spans(first.count + second.count, first.cycles + second.cycles, kept, first.cut + second.cut)


def _whole(
    sums: Iterable[KernelTime], calls: Sequence[TracedCall], hz: float, spans: Mapping[str, Spans]
) -> Trace:
    times: dict[str, list[int]] = {}
    for call in calls:
        times.setdefault(call.kernel, []).append(call.nanoseconds)
    kernels = [
        replace(one, median_ns=median(times[one.kernel]) if one.kernel in times else None)
        for one in sorted(sums, key=lambda one: (-one.cycles, one.kernel))
    ]
    calls = sorted(calls, key=lambda call: (call.start, call.core))
    return Trace(tuple(kernels), tuple(calls), sum(one.calls for one in kernels) - len(calls), hz, spans)


def traced_calls(trace: object) -> int | None:
    """How many calls are kept, None without a trace. Raises ``InputError``."""
    if trace is None or trace is False:
        return None
    return TRACED_CALLS if trace is True else arguments.integer("trace", trace, 0, native.MOST_TRACED_CALLS)
