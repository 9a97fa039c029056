# SPDX-License-Identifier: Apache-2.0
"""What a run cost: modelled time per operator, and bytes between memory and array."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import accumulate
from typing import Any, TypeVar

from onedispatch.dispatch.base.host_work import HostWork
from onedispatch.dispatch.runtime.prints import Print
from onedispatch.dispatch.runtime.profile import Profile
from onedispatch.dispatch.runtime.profile import joined as joined_profiles
from onedispatch.dispatch.runtime.trace import Trace, joined
from onedispatch.transactions.base.cached import cached_property
from onedispatch.transactions.base.text import counted, duration

_BUSY = re.compile(r"(\d+) of (\d+) cores busy")
OPERATORS = ("op", "kind", "cores", "cycles", "share")  # the table of operators


@dataclass(frozen=True)
class OpReport:
    """One device operator of a run.

    ``cycles`` are cycles of the array's clock; ``schedule`` is one line per loop nest: tiles,
    mapping to the array, and how many cores work, with the reason where some do not. ``work_basis`` says of
    a custom kernel where its cost comes from: work that it ``declared``, operations of its Python body that
    were ``counted``, or ``assumed`` (an operation for each element that it touches).
    """

    name: str
    op_type: str
    nodes: tuple[str, ...]
    cycles: int
    dispatch: int = 0
    schedule: tuple[str, ...] = ()
    work_basis: str = ""

    @property
    def cores(self) -> str:
        """How many cores work, and why others do not."""
        parts = [part for line in self.schedule for part in line.split("; ") if _BUSY.match(part)]
        return " | ".join(dict.fromkeys(parts))

    @property
    def busy_cores(self) -> str:
        """How many cores work, of how many; "" where the operator does not say it."""
        found = [match for line in self.schedule for match in _BUSY.finditer(line)]
        if not found:
            return ""
        counts = [int(match[1]) for match in found]
        least, most = min(counts), max(counts)
        return f"{least if least == most else f'{least} to {most}'} of {found[0][2]}"


@dataclass(frozen=True)
class ReloadReport:
    """Program memory was too small for all kernels: others were loaded into it, in every core.

    ``before`` counts operators of the run: it came before that one; ``nbytes`` went into each core, and
    ``kernels``, with their element types, are there from then on.
    """

    before: int
    cycles: int
    nbytes: int
    kernels: str
    dispatch: int = 0


@dataclass(frozen=True)
class ChannelReport:
    """A DMA channel that had a task: ``row`` 0 is the shim's, 1 the memory tile's, cores come behind.

    Of the cycles in which it had one, data moved in ``busy``; in ``stall`` it waited: for a lock in ``lock``
    of them, in the others for the other side of its stream.
    """

    column: int
    row: int
    direction: str  # MM2S or S2MM
    channel: int
    bytes: int
    busy: int
    stall: int
    lock: int = 0
    dispatch: int = 0


@dataclass(frozen=True)
class CoreReport:
    """A core that computed: cycles, and calls of kernels. In ``lock`` cycles it had an operation, and waited
    for data or for room."""

    column: int
    row: int
    busy: int
    calls: int
    lock: int = 0
    dispatch: int = 0


@dataclass(frozen=True)
class RunReport:
    """One ``session.run``, or what ``CompiledModel.timing`` says of one.

    Attributes:
        dispatches: kernel runs on the device; 1 for a model that lives there as a whole.
        cycles: modelled array cycles of all dispatches.
        seconds: the same in modelled seconds, on the device.
        ops: device operators in the order in which they ran.
        ddr_bytes_read, ddr_bytes_written: payload bytes between host memory and the array.
        host_seconds: wall-clock seconds of host regions; 0.0 without any.
        wall_seconds: wall-clock seconds of the whole run on this machine.
        launch_seconds: modelled seconds that the host spends on launching all dispatches, beside
            ``seconds`` (constant ``host.launch_us`` of the device description, sourced there; on
            silicon 45 to 94 us per dispatch have been measured).
        ddr_burst_bytes: the bytes read and written in whole bursts of 64, by address and length:
            what host memory is busy with.
        reloads: what the transaction loaded into program memory between operators, where that is too
            small for all kernels. Their cycles are beside those of ``ops``.
        program_bytes: of each core's program memory, what was used at most.
        prints: what kernels printed, by operator, core and sequence.
        trace: kernel calls, where the session traces them.
        host_work: what the host did for this run beside launching it, in order: executables compiled, sizes
            computed from values of the run, rows padded or cut, nodes that do not map. A run of a model that
            lives on the device, of shapes seen before and rows of whole words, has none.
        recorded: of each dispatch, how this machine made it: ``"recorded"`` while the simulator's engine made
            it, ``"played"`` from such a recording, ``"verified"`` both ways; or else why the engine made it
            alone. Modelled time and results are the same. ``"timed"``: a clock, nothing was made.
        channels: DMA channels that had a task: traffic and stalls.
        cores: those that computed.
        profile: what the time went into; None without device steps. Of a run it is found when it is asked
            for, which takes the time of ``CompiledModel.timing``; raises what that does.
    """

    dispatches: int
    cycles: int
    seconds: float
    ops: Sequence[OpReport] = field(default_factory=list)
    ddr_bytes_read: int = 0
    ddr_bytes_written: int = 0
    host_seconds: float = 0.0
    wall_seconds: float = 0.0
    launch_seconds: float = 0.0
    ddr_burst_bytes: int = 0
    reloads: Sequence[ReloadReport] = field(default_factory=list)
    program_bytes: int = 0
    prints: Sequence[Print] = ()
    trace: Trace | None = None
    host_work: Sequence[HostWork] = ()
    recorded: Sequence[str] = ()
    channels: Sequence[ChannelReport] = ()
    cores: Sequence[CoreReport] = ()
    profiled: Profile | Callable[[], Profile | None] | None = field(default=None, repr=False, compare=False)

    @cached_property
    def profile(self) -> Profile | None:
        return self.profiled() if callable(self.profiled) else self.profiled

    def __getstate__(self) -> dict[str, Any]:
        """Copies of a report are data: a profile that was not asked for is left behind."""
        state = dict(self.__dict__)
        return state | {"profiled": state.pop("profile", None)} if callable(self.profiled) else state

    @property
    def repack_seconds(self) -> float:
        """Modelled seconds that the host spends on padding and cutting rows of narrow types (constants
        ``host.repack_*`` of the device description), beside ``seconds`` and ``launch_seconds``."""
        return sum(work.modelled_seconds for work in self.host_work)

    @property
    def reload_cycles(self) -> int:
        """Array cycles that all reloads took."""
        return sum(reload.cycles for reload in self.reloads)

    def as_dict(self) -> dict[str, Any]:
        """Plain data, as JSON takes it; of a trace, its sums."""
        trace = None if self.trace is None else [asdict(one) for one in self.trace.kernels]
        plain = asdict(replace(self, trace=None, profiled=None))
        del plain["profiled"]
        return plain | {
            "trace": trace,
            "repack_seconds": self.repack_seconds,
        }

    def __str__(self) -> str:
        table = ["", *_aligned([OPERATORS, *self.operators()])] if self.ops else []
        return "\n".join([self.totals(), *table, *self.remarks()])

    def totals(self) -> str:
        """What the run cost as a whole, a line for each figure."""
        lines = [
            f"dispatches      {self.dispatches}",
            f"modelled time   {duration(self.seconds)} ({self.cycles:,} cycles)",
            f"host launch     {duration(self.launch_seconds)}",
            *([f"host repacking  {duration(self.repack_seconds)}"] if self.repack_seconds else []),
            f"DDR read        {counted(self.ddr_bytes_read, 'byte')}",
            f"DDR written     {counted(self.ddr_bytes_written, 'byte')}",
            f"DDR bursts      {counted(self.ddr_burst_bytes, 'byte')}",
        ]
        if self.channels:
            lines.append(f"DMA stalls      {_stalls(self.channels)}")
        if self.cores and self.cycles:
            busy = sum(core.busy for core in self.cores)
            share = busy / (self.cycles * len({(core.column, core.row) for core in self.cores}))
            lines.append(f"cores compute   {share:.1%} of the time")
        if self.program_bytes:
            lines.append(f"program memory  {counted(self.program_bytes, 'byte')} of each core at most")
        if self.reloads:
            lines.append(f"reloads         {len(self.reloads)} ({self.reload_cycles:,} cycles)")
        if self.prints:
            lines.append(f"printed         {counted(len(self.prints), 'line')}")
        if self.host_seconds:
            lines.append(f"host regions    {duration(self.host_seconds)} of wall clock")
        lines += [
            f"host {work.kind:<10} {duration(work.seconds)} of wall clock: {work.what}"
            for work in self.host_work
        ]
        return "\n".join(lines)

    def operators(self) -> list[tuple[str, ...]]:
        """A row of ``OPERATORS`` for each operator, and for each reload where it came."""
        rows = [(at + 0.0, op.name, _kind(op), op.busy_cores, op.cycles) for at, op in enumerate(self.ops)]
        rows += [(one.before - 0.5, "", "reload", "", one.cycles) for one in self.reloads]
        rows.sort(key=lambda row: row[0])
        return [(*texts, f"{n:,}", f"{n / self.cycles:.1%}" if self.cycles else "") for _, *texts, n in rows]

    def remarks(self, full: bool = False) -> Iterator[str]:
        """What reloads brought; ``full``: a line for each loop nest of an operator, its schedule."""
        if self.reloads or (full and self.ops):
            yield ""
        for one in self.reloads:
            yield f"reload: {counted(one.nbytes, 'byte')} into each: {one.kernels}"
        for op in self.ops if full else ():
            yield from (f"{op.name}: {line}" for line in op.schedule)


def _stalls(channels: Sequence[ChannelReport]) -> str:
    """How much of the time in which they had a task channels waited, by kind of tile."""
    kinds = {"shims": range(1), "memory tiles": range(1, 2), "cores": range(2, 64)}
    shares = []
    for kind, rows in kinds.items():
        of_kind = [channel for channel in channels if channel.row in rows]
        stall, busy = sum(one.stall for one in of_kind), sum(one.busy for one in of_kind)
        shares += [f"{kind} {stall / (stall + busy):.1%}"] if stall + busy else []
    return f"{', '.join(shares)} of the time with a task"


def _kind(op: OpReport) -> str:
    return f"{op.op_type} (work assumed)" if op.work_basis == "assumed" else op.op_type


def _aligned(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Lines with a cell of each column below the other, names and kinds to the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            f"{c:{'<' if at < 2 else '>'}{w}}" for at, (c, w) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()


_Row = TypeVar("_Row", OpReport, ReloadReport, ChannelReport, CoreReport)


def _from(dispatches: int, rows: Sequence[_Row]) -> Sequence[_Row]:
    """The rows of a report that comes behind so many dispatches."""
    return [replace(row, dispatch=row.dispatch + dispatches) for row in rows] if dispatches else rows


def summed(reports: Sequence[RunReport], work: Sequence[HostWork], wall: float) -> RunReport:
    """Returns the steps of a run as one report, which counts their dispatches through."""
    ops: list[OpReport] = []
    reloads: list[ReloadReport] = []
    channels: list[ChannelReport] = []
    cores: list[CoreReport] = []
    dispatches = 0
    for report in reports:
        reloads += [replace(one, before=one.before + len(ops)) for one in _from(dispatches, report.reloads)]
        ops += _from(dispatches, report.ops)
        channels += _from(dispatches, report.channels)
        cores += _from(dispatches, report.cores)
        dispatches += report.dispatches

    def total(of: Callable[[RunReport], int]) -> int:
        return sum(of(report) for report in reports)

    return RunReport(
        dispatches,
        total(lambda r: r.cycles),
        sum(r.seconds for r in reports),
        ops,
        total(lambda r: r.ddr_bytes_read),
        total(lambda r: r.ddr_bytes_written),
        sum(r.host_seconds for r in reports),
        wall,
        sum(r.launch_seconds for r in reports),
        total(lambda r: r.ddr_burst_bytes),
        reloads,
        max((r.program_bytes for r in reports), default=0),
        tuple(line for report in reports for line in report.prints),
        joined(
            zip(accumulate((r.cycles for r in reports), initial=0), (r.trace for r in reports), strict=False)
        ),
        (*work, *(one for report in reports for one in report.host_work)),
        tuple(one for report in reports for one in report.recorded),
        channels,
        cores,
        joined_profiles([report.profile for report in reports]),
    )
