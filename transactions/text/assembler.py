# SPDX-License-Identifier: Apache-2.0
"""The assembler, text -> bytes: the inverse of ``listing``, also for text written by hand.

One op per line: ``MNEMONIC operands``, optionally after an index and a byte offset, which are
skipped, as is everything from ``;`` on. Words and BDs of a BLOCKWRITE follow on separate
lines. Numbers are decimal or ``0x`` hexadecimal; data words are bare hexadecimal.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from onedispatch.transactions.base.errors import TransactionError
from onedispatch.transactions.base.text import counted, span
from onedispatch.transactions.format import codec, spec
from onedispatch.transactions.format.spec import Version
from onedispatch.transactions.machine import bd, registers
from onedispatch.transactions.machine.registers import Field
from onedispatch.transactions.text import listing
from onedispatch.transactions.text.operands import (
    REMEDY,
    LineReader,
    TextError,
    parse_fields,
    parse_indexed,
    parse_number,
    read_lines,
    take_address,
    word_bytes,
)

_OP = re.compile(r"\s*(?:\d+\s+[0-9a-f]+\s+)?([A-Z][A-Z0-9_]*)(?:\s+(.*))?$")
_BD = re.compile(r"\s*bd\s+(\d+):\s*(.*)$")
_WORDS = re.compile(r"\s*[0-9a-f]{8}(?:\s+[0-9a-f]{8})*\s*$")
_VERSION = re.compile(r"v(\d+)\.(\d+)$")
_RESERVED = re.compile(r"reserved\[(\d+)\]$")
_TOKENS = re.compile(r"(S2MM|MM2S)\[(\d+)\]$")
_CUSTOM = re.compile(r"CUSTOM_(\d+)$")
_HEADER = ("device_generation", "rows", "columns", "mem_tile_rows", "padding")


def assemble(text: str) -> bytes:
    """Returns the bytes of a transaction.

    Raises:
        TransactionError: a line is invalid; ``where`` names it.
    """
    assembler = _Assembler()
    read_lines(text, assembler)
    return assembler.to_bytes()


class _Assembler(LineReader):
    def __init__(self) -> None:
        self.header: codec.Header | None = None
        self.body = bytearray()
        self.open: _BlockWrite | None = None
        self.opened_at = 0

    def line(self, code: str) -> None:
        if self.open and self.open.take(code):
            return
        match = _OP.match(code)
        if match is None:
            raise TextError(repr(code.strip()[:60]), "MNEMONIC operands, or words of a BLOCKWRITE")
        self.finish()
        name, operands = match[1], (match[2] or "").split()
        if name == "HEADER":
            self._header(operands)
            return
        if self.header is None:
            raise TextError(f"{name} first", "a HEADER line before all ops")
        version = self.header.version
        if name == "BLOCKWRITE":
            self.open, self.opened_at = _BlockWrite(version, operands), self.row
        else:
            self._append(_encode(name, operands, version))

    def finish(self) -> None:
        """Encodes a pending BLOCKWRITE once all its lines are read."""
        if self.open is not None:
            row, self.row = self.row, self.opened_at
            self._append(self.open.to_bytes())
            self.open, self.row = None, row

    def _append(self, data: bytes) -> None:
        self.body += data
        self.count += 1

    def _header(self, operands: list[str]) -> None:
        if self.header is not None:
            raise TextError("a second HEADER", "one HEADER line")
        match = _VERSION.match(operands[0]) if operands else None
        version = (parse_number(match[1]), parse_number(match[2])) if match else None
        if version not in spec.VERSIONS:
            accepted = ", ".join(f"v{major}.{minor}" for major, minor in spec.VERSIONS)
            raise TextError(f"HEADER {' '.join(operands[:1])}", accepted)
        values = parse_fields(operands[1:], _HEADER)
        self.header = codec.Header(version, **values)
        self.header.to_bytes()

    def to_bytes(self) -> bytes:
        header = self.header
        if header is None:
            raise TransactionError("text of a transaction", "no HEADER", "a HEADER line first", REMEDY)
        size = spec.HEADER_SIZE + len(self.body)
        filled = codec.Header(
            header.version,
            header.device_generation,
            header.rows,
            header.columns,
            header.mem_tile_rows,
            self.count,
            size,
            header.padding,
        )
        return filled.to_bytes() + bytes(self.body)


# --- Ops ----------------------------------------------------------------------------------------


def _encode(name: str, operands: list[str], version: Version) -> bytes:
    """Returns the bytes of any op but BLOCKWRITE."""
    code = _code(name)
    extras = _take_extras(operands)
    payload = b""
    reader = _READERS.get(name)
    if reader is None or (name == "TCT" and operands and "=" in operands[0]):
        layout = codec.layout_of(code, version)
        hexadecimal = [o for o in operands if o.startswith("payload=")]
        payload = _hex(hexadecimal[0][8:]) if hexadecimal else b""
        values = parse_fields([o for o in operands if not o.startswith("payload=")], layout.by_name)
    else:
        values = reader(operands)
    missing = [field for field in codec.layout_of(code, version).by_name if field not in values]
    if missing:
        raise TextError(f"{name} without {', '.join(missing)}", "every field of the op")
    return _finished(code, version, codec.encode_op(code, version, values), payload, extras)


def _code(name: str) -> int:
    known = spec.BY_NAME.get(name)
    if known is not None:
        return known.code
    match = _CUSTOM.match(name)
    code = parse_number(match[1]) if match else -1
    if not spec.CUSTOM_BEGIN <= code <= 255 or code in spec.BY_CODE:
        raise TextError(f"op {name}", ", ".join(spec.BY_NAME) + " or CUSTOM_128 to CUSTOM_255 without a name")
    return code


def _hex(text: str) -> bytes:
    try:
        data = bytes.fromhex(text)
    except ValueError:
        data = b"\0"
    if len(data) % 4:
        raise TextError(f"bytes {text[:40]!r}", "whole words, two hexadecimal digits per byte")
    return data


def _take_extras(operands: list[str]) -> dict[str, str]:
    """Removes the operands ``pad=`` and ``size=``, which any op may have, and returns their values."""
    found: dict[str, str] = {}
    for name in ("pad", "size"):
        mine = [operand for operand in operands if operand.startswith(f"{name}=")]
        if len(mine) > 1:
            raise TextError(f"{name}= twice", "each field once")
        if mine:
            found[name] = mine[0].partition("=")[2]
            operands.remove(mine[0])
    return found


def _finished(code: int, version: Version, data: bytes, payload: bytes, extras: Mapping[str, str]) -> bytes:
    """Returns the op with its payload, its padding, and its size if ``size=`` selects another legal one."""
    if not extras and not payload:
        return data
    layout, raw = codec.layout_of(code, version), bytearray(data + payload)
    size = len(raw)
    if payload and layout.payload_at is None:
        raise TextError("a payload", f"none: {spec.name_of(code)} has fields only")
    if "size" in extras:
        size = parse_number(extras["size"])
        if layout.payload_at is not None or size not in layout.sizes:
            raise TextError(f"size={size}", f"one of {list(layout.sizes)}")
        del raw[size:]
    if layout.size_at is not None:
        raw[layout.size_at : layout.size_at + 4] = size.to_bytes(4, "little")
    runs = listing.padding_runs(code, version, size)
    for part in extras["pad"].split(",") if "pad" in extras else ():
        at, _, digits = part.partition(":")
        start = parse_number(at)
        try:
            pad = bytes.fromhex(digits)
        except ValueError:
            raise TextError(f"pad={part[:40]}", "offset:bytes, two hexadecimal digits per byte") from None
        if not any(low <= start and start + len(pad) <= high for low, high in runs):
            free = ", ".join(span(low, high - 1) for low, high in runs)
            raise TextError(f"pad={part[:40]}", f"bytes that no field covers: {free or 'none'}")
        raw[start : start + len(pad)] = pad
    return bytes(raw)


# --- One reader per mnemonic --------------------------------------------------------------------


def _write(operands: list[str]) -> dict[str, int]:
    reg = take_address(operands)
    if len(operands) == 1 and "=" not in operands[0]:
        return {"reg": reg, "value": parse_number(operands[0])}
    packet = any(operand == "packet=1" for operand in operands)
    fields = listing.word_fields(reg, packet << 30)
    if not fields or not operands:
        raise TextError(" ".join(operands) or "no value", "one word, such as 0x00000001")
    return {"reg": reg, "value": _packed("WRITE", fields, operands)}


def _packed(where: str, fields: Iterable[Field], operands: list[str]) -> int:
    table = tuple(fields)
    return bd.pack_fields(where, table, parse_fields(operands, [field.name for field in table]), 1)[0]


def _condition(operands: list[str], sign: str) -> tuple[int, int]:
    """Parses ``== 0x1 & 0x3`` into (mask, value)."""
    if len(operands) != 4 or operands[0] != sign or operands[2] != "&":
        raise TextError(" ".join(operands) or "no condition", f"{sign} value & mask")
    return parse_number(operands[3]), parse_number(operands[1])


def _masked(sign: str, operands: list[str]) -> dict[str, int]:
    reg, granted = take_address(operands), False
    if operands and operands[0] in ("acquire", "release"):
        if len(operands) < 2:
            raise TextError(operands[0], f"{operands[0]} value")
        reg = _request(reg, operands[0] == "acquire", operands[1])
        del operands[:2]
        granted = not operands and sign == "=="
    if granted:
        mask, value = listing.GRANTED
    elif operands == ["idle"] and sign == "==":
        mask, value = listing.IDLE
    else:
        mask, value = _condition(operands, sign)
    return {"reg": reg, "value": value, "mask": mask}


def _request(reg: int, acquire: bool, text: str) -> int:
    register = registers.find_register(reg)
    kind = registers.kind_of_row(registers.split_address(reg)[1])
    if kind is None or register is None or register.block.name != "LOCK_REQUEST" or register.byte:
        raise TextError("a lock request at another register", "LOCK_REQUEST[lock] acquire or release value")
    sign = -1 if text.startswith("-") else 1
    offset = bd.lock_request_offset(kind, register.index, sign * parse_number(text.lstrip("+-")), acquire)
    return reg & ~registers.OFFSET_MASK | offset


def _patch(operands: list[str]) -> dict[str, int]:
    reg = take_address(operands)
    if len(operands) != 4 or operands[0] != "arg" or operands[2] != "+":
        raise TextError(" ".join(operands) or "no argument", "arg index + offset")
    return {"reg": reg, "arg_index": parse_number(operands[1]), "arg_offset": parse_number(operands[3])}


def _tct(operands: list[str]) -> dict[str, int]:
    match = _TOKENS.match(operands[2]) if len(operands) > 2 else None
    if match is None:
        raise TextError(" ".join(operands), "c0 r0 S2MM[0] columns=1 rows=1")
    values = {"columns": 1, "rows": 1, **parse_fields(operands[3:], ("columns", "rows"))}
    values["direction"] = listing.DIRECTIONS.index(match[1])
    values["channel"] = parse_number(match[2])
    values["column"], values["row"] = parse_indexed(operands[0], "c"), parse_indexed(operands[1], "r")
    word, config = bd.pack_fields("TCT", registers.TCT_FIELDS, values, 2)
    return {"word": word, "config": config}


_Reader: TypeAlias = "Callable[[list[str]], dict[str, int]]"
_READERS: Mapping[str, _Reader] = {
    "WRITE": _write,
    "MASKWRITE": lambda operands: _masked("=", operands),
    "MASKPOLL": lambda operands: _masked("==", operands),
    "MASKPOLL_BUSY": lambda operands: _masked("==", operands),
    "DDR_PATCH": _patch,
    "TCT": _tct,
}


class _BlockWrite:
    """A BLOCKWRITE that is read line by line."""

    def __init__(self, version: Version, operands: list[str]) -> None:
        self.version = version
        self.extras = _take_extras(operands)
        self.reg = take_address(operands)
        self.payload = bytearray()
        self.wanted: int | None = None
        if operands:
            if len(operands) != 2 or operands[1].rstrip(",") not in ("words", "word"):
                raise TextError(" ".join(operands), "how many words follow: 8 words", "dump without --brief")
            self.wanted = parse_number(operands[0])
        register = registers.find_register(self.reg)
        kind = registers.kind_of_row(registers.split_address(self.reg)[1])
        is_bd = register is not None and register.block.name == "DMA_BD" and not register.byte
        self.kind = kind if is_bd else None

    def take(self, line: str) -> bool:
        """Reads a line of this op; False if the line belongs to the next op."""
        if _WORDS.match(line):
            for word in line.split():
                self.payload += int(word, 16).to_bytes(4, "little")
            return True
        match = _BD.match(line)
        if match is None:
            return False
        self._bd(self.kind, parse_number(match[1]), match[2].split())
        return True

    def _bd(self, kind: str | None, index: int, operands: list[str]) -> None:
        if kind is None:
            raise TextError("a BD", "words: the address is not the start of a BD")
        tile = registers.TILES[kind]
        block = tile.block["DMA_BD"]
        address = block.at(index)
        if address != (self.reg & registers.OFFSET_MASK) + len(self.payload):
            raise TextError(f"bd {index}", "BDs in the order in which they lie in memory")
        reserved, after, plain = [0] * tile.bd_words, b"", []
        for operand in operands:
            name, _, value = operand.partition("=")
            match = _RESERVED.match(name)
            if match:
                word, bits = parse_number(match[1]), parse_number(value)
                if word >= tile.bd_words or bits & tile.bd_covered[word] or bits > bd.WORD_MASK:
                    raise TextError(repr(operand), "bits that no field covers")
                reserved[word] = bits
            elif name == listing.REST:
                after = b"".join(word_bytes(part) for part in value.split(","))
            else:
                plain.append(operand)
        defaults = listing.BD_DEFAULTS[kind]
        values = {**defaults, **parse_fields(plain, defaults)}
        words = bd.BD_CLASSES[kind](**values).to_words()
        for word, bits in zip(words, reserved, strict=True):
            self.payload += (word | bits).to_bytes(4, "little")
        self.payload += after

    def to_bytes(self) -> bytes:
        words = len(self.payload) // 4
        if self.wanted is not None and words != self.wanted:
            raise TextError(
                counted(words, "word"), f"{self.wanted}, as the line says", "dump without --brief"
            )
        code = spec.BY_NAME["BLOCKWRITE"].code
        data = codec.encode_op(code, self.version, {"reg": self.reg})
        return _finished(code, self.version, data, bytes(self.payload), self.extras)
