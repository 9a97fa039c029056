# SPDX-License-Identifier: Apache-2.0
"""Changes that keep a transaction readable: random bytes nearly always end at the framing.

``cpp/mutate.cpp`` does the same for the C++ targets.
"""

from __future__ import annotations

import json
import random
import re
import struct
import zlib
from collections.abc import Callable
from typing import Any

import msgpack

from onedispatch.dispatch.artifact.container import joined as compiled_joined
from onedispatch.dispatch.artifact.container import parted
from onedispatch.transactions.base.errors import CompiledModelError
from onedispatch.transactions.format import spec, xclbin
from onedispatch.transactions.format.spec import Version
from onedispatch.transactions.machine import registers

Mutate = Callable[[bytes, int, random.Random], bytes]
"""(bytes, most bytes, random numbers) -> other bytes"""

# Memories, descriptors, queues, locks, switches and controls of all kinds of tiles.
PLACES = sorted(
    {block.offset for tile in registers.TILES.values() for block in tile.block.values()}
    | {0x4880, 0x1D204, 0x1D214, 0xA0604, 0xA0634, 0xFFF00}
)
CODES = (*spec.BY_CODE, 2, 14, 127, 135, 201, 255)


def word(rng: random.Random) -> int:
    """Mostly such as break things: few bits, all bits, edges of fields."""
    bit = rng.randrange(32)
    kinds = (
        rng.randrange(8),
        1 << bit,
        (1 << bit) - 1,
        0xFFFFFFFF - rng.randrange(4),
        rng.randrange(64) << bit & 0xFFFFFFFF,
        rng.getrandbits(32),
    )
    return rng.choice(kinds)


def address(rng: random.Random) -> int:
    """Of a tile that exists more often than not, near a register that does something."""
    column = rng.randrange(4) if rng.randrange(16) else rng.randrange(128)
    row = rng.randrange(6) if rng.randrange(16) else rng.randrange(32)
    offset = rng.choice(PLACES) + 4 * rng.randrange(40) if rng.randrange(16) else rng.getrandbits(20)
    shifted = column << registers.COLUMN_SHIFT | row << registers.ROW_SHIFT
    return shifted | offset & registers.OFFSET_MASK


def split(data: bytes) -> tuple[bytes, Version, list[bytes]] | None:
    """Header, version and operations; None where the framing does not hold."""
    version = (data[0], data[1]) if len(data) >= spec.HEADER_SIZE else (0, 0)
    if version not in spec.VERSIONS:
        return None
    ops, at = [], spec.HEADER_SIZE
    while at < len(data):
        layout = spec.find_layout(data[at], version)
        if layout is None:
            return None
        size = layout.min_size
        if layout.size_at is not None:
            size = max(size, int.from_bytes(data[at + layout.size_at :][:4], "little"))
        if size % 4 or at + size > len(data):
            return None
        ops.append(data[at : at + size])
        at += size
    return data[: spec.HEADER_SIZE], version, ops


def joined(header: bytes, ops: list[bytes], limit: int) -> bytes:
    """Counts and sizes made right; operations left out from the end where they are too many."""
    size, count = spec.HEADER_SIZE, 0
    for op in ops:
        if size + len(op) > limit:
            break
        size += len(op)
        count += 1
    return header[:8] + struct.pack("<II", count, size) + b"".join(ops[:count])


def sized(op: bytearray, version: Version) -> bytes:
    layout = spec.find_layout(op[0], version)
    if layout is not None and layout.size_at is not None and len(op) >= layout.size_at + 4:
        op[layout.size_at : layout.size_at + 4] = len(op).to_bytes(4, "little")
    return bytes(op)


def fresh_op(version: Version, rng: random.Random) -> bytes:
    code = rng.choice(CODES)
    layout = spec.find_layout(code, version)
    op = bytearray(layout.min_size if layout else 8)
    if layout is not None and layout.payload_at is not None:
        op += bytes(4 * rng.randrange(18))
    for at in range(0, len(op), 4):
        if rng.randrange(3):
            op[at : at + 4] = word(rng).to_bytes(4, "little")
    op[0] = code
    if layout is not None and "reg" in layout.by_name:
        at = layout.field("reg").offset
        op[at : at + 4] = address(rng).to_bytes(4, "little")
    return sized(op, version)


