# SPDX-License-Identifier: Apache-2.0
"""Runs a foreign transaction in the simulator without the overlay that it was written for.

Streams without a route are open (sources supply a pattern, sinks swallow), kernel arguments are as
large as the descriptors reach, absent core programs answer the handshake of locks 14 and 15. Locks,
queues, tokens, polls and descriptor chains are those of any run. ``cpp_ext/src/sim/replay/replay.cpp``
states the rules for what the overlay would have set up.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onedispatch.dispatch.base.native import core
from onedispatch.transactions import ControlPackets, Transaction
from onedispatch.transactions.analysis import effects
from onedispatch.transactions.analysis.unqueued import UnqueuedBds
from onedispatch.transactions.base.errors import InputError, TransactionError
from onedispatch.transactions.base.files import read_file
from onedispatch.transactions.base.text import counted
from onedispatch.transactions.machine.device import Device, device_names, find_device
from onedispatch.transactions.packets.control_overlay import control_overlay, usual_tiles
from onedispatch.transactions.packets.control_packets import TileMap
from onedispatch.transactions.packets.merge import merged
from onedispatch.transactions.packets.packet import Patch

_FURTHEST = 1 << 31  # byte of an argument at which packets may start


@dataclass(frozen=True)
class Packets:
    """Control packets that a transaction sends into the array from one of its arguments.

    They start at byte ``base`` of it. ``tiles``: which tile each (packet id, column) goes to; told
    from the packets if None.
    """

    data: bytes
    argument: int = 4
    patches: tuple[Patch, ...] = ()
    tiles: TileMap | None = None
    base: int = 0
    control: ControlPackets | None = None  # as they were read

    @classmethod
    def of(cls, control: ControlPackets, argument: int | None = None) -> Packets:
        """Packets that have been read; in another argument than they say if it is given."""
        given = control.argument if argument is None else argument
        return cls(control.to_bytes(), given, control.patches, control.tiles(), control.base, control)

    def routes(self, found: Device) -> bytes:
        """The part of an overlay that they need: a transaction that lays their routes.

        Raises:
            InputError: packets for tiles that the device does not have, or beyond what slots tell apart.
        """
        try:
            tiles = self.tiles if self.tiles is not None else ControlPackets.from_bytes(self.data).tiles()
        except TransactionError:
            tiles = usual_tiles(found.columns, found.core_rows)  # no row of packets: the run will say where
        try:
            return control_overlay(found, tiles)
        except TransactionError as error:
            raise InputError("control packets", error.statement(), f"tiles of {found.name}") from error


@dataclass(frozen=True)
class Place:
    column: int
    row: int

    def __str__(self) -> str:
        return f"c{self.column} r{self.row}"


@dataclass(frozen=True)
class ChannelUse:
    """What a DMA channel did; ``stall`` are cycles with a task in which nothing moved."""

    place: Place
    name: str  # "MM2S0"
    bytes: int
    busy: int
    stall: int
    open: bool  # it sent to nowhere, or was fed from nowhere


@dataclass(frozen=True)
class ArgumentUse:
    """A kernel argument: the bytes that descriptors reach, and how many were read and written."""

    index: int
    first: int
    end: int
    read: int
    written: int


@dataclass(frozen=True)
class Assumption:
    """Something that the transaction needs and does not contain, or does and nobody knows."""

    place: Place | None  # None: not at a tile
    what: str
    times: int


@dataclass(frozen=True)
class Unfinished:
    """A channel whose task never ended, and why."""

    place: Place
    name: str
    words_left: int
    moving: bool  # data still flowed: a chain without an end that an open stream keeps going
    why: str


@dataclass(frozen=True)
class Unqueued:
    """A descriptor that operation ``op_index`` writes and no task runs; ``spare``: others of its row run."""

    place: Place
    bd: int
    op_index: int
    argument: int | None  # that was patched into it
    spare: bool
    why: str


@dataclass(frozen=True)
class Stop:
    """Where and why a replay did not reach the end of the transaction."""

    kind: str  # of SimulationError: deadlock, livelock, bd, queue, address, ...
    op_index: int | None
    byte_offset: int | None
    text: str


@dataclass(frozen=True)
class ReplayReport:
    """``finished``: every operation was executed. ``complete``: every task ended too, and none is lost."""

    device: str
    finished: bool
    operations: int
    executed: int
    cycles: int  # until the last operation
    seconds: float
    settled_cycles: int  # until nothing moved any more, or what moves never ends
    events: int
    packets: int  # control packets executed
    handshakes: int  # parameter blocks that absent super kernels took
    assumed_tokens: int  # that no route here leads to the controller: the overlay's are assumed
    timers: list[tuple[int, int]]
    arguments: list[ArgumentUse]
    channels: list[ChannelUse]
    assumptions: list[Assumption]
    unfinished: list[Unfinished]
    stop: Stop | None
    unqueued: list[Unqueued] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        return self.finished and not self.unfinished and self.stop is None and not self.lost

    @property
    def lost(self) -> list[Unqueued]:
        """Descriptors without a task that are not spare: what they would move stays where it is."""
        return [one for one in self.unqueued if not one.spare]

    @property
    def verdict(self) -> str:
        """One line: what came of it."""
        if self.stop is not None:
            return f"stopped at operation {self.stop.op_index}: {self.stop.kind}"
        if not self.unfinished and not self.lost:
            return "ran to the end"
        endless = sum(task.moving for task in self.unfinished)
        waiting = len(self.unfinished) - endless
        parts = [f"{counted(endless, 'task')} without an end"] if endless else []
        parts += [f"{counted(waiting, 'task')} waiting"] if waiting else []
        parts += [f"{counted(len(self.lost), 'descriptor')} never queued"] if self.lost else []
        return f"ran to the end; left: {', '.join(parts)}"


def replay(
    transaction: bytes | Transaction,
    device: str | Device | None = None,
    packets: Packets | None = None,
    event_limit: int | None = None,
) -> ReplayReport:
    """Executes ``transaction`` alone.

    What stops it is part of the report; ``TransactionError`` is for bytes that are none.
    ``device`` is by default the whole NPU of the header's generation. ``packets`` go through the
    switches to the control ports, on routes laid for their ids; without them the argument is data
    like any other. ``event_limit``: simulator events without progress of the controller that count
    as livelock.
    """
    if isinstance(transaction, Transaction):
        transaction = transaction.to_bytes()
    target = device if isinstance(device, Device) else find_device(device or _device_of(transaction))
    name = device if isinstance(device, str) else target.name
    handle = core.device.from_description(target.description())
    if event_limit is not None:
        handle.set_event_limit(event_limit)
    if packets is None:
        return _report(name, core.replay(handle, transaction), _unqueued(transaction, None))
    base, routes = packets.base, packets.routes(target)
    if base % 4 or not 0 <= base < _FURTHEST:
        raise InputError(
            "control packets", f"byte {base}", f"multiples of 4 below {_FURTHEST}", "see the JSON"
        )
    patches = [(p.offset, p.argument, p.bo_offset, p.adds) for p in packets.patches]
    raw = core.replay(handle, transaction, packets.data, packets.argument, patches, routes, base)
    return _report(name, raw, _unqueued(transaction, packets))


def _unqueued(data: bytes, packets: Packets | None) -> list[Unqueued]:
    """What the simulator cannot see: no channel ever heard of these descriptors."""
    transaction, found = Transaction.from_bytes(data), UnqueuedBds()
    if packets is not None and packets.control is not None:
        # Without what the packets write where they cannot be followed; the run says what came of them.
        with suppress(TransactionError):
            transaction = merged(transaction, packets.control, packets.argument).transaction
    for event in effects.events(transaction):
        found.follow(event)
    return [
        Unqueued(Place(*one.tile), one.bd, one.op, one.argument, one.spare, str(one)) for one in found.end()
    ]


def read_control(path: Path) -> ControlPackets:
    """``x_ctrl.bin``, with what ``x_ctrl_meta.json`` says when that lies beside it.

    Raises:
        InputError: a file that cannot be read, or holds something else.
    """
    meta = path.with_name(path.stem + "_meta.json")
    accepted = "control packets, and their JSON if any"
    data = read_file(path, InputError, accepted)
    described = read_file(meta, InputError, accepted) if meta.exists() else None
    try:
        return ControlPackets.from_bytes(data, described)
    except TransactionError as error:
        accepted = "whole packets, and AMD's description of patches"
        raise InputError(str(path), error.statement(), accepted, error.remedy) from error


def read_packets(path: Path, argument: int | None = None) -> Packets:
    """What ``read_control`` reads, for a replay.

    ``argument``: the kernel argument that they are; what the JSON says, or else 4, if None.
    """
    return Packets.of(read_control(path), argument)


def _device_of(data: bytes) -> str:
    """The largest device of the generation that the header names."""
    generation = data[2] if len(data) > 2 else 0
    known = [find_device(name) for name in device_names()]
    same = [device for device in known if device.device_generation == generation]
    if not same:
        accepted = sorted({device.device_generation for device in known})
        raise InputError(
            "transaction header",
            f"device generation {generation}",
            f"one of {', '.join(map(str, accepted))}",
            "name a device, if this is one of its transactions",
        )
    return max(same, key=lambda device: device.columns).name


def _place(raw: Mapping[str, Any]) -> Place:
    return Place(raw["column"], raw["row"])


def _report(device: str, raw: Mapping[str, Any], unqueued: list[Unqueued]) -> ReplayReport:
    stop = raw["stop"]
    return ReplayReport(
        device=device,
        finished=raw["finished"],
        operations=raw["operations"],
        executed=raw["executed"],
        cycles=raw["cycles"],
        seconds=raw["seconds"],
        settled_cycles=raw["settled_cycles"],
        events=raw["events"],
        packets=raw["packets"],
        handshakes=raw["handshakes"],
        assumed_tokens=raw["assumed_tokens"],
        timers=raw["timers"],
        arguments=[
            ArgumentUse(a["argument"], a["first"], a["end"], a["read"], a["written"])
            for a in raw["arguments"]
        ],
        channels=[
            ChannelUse(
                _place(c), f"{c['direction']}{c['channel']}", c["bytes"], c["busy"], c["stall"], "open" in c
            )
            for c in raw["channels"]
        ],
        assumptions=_assumptions(raw),
        unfinished=[
            Unfinished(_place(u), f"{u['direction']}{u['channel']}", u["words_left"], u["moving"], u["why"])
            for u in raw["unfinished"]
        ],
        stop=stop and Stop(stop["kind"], stop.get("op_index"), stop.get("byte_offset"), stop["text"]),
        unqueued=unqueued,
    )


def _assumptions(raw: Mapping[str, Any]) -> list[Assumption]:
    locks = [
        Assumption(
            _place(lock),
            f"lock {lock['lock']} has a partner outside: "
            + ("set, but released by nobody" if lock["set"] else "neither set nor released by anybody"),
            lock["times"],
        )
        for lock in raw["assumed"]
    ]
    bds = [
        Assumption(_place(bd), f"BD {bd['bd']} is written outside; it moved nothing here", bd["times"])
        for bd in raw["absent_bds"]
    ]
    skipped = [Assumption(None, f"custom opcode {code} skipped", times) for code, times in raw["skipped"]]
    return locks + bds + skipped
