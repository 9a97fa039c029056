# SPDX-License-Identifier: Apache-2.0
"""Decoding: the offset of each op, or the error for bytes that are no transaction.

The scan over the ops is C++ (cpp_ext/src/txn)."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import numpy.typing as npt

import onedispatch.transactions.format._native as _native
from onedispatch.transactions.base.errors import TransactionError
from onedispatch.transactions.base.text import counted
from onedispatch.transactions.format import spec
from onedispatch.transactions.format.codec import Header

Offsets = npt.NDArray[np.int64]
native = _native  # re-exported for ``validation``: only one module may import the extension


class _Fault(IntEnum):
    """Mirrors ``Fault`` of cpp_ext/src/txn/decode.h."""

    NONE = 0
    NO_HEADER = 1
    VERSION = 2
    BYTE_SIZE = 3
    ALIGNMENT = 4
    OPCODE = 5
    OP_SIZE = 6
    OP_COUNT = 7


def decode(data: bytes) -> tuple[Header, Offsets]:
    """Returns the header, and the byte offset of each op and of the end.

    Raises:
        TransactionError: the bytes are not a transaction; see ``Transaction.from_bytes``.
    """
    fault, ops, at, op_size, offsets = _native.decode(data)
    header = Header.from_bytes(data)
    if fault in (_Fault.OPCODE, _Fault.OP_SIZE):
        raise _bad_op(data, header, _Fault(fault), ops, at, op_size)
    if fault:
        raise _bad_frame(header, len(data), _Fault(fault), ops)
    offsets.flags.writeable = False
    return header, offsets


def _bad_frame(header: Header, size: int, fault: _Fault, ops: int) -> TransactionError:
    if fault is _Fault.VERSION:
        return TransactionError(
            "transaction header",
            f"version {header.version[0]}.{header.version[1]}",
            ", ".join(f"{major}.{minor}" for major, minor in spec.VERSIONS),
            "is this a transaction? Parameter and control packet files are not",
            byte_offset=0,
        )
    if fault is _Fault.BYTE_SIZE:
        missing = header.byte_size - size
        unit = "byte" if abs(missing) == 1 else "bytes"
        amount = f"{abs(missing)} {unit} {'short' if missing > 0 else 'too long'}"
        return TransactionError(
            "transaction",
            f"{counted(size, 'byte')} ({amount})",
            f"{counted(header.byte_size, 'byte')}, as the header says",
            "copy the file again" if missing > 0 else "cut off what follows the transaction",
            byte_offset=min(size, header.byte_size),
        )
    if fault is _Fault.ALIGNMENT:
        return TransactionError(
            "transaction", counted(size, "byte"), "a multiple of 4", "copy the file again", byte_offset=12
        )
    return TransactionError(
        "transaction header",
        f"op_count {header.op_count}",
        f"{ops}, as the file has",
        "was the file edited?",
        byte_offset=8,
    )


def _bad_op(data: bytes, header: Header, fault: _Fault, index: int, at: int, size: int) -> TransactionError:
    code, version = data[at], header.version
    layout = spec.find_layout(code, version)
    if fault is _Fault.OPCODE or layout is None:
        return TransactionError(
            "transaction",
            f"opcode {code} ({spec.name_of(code)})",
            ", ".join(f"{op.code} {op.name}" for op in spec.OPCODES) + ", other custom ops from 128 on",
            "the file is damaged, or the previous op has a wrong size",
            op_index=index,
            byte_offset=at,
        )
    if layout.payload_at is None:
        accepted = " or ".join(counted(value, "byte") for value in layout.sizes)
    else:
        accepted = f"a multiple of 4 from {layout.min_size} on"
    return TransactionError(
        f"{spec.name_of(code)} of v{version[0]}.{version[1]}",
        f"{counted(size, 'byte')} with {len(data) - at} left in the file",
        f"{accepted}, inside the file",
        "the file is cut off or damaged",
        op_index=index,
        byte_offset=at,
    )
