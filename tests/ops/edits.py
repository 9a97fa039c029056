# SPDX-License-Identifier: Apache-2.0
"""Wrong transactions made from right ones: one field changed, one operation left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from onedispatch.operators.declarations.params import MAGIC, WORDS
from onedispatch.operators.emission.control import MEM
from onedispatch.transactions import Operation, Transaction
from onedispatch.transactions.format.codec import encode_op
from onedispatch.transactions.machine import registers
from onedispatch.transactions.machine.bd import unpack_fields

Change = Callable[[Operation], bytes | None]  # the op's new bytes; None leaves it out


@dataclass(frozen=True)
class Edit:
    """One change of one transaction, and what was changed."""

    id: str
    transaction: bytes


def rebuilt(data: bytes, change: Change) -> bytes:
    """The transaction with ``change`` applied to every operation, its header put right."""
    source = Transaction.from_bytes(data)
    kept = [new for new in map(change, source.ops) if new is not None]
    body = b"".join(kept)
    header = replace(source.header, op_count=len(kept), byte_size=16 + len(body))
    result = header.to_bytes() + body
    Transaction.from_bytes(result)
    return result


def emptied(data: bytes) -> bytes:
    return rebuilt(data, lambda op: None)


def one_op(data: bytes, index: int, new: bytes | None) -> bytes:
    """The transaction with operation ``index`` replaced, or left out."""
    return rebuilt(data, lambda op: new if op.index == index else op.raw)


def with_fields(op: Operation, version: tuple[int, int], **values: int) -> bytes:
    return encode_op(op.code, version, {**op.fields, **values}, op.payload)


def patched_arguments(data: bytes, arguments: int) -> Iterator[Edit]:
    """Every DDR_PATCH with the next argument's index."""
    source = Transaction.from_bytes(data)
    for op in source.ops:
        if op.name == "DDR_PATCH":
            other = (op.arg_index + 1) % arguments
            new = with_fields(op, source.version, arg_index=other)
            yield Edit(f"op{op.index}-{op.register}-arg{op.arg_index}to{other}", one_op(data, op.index, new))


def descriptors(data: bytes, field: str, change: Callable[[int], int | None]) -> Iterator[Edit]:
    """Every buffer descriptor with ``field`` (raw) changed, where ``change`` gives a new value."""
    source = Transaction.from_bytes(data)
    for op in source.ops:
        register = op.register
        if op.name != "BLOCKWRITE" or register is None or register.block.name != "DMA_BD":
            continue
        column, row, _ = registers.split_address(op.reg)
        kind = registers.kind_of_row(row)
        tile = registers.TILES[kind or "core"]
        if field not in tile.bd_field:
            continue  # a shim BD has its address from DDR_PATCH
        where = tile.bd_field[field]
        stride = register.block.stride // 4
        for number in range(-(-len(op.words) // stride)):
            words = list(op.words)
            at = number * stride + where.word
            mask = (1 << where.width) - 1
            old = words[at] >> where.lsb & mask
            new = change(old)
            if new is None:
                continue
            words[at] = words[at] & ~(mask << where.lsb) | (new & mask) << where.lsb
            payload = b"".join(word.to_bytes(4, "little") for word in words)
            raw = op.raw[: len(op.raw) - len(payload)] + payload
            name = f"c{column}-{kind}{row}-bd{register.index + number}-{field}-{old}to{new & mask}"
            yield Edit(name, one_op(data, op.index, raw))


def sent_descriptors(data: bytes, field: str, change: Callable[[int], int | None]) -> Iterator[Edit]:
    """The parameters ``data`` with ``field`` (raw) of every descriptor that control packets write changed."""
    words = list(memoryview(data).cast("I"))
    at = 0
    while at < len(words):
        if words[at] == 0 or words[at + 1] == MAGIC:  # padding, or a parameter block of one piece
            at += 1 if words[at] == 0 else 1 + WORDS
            continue
        control = unpack_fields(registers.CONTROL_PACKET_FIELDS, words[at + 1 : at + 2])
        first, at = at + 2, at + 2 + control["beats"]
        kind = "mem" if words[first - 2] & 0x1F == MEM else "core"
        block, where = registers.TILES[kind].block["DMA_BD"], registers.TILES[kind].bd_field[field]
        number, byte = divmod(control["offset"] - block.offset, block.stride)
        word = where.word - byte // 4
        if not 0 <= number < block.count or not 0 <= word < control["beats"]:
            continue
        mask = (1 << where.width) - 1
        old = words[first + word] >> where.lsb & mask
        new = change(old)
        if new is None:
            continue
        changed = [*words]
        changed[first + word] = changed[first + word] & ~(mask << where.lsb) | (new & mask) << where.lsb
        sent = b"".join(one.to_bytes(4, "little") for one in changed)
        yield Edit(f"word{first}-{kind}-bd{number}-{field}-{old}to{new & mask}", sent)


def register_writes(data: bytes, block: str, column: int, change: Callable[[int], int]) -> Iterator[Edit]:
    """Every WRITE to registers ``block`` in ``column`` with another value."""
    source = Transaction.from_bytes(data)
    for op in source.ops:
        register = op.register
        if op.name != "WRITE" or register is None or register.block.name != block:
            continue
        at, row, _ = registers.split_address(op.reg)
        if at != column or change(op.value) == op.value:
            continue
        kind = registers.kind_of_row(row) or "core"
        masters = registers.TILES[kind].masters
        name = masters[register.index] if block == "SWITCH_MASTER" else str(register.index)
        new = with_fields(op, source.version, value=change(op.value))
        yield Edit(f"{kind}{row}-{name}-{op.value:#x}to{change(op.value):#x}", one_op(data, op.index, new))


def without_program(data: bytes, every: bool = True) -> bytes:
    """The overlay without the program image of all cores, or of the first one."""
    source = Transaction.from_bytes(data)
    images = [
        op.index
        for op in source.ops
        if op.register is not None and op.register.block.name == "PROGRAM_MEMORY"
    ]
    assert images
    dropped = set(images if every else images[:1])
    return rebuilt(data, lambda op: None if op.index in dropped else op.raw)
