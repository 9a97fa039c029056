# SPDX-License-Identifier: Apache-2.0
"""The listing, bytes -> text: aligned columns, register names, decoded fields; lossless.

    HEADER        v0.1 device_generation=4 rows=6 columns=4 mem_tile_rows=1  ; XDNA2, 3 ops, 148 bytes
         0       10  BLOCKWRITE    c0 r0 DMA_BD[0]             8 words  pad=1:0105
                       bd 0: length=256 d0_wrap=16 d1_step=64
         1       40  WRITE         c0 r0 DMA_MM2S_QUEUE[0]     start_bd=0 repeat=2 token=1
         2       58  MASKPOLL      c0 r1 LOCK_REQUEST[1]       acquire -1

Index and byte offset in front are for the reader; ``assembler`` skips them, and everything after
a ``;``. A word is decoded if the decoded form is lossless; otherwise (a reserved bit in a queue
word) the raw word is printed. ``pad=offset:bytes`` are nonzero bytes that no field covers.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import TypeAlias

from onedispatch.transactions.base.text import counted, tile_name
from onedispatch.transactions.format import codec, spec
from onedispatch.transactions.format.binary import OperationView, TransactionBinary
from onedispatch.transactions.format.codec import Header
from onedispatch.transactions.machine import bd, registers
from onedispatch.transactions.machine.registers import Field

_SHORT = 8
"""Words per line; also the words of a long payload that a brief listing shows."""
_INDENT = " " * 19
_SPECIAL_WORDS: Mapping[str, tuple[Field, ...]] = {
    "SWITCH_SLAVE": registers.SLAVE_FIELDS,
    "SWITCH_SLOT": registers.SLOT_FIELDS,
    "CORE_CONTROL": registers.CORE_CONTROL_FIELDS,
    "MUX": registers.MUX_FIELDS,
    "DEMUX": registers.DEMUX_FIELDS,
}
_CIRCUIT = tuple(f for f in registers.MASTER_FIELDS if f.name not in ("arbiter", "msel_enable"))
_PACKET = tuple(f for f in registers.MASTER_FIELDS if f.name != "slave")
DIRECTIONS = ("S2MM", "MM2S")
IDLE, GRANTED = (registers.DMA_IDLE_MASK, 0), (1, 1)
"""(mask, value) of the two named polls: a channel is idle, a lock request is granted."""
BD_DEFAULTS = {kind: vars(cls()) for kind, cls in bd.BD_CLASSES.items()}
REST = "rest"
"""Key of the words after a BD's last field."""


def device_name(header: Header) -> str:
    return spec.DEVICE_GENERATIONS.get(header.device_generation, f"generation {header.device_generation}")


def summary(transaction: TransactionBinary) -> str:
    """Returns one line: version, device, columns, ops, bytes."""
    header = transaction.header
    version, columns = ".".join(map(str, header.version)), counted(header.columns, "column")
    size = f"{counted(header.op_count, 'op')}, {counted(header.byte_size, 'byte')}"
    return f"v{version} {device_name(header)} {columns}, {size}"


def text(transaction: TransactionBinary, brief: bool = False) -> str:
    """Returns the listing: index, byte offset, operation; BDs and long payloads on separate lines."""
    header = transaction.header
    names = ("device_generation", "rows", "columns", "mem_tile_rows")
    values = " ".join(f"{name}={getattr(header, name)}" for name in names)
    values += f" padding={header.padding}" if header.padding else ""
    lines = [
        f"HEADER        v{header.version[0]}.{header.version[1]} {values}"
        f"  ; {device_name(header)}, {counted(header.op_count, 'op')}, {counted(header.byte_size, 'byte')}"
    ]
    for op in transaction.ops:
        head, *more = _lines(op, brief)
        if not brief:
            head += _padding(op, transaction.version)
        lines.append(f"{op.index:6d} {op.offset:8x}  {head}")
        lines += [f"{_INDENT}{line}" for line in more]
    return "\n".join(lines) + "\n"


def describe(op: OperationView) -> str:
    """Returns one op on one line."""
    return "; ".join(line.strip() for line in _lines(op, True))


@lru_cache(maxsize=1 << 14)
def register_text(address: int) -> str:
    """Returns an address as ``c2 r1 DMA_BD[3]``, or with the bare offset if the register is unknown."""
    column, row, offset = registers.split_address(address)
    register = registers.find_register(address)
    return f"{tile_name(column, row)} {register if register else hex(offset)}"


