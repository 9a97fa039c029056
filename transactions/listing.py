# SPDX-License-Identifier: Apache-2.0
"""A transaction as text: aligned columns, register names, decoded fields."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from onedispatch.transactions import bd, registers, spec
from onedispatch.transactions.registers import Field

if TYPE_CHECKING:
    from onedispatch.transactions.transaction import Operation, Transaction

_SHORT = 8
"""Words of a long payload that a listing shows."""
_INDENT = " " * 19
_SPECIAL_WORDS: Mapping[str, tuple[Field, ...]] = {
    "SWITCH_SLAVE": registers.SLAVE_FIELDS,
    "SWITCH_SLOT": registers.SLOT_FIELDS,
    "CORE_CONTROL": registers.CORE_CONTROL_FIELDS,
    "MUX": registers.MUX_FIELDS,
    "DEMUX": registers.DEMUX_FIELDS,
}
_DEFAULTS = {kind: vars(cls()) for kind, cls in bd.BD_CLASSES.items()}


def summary(transaction: Transaction) -> str:
    """One line: version, device, columns, ops, bytes."""
    header = transaction.header
    device = spec.DEVICE_GENERATIONS.get(header.device_generation, f"generation {header.device_generation}")
    return (
        f"v{header.version[0]}.{header.version[1]} {device} {header.columns} columns, "
        f"{header.op_count} ops, {header.byte_size} bytes"
    )


def text(transaction: Transaction, full: bool = False) -> str:
    """The listing: index, byte offset, operation; BDs and long payloads on lines of their own."""
    lines = [f"; {summary(transaction)}"]
    for op in transaction.ops:
        head, *more = _lines(op, full)
        lines.append(f"{op.index:6d} {op.offset:8x}  {head}")
        lines += [f"{_INDENT}{line}" for line in more]
    return "\n".join(lines) + "\n"


def describe(op: Operation) -> str:
    """One op on one line."""
    return "; ".join(line.strip() for line in _lines(op, False))


@lru_cache(maxsize=1 << 14)
def place(address: int) -> str:
    """``c2 r1 DMA_BD[3]`` for an address; the bare offset where no register is known."""
    column, row, offset = registers.split_address(address)
    register = registers.find_register(address)
    return f"c{column} r{row} {register if register else hex(offset)}"


def _lines(op: Operation, full: bool) -> list[str]:
    return _WRITERS.get(op.name, _plain)(op, full)


def _operands(name: str, *operands: str) -> str:
    return f"{name:<13} " + "  ".join(operands)


def _plain(op: Operation, full: bool) -> list[str]:
    parts = [f"{name}={value}" for name, value in op.fields.items()]
    payload = op.payload
    if payload:
        parts.append(payload.hex(" ", 4) if full or len(payload) <= 32 else _checksum(payload))
    return [_operands(op.name, *parts).rstrip()]


def _checksum(payload: bytes) -> str:
    return f"{len(payload) // 4} words, crc {zlib.crc32(payload):08x}"


def _write(op: Operation, full: bool) -> list[str]:
    del full
    meaning = _meaning(op.reg, op.value)
    return [_operands(op.name, f"{place(op.reg):<26}", f"{op.value:#010x}", meaning).rstrip()]


def _masked(op: Operation, full: bool) -> list[str]:
    del full
    sign = "=" if op.name == "MASKWRITE" else "=="
    parts = [f"{place(op.reg):<26}", f"&{op.mask:#010x} {sign} {op.value:#x}"]
    _, row, offset = registers.split_address(op.reg)
    kind = registers.kind_of_row(row)
    request = bd.decode_lock_request(kind, offset) if kind else None
    if request is not None:
        lock, value, acquire = request
        parts = [f"{place(op.reg).split('+')[0]:<26}", parts[1]]
        parts.append(f"{'acquire' if acquire else 'release'} lock {lock} {value:+d}")
    elif op.mask == registers.DMA_IDLE_MASK and not op.value:
        parts.append("idle")
    return [_operands(op.name, *parts)]


@lru_cache(maxsize=1 << 14)
def _meaning(address: int, value: int) -> str:
    register = registers.find_register(address)
    if register is None:
        return ""
    name = register.block.name
    kind = registers.kind_of_row(registers.split_address(address)[1])
    if kind is None or register.byte:
        return ""
    if name.endswith("_QUEUE"):
        return _values(bd.decode_queue(kind, value), {"repeat": 1, "token": 0})
    if name == "SWITCH_MASTER":
        values = bd.unpack_fields(registers.MASTER_FIELDS, [value])
        hidden = ("slave",) if values["packet"] else ("arbiter", "msel_enable")
        return _values({k: v for k, v in values.items() if k not in hidden}, {"drop_header": 0, "packet": 0})
    if name in _SPECIAL_WORDS:
        return _values(bd.unpack_fields(_SPECIAL_WORDS[name], [value]), {})
    return ""


def _values(values: Mapping[str, int], defaults: Mapping[str, int]) -> str:
    return bd.describe_fields(values, defaults)


def _blockwrite(op: Operation, full: bool) -> list[str]:
    words, register = op.words, op.register
    head = _operands(op.name, f"{place(op.reg):<26}", f"{len(words)} words")
    kind = registers.kind_of_row(registers.split_address(op.reg)[1])
    if kind and register and register.block.name == "DMA_BD" and not register.byte:
        return [head, *_bds(kind, register.index, words)]
    payload = op.payload
    shown = words if full or len(words) <= 2 * _SHORT else words[:_SHORT]
    if len(shown) < len(words):
        head += f", crc {zlib.crc32(payload):08x}"
    rows = range(0, len(shown), _SHORT)
    return [head, *(" ".join(f"{word:08x}" for word in shown[at : at + _SHORT]) for at in rows)]


def _bds(kind: str, first: int, words: tuple[int, ...]) -> Iterable[str]:
    step = registers.TILES[kind].block["DMA_BD"].stride // 4
    needed = registers.TILES[kind].bd_words
    for i, at in enumerate(range(0, len(words), step)):
        part = words[at : at + step]
        if len(part) < needed:
            yield "  " + " ".join(f"{word:08x}" for word in part)
            continue
        yield f"  bd {first + i}: {_bd(kind, part[:needed])}"


@lru_cache(maxsize=1 << 12)
def _bd(kind: str, words: tuple[int, ...]) -> str:
    decoded = bd.decode_bd(kind, words)
    covered = registers.TILES[kind].bd_covered
    extra = "".join(
        f" reserved[{i}]={word & ~mask:#x}"
        for i, (word, mask) in enumerate(zip(words, covered, strict=True))
        if word & ~mask
    )
    return _values(vars(decoded), _DEFAULTS[kind]) + extra


def _patch(op: Operation, full: bool) -> list[str]:
    del full
    return [_operands(op.name, f"{place(op.reg):<26}", f"arg {op.arg_index} + {op.arg_offset:#x}")]


def _tct(op: Operation, full: bool) -> list[str]:
    del full
    values = bd.unpack_fields(registers.TCT_FIELDS, [op.word, op.config])
    direction = "MM2S" if values["direction"] == 1 else "S2MM"
    span = f"{values['columns']} columns, {values['rows']} rows"
    tile = f"c{values['column']} r{values['row']}"
    return [_operands(op.name, f"{tile} {direction} channel {values['channel']}", span)]


_Writer: TypeAlias = "Callable[[Operation, bool], list[str]]"
_WRITERS: Mapping[str, _Writer] = {
    "WRITE": _write,
    "BLOCKWRITE": _blockwrite,
    "MASKWRITE": _masked,
    "MASKPOLL": _masked,
    "MASKPOLL_BUSY": _masked,
    "DDR_PATCH": _patch,
    "TCT": _tct,
}
