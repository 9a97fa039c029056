# SPDX-License-Identifier: Apache-2.0
"""Building transactions: one typed method per operation, which checks its arguments."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from onedispatch.transactions.base.boundary import guarded, public
from onedispatch.transactions.base.errors import TransactionError
from onedispatch.transactions.base.text import counted, did_you_mean, span
from onedispatch.transactions.format import codec, spec
from onedispatch.transactions.format.binary import TransactionBinary
from onedispatch.transactions.format.spec import Version
from onedispatch.transactions.machine import bd, registers
from onedispatch.transactions.machine.device import Device

Words = Sequence[int] | npt.NDArray[np.generic] | bytes
_WRITE, _BLOCKWRITE, _MASKWRITE, _MASKPOLL, _MASKPOLL_BUSY = 0, 1, 3, 4, 7
_TCT, _DDR_PATCH, _READ_REGS, _RECORD_TIMER, _MERGE_SYNC = 128, 129, 130, 131, 132
_MAX_WORD = 0xFFFFFFFF
_MOST_ROWS = registers.ROW_MASK + 1


@public
def tile_address(column: int, row: int, offset: int) -> int:
    """Returns the address of byte ``offset`` of a tile, columns relative to the partition.

    Raises:
        TransactionError: no such column or row, or an offset outside the tile's 1 MiB.
    """
    if not (0 <= column < 128 and 0 <= row <= registers.ROW_MASK and 0 <= offset <= registers.OFFSET_MASK):
        raise TransactionError(
            "tile address",
            f"column {column}, row {row}, offset {offset:#x}",
            f"columns 0 to 127, rows 0 to {registers.ROW_MASK}, offsets to {registers.OFFSET_MASK:#x}",
            "rows are 0 shim, 1 memory tile, 2 and up cores",
        )
    return column << registers.COLUMN_SHIFT | row << registers.ROW_SHIFT | offset


def register_address(column: int, row: int, block: str, index: int = 0) -> int:
    """Returns the address of item ``index`` of a tile's register block, such as ``"DMA_S2MM_QUEUE"``."""
    tile = registers.TILES[registers.kind_of_row(row) or "core"]
    return tile_address(column, row, tile.block[block].at(index))