def _lines(op: OperationView, brief: bool) -> list[str]:
    return _WRITERS.get(op.name, _plain)(op, brief)


def _operands(name: str, *operands: str) -> str:
    return f"{name:<13} " + "  ".join(operands)


# --- Padding ------------------------------------------------------------------------------------


@lru_cache(maxsize=1 << 10)
def padding_runs(code: int, version: spec.Version, size: int) -> tuple[tuple[int, int], ...]:
    """Returns (start, end) of each run of bytes of an op that no field covers."""
    layout = codec.layout_of(code, version)
    used = {0}
    for field in layout.fields:
        used.update(range(field.offset, field.offset + field.width))
    if layout.size_at is not None:
        used.update(range(layout.size_at, layout.size_at + 4))
    end = min(size, layout.payload_at if layout.payload_at is not None else size)
    runs: list[tuple[int, int]] = []
    for at in range(end):
        if at in used:
            continue
        if runs and runs[-1][1] == at:
            runs[-1] = (runs[-1][0], at + 1)
        else:
            runs.append((at, at + 1))
    return tuple(runs)


def _padding(op: OperationView, version: spec.Version) -> str:
    runs = padding_runs(op.code, version, op.size)
    if not runs:
        return ""
    raw, parts = op.raw, []
    for start, end in runs:
        kept = raw[start:end].rstrip(b"\0")
        if kept:
            skip = len(kept) - len(kept.lstrip(b"\0"))
            parts.append(f"{start + skip}:{kept[skip:].hex()}")
    return f"  pad={','.join(parts)}" if parts else ""


# --- One writer per opcode ----------------------------------------------------------------------


def _plain(op: OperationView, brief: bool) -> list[str]:
    parts = [f"{name}={value}" for name, value in op.fields.items()]
    layout = codec.layout_of(op.code, op.version)
    if layout.payload_at is None and op.size != layout.sizes[-1]:
        parts.append(f"size={op.size}")
    payload = op.payload
    if payload:
        shortened = brief and len(payload) > 32
        parts.append(_checksum(payload) if shortened else f"payload={payload.hex()}")
    return [_operands(op.name, *parts).rstrip()]


def _checksum(payload: bytes) -> str:
    return f"{len(payload) // 4} words, crc {zlib.crc32(payload):08x}"


def _write(op: OperationView, brief: bool) -> list[str]:
    del brief
    return [_write_text(op.name, op.reg, op.value)]


@lru_cache(maxsize=1 << 14)
def _write_text(name: str, address: int, value: int) -> str:
    return _operands(name, f"{register_text(address):<26}", _word(address, value))


@lru_cache(maxsize=1 << 14)
def word_fields(address: int, value: int) -> tuple[Field, ...]:
    """Returns the fields of a word written to a register; empty if the word has no fields."""
    register = registers.find_register(address)
    kind = registers.kind_of_row(registers.split_address(address)[1])
    if register is None or kind is None or register.byte:
        return ()
    name = register.block.name
    if name.endswith("_QUEUE"):
        return bd.queue_fields(kind)
    if name == "SWITCH_MASTER":
        return _PACKET if value >> 30 & 1 else _CIRCUIT
    return _SPECIAL_WORDS.get(name, ())


@lru_cache(maxsize=1 << 14)
def _word(address: int, value: int) -> str:
    """Returns the decoded fields if they cover the whole word, the raw word otherwise."""
    fields = word_fields(address, value)
    covered = 0
    for field in fields:
        covered |= ((1 << field.width) - 1) << field.lsb
    if not fields or value & ~covered:
        return f"{value:#010x}"
    values = bd.unpack_fields(fields, [value])
    first = fields[0].name
    return _values(values, {f.name: f.bias for f in fields if f.name != first})


def _masked(op: OperationView, brief: bool) -> list[str]:
    del brief
    size = codec.layout_of(op.code, op.version).sizes[-1]
    return [
        _masked_text(op.name, op.reg, op.value, op.mask) + (f"  size={op.size}" if op.size != size else "")
    ]


