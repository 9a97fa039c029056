# SPDX-License-Identifier: Apache-2.0
"""Buffer descriptors that are written ahead: while the operator before is at work, and not behind it.

The controller takes hundreds of cycles for a shim's descriptor and its patch, and does nothing else while it
waits for an operator's last tokens. What the next operator writes to descriptors that this one does not use
can be done by then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np

from onedispatch.transactions.analysis.transaction import Transaction
from onedispatch.transactions.format import spec
from onedispatch.transactions.machine import registers as reg

Descriptor = tuple[int, int]  # column, number


def written_ahead(transaction: Transaction, pieces: Iterable[range] | None = None) -> Transaction:
    """Returns the same operations, descriptors of shims written as early as they may be.

    Each of ``pieces`` is waited for before the next one begins, so descriptors that a piece does not write
    are at rest while it runs. Without ``pieces``, they are the operators that RECORD_TIMER stands between.
    """
    order = np.arange(len(transaction))
    reader = _Reader(transaction)
    for first, second in pairwise(reader.operators() if pieces is None else pieces):
        at = reader.waits_from(first)
        if at is None:
            continue
        moved = list(reader.may_come_ahead(first, second))
        if moved:
            others = np.setdiff1d(np.arange(at, second.stop), moved)
            order[at : second.stop] = [*moved, *others]
    return _in_order(transaction, order)


def _in_order(transaction: Transaction, order: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Transaction:
    data, bounds = transaction.to_bytes(), transaction.offsets
    sizes = np.diff(bounds)[order]
    body = b"".join(data[bounds[i] : bounds[i + 1]] for i in order.tolist())
    offsets = spec.HEADER_SIZE + np.concatenate([[0], np.cumsum(sizes)])
    return Transaction(transaction.header.to_bytes() + body, transaction.header, offsets.astype(bounds.dtype))


class _Reader:
    """What operations do to descriptors of shims, by their numbers."""

    def __init__(self, transaction: Transaction) -> None:
        self.names = [spec.name_of(code) for code in range(256)]
        self.codes: list[int] = transaction.codes.tolist()
        self.registers: dict[int, int] = {}
        for name in ("BLOCKWRITE", "DDR_PATCH"):
            found = transaction.indices(name)
            self.registers.update(
                zip(found.tolist(), transaction.column(name, "reg", found).tolist(), strict=True)
            )

    def name(self, index: int) -> str:
        return self.names[self.codes[index]]

    def operators(self) -> Iterator[range]:
        """The operations of each operator."""
        timers = [i for i in range(len(self.codes)) if self.name(i) == "RECORD_TIMER"]
        return (range(start + 1, end) for start, end in pairwise(timers))

    def waits_from(self, operator: range) -> int | None:
        """Where an operator begins to wait for its end; None where it does not end so."""
        at = operator.stop
        while at > operator.start and self.name(at - 1) in ("WRITE", "BLOCKWRITE"):
            at -= 1
        end = at
        while at > operator.start and self.name(at - 1) == "TCT":
            at -= 1
        return at if at < end else None

    def may_come_ahead(self, before: range, operator: range) -> Iterator[int]:
        """Writes of descriptors, with their patches, that ``operator`` begins with, but for those that
        ``before`` uses."""
        taken = {self.descriptor(i) for i in before if self.name(i) == "BLOCKWRITE"}
        for i in operator:
            if self.name(i) == "WRITE" or self.name(i) == "DDR_PATCH":
                continue
            if self.name(i) != "BLOCKWRITE":
                return
            written = self.descriptor(i)
            if written is None or i + 1 not in operator or self.descriptor(i + 1) != written:
                continue
            if written not in taken:
                yield from (i, i + 1)
            taken.add(written)

    def descriptor(self, index: int) -> Descriptor | None:
        """The descriptor of a shim that an operation writes to."""
        if index not in self.registers:
            return None
        column, row, offset = reg.split_address(self.registers[index])
        block = reg.SHIM.block["DMA_BD"]
        number = (offset - block.at(0)) // (block.at(1) - block.at(0))
        return (column, number) if row == reg.SHIM_ROW and 0 <= number < block.count else None