@guarded
class TransactionBuilder:
    """Appends operations and encodes them as a transaction.

    Args:
        device_generation: 3 (XDNA) or 4 (XDNA2); others are written as given.
        columns: columns of the partition; addresses outside are refused.
        version: (0, 1), as in AMD's files, or (1, 0).
        rows: rows of tiles; AMD's arrays have six.
    """

    def __init__(
        self,
        device_generation: int,
        columns: int,
        version: Version = spec.V0_1,
        rows: int = spec.ARRAY_ROWS,
    ) -> None:
        if version not in spec.VERSIONS:
            raise TransactionError(
                "TransactionBuilder", f"version {version}", str(spec.VERSIONS), "use (0, 1)"
            )
        if not 1 <= columns <= 127 or not 0 <= device_generation <= 255 or not 3 <= rows <= _MOST_ROWS:
            raise TransactionError(
                "TransactionBuilder",
                f"{counted(columns, 'column')} of {counted(rows, 'row')}, generation {device_generation}",
                f"1 to 127 columns of 3 to {_MOST_ROWS} rows, a generation of one byte",
                "take both from find_device(name)",
            )
        self.device_generation = device_generation
        self.columns = columns
        self.version = version
        self.rows = rows
        self._data = bytearray(spec.HEADER_SIZE)
        self._count = 0
        self._limit = columns << registers.COLUMN_SHIFT
        self._write = codec.packer(_WRITE, version).struct.pack
        self._block = codec.packer(_BLOCKWRITE, version).struct.pack
        self._block_size = codec.packer(_BLOCKWRITE, version).struct.size
        self._mask = codec.packer(_MASKPOLL, version).struct.pack
        self._patch = codec.packer(_DDR_PATCH, version).struct.pack
        self._is_legacy = version == spec.V0_1

    @classmethod
    def for_device(cls, device: Device) -> TransactionBuilder:
        """Returns a builder for all columns and rows of ``device``."""
        return cls(device.device_generation, device.columns, rows=device.rows)

    @property
    def op_count(self) -> int:
        """Number of operations so far: the index of the next one."""
        return self._count

    @property
    def byte_size(self) -> int:
        """Bytes so far, header included."""
        return len(self._data)

    def to_bytes(self) -> bytes:
        """Returns the whole transaction with its header."""
        header = codec.Header(
            self.version,
            self.device_generation,
            self.rows,
            self.columns,
            spec.MEM_TILE_ROWS,
            self._count,
            len(self._data),
        )
        return header.to_bytes() + bytes(memoryview(self._data)[spec.HEADER_SIZE :])

    def _fail(self, what: str, given: str, accepted: str, remedy: str) -> TransactionError:
        return TransactionError(
            f"TransactionBuilder.{what}",
            given,
            accepted,
            remedy,
            op_index=self._count,
            byte_offset=len(self._data),
        )

    def _check(self, what: str, address: int) -> None:
        if address & 3 or not 0 <= address < self._limit or (address >> 20) & 31 >= self.rows:
            raise self._fail(
                what,
                f"address {address:#x}",
                f"multiples of 4 in columns {span(0, self.columns - 1)}, rows 0 to {self.rows - 1}",
                "build addresses with tile_address(column, row, offset)",
            )

    def _check_words(self, what: str, *words: int) -> None:
        for word in words:
            if not 0 <= word <= _MAX_WORD:
                raise self._fail(what, str(word), "unsigned 32-bit words", "mask with 0xFFFFFFFF")

    def write(self, address: int, value: int) -> None:
        """Appends a WRITE of one word."""
        self._check("write", address)
        self._check_words("write", value)
        if self._is_legacy:
            self._data += self._write(_WRITE, address, value, 24)
        else:
            self._data += self._write(_WRITE, address, value)
        self._count += 1

    def blockwrite(self, address: int, words: Words) -> None:
        """Appends a BLOCKWRITE; ``words`` are integers, a 4-byte integer array or raw bytes."""
        self._check("blockwrite", address)
        payload = self._payload(words)
        size = self._block_size + len(payload)
        self._data += self._block(_BLOCKWRITE, address, size)
        self._data += payload
        self._count += 1

    def _payload(self, words: Words) -> bytes:
        if isinstance(words, np.ndarray):
            if words.dtype.itemsize != 4:
                raise self._fail(
                    "blockwrite", f"an array of {words.dtype}", "4-byte items", "convert with .astype('<u4')"
                )
            data = words.astype(words.dtype.newbyteorder("<"), copy=False).tobytes()
        elif isinstance(words, bytes | bytearray | memoryview):
            data = bytes(words)
        else:
            try:
                data = struct.pack(f"<{len(words)}I", *words)
            except (struct.error, TypeError) as error:
                raise self._fail(
                    "blockwrite",
                    f"a word that does not fit ({error})",
                    "unsigned 32-bit words",
                    "mask with 0xFFFFFFFF",
                ) from error
        if not data or len(data) % 4:
            raise self._fail(
                "blockwrite", counted(len(data), "byte"), "one or more 4-byte words", "pad to a multiple of 4"
            )
        return data

    def _masked(self, what: str, code: int, address: int, value: int, mask: int) -> None:
        self._check(what, address)
        self._check_words(what, value, mask)
        if self._is_legacy:
            self._data += self._mask(code, address, value, mask, 32)
        else:
            self._data += self._mask(code, address, value, mask)
        self._count += 1

    def maskwrite(self, address: int, value: int, mask: int) -> None:
        """Appends a MASKWRITE: sets the bits of ``mask`` to those of ``value``."""
        self._masked("maskwrite", _MASKWRITE, address, value, mask)

    def maskpoll(self, address: int, value: int, mask: int) -> None:
        """Appends a MASKPOLL: waits until ``(register & mask) == value``."""
        self._masked("maskpoll", _MASKPOLL, address, value, mask)

    def maskpoll_busy(self, address: int, value: int, mask: int) -> None:
        """Appends a MASKPOLL_BUSY: as ``maskpoll``, without yielding."""
        self._masked("maskpoll_busy", _MASKPOLL_BUSY, address, value, mask)

    def ddr_patch(self, address: int, arg_index: int, arg_offset: int = 0) -> None:
        """Appends a DDR_PATCH: puts the address of an argument plus an offset into a shim BD.

        Args:
            address: address of word 1 of the BD, which a preceding BLOCKWRITE has written.
            arg_index: op-level or fused argument; the kernel argument's index is this + 3.
            arg_offset: bytes, a multiple of 4.
        """
        self._check("ddr_patch", address)
        offset = address & registers.OFFSET_MASK
        in_bd = offset - registers.SHIM.block["DMA_BD"].offset
        if (address >> 20) & 31 or not 0 <= in_bd < 16 * 0x20 or in_bd % 0x20 != 4:
            raise self._fail(
                "ddr_patch",
                f"address {address:#x}",
                "word 1 of a shim BD: 0x1D004 + 0x20 * bd in row 0",
                "patch the address words of a shim BD",
            )
        if not 0 <= arg_index <= 255 or arg_offset & 3 or not 0 <= arg_offset < 1 << 48:
            raise self._fail(
                "ddr_patch",
                f"argument {arg_index}, offset {arg_offset}",
                "an argument of 0 to 255 and an offset that is a multiple of 4 below 2**48",
                "align the tensor to 4 bytes",
            )
        if self._is_legacy:
            self._data += self._patch(_DDR_PATCH, 48, address, arg_index, arg_offset)
        else:
            self._data += self._patch(_DDR_PATCH, 24, address, arg_index, arg_offset)
        self._count += 1

    def tct(
        self, direction: str, column: int, row: int, channel: int, columns: int = 1, rows: int = 1
    ) -> None:
        """Appends a TCT: waits for task completion tokens of a channel.

        Args:
            direction: ``"S2MM"`` or ``"MM2S"``.
            column, row, channel: the first tile and its DMA channel.
            columns, rows: extent of the tiles that send one token each.
        """
        if direction not in ("S2MM", "MM2S") or column + columns > self.columns:
            raise self._fail(
                "tct",
                f"direction {direction!r}, columns {span(column, column + columns - 1)}",
                f"'S2MM' or 'MM2S', columns {span(0, self.columns - 1)}",
                "wait inside the partition",
            )
        word, config = bd.pack_fields(
            "tct",
            registers.TCT_FIELDS,
            {
                "direction": int(direction == "MM2S"),
                "row": row,
                "column": column,
                "rows": rows,
                "columns": columns,
                "channel": channel,
            },
            2,
        )
        self.op("TCT", word=word, config=config)

    def noop(self) -> None:
        """Appends a NOOP."""
        self.op("NOOP")

    def preempt(self, level: int) -> None:
        """Appends a PREEMPT, a context switch point: 0 none, 1 memory tile, 2 core tile, 3 registers."""
        self.op("PREEMPT", level=level)

    def loadpdi(self, pdi_id: int, pdi_size: int = 0, pdi_address: int = 0) -> None:
        """Appends a LOADPDI: loads another overlay of the xclbin."""
        self.op("LOADPDI", pdi_id=pdi_id, pdi_size=pdi_size, address=pdi_address)

    def record_timer(self, timer_id: int) -> None:
        """Appends a RECORD_TIMER: records the time under an id."""
        self.op("RECORD_TIMER", id=timer_id)

    def merge_sync(self, tokens: int, columns: int) -> None:
        """Appends a MERGE_SYNC: waits for tokens of several columns."""
        self.op("MERGE_SYNC", tokens=tokens, columns=columns)

    def read_regs(self, addresses: Sequence[int]) -> None:
        """Appends a READ_REGS: reports the values of registers."""
        for address in addresses:
            self._check("read_regs", address)
        self.op("READ_REGS", struct.pack(f"<{len(addresses)}Q", *addresses), count=len(addresses))

    def op(self, name: str, payload: bytes = b"", **fields: int) -> None:
        """Appends any op of the table, by name, with all its fields (README lists them)."""
        known = spec.BY_NAME.get(name)
        if known is None:
            raise self._fail("op", name, ", ".join(spec.BY_NAME), did_you_mean(name, spec.BY_NAME))
        self._data += codec.encode_op(known.code, self.version, fields, payload)
        self._count += 1

    def custom(self, code: int, payload: bytes) -> None:
        """Appends an opcode from 128 on that the table does not have."""
        if code in spec.BY_CODE or code < spec.CUSTOM_BEGIN:
            raise self._fail("custom", f"opcode {code}", "unnamed opcodes 128 to 255", "use op(name, ...)")
        self._data += codec.encode_op(code, self.version, {}, payload)
        self._count += 1

    def extend(self, transaction: TransactionBinary) -> None:
        """Appends all ops of another transaction of the same version."""
        if transaction.version != self.version:
            raise self._fail(
                "extend", f"version {transaction.version}", str(self.version), "use .converted(version) first"
            )
        self._data += transaction.body
        self._count += transaction.header.op_count

    def writes(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Appends a WRITE for every (address, value)."""
        for address, value in pairs:
            self.write(address, value)
