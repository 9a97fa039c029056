# SPDX-License-Identifier: Apache-2.0
"""What reaches a column's memory tile and cores as control packets: register writes that a shim DMA fetches.

The controller takes a hundred cycles and more for a register, a stream takes one for a word. What all
cores of a column get alike passes them once: each takes a copy and hands it on. So an operator's
descriptors and first tasks, its parameter block and programs lie in device memory, and one task of shim
MM2S 1 carries them.

Stream headers say where packets go (5 bits):
    FEED          to the memory tile's S2MM 1: in1, and parameter blocks
    MEM           to the control port of the memory tile
    ONLY + r      to that of core row r
    UP_TO + r     to those of core rows 0 to r
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

from onedispatch.transactions.machine import bd
from onedispatch.transactions.machine import registers as reg

FEED, MEM, ONLY, UP_TO = 0, 1, 2, 16
LANE, ARRIVES = "NORTH_5", "SOUTH_5"
CHANNEL = 1  # of the shim, MM2S
BEATS = 4  # words that a control packet writes at most
HERE, ABOVE = (0, 1), (1, 2)  # msels of packets for a core, and for those above it
_HERE, _BOTH, _ABOVE = range(3)
_ALL, _NONE = 0x1F, 0

Slots = Sequence[tuple[int, int, int]]
"""(id, mask, msel) of the slots of a switch's slave port; the first that matches counts."""
AT_SHIM: Slots = ((FEED, _ALL, 0), (0, _NONE, 1))
AT_MEM: Slots = ((MEM, _ALL, 0), (0, _NONE, 1))

Write = tuple[int, int, Sequence[int]]
"""(packet id, offset in its tiles, words)"""


def at_core(row: int, rows: int) -> Slots:
    """The slots of core ``row`` of ``rows``."""
    mine = [(UP_TO + row, _ALL, _HERE), (ONLY + row, _ALL, _HERE)]
    return mine if row + 1 == rows else [*mine, (UP_TO, UP_TO, _BOTH), (0, _NONE, _ABOVE)]


def packets(writes: Iterable[Write]) -> list[int]:
    """The words of ``writes``, packet after packet."""
    words: list[int] = []
    for packet_id, offset, data in writes:
        for at in range(0, len(data), BEATS):
            part = data[at : at + BEATS]
            words += (*_headers(packet_id, offset + 4 * at, len(part)), *part)
    return words


@cache
def _headers(packet_id: int, offset: int, beats: int) -> tuple[int, int]:
    """The header words of a packet: there are few, and every operator sends the same ones."""
    return bd.packet_header(packet_id), bd.control_packet_header(offset, beats)


def feed_header() -> int:
    """The header of a stream's last packet, for S2MM 1 of the memory tile; it ends with the task."""
    return bd.packet_header(FEED)


@cache
def register(kind: str, block: str, index: int = 0) -> int:
    """The offset of a register in tiles of a kind."""
    found = reg.TILES[kind].block[block]
    return found.at(index)
