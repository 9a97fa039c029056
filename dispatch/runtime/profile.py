# SPDX-License-Identifier: Apache-2.0
"""What the time of a run goes into: cycles of the critical path by operator and part, and what bounds each.

The simulator's engine knows what each thing that happens waited for last. The chain of these is the critical
path: what it spends on each part adds up to the cycles of an operator, and those to the run's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import accumulate
from typing import Any

from onedispatch.dispatch.compiler.executable import DeviceStep
from onedispatch.transactions import Device

# What a part of the critical path is, and under which of four words people sum it up.
PARTS: Mapping[str, tuple[str, str]] = {
    "compute": ("compute", "kernel calls on cores"),
    "ddr": ("memory", "transfers that device memory holds up"),
    "latency": ("memory", "until the first data of a shim's descriptor flows"),
    "stream": ("streams", "transfers that a stream port holds up"),
    "task": ("streams", "DMA channels read descriptors and begin"),
    "lock": ("compute", "cores acquire and release locks"),
    "command": ("commands", "the controller's operations"),
    "packet": ("commands", "control packets, and tokens of tasks that have ended"),
    "block": ("commands", "cores read parameter blocks"),
    "launch": ("commands", "until the controller's first operation"),
}
BOUNDS = tuple(dict.fromkeys(bound for bound, _ in PARTS.values()))

_PEAK_TYPES = ("i8", "bf16", "f32")  # of which the peak is named
LAUNCH, RELOAD, END = "launch", "reload", "end"  # kinds of rows that are no operators


@dataclass(frozen=True)
class RowProfile:
    """An operator of a run, or what comes before, between and behind them (kinds "launch", "reload", "end").

    ``parts``: cycles of the critical path; their sum is ``cycles``. ``busy``: cycles of compute of all cores.
    ``read``, ``written``: bytes of device memory, ``bursts`` in whole bursts. ``ideal``: the cycles that are
    left if all cores compute the same and device memory is never idle: the longer of the two. ``macs``:
    multiply-accumulates of its products.
    """

    name: str
    kind: str
    nodes: tuple[str, ...]
    dispatch: int
    start: int  # cycle of the run
    cycles: int
    parts: Mapping[str, int]
    busy: int = 0
    read: int = 0
    written: int = 0
    bursts: int = 0
    ideal: int = 0
    macs: int = 0

    @property
    def bound(self) -> str:
        """What most of the critical path goes into: one of ``BOUNDS``."""
        return bound_of(self.parts)


@dataclass(frozen=True)
class KindProfile:
    """All operators of a kind: sums."""

    kind: str
    count: int
    cycles: int
    parts: Mapping[str, int]
    busy: int
    bursts: int
    ideal: int
    macs: int

    @property
    def bound(self) -> str:
        return bound_of(self.parts)


@dataclass(frozen=True)
class TileProfile:
    """What a tile did: cycles, which add up to the run's.

    A core computed (``busy``), or waited for data or for room within operators (``waiting``). Of a memory
    tile or a shim, the mean of the DMA channels that had tasks: data moved, or they waited for locks.
    ``rest``: for the other side of a stream, or for work. ``bytes``: of all channels.
    """

    tile: str  # core, memory, shim
    column: int
    row: int
    busy: int
    waiting: int
    rest: int
    bytes: int = 0


@dataclass(frozen=True)
class Timeline:
    """A dispatch over time, by column: in bins of ``bin_cycles`` from cycle ``start`` on, cycles of compute
    and bytes read from and written to device memory."""

    start: int
    bin_cycles: int
    columns: Sequence[Mapping[str, Sequence[int]]]  # "busy", "read", "written"


@dataclass(frozen=True)
class Machine:
    """What the device could do at most."""

    device: str
    array_hz: float
    columns: int
    cores: int
    ddr_bytes_per_cycle: float
    tops: Mapping[str, float]  # 1e12 operations per second by element type, two for a multiply-accumulate

    @classmethod
    def of(cls, device: Device) -> Machine:
        hz = device.constant("clock.array_mhz") * 1e6
        rate = device.constant("ddr.gigabytes_per_second") * 1e9 / hz
        cores = device.columns * device.core_rows
        macs = {kind: device.constants.get(f"kernel.{kind}_{kind}_macs_per_cycle") for kind in _PEAK_TYPES}
        tops = {kind: 2e-12 * each * cores * hz for kind, each in macs.items() if each}
        return cls(device.name, hz, device.columns, cores, rate, tops)


@dataclass(frozen=True)
class Profile:
    """What the time of a run goes into."""

    machine: Machine
    rows: Sequence[RowProfile] = ()
    tiles: Sequence[TileProfile] = ()
    timelines: Sequence[Timeline] = field(default=(), repr=False)

    @property
    def cycles(self) -> int:
        return sum(row.cycles for row in self.rows)

    @property
    def parts(self) -> dict[str, int]:
        """Cycles by part: they add up to those of the run."""
        return sums_of(row.parts for row in self.rows)

    @property
    def bounds(self) -> dict[str, int]:
        """Cycles by what bounds: sums of ``parts``."""
        return bounds_of(self.parts)

    @property
    def bound(self) -> str:
        """What most of the run's critical path goes into: one of ``BOUNDS``."""
        return bound_of(self.parts)

    @property
    def busy_share(self) -> float:
        """Of all cores and cycles, those that computed."""
        whole = self.cycles * self.machine.cores
        return sum(row.busy for row in self.rows) / whole if whole else 0.0

    @property
    def ideal(self) -> int:
        """Cycles that would be left: see ``RowProfile``."""
        return sum(row.ideal for row in self.rows)

    @property
    def gigabytes_per_second(self) -> float:
        """Of device memory, in whole bursts."""
        nbytes = sum(row.bursts for row in self.rows)
        return nbytes * self.machine.array_hz / self.cycles / 1e9 if self.cycles else 0.0

    @property
    def peak_gigabytes_per_second(self) -> float:
        return self.machine.ddr_bytes_per_cycle * self.machine.array_hz / 1e9

    @property
    def macs(self) -> int:
        """Multiply-accumulates of products."""
        return sum(row.macs for row in self.rows)

    @property
    def tops(self) -> float:
        """1e12 operations per second: two for each multiply-accumulate of products."""
        return tops_of(self.macs, self.cycles, self.machine.array_hz)

    def kinds(self) -> list[KindProfile]:
        """Sums by kind of operator, most cycles first."""
        by_kind: dict[str, list[RowProfile]] = {}
        for row in self.rows:
            by_kind.setdefault(row.kind, []).append(row)
        return sorted((_kind(*item) for item in by_kind.items()), key=lambda kind: (-kind.cycles, kind.kind))

    def as_dict(self) -> dict[str, Any]:
        """Plain data, as JSON takes it."""
        rows = [asdict(row) | {"bound": row.bound} for row in self.rows]
        return {
            "machine": asdict(self.machine),
            "cycles": self.cycles,
            "parts": self.parts,
            "bounds": self.bounds,
            "bound": self.bound,
            "busy_share": self.busy_share,
            "ideal": self.ideal,
            "gigabytes_per_second": self.gigabytes_per_second,
            "peak_gigabytes_per_second": self.peak_gigabytes_per_second,
            "tops": self.tops,
            "rows": rows,
            "kinds": [asdict(kind) | {"bound": kind.bound} for kind in self.kinds()],
            "tiles": [asdict(tile) for tile in self.tiles],
            "timelines": [asdict(line) for line in self.timelines],
        }


