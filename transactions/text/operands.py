# SPDX-License-Identifier: Apache-2.0
"""Operands of the text forms: numbers, ``name=value``, ``c1 r2 DMA_BD[3]+0x4``, words of data."""

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


class BadText(Exception):
    """What is wrong with a line; becomes a TransactionError that names it."""

    def __init__(self, given: str, accepted: str, remedy: str = REMEDY) -> None:
        super().__init__(given, accepted, remedy)
        self.given, self.accepted, self.remedy = given, accepted, remedy


class LineReader:
    """Takes a text line by line.

    Attributes:
        row: number of the line, from 1, that errors name.
        count: ops or packets read so far.
    """

    row = 0
    count = 0

    def line(self, code: str) -> None:
        """One line that says something, comments removed; raises BadText."""
        raise NotImplementedError

    def finish(self) -> None:
        """After the last line."""


def read_lines(text: str, reader: LineReader) -> None:
    """Hands every line to the reader.

    Raises:
        TransactionError: a line that cannot be read; ``where`` names it.
    """
    try:
        for row, line in enumerate(text.split("\n"), 1):
            code = line.partition(";")[0].rstrip()
            if code.strip():
                reader.row = row
                reader.line(code)
        reader.finish()
    except BadText as bad:
        where = f"line {reader.row}"
        raise TransactionError(where, bad.given, bad.accepted, bad.remedy, op_index=reader.count) from None
    except TransactionError as error:
        where = f"line {reader.row}: {error.where}"
        raise TransactionError(
            where, error.given, error.accepted, error.remedy, op_index=reader.count
        ) from error


def number(text: str) -> int:
    """A decimal or ``0x`` hexadecimal number."""
    try:
        if len(text) > _MAX_DIGITS:
            raise ValueError(text)
        return int(text, 16 if text.lower().startswith("0x") else 10)
    except ValueError:
        raise BadText(repr(text[:40]), "a decimal or 0x hexadecimal number of at most 64 bits") from None


def pairs(operands: Iterable[str], names: Iterable[str]) -> dict[str, int]:
    """``name=value`` operands; each name at most once and known."""
    allowed, values = tuple(names), {}
    for operand in operands:
        name, equals, value = operand.partition("=")
        if not equals or name not in allowed:
            raise BadText(repr(operand), " ".join(f"{name}=" for name in allowed) or "no operands")
        if name in values:
            raise BadText(f"{name}= twice", "each field once")
        values[name] = number(value)
    return values


@cache
def _block(kind: str, name: str) -> Block | None:
    return registers.TILES[kind].block.get(name)


@lru_cache(maxsize=1 << 14)
def _address(column: str, row: str, name: str) -> int:
    """The address of ``c1 r2 DMA_BD[3]+0x4``."""
    at_column, at_row = indexed(column, "c"), indexed(row, "r")
    match = _PLACE.match(name)
    if match is None:
        raise BadText(repr(name), "a register such as DMA_BD[3]+0x4, or an offset such as 0x1D000")
    if match[4]:
        offset = number(match[4])
    else:
        kind = registers.kind_of_row(at_row)
        block = _block(kind, match[1]) if kind else None
        if block is None:
            known = ", ".join(registers.TILES[kind].block) if kind else f"an offset: row {at_row} is no tile"
            raise BadText(f"register {match[1]}", known)
        index = number(match[2] or "0")
        byte = number(match[3] or "0")
        if index >= block.count or byte >= block.size:
            raise BadText(name, f"{block.name}[0] to [{block.count - 1}], bytes below {block.size:#x}")
        offset = block.offset + index * block.stride + byte
    if offset > registers.OFFSET_MASK or at_row > registers.ROW_MASK:
        raise BadText(f"{row} {name}", f"rows to {registers.ROW_MASK}, offsets to {registers.OFFSET_MASK:#x}")
    return at_column << registers.COLUMN_SHIFT | at_row << registers.ROW_SHIFT | offset


def indexed(text: str, letter: str) -> int:
    """The 3 of ``c3``."""
    if not text.startswith(letter):
        raise BadText(repr(text), f"{letter} and a number, such as {letter}0")
    return number(text[1:])


def take_place(operands: list[str]) -> int:
    """The address that the first three operands name, which are removed."""
    if len(operands) < 3:
        raise BadText(" ".join(operands) or "no operands", "column, row and register: c0 r1 DMA_BD[3]")
    address = _address(*operands[:3])
    del operands[:3]
    return address


def word_bytes(text: str) -> bytes:
    """A word of data, bare hexadecimal, as its four bytes."""
    value = number(f"0x{text}")
    if value > bd.WORD_MASK:
        raise BadText(repr(text), "a word of 32 bits")
    return value.to_bytes(4, "little")
