# SPDX-License-Identifier: Apache-2.0
"""Reading transactions: bytes -> operations, without losing a byte, and all that can be asked of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onedispatch.transactions.analysis import check, diff, validation
from onedispatch.transactions.analysis.context import Context
from onedispatch.transactions.analysis.diff import Difference
from onedispatch.transactions.analysis.explain import Explanation
from onedispatch.transactions.analysis.validation import Finding
from onedispatch.transactions.base.boundary import guarded
from onedispatch.transactions.format import convert
from onedispatch.transactions.format.binary import Operations, OperationView, TransactionBinary
from onedispatch.transactions.format.decode import decode
from onedispatch.transactions.format.spec import Version
from onedispatch.transactions.machine.device import Device
from onedispatch.transactions.text import assembler, listing


class Operation(OperationView):
    """One operation of a transaction; as text, the line of the listing that it is."""

    __slots__ = ()

    def __str__(self) -> str:
        return listing.describe(self)

    def __repr__(self) -> str:
        return f"<op {self.index} at {self.offset}: {self}>"


@guarded
class Transaction(TransactionBinary):
    """A transaction binary. Immutable; equal when the bytes are equal.

    Use ``Transaction.from_bytes``; to write one, use ``TransactionBuilder``.
    """

    __slots__ = ()

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview) -> Transaction:
        """Read a transaction, v0.1 or v1.0.

        Raises:
            TransactionError: cut off or too long, an unknown version or opcode, an op whose size
                cannot be, or another number of ops than the header says.
        """
        data = bytes(data)
        return cls(data, *decode(data))

    @property
    def ops(self) -> Sequence[Operation]:
        """The operations, as a lazy sequence."""
        return Operations(self, Operation)

    @classmethod
    def from_text(cls, text: str) -> Transaction:
        """The transaction that ``text()`` has listed, to the byte; also what people write by hand.

        Raises:
            TransactionError: a line that cannot be read; the error names the line.
        """
        return cls.from_bytes(assembler.assemble(text))

    def text(self, *, brief: bool = False) -> str:
        """A listing: registers named, BDs and queue words decoded. ``from_text`` reads it back.

        Args:
            brief: of long BLOCKWRITEs only the first words and a checksum, and no padding.
        """
        return listing.text(self, brief)

    def check(
        self,
        arg_sizes: Mapping[int, int] | Sequence[int] | None = None,
        context: Context | None = None,
    ) -> list[Finding]:
        """As ``validate``, and what the ops do together: chains, locks, waits, BDs in flight.

        Warnings are among it: what is right only if the overlay, a core or a control packet does
        its part.

        Args:
            context: the overlay that it runs in; what data flow then orders is no warning.
        """
        return check.check(self, arg_sizes, context)

    def validate(
        self, arg_sizes: Mapping[int, int] | Sequence[int] | None = None, device: Device | None = None
    ) -> list[Finding]:
        """What is wrong with single ops, empty when nothing is; fast.

        Args:
            arg_sizes: bytes of each kernel argument that DDR_PATCH may name; unchecked if None.
            device: whose array it is for (``find_device``); one of AMD's if None.
        """
        return validation.validate(self, arg_sizes, device)

    def explain(self, context: Context | None = None) -> Explanation:
        """What it does, in a context its packets too: tasks per channel, host memory, waits, steps."""
        return Explanation.of(self, context)

    def diff(self, other: Transaction) -> Difference:
        """What differs in meaning in ``other``; false when nothing does."""
        return diff.diff(self, other)

    def converted(self, version: Version) -> Transaction:
        """The same operations in another version; padding garbage is dropped.

        Raises:
            TransactionError: a field does not fit the other version, or there is no such version.
        """
        return Transaction.from_bytes(convert.converted(self, version))

    def __reduce__(self) -> tuple[Any, ...]:
        return (Transaction.from_bytes, (self._data,))

    def __repr__(self) -> str:
        return f"<Transaction {listing.summary(self)}>"

    def __str__(self) -> str:
        return self.text()
