# SPDX-License-Identifier: Apache-2.0
"""Operands of the text forms: numbers, ``name=value``, ``c1 r2 DMA_BD[3]+0x4``, data words."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache, lru_cache

from onedispatch.transactions.base.errors import TransactionError
from onedispatch.transactions.machine import bd, registers
from onedispatch.transactions.machine.registers import Block

_PLACE = re.compile(r"(?:([A-Z][A-Z0-9_]*)(?:\[(\d+)\])?(?:\+(\w+))?|(0x[0-9a-f]+))$")
_MAX_DIGITS = 20
REMEDY = "compare the line with what `txn dump` prints"


class TextError(Exception):
    """An invalid line; ``read_lines`` turns it into a TransactionError that names the line."""

    def __init__(self, given: str, accepted: str, remedy: str = REMEDY) -> None:
        super().__init__(given, accepted, remedy)
        self.given, self.accepted, self.remedy = given, accepted, remedy


class LineReader:
    """Base of the parsers that read a text line by line.

    Attributes:
        row: number of the current line, from 1; errors name it.
        count: ops or packets read so far.
    """

    row = 0
    count = 0

    def line(self, code: str) -> None:
        """Parses a line that is not empty, comments removed. Raises TextError."""
        raise NotImplementedError

    def finish(self) -> None:
        """Called after the last line."""


def read_lines(text: str, reader: LineReader) -> None:
    """Passes every line to ``reader``.

    Raises:
        TransactionError: a line is invalid; ``where`` names it.
    """
    try:
        for row, line in enumerate(text.split("\n"), 1):
            code = line.partition(";")[0].rstrip()
            if code.strip():
                reader.row = row
                reader.line(code)
        reader.finish()
    except TextError as bad:
        where = f"line {reader.row}"
        raise TransactionError(where, bad.given, bad.accepted, bad.remedy, op_index=reader.count) from None
    except TransactionError as error:
        where = f"line {reader.row}: {error.where}"
        raise TransactionError(
            where, error.given, error.accepted, error.remedy, op_index=reader.count
        ) from error


def parse_number(text: str) -> int:
    """Parses a decimal or ``0x`` hexadecimal number."""
    try:
        if len(text) > _MAX_DIGITS:
            raise ValueError(text)
        return int(text, 16 if text.lower().startswith("0x") else 10)
    except ValueError:
        raise TextError(repr(text[:40]), "a decimal or 0x hexadecimal number of at most 64 bits") from None


def parse_fields(operands: Iterable[str], names: Iterable[str]) -> dict[str, int]:
    """Parses ``name=value`` operands; refuses unknown and repeated names."""
    allowed, values = tuple(names), {}
    for operand in operands:
        name, equals, value = operand.partition("=")
        if not equals or name not in allowed:
            raise TextError(repr(operand), " ".join(f"{name}=" for name in allowed) or "no operands")
        if name in values:
            raise TextError(f"{name}= twice", "each field once")
        values[name] = parse_number(value)
    return values


@cache
def _block(kind: str, name: str) -> Block | None:
    return registers.TILES[kind].block.get(name)


@lru_cache(maxsize=1 << 14)
def _address(column: str, row: str, name: str) -> int:
    """Returns the address of ``c1 r2 DMA_BD[3]+0x4``."""
    at_column, at_row = parse_indexed(column, "c"), parse_indexed(row, "r")
    match = _PLACE.match(name)
    if match is None:
        raise TextError(repr(name), "a register such as DMA_BD[3]+0x4, or an offset such as 0x1D000")
    if match[4]:
        offset = parse_number(match[4])
    else:
        kind = registers.kind_of_row(at_row)
        block = _block(kind, match[1]) if kind else None
        if block is None:
            known = ", ".join(registers.TILES[kind].block) if kind else f"an offset: row {at_row} is no tile"
            raise TextError(f"register {match[1]}", known)
        index = parse_number(match[2] or "0")
        byte = parse_number(match[3] or "0")
        if index >= block.count or byte >= block.size:
            raise TextError(name, f"{block.name}[0] to [{block.count - 1}], bytes below {block.size:#x}")
        offset = block.at(index) + byte
    if offset > registers.OFFSET_MASK or at_row > registers.ROW_MASK:
        raise TextError(
            f"{row} {name}", f"rows to {registers.ROW_MASK}, offsets to {registers.OFFSET_MASK:#x}"
        )
    return at_column << registers.COLUMN_SHIFT | at_row << registers.ROW_SHIFT | offset


def parse_indexed(text: str, letter: str) -> int:
    """Parses the 3 of ``c3``."""
    if not text.startswith(letter):
        raise TextError(repr(text), f"{letter} and a number, such as {letter}0")
    return parse_number(text[1:])


def take_address(operands: list[str]) -> int:
    """Removes the first three operands and returns the address that they name."""
    if len(operands) < 3:
        raise TextError(" ".join(operands) or "no operands", "column, row and register: c0 r1 DMA_BD[3]")
    address = _address(*operands[:3])
    del operands[:3]
    return address


def word_bytes(text: str) -> bytes:
    """Returns the four bytes of a data word in bare hexadecimal."""
    value = parse_number(f"0x{text}")
    if value > bd.WORD_MASK:
        raise TextError(repr(text), "a word of 32 bits")
    return value.to_bytes(4, "little")
