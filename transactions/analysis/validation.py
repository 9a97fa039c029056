# SPDX-License-Identifier: Apache-2.0
"""Findings, and the checks on single ops.

The decoder checks sizes and framing, ``check`` the interaction of ops. The checks on single ops are
C++ (cpp_ext/src/txn/validate.cpp), which returns the name of a check and its numbers; their texts
are here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt

from onedispatch.transactions.base.text import counted, span
from onedispatch.transactions.format import spec
from onedispatch.transactions.format.binary import TransactionBinary
from onedispatch.transactions.format.decode import native
from onedispatch.transactions.machine import registers
from onedispatch.transactions.machine.device import Device

Indices = npt.NDArray[np.int64]
ArgSizes = Mapping[int, int] | Sequence[int] | None
_MAX_U64 = (1 << 64) - 1
MOST_FINDINGS: int = native.MOST_FINDINGS
"""Findings per class and check; one more finding counts the rest, so that memory stays bounded."""


class Severity(Enum):
    """Certainty of a finding."""

    ERROR = "error"
    """Wrong, whatever else is on the array."""
    WARNING = "warning"
    """Correct only if the overlay, a core or a control packet does its part."""


class FindingKind(Enum):
    """Class of a finding."""

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
    """A custom opcode without known meaning."""
    RESERVED = "reserved"
    """Bits set that no field covers."""
    BD = "bd"
    """A BD that is queued but not valid or not written, or that its channel cannot use."""
    DIMENSION = "dimension"
    """A BD whose dimensions contradict each other or leave the memory."""
    CHAIN = "chain"
    """A chain of BDs that never ends, or leads nowhere."""
    LOCK = "lock"
    """A lock that does not exist, or a value that it cannot reach."""
    WAIT = "wait"
    """A wait for a channel that nothing starts, or that never ends."""
    ROUTE = "route"
    """A connection that the stream switch of the tile does not have."""
    HAZARD = "hazard"
    """A BD that is rewritten while a task may still use it; a task that may overtake one before it."""


@dataclass(frozen=True)
class Finding:
    """One error or warning; ``op_index`` is None for the header."""

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


@dataclass(frozen=True)
class _ValidationContext:
    columns: int
    sizes: Mapping[int, int]
    device: Device | None

    @property
    def rows(self) -> int:
        return spec.ARRAY_ROWS if self.device is None else self.device.rows


_Text = Callable[..., str]
"""Builds a message from the context and the four numbers of a finding."""


def _fixed(text: str) -> _Text:
    """Returns a message builder; ``{0}`` to ``{3}`` of ``text`` stand for the numbers."""
    return lambda _, *numbers: text.format(*numbers)


def _columns(_: _ValidationContext, given: int, most: int, *_rest: int) -> str:
    return f"{counted(given, 'column')}; accepted: " + (span(1, most) if most else "1 or more")


def _address(context: _ValidationContext, address: int, *_rest: int) -> str:
    columns = span(0, context.columns - 1)
    return f"address {address:#x}; accepted: multiples of 4 in columns {columns}"


def _register(_: _ValidationContext, offset: int, address: int, *_rest: int) -> str:
    kind = registers.kind_of_row(registers.split_address(address)[1])
    return f"offset {offset:#x} of a {kind} tile is no known register (address {address:#x})"


def _reserved(_: _ValidationContext, address: int, bits: int, *_rest: int) -> str:
    return f"{registers.find_register(address)} has no bits {bits:#x}"


def _queue_bd(_: _ValidationContext, bd: int, channel: int, low: int, high: int) -> str:
    return f"BD {bd} on channel {channel}; accepted: {span(low, high)}"


def _token_columns(context: _ValidationContext, columns: int, first: int, *_rest: int) -> str:
    given = counted(columns, "column")
    return f"tokens of {given} from {first} on; accepted: 1 or more inside {context.columns}"


def _no_argument(context: _ValidationContext, argument: int, *_rest: int) -> str:
    return f"argument {argument}; accepted: {', '.join(map(str, sorted(context.sizes)))}"


def _past_argument(context: _ValidationContext, argument: int, _size: int, offset: int, extent: int) -> str:
    whole = f"argument {argument} of {counted(context.sizes[argument], 'byte')}"
    return f"{whole} is accessed from {offset} to {offset + extent}"


def _generation(context: _ValidationContext, given: int, *_rest: int) -> str:
    device = context.device
    known = spec.DEVICE_GENERATIONS if device is None else (device.device_generation,)
    return f"device generation {given}; known: {', '.join(map(str, known))}"


def _rows(context: _ValidationContext, given: int, mem_rows: int, *_rest: int) -> str:
    accepted = f"{context.rows} with {spec.MEM_TILE_ROWS}"
    return f"{counted(given, 'row')} with {mem_rows} of memory tiles; accepted: {accepted}"


def _row(context: _ValidationContext, given: int, address: int, *_rest: int) -> str:
    return f"row {given} (address {address:#x}); accepted: rows 0 to {context.rows - 1}"


def _token_rows(context: _ValidationContext, rows: int, first: int, *_rest: int) -> str:
    return f"tokens of {counted(rows, 'row')} from {first} on; accepted: 1 or more inside {context.rows}"


_TEXTS: Mapping[str, tuple[FindingKind, _Text]] = {
    "Generation": (FindingKind.HEADER, _generation),
    "Rows": (FindingKind.HEADER, _rows),
    "Columns": (FindingKind.HEADER, _columns),
    "Address": (FindingKind.ADDRESS, _address),
    "Row": (FindingKind.ADDRESS, _row),
    "Register": (FindingKind.ADDRESS, _register),
    "LockValue": (FindingKind.VALUE, _fixed(f"lock {{0}} set to {{1}}; accepted: 0 to {registers.LOCK_MAX}")),
    "QueueBd": (FindingKind.VALUE, _queue_bd),
    "Reserved": (FindingKind.RESERVED, _reserved),
    "NeverTrue": (
        FindingKind.VALUE,
        _fixed("waits for bits outside its mask, so it can never succeed"),
    ),
    "NeverHeld": (
        FindingKind.VALUE,
        lambda _, address, value, bits, *_rest: (
            f"waits for {value:#x} of {registers.find_register(address)}, whose bits are {bits:#x}: "
            "it can never succeed"
        ),
    ),
    "NeverGranted": (
        FindingKind.VALUE,
        lambda _, address, *_rest: (
            f"{registers.find_register(address)} is asked for more than {registers.LOCK_MAX}, which no lock "
            "can count: it can never succeed"
        ),
    ),
    "Preemption": (
        FindingKind.VALUE,
        _fixed(f"preemption level {{0}}; accepted: 0 to {spec.MAX_PREEMPTION}"),
    ),
    "TokenChannel": (
        FindingKind.VALUE,
        _fixed(
            "token of direction {0} channel {1} in row {2}; accepted: directions 0 and 1, channels below {3}"
        ),
    ),
    "TokenColumns": (FindingKind.VALUE, _token_columns),
    "TokenRows": (FindingKind.VALUE, _token_rows),
    "EmptyWrite": (FindingKind.COUNT, _fixed("writes no words")),
    "AddressCount": (FindingKind.COUNT, _fixed("count {0} with {1} bytes of addresses")),
    "UnknownOpcode": (FindingKind.UNKNOWN, _fixed("custom opcode {0} has no known meaning")),
    "UnwrittenBd": (
        FindingKind.PATCH,
        _fixed("no preceding BLOCKWRITE writes the shim BD whose word 1 it patches"),
    ),
    "Unaligned": (FindingKind.ARGUMENT, _fixed("argument offset is not a multiple of 4")),
    "NoArgument": (FindingKind.ARGUMENT, _no_argument),
    "PastArgument": (FindingKind.ARGUMENT, _past_argument),
}


def validate(
    transaction: TransactionBinary, arg_sizes: ArgSizes, device: Device | None = None
) -> list[Finding]:
    """Returns all findings, by op.

    Args:
        arg_sizes: bytes of each kernel argument that DDR_PATCH may name; unchecked if None.
        device: the device of the array; one of AMD's if None.
    """
    sizes = arg_sizes if arg_sizes is None or isinstance(arg_sizes, Mapping) else dict(enumerate(arg_sizes))
    shape = None
    if device is not None:
        mem_bds = device.count("memory_tile.bds")
        shape = (device.device_generation, device.rows, device.columns, mem_bds)
    raw = native.validate(transaction.to_bytes(), None if sizes is None else _in_64_bits(sizes), shape)
    context = _ValidationContext(transaction.header.columns, sizes or {}, device)
    found = []
    for check, op, offset, suppressed, *numbers in raw:
        kind, text = _TEXTS[check]
        severity = Severity.WARNING if kind is FindingKind.UNKNOWN else Severity.ERROR
        message = suppressed_text(suppressed) if suppressed else text(context, *numbers)
        found.append(Finding(kind, None if op < 0 else op, offset, message, severity))
    return sorted(found, key=lambda f: (-1 if f.op_index is None else f.op_index, f.kind.value))


def suppressed_text(suppressed: int) -> str:
    """Returns the message of the finding that stands for ``suppressed`` further ones."""
    return f"{suppressed:,} more like those before, from this op on"


def _in_64_bits(sizes: Mapping[int, int]) -> dict[int, int]:
    """Limits argument numbers to those that a DDR_PATCH can name, and sizes to its offsets' range."""
    return {
        argument: min(max(size, 0), _MAX_U64) for argument, size in sizes.items() if 0 <= argument <= _MAX_U64
    }


def patched_bds(transaction: TransactionBinary) -> tuple[Indices, Indices]:
    """Returns, per DDR_PATCH, the file position of the last write of its shim BD (-1: none) and its extent.

    The extent is in bytes, from the BD's base to the end of what its first execution accesses.
    """
    _, bds, extents = native.patches(transaction.to_bytes())
    return bds, extents
