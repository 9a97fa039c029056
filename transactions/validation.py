# SPDX-License-Identifier: Apache-2.0
"""Checks on a decoded transaction: what one op alone says that cannot be right.

Sizes and framing are the decoder's business, what ops do together is ``check``'s. Checks work on
columns of fields (one array per field and opcode) and look at each distinct address once, since
real files repeat few of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from onedispatch.transactions import bd, registers, spec

if TYPE_CHECKING:
    from onedispatch.transactions.transaction import Transaction

Indices = npt.NDArray[np.int64]
UInts = npt.NDArray[np.uint64]
MAX_COLUMNS: Mapping[int, int] = {3: 5, 4: 8, 8: 8, 9: 8}


class Severity(Enum):
    """How sure it is."""

    ERROR = "error"
    """Cannot be right, whatever else is on the array."""
    WARNING = "warning"
    """Right only if the overlay, a core or a control packet does its part."""


class FindingKind(Enum):
    """What is wrong."""

    FORMAT = "format"
    """Cannot be decoded: sizes, counts, opcodes."""
    HEADER = "header"
    ADDRESS = "address"
    """Unaligned, outside the array, or on no known register."""
    COUNT = "count"
    """A size or count that disagrees with the op, or an empty write."""
    VALUE = "value"
    """A value that the register or op cannot take."""
    PATCH = "patch"
    """DDR_PATCH that no preceding shim BD write covers."""
    ARGUMENT = "argument"
    """Kernel argument that does not exist, or an access past its end."""
    UNKNOWN = "unknown"
    """A custom opcode that nobody explained."""
    RESERVED = "reserved"
    """Bits set that no field covers."""
    BD = "bd"
    """A BD that is queued without being valid or written, or that its channel cannot use."""
    DIMENSION = "dimension"
    """A BD whose dimensions contradict each other or leave the memory."""
    CHAIN = "chain"
    """A chain of BDs that never ends, or leads nowhere."""
    LOCK = "lock"
    """A lock that does not exist, or a value that it cannot reach."""
    WAIT = "wait"
    """A wait for a channel that nothing starts, or that never ends."""
    HAZARD = "hazard"
    """A BD that is rewritten while a task may still use it."""


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong; ``op_index`` is None for the header."""

    kind: FindingKind
    op_index: int | None
    byte_offset: int
    message: str
    severity: Severity = Severity.ERROR

    def __str__(self) -> str:
        whole = "file" if self.kind is FindingKind.FORMAT else "header"
        place = whole if self.op_index is None else f"op {self.op_index}"
        what = f"{self.kind.value} {self.severity.value}"
        return f"{place} (byte {self.byte_offset}): {what}: {self.message}"


def validate(transaction: Transaction, arg_sizes: Mapping[int, int] | None) -> list[Finding]:
    """All findings, by op."""
    checker = _Checker(transaction)
    found = [
        *checker.header(),
        *checker.addresses(),
        *checker.values(),
        *checker.counts(),
        *checker.patches(arg_sizes),
    ]
    return sorted(found, key=lambda f: (-1 if f.op_index is None else f.op_index, f.kind.value))