def changed_op(given: bytes, version: Version, rng: random.Random) -> bytes:
    """Another word somewhere in the op, or other bytes; its size stays in order."""
    op, layout = bytearray(given), spec.find_layout(given[0], version)
    how = rng.randrange(5)
    if how == 0 and layout is not None and "reg" in layout.by_name:
        at = layout.field("reg").offset
        op[at : at + 4] = address(rng).to_bytes(4, "little")
    elif how == 1 and layout is not None and layout.payload_at is not None:
        op = op[: layout.payload_at + 4 * rng.randrange(20)].ljust(layout.payload_at, b"\0")
        op += bytes(-len(op) % 4)
    elif how == 2:
        op[rng.randrange(len(op))] ^= 1 << rng.randrange(8)
    else:
        at = 4 * rng.randrange(len(op) // 4)
        op[at : at + 4] = word(rng).to_bytes(4, "little")
    op[0] = given[0]
    return sized(op, version)


def _changed(header: bytes, version: Version, ops: list[bytes], rng: random.Random) -> bytes:
    """One change to the list ``ops``; the header."""
    how = rng.randrange(10)
    if not ops or how == 0:
        ops.insert(rng.randrange(len(ops) + 1), fresh_op(version, rng))
        return header
    first = rng.randrange(len(ops))
    run = 1 + rng.randrange(3 if rng.randrange(4) else len(ops))
    if how == 1:
        del ops[first : first + run]
    elif how == 2:
        at = rng.randrange(len(ops) + 1)
        ops[at:at] = ops[first : first + run]
    elif how == 3:
        other = rng.randrange(len(ops))
        ops[first], ops[other] = ops[other], ops[first]
    elif how == 4 and not rng.randrange(6):
        at = 2 + rng.randrange(4)
        return header[:at] + bytes([rng.randrange(10)]) + header[at + 1 :]
    else:
        ops[first] = changed_op(ops[first], version, rng)
    return header


def raw(data: bytes, limit: int, rng: random.Random) -> bytes:
    """Bytes flipped, cut out, repeated or put in, without knowledge of what they are."""
    made = bytearray(data or b"\0")
    for _ in range(1 + rng.randrange(4)):
        at, size = rng.randrange(len(made)), 1 + rng.randrange(8)
        how = rng.randrange(4)
        if how == 0:
            made[at] ^= 1 << rng.randrange(8)
        elif how == 1:
            made[at : at + size] = rng.randbytes(size)
        elif how == 2 and len(made) > size:
            del made[at : at + size]
        else:
            made[at:at] = made[at : at + size]
    return bytes(made[:limit])


def transaction(data: bytes, limit: int, rng: random.Random) -> bytes:
    """Operations put in, left out, doubled, exchanged, changed; now and then any bytes."""
    pieces = split(data) if rng.randrange(12) else None
    if pieces is None or limit < spec.HEADER_SIZE:
        return raw(data, limit, rng)
    header, version, ops = pieces
    for _ in range(1 + rng.randrange(3)):
        header = _changed(header, version, ops, rng)
    return joined(header, ops, limit)


_TOKEN = re.compile(r"\s+|[\w.]+|[^\w\s]")
_NUMBERS = ("0", "-1", "1e400", "NaN", "4294967296", "18446744073709551616", "0x", "1" * 30, "²", "null")
_PIECES = (
    '{"',
    '"}',
    "[",
    "]",
    ":",
    ",",
    "=",
    ";",
    "\n",
    "\x00",
    "\x85",
    "\u2028",
    "[9999]",
    "+0x4",
    "pad=0:",
)


def text(data: bytes, limit: int, rng: random.Random) -> bytes:
    """Words, numbers and lines of a text changed."""
    tokens = _TOKEN.findall(data.decode(errors="replace")) or [""]
    for _ in range(1 + rng.randrange(3)):
        at, how = rng.randrange(len(tokens)), rng.randrange(6)
        if how == 0:
            tokens[at] = rng.choice(_NUMBERS)
        elif how == 1:
            tokens[at] = rng.choice(tokens)
        elif how == 2:
            del tokens[at : at + rng.randrange(8)]
        elif how == 3:
            tokens[at:at] = tokens[rng.randrange(len(tokens)) :][: rng.randrange(40)]
        elif how == 4:
            tokens.insert(at, rng.choice(_PIECES))
        else:
            tokens[at] = raw(tokens[at].encode(errors="replace"), 100, rng).decode(errors="replace")
        tokens = tokens or [""]
    return "".join(tokens).encode(errors="replace")[:limit]


def json_text(data: bytes, limit: int, rng: random.Random) -> bytes:
    """JSON with a value, a key or an entry changed; now and then a text that need not be JSON."""
    try:
        tree = json.loads(data)
    except (ValueError, RecursionError):
        tree = None
    if tree is None or not rng.randrange(8):
        return text(data, limit, rng)
    for _ in range(1 + rng.randrange(3)):
        _change_value(tree, rng)
    return json.dumps(tree).encode()[:limit]


def _values(rng: random.Random) -> object:
    numbers = (0, -1, 1, 6, 12, 4096, word(rng), 1 << 48, 1 << 64, 10**30, 0.5, 1e400, True)
    return rng.choice([*numbers, None, "", "x", "1", "²", "read_add_write", [], {}, [[]], {"": 0}])


def _change_value(tree: object, rng: random.Random) -> None:
    """Goes down a random path and changes what it finds there."""
    while isinstance(tree, (dict, list)) and tree:
        keys: list[Any] = list(tree) if isinstance(tree, dict) else list(range(len(tree)))
        key = rng.choice(keys)
        holder: Any = tree
        if isinstance(holder[key], (dict, list)) and rng.randrange(8):
            tree = holder[key]
            continue
        how = rng.randrange(5)
        if how == 0:
            del holder[key]
        elif how == 1 and isinstance(holder, dict):
            holder[rng.choice([*keys, "", "0", "-1", "²", "1" * 20])] = holder[key]
        elif how == 1:
            holder.append(holder[key])
        elif how == 2 and isinstance(holder[key], int):
            holder[key] += rng.choice([-4, -1, 1, 2, 4, 4096])
        else:
            holder[key] = _values(rng)
        return


def after_length(first: Mutate, rest: Mutate) -> Mutate:
    """For inputs of two parts: u32 length of the first, the first, the second."""

    def change(data: bytes, limit: int, rng: random.Random) -> bytes:
        one, two = two_parts(data)
        if rng.randrange(2):
            one = first(one, max(limit // 2, 1), rng)
        else:
            two = rest(two, max(limit - len(one) - 4, 1), rng)
        return join_parts(one, two)[:limit]

    return change


def container(data: bytes, limit: int, rng: random.Random) -> bytes:
    """An xclbin with size and CRC put right, or nothing would get past them."""
    made = bytearray(raw(data, limit, rng))
    if len(made) >= xclbin.KERNELS_AT and rng.randrange(8):
        struct.pack_into("<I", made, len(xclbin.MAGIC) + 4, len(made))
        struct.pack_into("<I", made, xclbin.COUNTS_AT + 8, zlib.crc32(made[xclbin.KERNELS_AT :]))
    return bytes(made)


def compiled(data: bytes, limit: int, rng: random.Random) -> bytes:
    """A compiled model with a value of its description changed, sizes and checksum put right."""
    try:
        text, blobs = parted(data)
    except CompiledModelError:  # of another version
        return raw(data, limit, rng)
    try:
        tree = msgpack.unpackb(text)
        for _ in range(1 + rng.randrange(2)):
            _change_value(tree, rng)
        text = msgpack.packb(tree)
    except (ValueError, OverflowError, RecursionError, msgpack.exceptions.UnpackException):
        text = raw(text, limit, rng)
    made = compiled_joined(text, blobs)
    return made if len(made) <= limit else data[:limit]


def two_parts(data: bytes) -> tuple[bytes, bytes]:
    size = int.from_bytes(data[:4], "little")
    return data[4 : 4 + size], data[4 + size :]


def join_parts(one: bytes, two: bytes) -> bytes:
    return len(one).to_bytes(4, "little") + one + two
