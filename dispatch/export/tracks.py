# SPDX-License-Identifier: Apache-2.0
"""The timeline of a report: operators, gaps, the controller, device memory, cores and DMA channels."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from onedispatch.dispatch.export import event_names as events
from onedispatch.dispatch.export.timeline import Arg, Counter, Slice, Timeline, Track, between, nested
from onedispatch.dispatch.runtime.profile import END, LAUNCH, PARTS, RELOAD, Profile, RowProfile
from onedispatch.dispatch.runtime.report import RunReport
from onedispatch.dispatch.runtime.trace import (
    BD,
    LOCK,
    MEMORY,
    POLL,
    REQUEST,
    STREAM,
    TASK,
    TOKEN,
    Span,
    Trace,
)
from onedispatch.transactions.base.text import counted, tile_name

_OWN_NAMES = (LAUNCH, RELOAD, END)  # kinds of rows that are no operators
_TILES = ("shim", "memory tile")  # by row; cores come behind
_MOST_NODES = 32  # whose names a slice has


def timeline_of(report: RunReport) -> Timeline | None:
    """Returns the timeline of a run or a timing; None where nothing ran on the device.

    Operators and counters need no trace; a run finds its profile now, which takes the time of a timing.
    Raises what that does.
    """
    profile, trace = report.profile, report.trace
    if profile is None or not profile.rows:
        return None
    tracks = [Track("operators", _operators(profile, report))]
    if trace is not None:
        tracks += _traced(trace, profile)
    process = f"{profile.machine.device} (modelled)"
    notes: dict[str, Arg] = {"array_hz": profile.machine.array_hz, "cycles": profile.cycles}
    if trace is not None and trace.note:
        notes["not kept"] = trace.note
    return Timeline(process, profile.machine.array_hz, profile.cycles, tracks, _counters(profile), notes)


def _traced(trace: Trace, profile: Profile) -> Iterator[Track]:
    if not trace.cut:
        yield Track("no core computes", list(_gaps(trace, profile)))
    yield Track("controller", list(_controller(trace, profile)), "commands")
    requests = [_request(span) for span in _kept(trace, REQUEST)]
    yield Track("requests", requests, "device memory")
    yield from _cores(trace)
    yield from _channels(trace)


def _kept(trace: Trace, kind: str) -> Sequence[Span]:
    found = trace.spans.get(kind)
    return () if found is None else found.kept


# -- operators -------------------------------------------------------------------------------------


def _operators(profile: Profile, report: RunReport) -> list[Slice]:
    """Dispatches, and in them operators and what comes before, between and behind them."""
    schedules = {(op.dispatch, op.name): op.schedule for op in report.ops}
    rows = [_row(row, schedules.get((row.dispatch, row.name), ())) for row in profile.rows]
    return nested((_dispatches(profile), rows))


def _dispatches(profile: Profile) -> Iterator[Slice]:
    for dispatch, rows in groupby(profile.rows, lambda row: row.dispatch):
        first, *more = rows
        end = (more or [first])[-1]
        cycles = end.start + end.cycles - first.start
        yield Slice(f"dispatch {dispatch}", first.start, cycles, "dispatch", {"cycles": cycles})


def _row(row: RowProfile, schedule: Sequence[str]) -> Slice:
    args: dict[str, Arg] = {"cycles": row.cycles, "kind": row.kind, "bound by": row.bound}
    args |= {f"critical path: {part}": cycles for part, cycles in row.parts.items() if cycles}
    args |= {"bytes read": row.read, "bytes written": row.written, "ideal cycles": row.ideal}
    if row.nodes:
        more = len(row.nodes) - _MOST_NODES
        named = ", ".join(row.nodes[:_MOST_NODES])
        args["nodes"] = f"{named} and {more:,} more" if more > 0 else named
    if row.kind == RELOAD:
        args["kernels"] = row.name
    args |= {f"nest {number}": line for number, line in enumerate(schedule)}
    return Slice(row.kind if row.kind in _OWN_NAMES else row.name, row.start, row.cycles, row.kind, args)


def _gaps(trace: Trace, profile: Profile) -> Iterator[Slice]:
    """When no core runs a kernel; named by what most of the critical path goes into beside that."""
    calls = [Slice(call.kernel, call.start, call.cycles) for call in trace.calls]
    starts = [row.start for row in profile.rows]
    for start, end in between(calls, 0, profile.cycles):
        at = start
        while at < end:
            row = profile.rows[bisect_right(starts, at) - 1]
            until = min(end, row.start + row.cycles)
            yield _gap(row, at, until)
            at = until


def _gap(row: RowProfile, start: int, end: int) -> Slice:
    args: dict[str, Arg] = {"cycles": end - start, "of": row.name}
    if row.kind in _OWN_NAMES:
        return Slice(row.kind, start, end - start, "gap", args)
    others = {part: cycles for part, cycles in row.parts.items() if part != "compute"}
    part = max(others, key=lambda one: others[one])
    return Slice(part, start, end - start, "gap", args | {"that is": PARTS[part][1]})


# -- the controller and device memory --------------------------------------------------------------


def _controller(trace: Trace, profile: Profile) -> Iterator[Slice]:
    """Waits, and between them the operations that it executes; as far as all waits are kept."""
    waits = [_wait(span, "tokens") for span in _kept(trace, TOKEN)]
    waits += [_wait(span, "a register") for span in _kept(trace, POLL)]
    cut = any(trace.spans[kind].cut for kind in (TOKEN, POLL) if kind in trace.spans)
    launches = [Slice(LAUNCH, row.start, row.cycles, LAUNCH) for row in profile.rows if row.kind == LAUNCH]
    known = sorted((*waits, *launches), key=lambda one: one.start)
    end = known[-1].end if cut and known else profile.cycles
    busy = [
        Slice("operations", start, stop - start, "command", {"cycles": stop - start})
        for start, stop in between(known, 0, end)
    ]
    yield from sorted((*known, *busy), key=lambda one: one.start)


def _wait(span: Span, what: str) -> Slice:
    of = f"{_tile(span)} {span.channel}".rstrip()
    args: dict[str, Arg] = {"cycles": span.cycles, "operation": span.detail, "of": of}
    return Slice(f"waits for {what}", span.start, span.cycles, "wait", args)


def _request(span: Span) -> Slice:
    name = "read" if events.sends(span.channel) else "write"
    args: dict[str, Arg] = {"cycles": span.cycles, "bytes": span.bytes, "channel": _title(span)}
    return Slice(name, span.start, span.cycles, "request", args)


# -- cores and channels ----------------------------------------------------------------------------


def _cores(trace: Trace) -> Iterator[Track]:
    slices: dict[tuple[int, int], list[Slice]] = {}
    for call in trace.calls:
        args: dict[str, Arg] = {"op": call.op, "cycles": call.cycles, "host_ns": call.nanoseconds}
        args |= {"begins": events.CALL_BEGINS, "ends": events.CALL_ENDS}
        slices.setdefault(call.core, []).append(Slice(call.kernel, call.start, call.cycles, "kernel", args))
    for span in _kept(trace, LOCK):
        if not span.channel:
            wait = Slice(events.LOCK_STALL, span.start, span.cycles, "lock", {"cycles": span.cycles})
            slices.setdefault((span.column, span.row), []).append(wait)
    for (column, row), found in sorted(slices.items()):
        yield Track(f"core {tile_name(column, row)}", nested((found,)), "cores")


def _channels(trace: Trace) -> Iterator[Track]:
    """Of each channel: tasks, in them descriptors, in them what it waited for."""
    levels: dict[tuple[int, int, str], list[list[Slice]]] = {}
    makers = ((TASK, _task), (BD, _bd), (LOCK, _lock), (STREAM, _stream), (MEMORY, _memory))
    for level, (kind, make) in enumerate(makers):
        for span in _kept(trace, kind):
            if span.channel:
                key = span.row, span.column, span.channel
                levels.setdefault(key, [[] for _ in makers])[level].append(make(span))
    for (row, column, channel), found in sorted(levels.items()):
        place = Span(column, row, channel, 0, 0)
        yield Track(_title(place), list(_inside(nested(found))), f"DMA channels of {_group(row)}")


def _inside(slices: Iterable[Slice]) -> Iterator[Slice]:
    """Ends what would go on behind the slice that it began in: its parent was not kept, or cut off."""
    open_ends: list[int] = []
    for one in slices:
        while open_ends and open_ends[-1] <= one.start:
            open_ends.pop()
        cycles = min(one.cycles, open_ends[-1] - one.start) if open_ends else one.cycles
        open_ends.append(one.start + cycles)
        yield one if cycles == one.cycles else Slice(one.name, one.start, cycles, one.category, one.args)


def _task(span: Span) -> Slice:
    row, channel = span.row, span.channel
    args: dict[str, Arg] = {"cycles": span.cycles, "first BD": span.detail}
    args |= {"begins": events.start_task(row, channel), "ends": events.finished_task(row, channel)}
    return Slice("task", span.start, span.cycles, "task", args)


def _bd(span: Span) -> Slice:
    args: dict[str, Arg] = {"cycles": span.cycles, "bytes": span.bytes}
    args["ends"] = events.finished_bd(span.row, span.channel)
    name = f"BD {span.detail}: control packets" if span.packets else f"BD {span.detail}"
    return Slice(name, span.start, span.cycles, "control packets" if span.packets else "descriptor", args)


def _lock(span: Span) -> Slice:
    return _stall(span, events.stalled_lock(span.row, span.channel), "lock")


def _stream(span: Span) -> Slice:
    return _stall(span, events.stalled_stream(span.row, span.channel), "stream")


def _memory(span: Span) -> Slice:
    return _stall(span, events.stalled_memory(span.row, span.channel), "memory")


def _stall(span: Span, name: str, category: str) -> Slice:
    return Slice(name, span.start, span.cycles, category, {"cycles": span.cycles})


def _group(row: int) -> str:
    return f"{_TILES[row]}s" if row < len(_TILES) else "cores"


def _tile(span: Span) -> str:
    kind = _TILES[span.row] if span.row < len(_TILES) else "core"
    return f"{kind} {tile_name(span.column, span.row)}"


def _title(span: Span) -> str:
    return f"{_tile(span)} {span.channel}"


# -- counters --------------------------------------------------------------------------------------


def _counters(profile: Profile) -> list[Counter]:
    rate = profile.machine.array_hz / 1e9
    return [
        Counter("device memory read", "GB/s", _samples(profile, "read", rate)),
        Counter("device memory written", "GB/s", _samples(profile, "written", rate)),
        Counter("busy cores", f"of {counted(profile.machine.cores, 'core')}", _samples(profile, "busy", 1)),
    ]


def _samples(profile: Profile, what: str, scale: float) -> list[tuple[int, float]]:
    """Means over bins: a sample where one begins, and 0 where the run ends."""
    samples: list[tuple[int, float]] = []
    ends = [line.start for line in profile.timelines[1:]] + [profile.cycles]
    for line, end in zip(profile.timelines, ends, strict=True):
        bins = [sum(amounts) for amounts in zip(*(column[what] for column in line.columns), strict=True)]
        for number, amount in enumerate(bins):
            start = line.start + number * line.bin_cycles
            if start >= end:
                break
            value = amount * scale / min(line.bin_cycles, end - start)
            if not samples or samples[-1][1] != value:
                samples.append((start, value))
    return [*samples, (profile.cycles, 0.0)]
