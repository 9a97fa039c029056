# SPDX-License-Identifier: Apache-2.0
"""A control packet, and the patches that the host applies before it is sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onedispatch.transactions.base.boundary import guarded
from onedispatch.transactions.machine import bd, registers

OPERATIONS = ("WRITE", "READ", "WRITE_INCREMENT", "RESERVED")
PATCH_BYTES = 6
"""Bytes of a 48-bit address: a BD's word 1 and the low half of word 2."""
Key = tuple[int, int]
"""(packet id, column in the stream header)"""


@guarded
@dataclass(frozen=True)
class ControlPacket:
    """One packet with its two raw headers.

    Attributes:
        header: stream header: packet id, type, row, column, parity.
        control: control header: offset, words, operation, return id, parity.
        data: the words to write; empty for a read.
    """

    header: int
    control: int
    data: tuple[int, ...]

    @classmethod
    def write(cls, packet_id: int, column: int, offset: int, data: Sequence[int]) -> ControlPacket:
        """Returns a packet that writes 1 to 4 words from ``offset`` of a tile on."""
        header = bd.packet_header(packet_id, source_column=column)
        return cls(header, bd.control_packet_header(offset, len(data)), tuple(data))

    @property
    def stream(self) -> dict[str, int]:
        return bd.unpack_fields(registers.PACKET_HEADER_FIELDS, [self.header])

    @property
    def fields(self) -> dict[str, int]:
        return bd.unpack_fields(registers.CONTROL_PACKET_FIELDS, [self.control])

    @property
    def key(self) -> Key:
        return self.header & 0x1F, self.header >> 21 & 0x7F

    @property
    def offset(self) -> int:
        return self.control & registers.OFFSET_MASK

    @property
    def size(self) -> int:
        return 8 + 4 * len(self.data)

    def problems(self) -> list[str]:
        """Returns the problems of the headers."""
        found = [
            f"even parity of the {name} header {word:#010x}"
            for name, word in (("stream", self.header), ("control", self.control))
            if word.bit_count() % 2 == 0
        ]
        if self.offset % 4:
            found.append(f"offset {self.offset:#x} is not a multiple of 4")
        if self.fields["operation"] == 3:
            found.append("operation 3 does not exist")
        return found


@dataclass(frozen=True)
class Patch:
    """A patch: the host puts the address of ``argument`` + ``bo_offset`` into 48 bits at byte ``offset``.

    ``adds``: the host adds the address to the value that is there (``read_add_write``).
    """

    offset: int
    argument: int
    bo_offset: int
    size: int = PATCH_BYTES
    adds: bool = False
