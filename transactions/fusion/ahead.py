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
from onedispatch.transactions.format.codec import layout_of
from onedispatch.transactions.machine import registers as reg

_PASSED = frozenset({"WRITE", "BLOCKWRITE", "DDR_PATCH"})  # by what comes ahead
_KNOWN = _PASSED | {"MASKWRITE", "MASKPOLL", "TCT", "NOOP"}  # of others it is not said what they touch
_BD_BYTES = 4 * reg.SHIM.bd_words


def written_ahead(transaction: Transaction, pieces: Iterable[range] | None = None) -> Transaction:
    """Returns the same operations, descriptors of shims written as early as they may be.

    Each of ``pieces`` writes the descriptors that it uses, and is waited for before the next one begins: so
    those that it does not write are at rest while it runs. Without ``pieces``, they are the operators that
    RECORD_TIMER stands between.
    """
    order = np.arange(len(transaction))
    reader = _Reader(transaction)
    for first, second in pairwise(reader.operators() if pieces is None else pieces):
        at = reader.waits_from(first)
        if at is None:
            continue
        moved = list(reader.may_come_ahead(first, second))
        if moved:
            others = np.delete(np.arange(at, second.stop), np.array(moved) - at)
            order[at : second.stop] = [*moved, *others]
    return _in_order(transaction, order)


def _in_order(transaction: Transaction, order: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Transaction:
    data, bounds = transaction.to_bytes(), transaction.offsets
    sizes = np.diff(bounds)[order]
    body = b"".join(data[bounds[i] : bounds[i + 1]] for i in order.tolist())
    offsets = spec.HEADER_SIZE + np.concatenate([[0], np.cumsum(sizes)])
    return Transaction(transaction.header.to_bytes() + body, transaction.header, offsets.astype(bounds.dtype))


class _Reader:
    """What operations are, and what they do to descriptors of shims."""

    def __init__(self, transaction: Transaction) -> None:
        names = [spec.name_of(code) for code in range(256)]
        self.names = [names[code] for code in transaction.codes.tolist()]
        self.touched, self.whole = _touched(transaction)

    def operators(self) -> Iterator[range]:
        """The operations of each operator."""
        timers = [i for i, name in enumerate(self.names) if name == "RECORD_TIMER"]
        return (range(start + 1, end) for start, end in pairwise(timers))

    def waits_from(self, piece: range) -> int | None:
        """Where a piece begins to wait for its end; None where it does not end so, or is not known whole."""
        at = piece.stop
        while at > piece.start and self.names[at - 1] in ("WRITE", "BLOCKWRITE"):
            at -= 1
        end = at
        while at > piece.start and self.names[at - 1] == "TCT":
            at -= 1
        return at if at < end and _KNOWN.issuperset(self.names[piece.start : piece.stop]) else None

    def may_come_ahead(self, before: range, piece: range) -> Iterator[int]:
        """Writes of descriptors, with their patches, that ``piece`` begins with, but for those that
        ``before`` writes, too."""
        taken = set[int]().union(*(self.touched[i] for i in before if i in self.touched))
        for i in piece:
            if self.names[i] not in _PASSED:
                return
            if i not in self.touched or self.names[i] == "DDR_PATCH":
                continue
            here = self.touched[i]
            patched = i + 1 in piece and self.names[i + 1] == "DDR_PATCH" and self.touched.get(i + 1) == here
            if i in self.whole and patched and taken.isdisjoint(here):
                yield from (i, i + 1)
            taken.update(here)


def _touched(transaction: Transaction) -> tuple[dict[int, range], set[int]]:
    """The descriptors of shims that operations write to, all columns counted through, by operation; and the
    operations that write one of them whole."""
    block = reg.SHIM.block["DMA_BD"]
    touched: dict[int, range] = {}
    alone: set[int] = set()
    for name in ("WRITE", "MASKWRITE", "BLOCKWRITE", "DDR_PATCH"):
        found = transaction.indices(name)
        if not len(found):
            continue
        address = transaction.column(name, "reg", found).astype(np.int64)
        size = np.full(len(found), 8 if name == "DDR_PATCH" else 4)  # bytes: a patch has two words of address
        if name == "BLOCKWRITE":
            payload = layout_of(transaction.codes[found[0]], transaction.version).payload_at or 0
            size = np.diff(transaction.offsets)[found] - payload
        at = (address & reg.OFFSET_MASK) - block.offset
        first, last = at // block.stride, (at + size - 1) // block.stride
        shim = (address >> reg.ROW_SHIFT & reg.ROW_MASK == reg.SHIM_ROW) & (last >= 0) & (first < block.count)
        column = (address >> reg.COLUMN_SHIFT) * block.count
        low, high = column + np.maximum(first, 0), column + np.minimum(last + 1, block.count)
        ranges = map(range, low[shim].tolist(), high[shim].tolist())
        touched.update(zip(found[shim].tolist(), ranges, strict=True))
        if name == "BLOCKWRITE":
            alone.update(found[shim & (at % block.stride == 0) & (size == _BD_BYTES)].tolist())
    return touched, alone
