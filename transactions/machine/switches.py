# SPDX-License-Identifier: Apache-2.0
"""The connections of stream switches: the master ports that each slave port can feed, as data.

A switch is no full crossbar. A memory tile passes streams north and south only on the same lane, a
stream that leaves by the side it came from keeps its lane, and trace ports reach few masters.
Circuit and packet switching share the wires, so one rule covers both.

Sources: public documents for the lanes of memory tiles, mlir-aie's target model for the rest. For
trace ports, which the model leaves open, every master that AMD's own tools use counts as connected.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from onedispatch.transactions.machine import registers as reg

ANY = "any lane"
SAME = "the same lane"
Lanes = str | int
"""``ANY``, ``SAME``, or the number of the only connected lane of the master's side."""

_ALL_SIDES = ("FIFO", "SOUTH", "WEST", "NORTH", "EAST")


def _row(side: str, masters: tuple[str, ...]) -> dict[str, Lanes]:
    """Returns the rule of a slave's side: any lane of other sides, only the same lane of its own side."""
    return {master: SAME if master == side else ANY for master in masters}


_CORE_MASTERS = ("CORE", "DMA", "CONTROL", *_ALL_SIDES)
_SHIM_MASTERS = ("CONTROL", *_ALL_SIDES)
_MEM_MASTERS = ("DMA", "CONTROL", "SOUTH", "NORTH")

RULES: Mapping[str, Mapping[str, Mapping[str, Lanes]]] = {
    "core": {
        **{side: _row(side, _CORE_MASTERS) for side in ("CORE", "DMA", *_ALL_SIDES)},
        "CONTROL": _row("", tuple(m for m in _CORE_MASTERS if m != "CONTROL")),
        "CORE_TRACE": {"DMA": 0, "FIFO": ANY, "SOUTH": ANY, "WEST": ANY, "EAST": ANY},
        "MEM_TRACE": {"DMA": 1, "FIFO": ANY, "SOUTH": ANY, "WEST": ANY, "EAST": ANY},
    },
    "mem": {
        "DMA": _row("DMA", _MEM_MASTERS),
        "CONTROL": {"DMA": 5, "SOUTH": ANY, "NORTH": ANY},
        "SOUTH": {"DMA": ANY, "CONTROL": ANY, "SOUTH": SAME, "NORTH": SAME},
        "NORTH": {"DMA": ANY, "CONTROL": ANY, "SOUTH": SAME, "NORTH": SAME},
        "TRACE": {"DMA": 5, "SOUTH": ANY},
    },
    "shim": {
        **{side: _row(side, _SHIM_MASTERS) for side in _ALL_SIDES},
        "CONTROL": _row("", _ALL_SIDES),
        "TRACE": {"FIFO": ANY, "SOUTH": ANY, "WEST": ANY, "EAST": ANY},
    },
}
"""Kind of tile -> side of a slave port -> side of a master port -> lanes."""


def _side(port: str) -> tuple[str, int]:
    """Splits ``"NORTH_3"`` into ``("NORTH", 3)``; a port without number is lane 0 of its side."""
    side, _, lane = port.rpartition("_")
    return (side, int(lane)) if lane.isdigit() else (port, 0)


def _masks(tile: reg.TileMap) -> tuple[int, ...]:
    masks = []
    for slave in tile.slaves:
        side, lane = _side(slave)
        mask = 0
        for index, master in enumerate(tile.masters):
            there, number = _side(master)
            lanes = RULES[tile.kind][side].get(there)
            if lanes == ANY or number == (lane if lanes == SAME else lanes):
                mask |= 1 << index
        masks.append(mask)
    return tuple(masks)


CONNECTIONS: Mapping[str, tuple[int, ...]] = MappingProxyType(
    {kind: _masks(tile) for kind, tile in reg.TILES.items()}
)
"""Kind of tile -> per slave port the mask of master ports (bit = index) that it can feed."""

CONTROLLER_MASTER = reg.SHIM.master("SOUTH_0")
"""Master port of a shim that leads to the controller: the destination of task completion tokens."""


def connects(kind: str, slave: int, master: int) -> bool:
    """True if the switch of a tile has a wire from slave port ``slave`` to master port ``master``."""
    masks = CONNECTIONS[kind]
    return slave < len(masks) and bool(masks[slave] >> master & 1)


def masters_of(kind: str, slave: int) -> str:
    """Returns the masters that ``slave`` can feed, for messages: ``"DMA_0, SOUTH_1"``; "" if none."""
    masters = reg.TILES[kind].masters
    return ", ".join(name for index, name in enumerate(masters) if connects(kind, slave, index))


def slaves_of(kind: str, master: int) -> str:
    """Returns the slaves that can feed ``master``, for messages."""
    slaves = reg.TILES[kind].slaves
    return ", ".join(name for index, name in enumerate(slaves) if connects(kind, index, master))