class _Checker:
    def __init__(self, transaction: Transaction) -> None:
        self.transaction = transaction
        self.columns = transaction.header.columns

    def _finding(
        self, kind: FindingKind, index: int, message: str, severity: Severity = Severity.ERROR
    ) -> Finding:
        return Finding(kind, index, int(self.transaction.offsets[index]), message, severity)

    def header(self) -> Iterator[Finding]:
        header = self.transaction.header
        most = MAX_COLUMNS.get(header.device_generation)
        if header.device_generation not in spec.DEVICE_GENERATIONS:
            known = ", ".join(str(generation) for generation in spec.DEVICE_GENERATIONS)
            yield Finding(
                FindingKind.HEADER, None, 2, f"device generation {header.device_generation}; known: {known}"
            )
        if header.rows != spec.ARRAY_ROWS or header.mem_tile_rows != spec.MEM_TILE_ROWS:
            yield Finding(
                FindingKind.HEADER,
                None,
                3,
                f"{header.rows} rows with {header.mem_tile_rows} of memory tiles; "
                f"accepted: {spec.ARRAY_ROWS} with {spec.MEM_TILE_ROWS}",
            )
        if not header.columns or (most is not None and header.columns > most):
            yield Finding(FindingKind.HEADER, None, 4, f"{header.columns} columns; accepted: 1 to {most}")

    def addresses(self) -> Iterator[Finding]:
        for name in ("WRITE", "MASKWRITE", "MASKPOLL", "MASKPOLL_BUSY"):
            indices = self.transaction.indices(name)
            for index, address in _distinct(self.transaction.column(name, "reg", indices), indices):
                problem = address_problem(address, 1, self.columns)
                if problem:
                    yield from self._all(FindingKind.ADDRESS, index, problem)
        indices = self.transaction.indices("BLOCKWRITE")
        if len(indices):
            counts = block_words(self.transaction, indices)
            keys = self.transaction.column("BLOCKWRITE", "reg", indices) << np.uint64(31)
            for index, key in _distinct(keys | counts.astype(np.uint64), indices):
                address, count = key >> 31, key & 0x7FFFFFFF
                problem = address_problem(address, count, self.columns) if count else None
                if problem:
                    yield from self._all(FindingKind.ADDRESS, index, problem)
        for i in self.transaction.indices("READ_REGS").tolist():
            for address in self.transaction.ops[i].words:
                problem = address_problem(address, 1, self.columns)
                if problem:
                    yield self._finding(FindingKind.ADDRESS, i, problem)

    def _all(self, kind: FindingKind, indices: Indices, message: str) -> Iterator[Finding]:
        for index in indices.tolist():
            yield self._finding(kind, index, message)

    def values(self) -> Iterator[Finding]:
        indices = self.transaction.indices("WRITE")
        registers_of = self.transaction.column("WRITE", "reg", indices)
        keys = registers_of << np.uint64(32) | self.transaction.column("WRITE", "value", indices)
        keys = np.where(registers_of >> np.uint64(32) == 0, keys, 0)
        for index, key in _distinct(keys, indices):
            problem = write_problem(key >> 32, key & 0xFFFFFFFF)
            if problem:
                yield from self._all(FindingKind.VALUE, index, problem)
            problem = reserved_problem(key >> 32, key & 0xFFFFFFFF, "_QUEUE")
            if problem:
                yield from self._all(FindingKind.RESERVED, index, problem)
        for name in ("MASKPOLL", "MASKPOLL_BUSY"):
            indices = self.transaction.indices(name)
            value = self.transaction.column(name, "value", indices)
            mask = self.transaction.column(name, "mask", indices)
            message = "waits for bits outside its mask, so it can never succeed"
            yield from self._all(FindingKind.VALUE, indices[(value & ~mask) != 0], message)
        for i in self.transaction.indices("PREEMPT").tolist():
            level = self.transaction.ops[i].level
            if level > 3:
                yield self._finding(FindingKind.VALUE, i, f"preemption level {level}; accepted: 0 to 3")
        yield from self._tokens()

    def _tokens(self) -> Iterator[Finding]:
        for i in self.transaction.indices("TCT").tolist():
            op = self.transaction.ops[i]
            values = bd.unpack_fields(registers.TCT_FIELDS, [op.word, op.config])
            kind = registers.kind_of_row(values["row"])
            channels = registers.TILES[kind].block["DMA_S2MM_QUEUE"].count if kind else 0
            if values["direction"] > 1 or values["channel"] >= channels:
                yield self._finding(
                    FindingKind.VALUE,
                    i,
                    f"token of direction {values['direction']} channel {values['channel']} in row "
                    f"{values['row']}; accepted: directions 0 and 1, channels below {channels}",
                )
            if values["column"] + values["columns"] > self.columns or not values["columns"]:
                yield self._finding(
                    FindingKind.VALUE,
                    i,
                    f"tokens of {values['columns']} columns from {values['column']} on; "
                    f"accepted: 1 or more inside {self.columns}",
                )
            if values["row"] + values["rows"] > spec.ARRAY_ROWS or not values["rows"]:
                yield self._finding(
                    FindingKind.VALUE,
                    i,
                    f"tokens of {values['rows']} rows from {values['row']} on; "
                    f"accepted: 1 or more inside {spec.ARRAY_ROWS}",
                )

    def counts(self) -> Iterator[Finding]:
        indices = self.transaction.indices("BLOCKWRITE")
        empty = indices[block_words(self.transaction, indices) == 0]
        yield from self._all(FindingKind.COUNT, empty, "writes no words")
        for i in self.transaction.indices("READ_REGS").tolist():
            op = self.transaction.ops[i]
            if op.count * 8 != len(op.payload):
                yield self._finding(
                    FindingKind.COUNT, i, f"count {op.count} with {len(op.payload)} bytes of addresses"
                )
        known = np.array(list(spec.BY_CODE), np.uint8)
        for i in np.flatnonzero(~np.isin(self.transaction.codes, known)).tolist():
            code = int(self.transaction.codes[i])
            message = f"custom opcode {code} has no known meaning"
            yield self._finding(FindingKind.UNKNOWN, i, message, Severity.WARNING)

    def patches(self, arg_sizes: Mapping[int, int] | None) -> Iterator[Finding]:
        indices = self.transaction.indices("DDR_PATCH")
        if not len(indices):
            return
        written = patched_bds(self.transaction, indices)
        yield from self._all(
            FindingKind.PATCH,
            indices[written < 0],
            "no preceding BLOCKWRITE writes the shim BD whose word 1 it patches",
        )
        arguments = self.transaction.column("DDR_PATCH", "arg_index", indices)
        offsets = self.transaction.column("DDR_PATCH", "arg_offset", indices)
        unaligned = indices[offsets & np.uint64(3) != 0]
        yield from self._all(FindingKind.ARGUMENT, unaligned, "argument offset is not a multiple of 4")
        if arg_sizes is not None:
            extents = bd_extents(self.transaction, written)
            yield from self._bounds(indices, arguments, offsets, extents, arg_sizes)

    def _bounds(
        self, indices: Indices, arguments: UInts, offsets: UInts, extents: Indices, sizes: Mapping[int, int]
    ) -> Iterator[Finding]:
        for argument in np.unique(arguments).tolist():
            mine = arguments == argument
            if argument not in sizes:
                names = ", ".join(str(index) for index in sorted(sizes))
                message = f"argument {argument}; accepted: {names}"
                yield from self._all(FindingKind.ARGUMENT, indices[mine], message)
                continue
            room = np.uint64(sizes[argument])
            past = offsets[mine] > room
            # Offset and extent separately, so that the sum cannot wrap.
            past |= extents[mine].astype(np.uint64) > room - np.minimum(offsets[mine], room)
            for index in indices[mine][past].tolist():
                at = np.searchsorted(indices, index)
                yield self._finding(
                    FindingKind.ARGUMENT,
                    index,
                    f"argument {argument} of {sizes[argument]} bytes is accessed from "
                    f"{int(offsets[at])} to {int(offsets[at]) + int(extents[at])}",
                )


