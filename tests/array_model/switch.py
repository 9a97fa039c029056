# SPDX-License-Identifier: Apache-2.0
"""Stream switches: how a word finds its way from one MM2S channel to S2MM channels.

Every tile has a switch: slave ports, where words come in, and master ports, where they leave.

**Circuit**: a master names one slave and repeats what comes in there. Several masters may name
the same slave; that is a broadcast.

**Packet**: the slave looks at the header, the first word of a packet. The first enabled slot
with (header id & mask) == id gives an arbiter and an msel; all masters of that arbiter whose
msel mask has that bit repeat the packet (so one slot can broadcast, too). An arbiter serves one
packet at a time, whichever slave it comes from, until TLAST; then the one that has waited
longest. A master with "drop header"
swallows the header word.

**Deterministic merge**: the first arbiters of a switch can be told whose packets come next: so many
from this slave, so many from that one, and over again. A slave that is not in turn waits.

**Wires**: a slave feeds a master, either way, only where the switch has a wire (``switches`` of the
transactions package): a memory tile passes north and south on the same lane alone, and so on.

**Links**: North master i is South slave i of the tile above, South master i is North slave i of
the tile below, East master i is West slave i of the tile to the right, and so on. In the shim,
South master 0 leads to the controller,
MM2S 0/1 enter South slave 3/7 and South master 2/3 feed S2MM 0/1, when mux and demux say "DMA".

**No room in between**: the model gives a switch no buffers. A word moves only when every
receiver of the broadcast can take it, and it moves to all at once. Silicon has a few words of
room per port; a transaction must not need them. A packet takes all arbiters on its way together:
where silicon takes them one after the other, two packets might block each other half way.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onedispatch.transactions.machine import bd, registers, switches
from tests.array_model.memory import ModelFault

if TYPE_CHECKING:
    from tests.array_model.array import Array, Tile
    from tests.array_model.control import ControlPort
    from tests.array_model.dma import Channel
    from tests.array_model.sender import Sender

MUX_DMA = 1
ArbiterKey = tuple[int, int, int]
"""(column, row, arbiter)"""
_TOWARDS = {
    "NORTH": (0, 1, "SOUTH"),
    "SOUTH": (0, -1, "NORTH"),
    "EAST": (1, 0, "WEST"),
    "WEST": (-1, 0, "EAST"),
}


class Switch:
    """The registers of one tile's switch, all ports disabled."""

    def __init__(self, tile_map: registers.TileMap) -> None:
        self.kind = tile_map.kind
        self.masters = [0] * len(tile_map.masters)
        self.slaves = [0] * len(tile_map.slaves)
        self.slots = [0] * (len(tile_map.slaves) * registers.SLOTS_PER_SLAVE)
        block = tile_map.block["SWITCH_MERGE"]
        self.merges = [[0] * (block.size // 4) for _ in range(block.count)]
        self.mux = 0
        self.demux = 0

    def set_master(self, where: str, index: int, word: int) -> None:
        fields = bd.unpack_fields(registers.MASTER_FIELDS, [word])
        circuit = fields["enable"] and not fields["packet"]
        if circuit and not switches.connects(self.kind, fields["slave"], index):
            raise ModelFault("route", f"{where} has no wire from slave {fields['slave']} to master {index}")
        self.masters[index] = word


@dataclass(frozen=True)
class Destination:
    channel: Channel
    keeps_header: bool


@dataclass
class Route:
    """Where a stream goes: its receivers, and the arbiters that it passes.

    ``controller``: it leaves the array for the controller, which only tokens may do.
    ``headers_in_data``: it has no header, and came to a packet-switched port.
    """

    destinations: list[Destination] = field(default_factory=list)
    ports: list[ControlPort] = field(default_factory=list)
    controller: bool = False
    headers_in_data: bool = False
    arbiters: dict[ArbiterKey, int] = field(default_factory=dict)
    """with the slave port by which the stream comes to each"""


class Arbiters:
    """Which packet each arbiter serves, and who waits. Who asked first is served first."""

    def __init__(self) -> None:
        self._owner: dict[ArbiterKey, Sender] = {}
        self._waiting: dict[Sender, Mapping[ArbiterKey, int]] = {}
        self._turns: dict[ArbiterKey, deque[int]] = {}
        """Of merges: the slave ports of the packets to come, over and over."""

    def merge(self, key: ArbiterKey, words: list[int]) -> None:
        """The registers of a deterministic merge were written: its order begins anew."""
        fields = bd.unpack_fields(registers.MERGE_FIELDS, words)
        turns = [[fields[f"slave{n}"]] * fields[f"packets{n}"] for n in range(registers.MERGE_TURNS)]
        self._turns.pop(key, None)
        if fields["enable"]:
            self._turns[key] = deque(itertools.chain(*turns))

    def _in_turn(self, wanted: Mapping[ArbiterKey, int]) -> bool:
        merged = [(self._turns[key], slave) for key, slave in wanted.items() if key in self._turns]
        return all(turns and turns[0] == slave for turns, slave in merged)

    def take(self, wanted: Mapping[ArbiterKey, int], who: Sender) -> bool:
        """All of ``wanted`` for ``who``, or none; then ``who`` waits in the queue."""
        self._waiting.setdefault(who, wanted)
        taken = set(self._owner)
        for channel, keys in self._waiting.items():
            if channel is who:
                break
            if not set(keys) & set(self._owner) and self._in_turn(keys):
                taken |= set(keys)  # could go on now, and came before
        if set(wanted) & taken or not self._in_turn(wanted):
            return False
        del self._waiting[who]
        self._owner.update(dict.fromkeys(wanted, who))
        return True

    def release(self, who: Sender) -> None:
        """The packet is through, or its channel was reset."""
        self._waiting.pop(who, None)
        for key in [key for key, owner in self._owner.items() if owner is who]:
            del self._owner[key]
            if key in self._turns:
                self._turns[key].rotate(-1)


def source_port(array: Array, source: Sender) -> str:
    """The slave port at which an MM2S channel enters its tile's switch."""
    number = getattr(source, "number", None)
    if number is None:
        return "CONTROL"
    if source.tile.kind != "shim":
        return f"DMA_{number}"
    port = ("SOUTH_3", "SOUTH_7")[number]
    fields = bd.unpack_fields(registers.MUX_FIELDS, [source.tile.switch.mux])
    if fields[port.lower()] != MUX_DMA:
        raise ModelFault("route", f"{source.name}: the shim mux does not connect {port} to the DMA")
    return port


def trace(array: Array, source: Sender, packet_id: int | None) -> Route:
    """Follow a stream (with a header, or with None) to all its receivers."""
    route = Route()
    _Walk(array, packet_id, route).enter(source.tile, source_port(array, source), False)
    if route.destinations and (route.ports or route.headers_in_data):
        raise ModelFault("unsupported", f"{source.name}: both to a DMA and as control packets")
    elsewhere = route.destinations or route.ports or hasattr(source, "number")
    if route.controller and elsewhere:
        raise ModelFault("route", f"{source.name}: a way to the controller for what is no token")
    return route


class _Walk:
    def __init__(self, array: Array, packet_id: int | None, route: Route) -> None:
        self.array, self.packet_id, self.route = array, packet_id, route
        self.seen: set[tuple[int, int, str]] = set()

    def enter(self, tile: Tile, slave: str, dropped: bool) -> None:
        """A stream comes in at port ``slave``; ``dropped``: its header is already gone."""
        where = f"{tile.name} slave {slave}"
        if (tile.column, tile.row, slave) in self.seen:
            raise ModelFault("route", f"{where} is reached twice")
        self.seen.add((tile.column, tile.row, slave))
        port = tile.map.slave(slave)
        word = bd.unpack_fields(registers.SLAVE_FIELDS, [tile.switch.slaves[port]])
        if not word["enable"]:
            raise ModelFault("route", f"{where} is not enabled")
        if word["packet"] and dropped:
            raise ModelFault("route", f"{where} wants packets, and their header was dropped before")
        if word["packet"] and self.packet_id is None:
            self.route.headers_in_data = True
            return
        masters = self._packet(tile, port, where) if word["packet"] else self._circuit(tile, port)
        if not masters:
            raise ModelFault("route", f"{where} leads to no master")
        for name, drops in masters:
            self.leave(tile, name, dropped or drops)

    def _circuit(self, tile: Tile, port: int) -> list[tuple[str, bool]]:
        found = []
        for name, fields in self._masters(tile):
            if not fields["packet"] and fields["slave"] == port:
                found.append((name, False))
        return found

    def _packet(self, tile: Tile, port: int, where: str) -> list[tuple[str, bool]]:
        slots = tile.switch.slots[port * registers.SLOTS_PER_SLAVE :][: registers.SLOTS_PER_SLAVE]
        for word in slots:
            slot = bd.unpack_fields(registers.SLOT_FIELDS, [word])
            if slot["enable"] and (self.packet_id or 0) & slot["mask"] == slot["id"]:
                break
        else:
            raise ModelFault("route", f"{where} has no slot for packet id {self.packet_id}")
        self.route.arbiters.setdefault((tile.column, tile.row, slot["arbiter"]), port)
        found = []
        for name, fields in self._masters(tile):
            serves = fields["arbiter"] == slot["arbiter"] and fields["msel_enable"] >> slot["msel"] & 1
            if fields["packet"] and serves:
                if not switches.connects(tile.kind, port, tile.map.master(name)):
                    raise ModelFault("route", f"{where} has no wire to {name}")
                found.append((name, bool(fields["drop_header"])))
        return found

    def _masters(self, tile: Tile) -> list[tuple[str, dict[str, int]]]:
        """Enabled master ports with their fields."""
        decoded = [
            (name, bd.unpack_fields(registers.MASTER_FIELDS, [word]))
            for name, word in zip(tile.map.masters, tile.switch.masters, strict=True)
        ]
        return [(name, fields) for name, fields in decoded if fields["enable"]]

    def leave(self, tile: Tile, master: str, dropped: bool) -> None:
        side, _, lane = master.partition("_")
        to_controller = tile.kind == "shim" and tile.map.master(master) == switches.CONTROLLER_MASTER
        if to_controller and self.packet_id is not None:
            self.route.controller = True
            return
        receiver = self._receiver(tile, side, lane, master)
        if receiver is not None:
            self.route.destinations.append(Destination(receiver, self.packet_id is not None and not dropped))
            return
        if side == "CONTROL":
            if self.packet_id is None:
                raise ModelFault("route", f"{tile.name} control port: a stream without header")
            self.route.ports.append(tile.control_port)
            return
        if side not in _TOWARDS:
            raise ModelFault("route", f"{tile.name} master {master} leads to no DMA")
        columns, rows, arrives = _TOWARDS[side]
        following = self.array.tiles.get((tile.column + columns, tile.row + rows))
        slave = f"{arrives}_{lane}"
        if following is None or slave not in following.map.slaves:
            raise ModelFault("route", f"{tile.name} master {master} leads out of the array")
        self.enter(following, slave, dropped)

    def _receiver(self, tile: Tile, side: str, lane: str, master: str) -> Channel | None:
        """The S2MM channel behind a master port, if there is one."""
        if side == "DMA":
            return tile.s2mm[int(lane)]
        if tile.kind != "shim" or side != "SOUTH":
            return None
        fields = bd.unpack_fields(registers.DEMUX_FIELDS, [tile.switch.demux])
        if master not in ("SOUTH_2", "SOUTH_3") or fields[master.lower()] != MUX_DMA:
            raise ModelFault("route", f"{tile.name} master {master} is not connected to the DMA")
        return tile.s2mm[0 if master == "SOUTH_2" else 1]