def sums_of(of: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Cycles by part, from those of several."""
    sums = dict.fromkeys(PARTS, 0)
    for parts in of:
        for part, cycles in parts.items():
            sums[part] += cycles
    return sums


def tops_of(macs: int, cycles: int, hz: float) -> float:
    """1e12 operations per second: two for each multiply-accumulate, over so many cycles."""
    return 2e-12 * macs * hz / cycles if cycles else 0.0


def bounds_of(parts: Mapping[str, int]) -> dict[str, int]:
    """Cycles by what bounds, from cycles by part."""
    sums = dict.fromkeys(BOUNDS, 0)
    for part, cycles in parts.items():
        sums[PARTS[part][0]] += cycles
    return sums


def bound_of(parts: Mapping[str, int]) -> str:
    """What most cycles go into; of equals the first of ``BOUNDS``."""
    sums = bounds_of(parts)
    return max(BOUNDS, key=lambda bound: sums[bound])


def _kind(kind: str, rows: Sequence[RowProfile]) -> KindProfile:
    def total(name: str) -> int:
        return sum(getattr(row, name) for row in rows)

    sums = map(total, ("busy", "bursts", "ideal", "macs"))
    return KindProfile(kind, len(rows), total("cycles"), sums_of(row.parts for row in rows), *sums)


def profile_of(raw: Mapping[str, Any], step: DeviceStep, device: Device) -> Profile | None:
    """What the simulator's report says of a step's time; None where it was not asked to."""
    found = raw.get("profile")
    if found is None:
        return None
    machine = Machine.of(device)
    line = Timeline(0, found["bin_cycles"], found["bins"])
    return Profile(machine, tuple(_rows(found, step, machine)), tuple(_tiles(raw)), (line,))


def _rows(found: Mapping[str, Any], step: DeviceStep, machine: Machine) -> Iterator[RowProfile]:
    marks = {op.timer: (op.name, op.op_type, op.nodes, op.macs) for op in step.ops}
    marks |= {reload.timer: (reload.kernels, RELOAD, (), 0) for reload in step.reloads}
    marks |= {0: (LAUNCH, LAUNCH, (), 0), -1: (END, END, (), 0)}
    start = 0
    for window in found["windows"]:
        name, kind, nodes, macs = marks.get(window["timer"], (f"timer {window['timer']}", END, (), 0))
        cycles, busy, bursts = window["cycles"], window["busy"], window["bursts"]
        ideal = max(-(-busy // machine.cores), int(bursts / machine.ddr_bytes_per_cycle))
        parts = dict(zip(found["parts"], window["parts"], strict=True))
        moved = window["read"], window["written"], bursts
        yield RowProfile(name, kind, nodes, 0, start, cycles, parts, busy, *moved, min(ideal, cycles), macs)
        start += cycles


_KINDS_OF_TILES = ("shim", "memory")  # by row; cores come behind


def _tiles(raw: Mapping[str, Any]) -> Iterator[TileProfile]:
    by_tile: dict[tuple[int, int], list[Mapping[str, Any]]] = {}
    for channel in raw["channels"]:
        if channel["row"] < len(_KINDS_OF_TILES):
            by_tile.setdefault((channel["row"], channel["column"]), []).append(channel)
    for (row, column), channels in sorted(by_tile.items()):
        busy, lock = (sum(one[key] for one in channels) // len(channels) for key in ("busy", "lock"))
        nbytes, rest = sum(one["bytes"] for one in channels), raw["cycles"] - busy - lock
        yield TileProfile(_KINDS_OF_TILES[row], column, row, busy, lock, rest, nbytes)
    for core in sorted(raw["cores"], key=lambda one: (one["row"], one["column"])):
        rest = raw["cycles"] - core["busy"] - core["lock"]
        yield TileProfile("core", core["column"], core["row"], core["busy"], core["lock"], rest)


def joined(profiles: Sequence[Profile | None]) -> Profile | None:
    """Profiles of dispatches, one after the other, as one; None where one is missing, or there are none."""
    found = [one for one in profiles if one is not None]
    if not found or len(found) < len(profiles):
        return None
    starts = accumulate((one.cycles for one in found), initial=0)
    rows: list[RowProfile] = []
    lines: list[Timeline] = []
    tiles: dict[tuple[str, int, int], TileProfile] = {}
    for dispatch, (start, one) in enumerate(zip(starts, found, strict=False)):
        rows += [replace(row, dispatch=dispatch, start=row.start + start) for row in one.rows]
        lines += [replace(line, start=line.start + start) for line in one.timelines]
        for tile in one.tiles:
            key = tile.tile, tile.column, tile.row
            tiles[key] = _added(tiles[key], tile) if key in tiles else tile
    return Profile(found[0].machine, tuple(rows), tuple(tiles.values()), tuple(lines))


def _added(first: TileProfile, second: TileProfile) -> TileProfile:
    sums = {
        name: getattr(first, name) + getattr(second, name) for name in ("busy", "waiting", "rest", "bytes")
    }
    return replace(first, **sums)