def _distinct(keys: UInts, indices: Indices) -> Iterator[tuple[Indices, int]]:
    """(op indices, key) for each distinct key."""
    order = np.argsort(keys, kind="stable")
    values, starts = np.unique(keys[order], return_index=True)
    for value, group in zip(values, np.split(indices[order], starts[1:]), strict=False):
        yield group, int(value)


def block_words(transaction: Transaction, indices: Indices) -> Indices:
    """Payload words of BLOCKWRITEs."""
    header = spec.BY_NAME["BLOCKWRITE"].layouts[transaction.version].min_size
    sizes: Indices = transaction.offsets[indices + 1] - transaction.offsets[indices] - header
    return sizes >> 2


@lru_cache(maxsize=1 << 16)
def address_problem(address: int, words: int, columns: int) -> str | None:
    """Why ``words`` words cannot be accessed from ``address`` on; None when they can."""
    column, row, offset = registers.split_address(address)
    if address % 4 or column >= columns:
        return f"address {address:#x}; accepted: multiples of 4 in columns 0 to {columns - 1}"
    kind = registers.kind_of_row(row)
    if kind is None:
        return f"row {row} (address {address:#x}); accepted: rows 0 to {spec.ARRAY_ROWS - 1}"
    end = offset + 4 * words
    while offset < end:
        register = registers.TILES[kind].find(offset)
        if register is None:
            return f"offset {offset:#x} of a {kind} tile is no known register (address {address:#x})"
        block = register.block
        # Whole memories at once, other registers word by word: they have gaps.
        offset = min(end, block.end) if block.count == 1 else offset + 4
    return None


