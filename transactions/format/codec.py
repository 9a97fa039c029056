# SPDX-License-Identifier: Apache-2.0
"""Encoders compiled from the opcode table: one ``struct`` per opcode and version."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from onedispatch.transactions.base.errors import TransactionError
from onedispatch.transactions.base.text import counted
from onedispatch.transactions.format import spec
from onedispatch.transactions.format.spec import OpLayout, Version

_CODES = {1: "B", 2: "H", 4: "I", 8: "Q"}
MAX_BYTES = 0xFFFFFFFF
"""The header's size field has 32 bits."""


@dataclass(frozen=True)
class OpPacker:
    """Packs opcode and fields, in the order of their offsets, into the fixed part of an op.

    ``names`` is the order of the arguments; ``"size"`` stands for the size field.
    """

    struct: struct.Struct
    names: tuple[str, ...]


@cache
def packer(code: int, version: Version) -> OpPacker:
    """Returns the packer of an opcode; an unnamed custom opcode gets a bare size frame."""
    layout = layout_of(code, version)
    slots = [(0, 1, "opcode")]
    slots += [(field.offset, field.width, field.name) for field in layout.fields]
    if layout.size_at is not None:
        slots.append((layout.size_at, 4, "size"))
    text, end = "<", 0
    names = []
    for offset, width, name in sorted(slots):
        text += f"{offset - end}x" if offset > end else ""
        text += _CODES.get(width, f"{width}s")
        end = offset + width
        names.append(name)
    tail = layout.sizes[-1] - end
    return OpPacker(struct.Struct(text + (f"{tail}x" if tail else "")), tuple(names))


@cache
def layout_of(code: int, version: Version) -> OpLayout:
    """Returns the layout of an opcode.

    Raises:
        TransactionError: the opcode cannot be written in a transaction.
    """
    layout = spec.find_layout(code, version)
    if layout is None:
        raise TransactionError(
            "encoding an op",
            f"opcode {code} ({spec.name_of(code)})",
            ", ".join(op.name for op in spec.OPCODES) + f" or a custom opcode from {spec.CUSTOM_BEGIN} on",
            "express it by one of these",
        )
    return layout


def encode_op(code: int, version: Version, values: Mapping[str, int], payload: bytes = b"") -> bytes:
    """Encodes one op, padding zeroed.

    Args:
        values: every field of the layout by name.
        payload: raw bytes for opcodes that have one.

    Raises:
        TransactionError: a field is missing, unknown or out of range; the payload is not allowed
            or not a whole number of words.
    """
    layout = layout_of(code, version)
    name = spec.name_of(code)
    wanted = {field.name for field in layout.fields}
    if wanted != set(values):
        raise TransactionError(
            f"encoding {name}", f"fields {sorted(values)}", f"exactly {sorted(wanted)}", "pass these fields"
        )
    if payload and (layout.payload_at is None or len(payload) % layout.payload_width):
        accepted = f"multiples of {layout.payload_width}" if layout.payload_at else "none"
        given = f"a payload of {counted(len(payload), 'byte')}"
        raise TransactionError(f"encoding {name}", given, accepted, "")
    packing = packer(code, version)
    arguments: list[int | bytes] = []
    for slot in packing.names:
        if slot == "opcode":
            arguments.append(code)
        elif slot == "size":
            arguments.append(layout.sizes[-1] + len(payload))
        else:
            field = layout.field(slot)
            value = values[slot]
            if not 0 <= value < 1 << (8 * field.width):
                raise TransactionError(
                    f"encoding {name} field {slot}",
                    str(value),
                    f"0 to {(1 << 8 * field.width) - 1}",
                    f"version {version[0]}.{version[1]} has {counted(field.width, 'byte')} for it",
                )
            fits_struct = field.width in _CODES
            arguments.append(value if fits_struct else value.to_bytes(field.width, "little"))
    return packing.struct.pack(*arguments) + payload


HEADER_STRUCT = struct.Struct("<6BHII")


@dataclass(frozen=True)
class Header:
    """The 16 bytes before the first op; meanings in ``spec.HEADER``."""

    version: Version = spec.V0_1
    device_generation: int = 4
    rows: int = spec.ARRAY_ROWS
    columns: int = 8
    mem_tile_rows: int = spec.MEM_TILE_ROWS
    op_count: int = 0
    byte_size: int = spec.HEADER_SIZE
    padding: int = 0

    def to_bytes(self) -> bytes:
        try:
            return HEADER_STRUCT.pack(
                *self.version,
                self.device_generation,
                self.rows,
                self.columns,
                self.mem_tile_rows,
                self.padding,
                self.op_count,
                self.byte_size,
            )
        except struct.error as error:
            raise TransactionError(
                "transaction header", str(self), "bytes, and 32 bits for counts", "split the transaction"
            ) from error

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> Header:
        """Decodes the header. Raises TransactionError if there are fewer than 16 bytes."""
        if len(data) < spec.HEADER_SIZE:
            raise TransactionError(
                "transaction header",
                counted(len(data), "byte"),
                f"at least {spec.HEADER_SIZE}",
                "is the file empty or cut off?",
                byte_offset=0,
            )
        fields = HEADER_STRUCT.unpack_from(data)
        major, minor, generation, rows, columns, mem_rows, padding, count, size = fields
        return cls((major, minor), generation, rows, columns, mem_rows, count, size, padding)
