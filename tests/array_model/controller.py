# SPDX-License-Identifier: Apache-2.0
"""The controller: executes the operations of a transaction, one after the other.

Most operations write registers and are done at once. Two kinds wait, and they are the only
synchronisation that the host side has:

**MASKPOLL** reads a register until ``(value & mask) == wanted``. It reads once per attempt and
never again after success: a read of the lock request window takes the lock.
**TCT** waits until a token of every named channel is there, and takes one of each. When a task that
was pushed with the token bit is done, a packet with the channel's controller id leaves the tile's
control port; the token is there when it has come to the controller. MERGE_SYNC waits for a number of
tokens, whichever channels of the first columns they come from.

DDR_PATCH puts the address of a kernel argument into words 1 and 2 of a shim BD.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from onedispatch.transactions.analysis.transaction import Operation, Transaction
from onedispatch.transactions.machine import bd, registers
from tests.array_model.memory import ModelFault

if TYPE_CHECKING:
    from tests.array_model.array import Array
    from tests.array_model.dma import Channel
    from tests.array_model.sender import Steps

IGNORED = ("NOOP", "PREEMPT", "RECORD_TIMER", "TIMER_134")


class Controller:
    def __init__(self, array: Array, transaction: Transaction) -> None:
        self.array = array
        self.transaction = transaction
        self.done = False
        self.waits_for = ""
        self.registers: list[tuple[int, int]] = []
        """What READ_REGS has read: (address, value)."""
        self.steps: Steps = self._run()

    def _run(self) -> Steps:
        for op in self.transaction.ops:
            self.waits_for = f"op {op.index}: {op}"
            yield from self._execute(op)
        self.done = True
        yield True

    def _execute(self, op: Operation) -> Steps:
        array = self.array
        if op.name == "WRITE":
            array.write(op.reg, op.value)
        elif op.name == "BLOCKWRITE":
            for i, word in enumerate(op.words):
                array.write(op.reg + 4 * i, word)
        elif op.name == "MASKWRITE":
            array.write(op.reg, array.read(op.reg) & ~op.mask | op.value & op.mask)
        elif op.name in ("MASKPOLL", "MASKPOLL_BUSY"):
            while array.read(op.reg) & op.mask != op.value:
                yield False
        elif op.name == "TCT":
            yield from self._wait_for_tokens(op)
        elif op.name == "MERGE_SYNC":
            yield from self._merge_sync(op.tokens, op.columns)
        elif op.name == "DDR_PATCH":
            self._patch(op)
        elif op.name == "READ_REGS":
            self.registers += [(address, array.read(address)) for address in op.words[: op.count]]
        elif op.name == "LOADPDI":
            self._load_overlay(op.pdi_id)
        elif op.name not in IGNORED:
            raise ModelFault("unsupported", f"operation {op.name}")
        yield True

    def _load_overlay(self, number: int) -> None:
        if number not in self.array.overlays:
            raise ModelFault("pdi", f"PDI {number}")
        host = self.array.host
        self.array.reset()
        self.array.host = host
        self.array.load(self.array.overlays[number])

    def _patch(self, op: Operation) -> None:
        tile, offset = self.array.tile_at(op.reg)
        found = tile.map.find(offset)
        if tile.kind != "shim" or found is None or found.block.name != "DMA_BD" or found.byte != 4:
            raise ModelFault("address", f"DDR_PATCH of {op.reg:#x}: not word 1 of a shim BD")
        address = self.array.host.patched_address(op.arg_index, op.arg_offset)
        low, high = struct.unpack("<II", struct.pack("<Q", address))
        words = tile.bds[found.index]
        words[1] = low
        words[2] = words[2] & 0xFFFF0000 | high & 0xFFFF

    def _wait_for_tokens(self, op: Operation) -> Steps:
        fields = bd.unpack_fields(registers.TCT_FIELDS, [op.word, op.config])
        channels: list[Channel] = []
        for column in range(fields["column"], fields["column"] + max(1, fields["columns"])):
            for row in range(fields["row"], fields["row"] + max(1, fields["rows"])):
                tile = self.array.tiles.get((column, row))
                inside = tile.mm2s if tile and fields["direction"] else tile.s2mm if tile else []
                if fields["channel"] >= len(inside):
                    raise ModelFault("address", f"TCT of ({column},{row}) channel {fields['channel']}")
                channels.append(inside[fields["channel"]])
        while any(channel.tokens == 0 for channel in channels):
            yield False
        for channel in channels:
            channel.tokens -= 1

    def _merge_sync(self, tokens: int, columns: int) -> Steps:
        channels = [c for c in self.array.channels() if c.tile.column < columns]
        while sum(channel.tokens for channel in channels) < tokens:
            yield False
        for channel in channels:
            taken = min(tokens, channel.tokens)
            channel.tokens -= taken
            tokens -= taken
