# SPDX-License-Identifier: Apache-2.0
"""A decoded transaction: its bytes and the offset of each operation.

Operations become objects only on access, so that a file of 100,000 ops costs a scan and an array.
``analysis.transaction.Transaction`` adds text, checks, explanation and diff.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar, overload

import numpy as np
import numpy.typing as npt

from onedispatch.transactions.base.boundary import guarded
from onedispatch.transactions.base.cached import cached_property
from onedispatch.transactions.base.errors import InputError
from onedispatch.transactions.format import spec
from onedispatch.transactions.format.codec import Header, layout_of
from onedispatch.transactions.format.decode import Offsets
from onedispatch.transactions.format.spec import Version
from onedispatch.transactions.machine import registers

UInts = npt.NDArray[np.uint64]


class OperationView:
    """One operation of a transaction: a view into its bytes, created on access.

    Every field of the opcode's layout is an attribute (``op.reg``, ``op.value``, ``op.mask``,
    ``op.arg_index``...); README lists them. Numbers are unsigned.

    Attributes:
        index: position in the transaction, from 0.
        offset: byte offset in the file.
        size: bytes, payload included.
        code: opcode.
        version: format version of the transaction.
    """

    __slots__ = ("_data", "_layout", "code", "index", "offset", "size", "version")

    def __init__(self, data: bytes, version: Version, index: int, offset: int, size: int) -> None:
        self._data = data
        self.index = index
        self.offset = offset
        self.size = size
        self.code = data[offset]
        self.version = version
        self._layout = layout_of(self.code, version)

    @property
    def name(self) -> str:
        """The opcode's name, ``CUSTOM_n`` for an unknown custom op."""
        return spec.name_of(self.code)

    def __getattr__(self, name: str) -> int:
        # copy and pickle look up special names before the slots are set.
        if name in _NOT_FIELDS or name.startswith("_"):
            raise AttributeError(name)
        field = self._layout.by_name.get(name)
        if field is not None:
            at = self.offset + field.offset
            return int.from_bytes(self._data[at : at + field.width], "little")
        raise AttributeError(f"{self.name} has no field {name!r}; it has {list(self.fields)}")

    @property
    def fields(self) -> dict[str, int]:
        """Every field by name."""
        return {field.name: getattr(self, field.name) for field in self._layout.fields}

    @property
    def payload(self) -> bytes:
        """The bytes after the fixed part; empty for ops without payload."""
        if self._layout.payload_at is None:
            return b""
        return self._data[self.offset + self._layout.payload_at : self.offset + self.size]

    @property
    def words(self) -> tuple[int, ...]:
        """The payload as whole unsigned words of 32 bits (BLOCKWRITE) or 64 bits (READ_REGS)."""
        width = self._layout.payload_width
        payload = self.payload
        return tuple(np.frombuffer(payload, f"<u{width}", len(payload) // width).tolist())

    @property
    def raw(self) -> bytes:
        """All bytes of the op, padding included."""
        return self._data[self.offset : self.offset + self.size]

    @property
    def tile(self) -> tuple[int, int] | None:
        """(column, row) of the op's register, None for ops without one."""
        if "reg" not in self._layout.by_name:
            return None
        column, row, _ = registers.split_address(self.reg)
        return column, row

    @property
    def register(self) -> registers.Register | None:
        """The register at the op's address, None if unknown or if the op has no address."""
        return registers.find_register(self.reg) if "reg" in self._layout.by_name else None

    def __repr__(self) -> str:
        return f"<op {self.index} at {self.offset}: {self.name}>"


View = TypeVar("View", bound=OperationView)

_NOT_FIELDS = frozenset(OperationView.__slots__)


class Operations(Sequence[View], Generic[View]):
    """The operations of a transaction as a lazy sequence."""

    def __init__(self, transaction: TransactionBinary, view: type[View]) -> None:
        self._transaction = transaction
        self._view = view

    def __len__(self) -> int:
        return len(self._transaction.offsets) - 1

    @overload
    def __getitem__(self, index: int) -> View: ...
    @overload
    def __getitem__(self, index: slice) -> list[View]: ...
    def __getitem__(self, index: int | slice) -> View | list[View]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        at = range(len(self))[index]
        offsets = self._transaction.offsets
        start, end = int(offsets[at]), int(offsets[at + 1])
        return self._view(self._transaction.to_bytes(), self._transaction.version, at, start, end - start)

    def __iter__(self) -> Iterator[View]:
        data, version = self._transaction.to_bytes(), self._transaction.version
        bounds = self._transaction.offsets.tolist()
        for index, start in enumerate(bounds[:-1]):
            yield self._view(data, version, index, start, bounds[index + 1] - start)


def _opcode(name: str) -> spec.Opcode:
    found = spec.BY_NAME.get(name)
    if found is None:
        raise InputError("an opcode's name", repr(name), ", ".join(spec.BY_NAME))
    return found


@guarded
class TransactionBinary:
    """A transaction's bytes and the offsets of its operations. Immutable; equal if the bytes are equal."""

    __slots__ = ("__dict__", "_data", "header", "offsets")

    header: Header
    offsets: Offsets
    """Byte offset of each op; the last entry is the end of the file."""

    def __init__(self, data: bytes, header: Header, offsets: Offsets) -> None:
        self._data = data
        self.header = header
        self.offsets = offsets

    def to_bytes(self) -> bytes:
        """Returns the bytes that were decoded, padding garbage included."""
        return self._data

    @property
    def version(self) -> Version:
        return self.header.version

    @property
    def body(self) -> bytes:
        """Everything after the header."""
        return self._data[spec.HEADER_SIZE :]

    @property
    def ops(self) -> Sequence[OperationView]:
        """The operations, as a lazy sequence."""
        return Operations(self, OperationView)

    @cached_property
    def words(self) -> npt.NDArray[np.uint32]:
        """The file as 32-bit words, read-only."""
        return np.frombuffer(self._data, "<u4")

    @cached_property
    def codes(self) -> npt.NDArray[np.uint8]:
        """The opcode of each op."""
        return np.frombuffer(self._data, np.uint8)[self.offsets[:-1]]

    def indices(self, name: str) -> npt.NDArray[np.int64]:
        """Returns the indices of the ops with this opcode name."""
        return np.flatnonzero(self.codes == _opcode(name).code)

    def column(self, name: str, field: str, indices: npt.NDArray[np.int64]) -> UInts:
        """Returns one field of many ops of the same opcode."""
        where = _opcode(name).layouts[self.version].field(field)
        at = self.offsets[indices] + where.offset
        low: UInts = self.words[at >> 2].astype(np.uint64)
        if where.width == 8:
            low |= self.words[(at >> 2) + 1].astype(np.uint64) << np.uint64(32)
        elif where.width < 4:
            low >>= np.uint64(8) * (at & 3).astype(np.uint64)
            low &= np.uint64((1 << 8 * where.width) - 1)
        return low

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TransactionBinary) and self._data == other._data

    def __hash__(self) -> int:
        return hash(self._data)

    def __len__(self) -> int:
        return len(self.offsets) - 1