@lru_cache(maxsize=1 << 14)
def _masked_text(opcode: str, address: int, value: int, mask: int) -> str:
    sign = "=" if opcode == "MASKWRITE" else "=="
    at, condition = register_text(address), f"{sign} {value:#x} & {mask:#010x}"
    _, row, offset = registers.split_address(address)
    kind = registers.kind_of_row(row)
    request = bd.decode_lock_request(kind, offset) if kind and not offset & 3 else None
    if opcode != "MASKWRITE":
        name = at.split(" ")[-1].split("[")[0]
        if request is not None and (mask, value) == GRANTED:
            condition = ""
        elif name.endswith("_STATUS") and (mask, value) == IDLE:
            condition = "idle"
    parts = [f"{at.split('+')[0] if request else at:<26}"]
    if request is not None:
        _, amount, acquire = request
        parts.append(f"{'acquire' if acquire else 'release'} {amount:+d}")
    parts += [condition] if condition else []
    return _operands(opcode, *parts)


def _values(values: Mapping[str, int], defaults: Mapping[str, int]) -> str:
    return bd.describe_fields(values, defaults)


def _blockwrite(op: OperationView, brief: bool) -> list[str]:
    words, address = op.words, op.reg
    register, kind = (
        registers.find_register(address),
        registers.kind_of_row(registers.split_address(address)[1]),
    )
    head = _operands(op.name, f"{register_text(address):<26}", f"{len(words)} words")
    if kind and register and register.block.name == "DMA_BD" and not register.byte:
        return [head, *_bds(kind, register.index, words)]
    shown = words[:_SHORT] if brief and len(words) > 2 * _SHORT else words
    if len(shown) < len(words):
        head += f", crc {zlib.crc32(op.payload):08x}"
    return [head, *_rows(shown)]


def _rows(words: tuple[int, ...]) -> Iterator[str]:
    for at in range(0, len(words), _SHORT):
        yield " ".join(f"{word:08x}" for word in words[at : at + _SHORT])


def _bds(kind: str, first: int, words: tuple[int, ...]) -> Iterable[str]:
    step = registers.TILES[kind].block["DMA_BD"].stride // 4
    needed = registers.TILES[kind].bd_words
    for i, at in enumerate(range(0, len(words), step)):
        part = words[at : at + step]
        if len(part) < needed:
            yield from _rows(part)
        else:
            yield f"  bd {first + i}: {_bd(kind, part[:needed], part[needed:])}"


@lru_cache(maxsize=1 << 16)
def _bd(kind: str, words: tuple[int, ...], after: tuple[int, ...]) -> str:
    decoded = bd.decode_bd(kind, words)
    covered = registers.TILES[kind].bd_covered
    extra = "".join(
        f" reserved[{i}]={word & ~mask:#x}"
        for i, (word, mask) in enumerate(zip(words, covered, strict=True))
        if word & ~mask
    )
    if after:
        extra += f" {REST}=" + ",".join(f"{word:x}" for word in after)
    values = vars(decoded)
    first: dict[str, int | str] = {n: values[n] for n in ("address", "base", "length") if n in values}
    shown: dict[str, int | str] = {**first, **values}
    for name in ("address", "base"):
        if name in values and values[name] != BD_DEFAULTS[kind][name]:
            shown[name] = hex(values[name])
    return bd.describe_fields(shown, BD_DEFAULTS[kind]) + extra


def _patch(op: OperationView, brief: bool) -> list[str]:
    del brief
    return [_operands(op.name, f"{register_text(op.reg):<26}", f"arg {op.arg_index} + {op.arg_offset:#x}")]


def _tct(op: OperationView, brief: bool) -> list[str]:
    values = bd.unpack_fields(registers.TCT_FIELDS, [op.word, op.config])
    if values["direction"] > 1 or op.word >> 24 or op.config & 0xFF:
        return _plain(op, brief)
    tile = tile_name(values["column"], values["row"])
    tile += f" {DIRECTIONS[values['direction']]}[{values['channel']}]"
    return [_operands(op.name, f"{tile:<26}", f"columns={values['columns']} rows={values['rows']}")]


_Writer: TypeAlias = "Callable[[OperationView, bool], list[str]]"
_WRITERS: Mapping[str, _Writer] = {
    "WRITE": _write,
    "BLOCKWRITE": _blockwrite,
    "MASKWRITE": _masked,
    "MASKPOLL": _masked,
    "MASKPOLL_BUSY": _masked,
    "DDR_PATCH": _patch,
    "TCT": _tct,
}
