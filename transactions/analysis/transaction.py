# SPDX-License-Identifier: Apache-2.0
"""``Transaction``: a decoded binary with its text, checks, explanation and diff."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from onedispatch.transactions.analysis import validation
from onedispatch.transactions.analysis.context import Context
from onedispatch.transactions.analysis.validation import Finding
from onedispatch.transactions.base.boundary import guarded
from onedispatch.transactions.format import convert
from onedispatch.transactions.format.binary import Operations, OperationView, TransactionBinary
from onedispatch.transactions.format.decode import decode
from onedispatch.transactions.format.spec import Version
from onedispatch.transactions.machine.device import Device
from onedispatch.transactions.text import assembler, listing

if TYPE_CHECKING:  # these load when one of them is asked for: compiling asks for none
    from onedispatch.transactions.analysis.diff import Difference
    from onedispatch.transactions.analysis.explain import Explanation


class Operation(OperationView):
    """One operation of a transaction; ``str`` returns its line of the listing."""

    __slots__ = ()

    def __str__(self) -> str:
        return listing.describe(self)

    def __repr__(self) -> str:
        return f"<op {self.index} at {self.offset}: {self}>"


@guarded
class Transaction(TransactionBinary):
    """A transaction binary. Immutable; equal if the bytes are equal.

    Decode one with ``Transaction.from_bytes``, build one with ``TransactionBuilder``.
    """

    __slots__ = ()

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview) -> Transaction:
        """Decodes a transaction, v0.1 or v1.0.

        Raises:
            TransactionError: the data is cut off or too long, has an unknown version or opcode, an op
                of an invalid size, or another number of ops than the header states.
        """
        data = bytes(data)
        return cls(data, *decode(data))

    @property
    def ops(self) -> Sequence[Operation]:
        """The operations, as a lazy sequence."""
        return Operations(self, Operation)

    @classmethod
    def from_text(cls, text: str) -> Transaction:
        """Assembles the output of ``text()``, to the byte, or text written by hand.

        Raises:
            TransactionError: a line is invalid; the error names it.
        """
        return cls.from_bytes(assembler.assemble(text))

    def text(self, *, brief: bool = False) -> str:
        """Returns a listing: registers named, BDs and queue words decoded. ``from_text`` reads it back.

        Args:
            brief: show only the first words and a checksum of long BLOCKWRITEs, and no padding.
        """
        return listing.text(self, brief)

    def check(
        self,
        arg_sizes: Mapping[int, int] | Sequence[int] | None = None,
        context: Context | None = None,
    ) -> list[Finding]:
        """Returns the findings of ``validate``, and those across ops: chains, locks, waits, BDs in use.

        They include warnings, which are correct if the overlay, a core or a control packet does its part.

        Args:
            context: the overlay that it runs in; accesses that data flow orders then cause no warning.
        """
        from onedispatch.transactions.analysis.check import check

        return check(self, arg_sizes, context)

    def validate(
        self, arg_sizes: Mapping[int, int] | Sequence[int] | None = None, device: Device | None = None
    ) -> list[Finding]:
        """Returns the findings on single ops; fast.

        Args:
            arg_sizes: bytes of each kernel argument that DDR_PATCH may name; unchecked if None.
            device: the device of the array (``find_device``); one of AMD's if None.
        """
        return validation.validate(self, arg_sizes, device)

    def explain(self, context: Context | None = None) -> Explanation:
        """Explains tasks per channel, host memory, waits and steps; with a context, control packets too."""
        from onedispatch.transactions.analysis.explain import Explanation

        return Explanation.of(self, context)

    def diff(self, other: Transaction) -> Difference:
        """Returns the semantic differences to ``other``; false if there are none."""
        from onedispatch.transactions.analysis.diff import diff

        return diff(self, other)

    def converted(self, version: Version) -> Transaction:
        """Converts to another version of the format; padding garbage is dropped.

        Raises:
            TransactionError: the version is unknown, or cannot hold a field's value.
        """
        return Transaction.from_bytes(convert.converted(self, version))

    def __reduce__(self) -> tuple[Any, ...]:
        return (Transaction.from_bytes, (self._data,))

    def __repr__(self) -> str:
        return f"<Transaction {listing.summary(self)}>"

    def __str__(self) -> str:
        return self.text()
