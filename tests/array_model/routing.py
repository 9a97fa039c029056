# SPDX-License-Identifier: Apache-2.0
"""Lays random routes for the random scenarios: trees of switch ports, circuit or packet.

A node of a tree is a slave port; its edges are the master ports that its stream leaves by,
per packet id. Where all ids leave alike the node may be circuit-switched; elsewhere it needs
packet switching, an arbiter, and one msel per set of masters.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from onedispatch.transactions.machine import registers, switches
from onedispatch.transactions.machine.bd import circuit_master, packet_master, switch_slave, switch_slot


class Choose(Protocol):
    def int(self, low: int, high: int) -> int: ...


@dataclass(frozen=True)
class Place:
    """A tile."""

    column: int
    row: int

    @property
    def kind(self) -> str:
        return registers.kind_of_row(self.row) or "core"

    @property
    def address(self) -> int:
        return self.column << registers.COLUMN_SHIFT | self.row << registers.ROW_SHIFT

    def __str__(self) -> str:
        return f"({self.column},{self.row})"


@dataclass(frozen=True)
class Node:
    place: Place
    slave: str


@dataclass
class Tree:
    """All routes of one sender."""

    source: Place
    channel: int
    edges: dict[tuple[Node, str], Node | None] = field(default_factory=dict)
    """(node, master) -> the node behind it; None where it feeds a DMA."""
    out: dict[tuple[Node, int | None], set[str]] = field(default_factory=dict)
    packet_nodes: set[Node] = field(default_factory=set)
    drops: set[tuple[Node, str]] = field(default_factory=set)

    @property
    def root(self) -> Node:
        if self.source.kind == "shim":
            return Node(self.source, ("SOUTH_3", "SOUTH_7")[self.channel])
        return Node(self.source, f"DMA_{self.channel}")


Writes = list[tuple[int, list[int]]]
"""(address, words)"""
SIDES = {
    "NORTH": (0, 1, "SOUTH"),
    "SOUTH": (0, -1, "NORTH"),
    "EAST": (1, 0, "WEST"),
    "WEST": (-1, 0, "EAST"),
}


def connected(node: Node, master: str) -> bool:
    """Whether the switch has a wire from the node to ``master``."""
    tile = registers.TILES[node.place.kind]
    return switches.connects(node.place.kind, tile.slave(node.slave), tile.master(master))


class Router:
    def __init__(self, choose: Choose, columns: int, share: bool) -> None:
        self.choose, self.columns, self.share = choose, columns, share
        self._masters: set[tuple[Place, str]] = set()
        self._msels: dict[tuple[Place, int], int] = {}
        self._mux: dict[Place, int] = {}
        self._demux: dict[Place, int] = {}

    def _moves(self, place: Place) -> list[tuple[str, Place]]:
        """Neighbouring tiles, with the side that leads there."""
        found = []
        for side, (dc, dr, _) in SIDES.items():
            following = Place(place.column + dc, place.row + dr)
            inside = 0 <= following.column < self.columns and 0 <= following.row < 6
            if inside and (dc == 0 or place.kind != "mem"):
                found.append((side, following))
        return found

    def _path(self, start: Place, end: Place) -> list[tuple[str, Place]]:
        """Steps of a shortest way; ties fall as chosen."""
        before: dict[Place, tuple[str, Place] | None] = {start: None}
        queue = deque([start])
        while queue:
            place = queue.popleft()
            moves = self._moves(place)
            if self.choose.int(0, 1):
                moves.reverse()
            for side, following in moves:
                if following not in before:
                    before[following] = (side, place)
                    queue.append(following)
        steps: list[tuple[str, Place]] = []
        at = end
        while (step := before[at]) is not None:
            steps.insert(0, (step[0], at))
            at = step[1]
        return steps

    def reach(self, tree: Tree, packet: int | None, end: Place, channel: int) -> bool:
        """Extend the routes of ``packet`` to S2MM ``channel`` of ``end``; False: no free port."""
        node = tree.root
        for side, place in self._path(tree.source, end):
            master = self._existing(tree, node, side) or self._free(node, side)
            if master is None:
                return False
            lane = master.partition("_")[2]
            following = Node(place, f"{SIDES[side][2]}_{lane}")
            self._use(tree, node, packet, master, following)
            node = following
        master = f"DMA_{channel}" if end.kind != "shim" else f"SOUTH_{2 + channel}"
        if (end, master) in self._masters and (node, master) not in tree.edges:
            return False
        if not connected(node, master):
            return False
        self._use(tree, node, packet, master, None)
        return True

    def _use(self, tree: Tree, node: Node, packet: int | None, master: str, following: Node | None) -> None:
        self._masters.add((node.place, master))
        tree.edges[node, master] = following
        tree.out.setdefault((node, packet), set()).add(master)

    def _existing(self, tree: Tree, node: Node, side: str) -> str | None:
        for (other, master), following in tree.edges.items():
            if other == node and master.startswith(side) and following is not None:
                return master
        return None

    def _free(self, node: Node, side: str) -> str | None:
        place = node.place
        names = registers.TILES[place.kind].masters
        lanes = [n for n in names if n.startswith(side) and (place, n) not in self._masters]
        if place.kind == "shim" and side == "SOUTH":
            return None
        lanes = [n for n in lanes if connected(node, n)]
        following = Place(place.column + SIDES[side][0], place.row + SIDES[side][1])
        slaves = registers.TILES[following.kind].slaves
        lanes = [n for n in lanes if f"{SIDES[side][2]}_{n.partition('_')[2]}" in slaves]
        return lanes[self.choose.int(0, len(lanes) - 1)] if lanes else None

    # -- tokens ----------------------------------------------------------------------------------

    def token_routes(self, column: int) -> Writes:
        """A lane down the column for the tokens of all its tiles, and their controller id."""
        lane, packet = self.choose.int(0, 3), self.choose.int(0, 31)
        slot, mask = self.choose.int(0, registers.SLOTS_PER_SLAVE - 1), self.choose.int(0, 31)
        writes: Writes = []
        for row in range(6):
            place = Place(column, row)
            tile = registers.TILES[place.kind]
            arbiter, msel = self._arbiter(place, 1)
            for port in ("CONTROL", f"NORTH_{lane}") if row < 5 else ("CONTROL",):
                slave = tile.slave(port)
                word = switch_slot(packet & mask, arbiter, msel, mask)
                writes.append(self._write(place, "SWITCH_SLAVE", slave, switch_slave(packet=True)))
                writes.append(
                    self._write(place, "SWITCH_SLOT", slave * registers.SLOTS_PER_SLAVE + slot, word)
                )
            master = f"SOUTH_{lane}" if row else tile.masters[switches.CONTROLLER_MASTER]
            self._masters.add((place, master))
            word = packet_master(arbiter, 1 << msel, bool(self.choose.int(0, 1)) and row == 0)
            writes.append(self._write(place, "SWITCH_MASTER", tile.master(master), word))
            for name in ("DMA_S2MM_CTRL", "DMA_MM2S_CTRL"):
                for channel in range(tile.block[name].count):
                    writes.append(self._write(place, name, channel, packet << 8))
        return writes

    # -- registers -------------------------------------------------------------------------------

    def configure(self, tree: Tree, packets: Sequence[int | None]) -> list[tuple[int, list[int]]]:
        """The register writes of a finished tree."""
        writes: list[tuple[int, list[int]]] = []
        nodes = {node for node, _ in tree.out}
        ordered = sorted(nodes, key=lambda n: (n.place.column, n.place.row, n.slave))
        for node in ordered:
            here = {p: frozenset(tree.out[node, p]) for p in packets if (node, p) in tree.out}
            alike = len(set(here.values())) == 1
            if None not in here and (not alike or self.choose.int(0, 1)):
                tree.packet_nodes.add(node)
        for node in ordered:
            here = {p: frozenset(tree.out[node, p]) for p in packets if (node, p) in tree.out}
            if node in tree.packet_nodes:
                writes += self._packet_node(tree, node, {p: m for p, m in here.items() if p is not None})
            else:
                writes += self._circuit_node(node, here)
        return writes + self._ends(tree)

    def _write(self, place: Place, block: str, index: int, word: int) -> tuple[int, list[int]]:
        found = registers.TILES[place.kind].block[block]
        return place.address + found.at(index), [word]

    def _circuit_node(self, node: Node, here: dict[int | None, frozenset[str]]) -> Writes:
        tile = registers.TILES[node.place.kind]
        slave = tile.slave(node.slave)
        writes = [self._write(node.place, "SWITCH_SLAVE", slave, switch_slave())]
        for master in sorted(frozenset().union(*here.values())):
            word = circuit_master(slave)
            writes.append(self._write(node.place, "SWITCH_MASTER", tile.master(master), word))
        return writes

    def _packet_node(self, tree: Tree, node: Node, here: dict[int, frozenset[str]]) -> Writes:
        tile = registers.TILES[node.place.kind]
        slave = tile.slave(node.slave)
        sets = sorted(set(here.values()), key=sorted)
        arbiter, first = self._arbiter(node.place, len(sets))
        writes = [self._write(node.place, "SWITCH_SLAVE", slave, switch_slave(packet=True))]
        for slot, (packet, masters) in enumerate(here.items()):
            mask = 0x1F if len(here) > 1 else self.choose.int(0, 0x1F)
            word = switch_slot(packet & mask, arbiter, first + sets.index(masters), mask)
            index = slave * registers.SLOTS_PER_SLAVE + slot
            writes.append(self._write(node.place, "SWITCH_SLOT", index, word))
        for master in sorted(frozenset().union(*here.values())):
            msels = sum(1 << first + i for i, masters in enumerate(sets) if master in masters)
            drop = self._may_drop(tree, node, master) and self.choose.int(0, 3) > 0
            if drop:
                tree.drops.add((node, master))
            word = packet_master(arbiter, msels, drop)
            writes.append(self._write(node.place, "SWITCH_MASTER", tile.master(master), word))
        return writes

    def _arbiter(self, place: Place, msels: int) -> tuple[int, int]:
        """An arbiter with so many free msels, and the first of them; with ``share`` two may meet."""
        for arbiter in range(registers.ARBITERS):
            used = self._msels.get((place, arbiter), 0)
            if used + msels <= registers.MSELS and (self.share or used == 0):
                self._msels[place, arbiter] = used + msels
                return arbiter, used
        raise ValueError("no arbiter is free")

    def _may_drop(self, tree: Tree, node: Node, master: str) -> bool:
        """No packet switch behind this master: it would miss the header."""
        following = tree.edges[node, master]
        if following is None:
            return True
        if following in tree.packet_nodes:
            return False
        behind = [m for (n, m) in tree.edges if n == following]
        return all(self._may_drop(tree, following, m) for m in behind)

    def _ends(self, tree: Tree) -> list[tuple[int, list[int]]]:
        """Mux and demux of the shims at the ends of a tree."""
        writes = []
        if tree.source.kind == "shim":
            self._mux[tree.source] = self._mux.get(tree.source, 0) | (1 << 10, 1 << 14)[tree.channel]
            writes.append(self._write(tree.source, "MUX", 0, self._mux[tree.source]))
        for (node, master), following in tree.edges.items():
            if following is None and node.place.kind == "shim":
                bit = 1 << 4 if master == "SOUTH_2" else 1 << 6
                self._demux[node.place] = self._demux.get(node.place, 0) | bit
                writes.append(self._write(node.place, "DEMUX", 0, self._demux[node.place]))
        return writes

    def keeps_header(self, tree: Tree, packet: int | None, end: Place, channel: int) -> bool:
        """Whether the header of ``packet`` reaches S2MM ``channel`` of ``end``."""
        if packet is None:
            return False
        wanted = f"DMA_{channel}" if end.kind != "shim" else f"SOUTH_{2 + channel}"

        def walk(node: Node, dropped: bool) -> bool | None:
            for master in sorted(tree.out.get((node, packet), ())):
                gone = dropped or (node, master) in tree.drops
                following = tree.edges[node, master]
                if following is None:
                    if node.place == end and master == wanted:
                        return not gone
                elif (found := walk(following, gone)) is not None:
                    return found
            return None

        return bool(walk(tree.root, False))
