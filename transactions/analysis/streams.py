# SPDX-License-Identifier: Apache-2.0
"""Control packets in the data that shims send, read from the kernel arguments.

The data of a task on a channel into a packet-switched port contains packets with headers. Packets for
control ports write registers; the first packet for a DMA extends to the end of the task.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from onedispatch.transactions.machine import bd, registers
from onedispatch.transactions.machine.routes import Routes

Tile = tuple[int, int]
_HEADERS = 2  # header words of a control packet
_READ = 1


class PacketWrite(NamedTuple):
    """Consecutive words that packets write into each of ``tiles``, from ``offset`` on."""

    tiles: tuple[Tile, ...]
    offset: int
    words: tuple[int, ...]


class PacketPayload(NamedTuple):
    """A packet to a DMA: ``length`` words from byte ``offset`` of an argument."""

    packet: int
    offset: int
    length: int


class Streams:
    """Decodes the packets of shim tasks; ``constants`` holds the arguments whose bytes are known."""

    def __init__(self, routes: Routes, constants: Mapping[int, bytes]) -> None:
        self._routes, self._constants = routes, constants
        self._known: dict[
            tuple[int, int, tuple[int, int], int], tuple[PacketWrite | PacketPayload, ...] | None
        ] = {}

    def carries_packets(self, column: int, channel: int) -> bool:
        return self._routes.takes_packets((column, registers.SHIM_ROW), channel)

    def read(
        self, column: int, channel: int, argument: tuple[int, int], length: int
    ) -> tuple[PacketWrite | PacketPayload, ...] | None:
        """Decodes ``length`` words from (argument, byte) on; None if they are unknown or no packets."""
        data = self._constants.get(argument[0], b"")[argument[1] : argument[1] + 4 * length]
        if len(data) < 4 * length:
            return None
        key = (column, channel, argument, length)
        if key not in self._known:
            words = tuple(memoryview(data).cast("I"))
            try:
                found = tuple(self._read((column, registers.SHIM_ROW), channel, words, argument[1]))
            except IndexError:  # the data ends inside a packet
                self._known[key] = None
            else:
                self._known[key] = found
        return self._known[key]

    def _read(
        self, shim: Tile, channel: int, words: tuple[int, ...], start: int
    ) -> Iterator[PacketWrite | PacketPayload]:
        at = 0
        last: PacketWrite | None = None
        while at < len(words):
            packet = bd.unpack_fields(registers.PACKET_HEADER_FIELDS, [words[at]])["id"]
            tiles = self._routes.controls(shim, channel, packet)
            if not tiles:
                break
            control = bd.unpack_fields(registers.CONTROL_PACKET_FIELDS, [words[at + 1]])
            count = 0 if control["operation"] == _READ else control["beats"]
            data = tuple(words[i] for i in range(at + _HEADERS, at + _HEADERS + count))
            at += _HEADERS + count
            if last is not None and (tiles, control["offset"]) == (last[0], last[1] + 4 * len(last[2])):
                last = PacketWrite(tiles, last.offset, (*last.words, *data))
                continue
            if last is not None:
                yield last
            last = PacketWrite(tiles, control["offset"], data)
        if last is not None:
            yield last
        if at < len(words):
            yield PacketPayload(packet, start + 4 * (at + 1), len(words) - at - 1)