@lru_cache(maxsize=1 << 16)
def write_problem(address: int, value: int) -> str | None:
    """Why a register cannot take a value, None when it can or when the register is unknown."""
    register = registers.find_register(address)
    kind = registers.kind_of_row(registers.split_address(address)[1])
    if register is None or kind is None:
        return None
    name = register.block.name
    if name == "LOCK_VALUE" and value > registers.LOCK_MAX:
        return f"lock {register.index} set to {value}; accepted: 0 to {registers.LOCK_MAX}"
    if name.endswith("_QUEUE"):
        start = bd.decode_queue(kind, value)["start_bd"]
        count = registers.TILES[kind].block["DMA_BD"].count
        if kind == "mem":
            low = count // 2 * (register.index % 2)
            if not low <= start < low + count // 2:
                return f"BD {start} on channel {register.index}; accepted: {low} to {low + count // 2 - 1}"
    return None


@lru_cache(maxsize=1 << 14)
def reserved_problem(address: int, value: int, suffix: str) -> str | None:
    """Bits that no field of a queue or control register covers, None when there are none."""
    register = registers.find_register(address)
    kind = registers.kind_of_row(registers.split_address(address)[1])
    if register is None or kind is None or register.byte:
        return None
    name = register.block.name
    if not name.startswith("DMA_") or not name.endswith(suffix):
        return None
    for field in bd.queue_fields(kind) if suffix == "_QUEUE" else registers.CHANNEL_FIELDS:
        value &= ~(((1 << field.width) - 1) << field.lsb)
    return f"{register} has no bits {value:#x}" if value else None


def patched_bds(transaction: Transaction, patches: Indices) -> Indices:
    """For each DDR_PATCH the byte in the file where its shim BD was last written, -1 for none."""
    blocks = transaction.indices("BLOCKWRITE")
    regs = transaction.column("DDR_PATCH", "reg", patches).astype(np.int64)
    result = np.full(len(patches), -1, np.int64)
    base, in_bd = registers.SHIM.block["DMA_BD"], regs & registers.OFFSET_MASK
    is_bd = (regs >> registers.ROW_SHIFT & registers.ROW_MASK == registers.SHIM_ROW) & (in_bd < base.end)
    is_bd &= (in_bd >= base.offset) & ((in_bd - base.offset) % base.stride == 4)
    if not len(blocks):
        return result
    starts = transaction.column("BLOCKWRITE", "reg", blocks).astype(np.int64)
    ends = starts + 4 * block_words(transaction, blocks)
    header = spec.BY_NAME["BLOCKWRITE"].layouts[transaction.version].min_size
    payloads = transaction.offsets[blocks] + header
    last = np.searchsorted(blocks, patches) - 1
    near = np.maximum(last, 0)
    inside = is_bd & (last >= 0) & (starts[near] <= regs - 4) & (regs + 28 <= ends[near])
    result[inside] = (payloads[near] + regs - 4 - starts[near])[inside]
    # Rare: the write lies further back, other writes between.
    shim = np.flatnonzero(starts >> registers.ROW_SHIFT & registers.ROW_MASK == registers.SHIM_ROW)
    for i in np.flatnonzero(is_bd & ~inside).tolist():
        before = shim[blocks[shim] < patches[i]]
        cover = before[(starts[before] <= regs[i] - 4) & (regs[i] + 28 <= ends[before])]
        if len(cover):
            result[i] = payloads[cover[-1]] + regs[i] - 4 - starts[cover[-1]]
    return result


def bd_extents(transaction: Transaction, bds: Indices) -> Indices:
    """Bytes from a shim BD's base to the end of what its first execution touches; 0 for none."""
    extents = np.zeros(len(bds), np.int64)
    known = np.flatnonzero(bds >= 0)
    words = transaction.words[(bds[known, None] >> 2) + np.arange(8)].astype(np.int64)
    fields = registers.SHIM.bd_field

    def value(name: str) -> Indices:
        field = fields[name]
        raw: Indices = words[:, field.word] >> field.lsb & (1 << field.width) - 1
        return raw + field.bias

    length = value("length")
    reach = np.zeros(len(known), np.int64)
    left = length.copy()
    for dim in ("d0", "d1"):
        wrap = value(f"{dim}_wrap")
        count = np.where(wrap > 0, np.minimum(wrap, left), left)
        reach += np.maximum(count - 1, 0) * value(f"{dim}_step")
        left = np.where(wrap > 0, -(-left // np.maximum(wrap, 1)), np.minimum(left, 1))
    reach += np.maximum(left - 1, 0) * value("d2_step")
    extents[known] = np.where(length > 0, 4 * (reach + 1), 0)
    return extents
