# SPDX-License-Identifier: Apache-2.0
"""The text form of control packets; lossless for bytes and patches.

    CONTROL_PACKETS  ; 2 packets, 1 patches
         0        0  WRITE            1@c1  c1 r0 DMA_BD[1]   00000040 00000040  arg 2 + 0x100 at 1
         1       10  WRITE            2@c1  c1 r1 LOCK_VALUE[0]       00000001

``1@c1``: packet id and source column of the stream header. ``c1 r0`` is the tile that AMD's overlays
route the packet to; the bytes contain only id and offset. ``at`` is the first data word
that the address of the argument replaces, ``+=`` adds the address to the word. ``header=`` and
``control=`` are headers with unusual other bits. Index and byte offset in front are for the reader,
as is everything from ``;`` on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from onedispatch.transactions.base.text import counted, span, tile_name
from onedispatch.transactions.machine import bd, registers
from onedispatch.transactions.machine.registers import Field
from onedispatch.transactions.packets.packet import OPERATIONS, ControlPacket, Key, Patch
from onedispatch.transactions.text.operands import (
    LineReader,
    TextError,
    parse_fields,
    parse_indexed,
    parse_number,
    take_address,
)

MARK = "CONTROL_PACKETS"
"""First word of the text."""
MOST_WORDS = 4
_MOST_ID, _MOST_COLUMN = 0x1F, 0x7F
_LINE = re.compile(r"\s*(?:\d+\s+[0-9a-f]+\s+)?([A-Z_]+)(?:\s+(.*))?$")
_WORD = re.compile(r"[0-9a-f]{8}$")
_KEY = re.compile(r"(\d+)@(c\d+)$")


def text(
    packets: Sequence[ControlPacket],
    patched: Mapping[tuple[int, int], Patch],
    tiles: Mapping[Key, tuple[int, int]],
) -> str:
    """Returns one line per packet.

    Args:
        patched: (packet, data word) -> patch.
        tiles: the tile of each packet key.
    """
    patches: dict[int, list[tuple[int, Patch]]] = {}
    for (index, word), patch in patched.items():
        patches.setdefault(index, []).append((word, patch))
    lines = [f"{MARK}  ; {counted(len(packets), 'packet')}, {counted(len(patched), 'patch')}"]
    at = 0
    for index, packet in enumerate(packets):
        lines.append(f"{index:6d} {at:8x}  {_line(packet, tiles[packet.key], patches.get(index, ()))}")
        at += packet.size
    return "\n".join(lines) + "\n"


def _line(packet: ControlPacket, tile: tuple[int, int], patches: Iterable[tuple[int, Patch]]) -> str:
    fields, (packet_id, column) = packet.fields, packet.key
    kind = registers.kind_of_row(tile[1])
    register = registers.TILES[kind].find(packet.offset) if kind else None
    place = f"{tile_name(*tile)} {register or hex(packet.offset)}"
    parts = [f"{OPERATIONS[fields['operation']]:<15} {packet_id:>2}@c{column:<2} {place:<30}"]
    parts += (
        [" ".join(f"{word:08x}" for word in packet.data)] if packet.data else [f"words={fields['beats']}"]
    )
    if fields["return_id"]:
        parts.append(f"return_id={fields['return_id']}")
    for word, patch in patches:
        parts.append(f"arg {patch.argument} {'+=' if patch.adds else '+'} {patch.bo_offset:#x} at {word}")
    if packet.header != bd.packet_header(packet_id, source_column=column):
        parts.append(f"header={packet.header:#010x}")
    if packet.control != _control(packet.offset, fields):
        parts.append(f"control={packet.control:#010x}")
    parts += [f"; {problem}" for problem in packet.problems()]
    return "  ".join(parts).rstrip()


def _control(offset: int, fields: Mapping[str, int]) -> int:
    return bd.control_packet_header(offset, fields["beats"], fields["operation"], fields["return_id"])


class PacketReader(LineReader):
    """Parses lines of text into packets and patches."""

    def __init__(self) -> None:
        self.packets: list[tuple[int, int, tuple[int, ...]]] = []
        self.patches: list[tuple[int, int, int, bool]] = []
        self.size = 0
        self.marked = False

    def line(self, code: str) -> None:
        match = _LINE.match(code)
        name, operands = (match[1], (match[2] or "").split()) if match else ("", [])
        if name == MARK and not operands and not self.marked:
            self.marked = True
        elif not self.marked or name not in OPERATIONS:
            raise TextError(repr(code.strip()[:60]), f"{MARK}, then lines of {', '.join(OPERATIONS)}")
        else:
            self._packet(OPERATIONS.index(name), operands)

    def _packet(self, operation: int, operands: list[str]) -> None:
        packet_id, column = _key(operands)
        offset = take_address(operands) & registers.OFFSET_MASK
        data = []
        while operands and _WORD.match(operands[0]):
            data.append(int(operands.pop(0), 16))
        while operands and operands[0] == "arg":
            self._patch(operands)
        extras = parse_fields(operands, ("words", "return_id", "header", "control"))
        beats = extras.get("words", len(data))
        if (operation == 1) == bool(data) or (data and "words" in extras) or not 1 <= beats <= MOST_WORDS:
            raise TextError(
                counted(len(data), "word"),
                f"{span(1, MOST_WORDS)} words, or words={span(1, MOST_WORDS)} of a READ",
            )
        header = bd.packet_header(packet_id, source_column=column)
        control = bd.control_packet_header(offset, beats, operation, extras.get("return_id", 0))
        header = _other(extras, "header", header, ("id", "source_column"), registers.PACKET_HEADER_FIELDS)
        said = ("offset", "beats", "operation", "return_id")
        control = _other(extras, "control", control, said, registers.CONTROL_PACKET_FIELDS)
        self.packets.append((header, control, tuple(data)))
        self.count += 1
        self.size += 8 + 4 * len(data)

    def _patch(self, operands: list[str]) -> None:
        """Parses ``arg 2 + 0x100 at 1``."""
        if len(operands) < 6 or operands[2] not in ("+", "+=") or operands[4] != "at":
            raise TextError(" ".join(operands[:6]), "arg index + offset at word")
        place = self.size + 8 + 4 * parse_number(operands[5])
        self.patches.append(
            (place, parse_number(operands[1]), parse_number(operands[3]), operands[2] == "+=")
        )
        del operands[:6]


def _key(operands: list[str]) -> tuple[int, int]:
    match = _KEY.match(operands.pop(0)) if operands else None
    if match is None:
        raise TextError("no packet id", "id@column, such as 1@c0")
    packet_id, column = parse_number(match[1]), parse_indexed(match[2], "c")
    if packet_id > _MOST_ID or column > _MOST_COLUMN:
        raise TextError(match[0], f"ids to {_MOST_ID}, columns to {_MOST_COLUMN}")
    return packet_id, column


def _other(
    extras: Mapping[str, int], name: str, usual: int, said: Iterable[str], fields: Iterable[Field]
) -> int:
    """Returns a header given as a number; it may differ from the usual one only in bits outside ``said``."""
    word = extras.get(name, usual)
    mask = sum(((1 << field.width) - 1) << field.lsb for field in fields if field.name in said)
    if word > bd.WORD_MASK or (word ^ usual) & mask:
        raise TextError(f"{name}={word:#x}", f"a word that agrees with the rest of the line: {usual:#010x}")
    return word
