# SPDX-License-Identifier: Apache-2.0
"""Checks of stream switches: connections that the switch of the tile does not have (``switches``).

A circuit route is checked when its master port is written. A packet route depends on three registers
(slave port, slot, master port) written in any order, so packet routes are checked at the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from onedispatch.transactions.base.text import tile_name
from onedispatch.transactions.machine import registers as reg
from onedispatch.transactions.machine.bd import unpack_fields
from onedispatch.transactions.machine.switches import connects, masters_of, slaves_of

_BLOCKS = ("SWITCH_MASTER", "SWITCH_SLAVE", "SWITCH_SLOT")
Problem = tuple[int, str]
"""Index of the op, and the message."""


def circuit_problem(kind: str, master: int, word: int) -> str | None:
    """Returns why ``word`` is invalid in the register of master port ``master``, None if it is valid."""
    fields = unpack_fields(reg.MASTER_FIELDS, [word])
    if not fields["enable"] or fields["packet"] or connects(kind, fields["slave"], master):
        return None
    slaves = reg.TILES[kind].slaves
    given = slaves[fields["slave"]] if fields["slave"] < len(slaves) else f"slave {fields['slave']}"
    name = reg.TILES[kind].masters[master]
    return f"no {kind} tile has a wire from {given} to {name}; what can feed it: {slaves_of(kind, master)}"


@dataclass
class _Words:
    """The switch registers of a tile that the transaction wrote: register -> (word, op)."""

    masters: dict[int, tuple[int, int]] = field(default_factory=dict)
    slaves: dict[int, tuple[int, int]] = field(default_factory=dict)
    slots: dict[int, tuple[int, int]] = field(default_factory=dict)


class SwitchCheck:
    """Tracks the writes of switch registers."""

    def __init__(self) -> None:
        self._tiles: dict[tuple[int, int], _Words] = {}

    def write(self, op: int, address: int, value: int, mask: int) -> Iterator[Problem]:
        """Processes a write of any register; yields the problems of that write alone."""
        found = reg.find_register(address)
        if found is None or found.block.name not in _BLOCKS:
            return
        column, row, _ = reg.split_address(address)
        words = self._tiles.setdefault((column, row), _Words())
        table = (words.masters, words.slaves, words.slots)[_BLOCKS.index(found.block.name)]
        word = table.get(found.index, (0, 0))[0] & ~mask | value & mask
        table[found.index] = (word, op)
        kind = reg.kind_of_row(row)
        if table is words.masters and kind is not None:
            problem = circuit_problem(kind, found.index, word)
            if problem is not None:
                yield op, f"{tile_name(column, row)} {found}: {problem}"

    def end(self) -> Iterator[Problem]:
        """Yields the problems of packet routes at the end of the transaction."""
        for (column, row), words in self._tiles.items():
            kind = reg.kind_of_row(row)
            if kind is None:
                continue
            for slave, master, op in self._packet_wires(words):
                if not connects(kind, slave, master):
                    tile = reg.TILES[kind]
                    yield (
                        op,
                        (
                            f"{tile_name(column, row)} {tile.slaves[slave]}: a slot sends packets to "
                            f"{tile.masters[master]}; no {kind} tile has that wire, it can feed: "
                            f"{masters_of(kind, slave)}"
                        ),
                    )

    def _packet_wires(self, words: _Words) -> Iterator[tuple[int, int, int]]:
        """Yields (slave, master, op of the slot) of every connection that slots and masters make."""
        masters = [
            (index, unpack_fields(reg.MASTER_FIELDS, [word])) for index, (word, _) in words.masters.items()
        ]
        for number, (word, op) in words.slots.items():
            slave = number // reg.SLOTS_PER_SLAVE
            port = unpack_fields(reg.SLAVE_FIELDS, [words.slaves.get(slave, (0, 0))[0]])
            slot = unpack_fields(reg.SLOT_FIELDS, [word])
            if not (port["enable"] and port["packet"] and slot["enable"]):
                continue
            for master, fields in masters:
                served = fields["arbiter"] == slot["arbiter"] and fields["msel_enable"] >> slot["msel"] & 1
                if fields["enable"] and fields["packet"] and served:
                    yield slave, master, op
