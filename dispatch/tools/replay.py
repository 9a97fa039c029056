# SPDX-License-Identifier: Apache-2.0
"""Emulates a foreign transaction in the simulator without the overlay that it was written for.

Streams without a route are open (sources supply a pattern, sinks discard data), kernel arguments are as
large as the descriptors reach, absent core programs answer the handshake of locks 14 and 15. Locks,
queues, tokens, polls and descriptor chains work as in any run. ``cpp_ext/src/sim/replay/absent_overlay.h``
states what is assumed in place of the overlay.
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
from onedispatch.transactions.base.text import counted, tile_name
from onedispatch.transactions.machine.device import Device, device_names, find_device
from onedispatch.transactions.packets.control_overlay import control_overlay, usual_tiles
from onedispatch.transactions.packets.control_packets import PacketTiles
from onedispatch.transactions.packets.merge import merged
from onedispatch.transactions.packets.packet import Patch

_FURTHEST = 1 << 31  # byte of an argument at which packets may start


@dataclass(frozen=True)
class Packets:
    """Control packets that a transaction sends into the array from one of its arguments.

    They start at byte ``base`` of it. ``tiles``: the tile that each (packet id, column) addresses; derived
    from the packets if None.
    """

    data: bytes
    argument: int = 4
    patches: tuple[Patch, ...] = ()
    tiles: PacketTiles | None = None
    base: int = 0
    control: ControlPackets | None = None  # as they were read

    @classmethod
    def of(cls, control: ControlPackets, argument: int | None = None) -> Packets:
        """Returns the packets of ``control``, in kernel argument ``argument`` if that is given."""
        given = control.argument if argument is None else argument
        return cls(control.to_bytes(), given, control.patches, control.tiles(), control.base, control)

    def routes(self, found: Device) -> bytes:
        """Returns the part of an overlay that the packets need: a transaction that configures their routes.

        Raises:
            InputError: packets for tiles that the device does not have, or more ids than slots distinguish.
        """
        try:
            tiles = self.tiles if self.tiles is not None else ControlPackets.from_bytes(self.data).tiles()
        except TransactionError:
            tiles = usual_tiles(
                found.columns, found.core_rows
            )  # not a sequence of packets: the run reports where
        try:
            return control_overlay(found, tiles)
        except TransactionError as error:
            raise InputError("control packets", error.statement(), f"tiles of {found.name}") from error


@dataclass(frozen=True)
class Place:
    column: int
    row: int

    def __str__(self) -> str:
        return tile_name(self.column, self.row)


@dataclass(frozen=True)
class ChannelUse:
    """The work of a DMA channel; ``stall`` counts cycles with a task in which no data moved."""

    place: Place
    name: str  # "MM2S0"
    bytes: int
    busy: int
    stall: int
    open: bool  # its stream has no other end


@dataclass(frozen=True)
class ArgumentUse:
    """A kernel argument: the byte range that descriptors address, and the bytes read and written."""

    index: int
    first: int
    end: int
    read: int
    written: int


@dataclass(frozen=True)
class Assumption:
    """Something that the transaction needs and does not contain, or an operation of unknown meaning."""

    place: Place | None  # None: not at a tile
    what: str
    times: int


@dataclass(frozen=True)
class Unfinished:
    """A channel whose task did not end, with the reason."""

    place: Place
    name: str
    words_left: int
    moving: bool  # data still moved: an endless chain on an open stream
    why: str


@dataclass(frozen=True)
class Unqueued:
    """A descriptor that ``op_index`` writes and no task uses; ``spare``: tasks use others of its row."""

    place: Place
    bd: int
    op_index: int
    argument: int | None  # whose address is patched in
    spare: bool
    why: str


@dataclass(frozen=True)
class Stop:
    """Where and why the emulation stopped before the end of the transaction."""

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
    cycles: int  # at the last operation
    seconds: float
    settled_cycles: int  # until the array was quiescent, or only endless tasks moved data
    events: int
    packets: int  # control packets executed
    handshakes: int  # parameter blocks that absent super kernels accepted
    assumed_tokens: int  # without a route to the controller here: routes of the overlay are assumed
    packet_tokens: int  # of tasks that control packets push, which were not given
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
        """Descriptors without a task that are not spare: their data is never moved."""
        return [one for one in self.unqueued if not one.spare]

    @property
    def verdict(self) -> str:
        """The outcome in one line."""
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
    """Emulates ``transaction`` without an overlay.

    An error of the simulation is part of the report; bytes that are not a transaction raise
    ``TransactionError``. ``device`` is by default the whole NPU of the header's generation. ``packets`` are
    sent through the switches to the control ports, on routes configured for their ids; without them the
    argument is plain data. ``event_limit``: simulator events without progress of the controller that count
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
    """Returns the descriptors that are never queued; the simulator sees only those that a channel runs."""
    transaction, found = Transaction.from_bytes(data), UnqueuedBds()
    if packets is not None and packets.control is not None:
        # Packets that cannot be decoded are left out; the run reports what happens to them.
        with suppress(TransactionError):
            transaction = merged(transaction, packets.control, packets.argument).transaction
    for event in effects.events(transaction):
        found.observe(event)
    return [
        Unqueued(Place(*one.tile), one.bd, one.op, one.argument, one.spare, str(one)) for one in found.end()
    ]


def read_control(path: Path) -> ControlPackets:
    """Reads ``x_ctrl.bin``, and ``x_ctrl_meta.json`` if it stands beside it.

    Raises:
        InputError: a file that cannot be read, or has other contents.
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
    """Reads control packets, see ``read_control``, for an emulation.

    ``argument``: the kernel argument that holds them; by default the one that the JSON names, or else 4.
    """
    return Packets.of(read_control(path), argument)


def _device_of(data: bytes) -> str:
    """Returns the largest device of the generation that the header names."""
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
        packet_tokens=raw["packet_tokens"],
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
            + (
                "set, but no instruction releases it" if lock["set"] else "no instruction sets or releases it"
            ),
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
