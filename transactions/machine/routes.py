# SPDX-License-Identifier: Apache-2.0
"""Stream routes: the S2MM channels and control ports that the words of an MM2S channel reach.

Routes are derived from the switch registers that an overlay, or any transaction, writes. Streams that end
elsewhere (a core, a trace) are not followed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from onedispatch.transactions.machine import bd, registers

Tile = tuple[int, int]
Channel = tuple[Tile, int]
"""(tile, channel number) of one direction."""
_SIDES = {
    "NORTH": (0, 1, "SOUTH"),
    "SOUTH": (0, -1, "NORTH"),
    "EAST": (1, 0, "WEST"),
    "WEST": (-1, 0, "EAST"),
}
_SWITCH = ("SWITCH_MASTER", "SWITCH_SLAVE", "SWITCH_SLOT", "MUX", "DEMUX")
_DMA = 1
"""Value of a field of the shim's multiplexers that selects the DMA."""
Key: TypeAlias = tuple[Tile, str, int]


class Arrival(NamedTuple):
    """An S2MM channel that a stream reaches; ``header``: packets arrive with their header word."""

    channel: Channel
    header: bool


def is_switch_register(address: int) -> bool:
    """True if a write to the address changes stream routes."""
    register = registers.find_register(address)
    return register is not None and register.block.name in _SWITCH


class _Ends(NamedTuple):
    arrivals: tuple[Arrival, ...]
    controls: tuple[Tile, ...]


class Routes:
    """The routes that ``writes`` (address, value) establish; the last write of a register counts."""

    def __init__(self, writes: Iterable[tuple[int, int]]) -> None:
        self._words: dict[Key, int] = {}
        for address, value in writes:
            register = registers.find_register(address)
            if register is not None and register.block.name in _SWITCH:
                column, row, _ = registers.split_address(address)
                self._words[(column, row), register.block.name, register.index] = value
        self._known: dict[tuple[Tile, int, int | None], _Ends] = {}

    def of(self, tile: Tile, channel: int, packet: int | None) -> tuple[Arrival, ...]:
        """Returns where MM2S ``channel`` of ``tile`` sends packets with that id, or (None) bare words."""
        return self._ends(tile, channel, packet).arrivals

    def controls(self, tile: Tile, channel: int, packet: int) -> tuple[Tile, ...]:
        """Returns the tiles whose control ports receive packets with that id."""
        return self._ends(tile, channel, packet).controls

    def takes_packets(self, tile: Tile, channel: int) -> bool:
        """True if the channel feeds a packet-switched port, so that its data must contain packet headers."""
        slave = self._entry(tile, channel)
        word = 0 if slave is None else self._word(tile, "SWITCH_SLAVE", slave)
        port = bd.unpack_fields(registers.SLAVE_FIELDS, [word])
        return bool(port["enable"] and port["packet"])

    def _ends(self, tile: Tile, channel: int, packet: int | None) -> _Ends:
        key = (tile, channel, packet)
        if key not in self._known:
            found: list[Arrival] = []
            controls: list[Tile] = []
            slave = self._entry(tile, channel)
            if slave is not None:
                self._follow(tile, slave, packet, packet is not None, found, controls, set())
            self._known[key] = _Ends(tuple(found), tuple(controls))
        return self._known[key]

    def _word(self, tile: Tile, block: str, index: int = 0) -> int:
        return self._words.get((tile, block, index), 0)

    def _entry(self, tile: Tile, channel: int) -> int | None:
        """Returns the slave port through which a channel's words enter the switch."""
        kind = registers.kind_of_row(tile[1])
        if kind is None:
            return None
        if kind != "shim":
            return registers.TILES[kind].slave(f"DMA_{channel}")
        port = registers.SHIM_MM2S_SLAVES[channel]
        fields = bd.unpack_fields(registers.MUX_FIELDS, [self._word(tile, "MUX")])
        name = registers.SHIM.slaves[port].lower()
        return port if fields[name] == _DMA else None

    def _follow(
        self,
        tile: Tile,
        slave: int,
        packet: int | None,
        header: bool,
        found: list[Arrival],
        controls: list[Tile],
        seen: set[Key],
    ) -> None:
        kind = registers.kind_of_row(tile[1])
        key = (tile, str(packet), slave)
        if kind is None or key in seen:
            return
        seen.add(key)
        for master, drops in self._masters(tile, kind, slave, packet):
            side, _, lane = registers.TILES[kind].masters[master].partition("_")
            after = None if drops else packet
            if side == "DMA":
                found.append(Arrival((tile, int(lane)), header and not drops))
            elif side == "CONTROL":
                controls.append(tile)
            elif kind == "shim" and side == "SOUTH":
                self._leave(tile, master, header and not drops, found)
            elif side in _SIDES:
                dc, dr, other = _SIDES[side]
                following = (tile[0] + dc, tile[1] + dr)
                name = f"{other}_{lane}"
                there = registers.kind_of_row(following[1])
                if there is not None and name in registers.TILES[there].slaves:
                    port = registers.TILES[there].slave(name)
                    self._follow(following, port, after, header and not drops, found, controls, seen)

    def _leave(self, tile: Tile, master: int, header: bool, found: list[Arrival]) -> None:
        fields = bd.unpack_fields(registers.DEMUX_FIELDS, [self._word(tile, "DEMUX")])
        if master in registers.SHIM_S2MM_MASTERS:
            name = registers.SHIM.masters[master].lower()
            if fields[name] == _DMA:
                found.append(Arrival((tile, registers.SHIM_S2MM_MASTERS.index(master)), header))

    def _masters(self, tile: Tile, kind: str, slave: int, packet: int | None) -> list[tuple[int, bool]]:
        """Returns (master port, drops the header) for each master that a slave port's words leave by."""
        port = bd.unpack_fields(registers.SLAVE_FIELDS, [self._word(tile, "SWITCH_SLAVE", slave)])
        if not port["enable"]:
            return []
        slot = self._slot(tile, slave, packet) if port["packet"] else None
        if port["packet"] and slot is None:
            return []
        found = []
        for number in range(len(registers.TILES[kind].masters)):
            word = self._word(tile, "SWITCH_MASTER", number)
            fields = bd.unpack_fields(registers.MASTER_FIELDS, [word])
            if not fields["enable"] or bool(fields["packet"]) != (slot is not None):
                continue
            if slot is None:
                taken = fields["slave"] == slave
            else:
                taken = fields["arbiter"] == slot[0] and bool(fields["msel_enable"] >> slot[1] & 1)
            if taken:
                found.append((number, bool(fields["drop_header"])))
        return found

    def _slot(self, tile: Tile, slave: int, packet: int | None) -> tuple[int, int] | None:
        """Returns (arbiter, msel) of a packet, None if no slot matches it."""
        if packet is None:
            return None
        for index in range(registers.SLOTS_PER_SLAVE):
            word = self._word(tile, "SWITCH_SLOT", slave * registers.SLOTS_PER_SLAVE + index)
            slot = bd.unpack_fields(registers.SLOT_FIELDS, [word])
            if slot["enable"] and packet & slot["mask"] == slot["id"]:
                return slot["arbiter"], slot["msel"]
        return None
