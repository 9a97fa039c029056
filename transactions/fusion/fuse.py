# SPDX-License-Identifier: Apache-2.0
"""Fuses the transactions of many operators into one, over six fused buffers.

Only DDR_PATCH changes, by the rule of ``arguments.relocation``; all other bytes are copied.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from onedispatch.transactions.analysis import validation
from onedispatch.transactions.analysis.transaction import Transaction
from onedispatch.transactions.arguments.argmap import ArgKind, ArgMap
from onedispatch.transactions.arguments.relocation import Bindings, fused_position, region_of
from onedispatch.transactions.base.boundary import public
from onedispatch.transactions.base.errors import TransactionError
from onedispatch.transactions.format import spec
from onedispatch.transactions.format.codec import Header

Ints = npt.NDArray[np.int64]
_WRITTEN = (ArgKind.OUTPUT, ArgKind.SCRATCH_PAD)
_OFFSET_LIMIT = 1 << 48


FusePart = Transaction | bytes | tuple[Transaction | bytes, Sequence[ArgMap], Bindings]


@public
def fuse(
    parts: Sequence[FusePart],
    sizes: Mapping[int, int] | None = None,
    names: Mapping[int, str] | None = None,
) -> Transaction:
    """Returns one transaction that runs all parts in order.

    Args:
        parts: ``(transaction, arg map, bindings)``; a bare transaction is copied unchanged.
        sizes: bytes of each fused argument; if given, patched BDs must stay inside, and in their regions.
        names: number of a part -> its name in errors, by default "fuse part" and the number.

    Raises:
        TransactionError: no parts, unequal headers, a patch outside every region of its arg map,
            outside a BD write, past its region or its buffer; overlapping regions; a tensor without binding.
    """
    if not parts:
        raise TransactionError(
            "fuse", "no parts", "one transaction or more", "pass the operators' transactions"
        )
    read: list[tuple[Transaction, bytes]] = []
    for number, part in enumerate(parts):
        transaction, args, bindings = _opened(part)
        where = (names or {}).get(number, f"fuse part {number}")
        _check_header(where, read[0][0].header if read else transaction.header, transaction.header)
        body = transaction.body
        if args is not None and bindings is not None:
            body = _patched(where, transaction, args, bindings, sizes)
        read.append((transaction, body))
    body = b"".join(body for _, body in read)
    header = dataclasses.replace(
        read[0][0].header,
        op_count=sum(len(transaction) for transaction, _ in read),
        byte_size=spec.HEADER_SIZE + len(body),
    )
    return Transaction(header.to_bytes() + body, header, _joined([t for t, _ in read]))


def _opened(part: FusePart) -> tuple[Transaction, Sequence[ArgMap] | None, Bindings | None]:
    transaction, args, bindings = part if isinstance(part, tuple) else (part, None, None)
    if not isinstance(transaction, Transaction):
        transaction = Transaction.from_bytes(transaction)
    return transaction, args, bindings


def _joined(transactions: Sequence[Transaction]) -> Ints:
    pieces, shift = [], 0
    for transaction in transactions:
        pieces.append(transaction.offsets[:-1] + shift)
        shift += transaction.header.byte_size - spec.HEADER_SIZE
    return np.concatenate([*pieces, np.array([shift + spec.HEADER_SIZE], np.int64)])


def _check_header(where: str, first: Header, header: Header) -> None:
    for name in ("version", "device_generation", "rows", "columns", "mem_tile_rows"):
        given, wanted = getattr(header, name), getattr(first, name)
        if given != wanted:
            raise TransactionError(
                f"{where} header",
                f"{name} {given}",
                f"{wanted}, as part 0 has",
                "build all parts for one device and partition; .converted() changes versions",
            )


def _check_regions(where: str, args: Sequence[ArgMap], bindings: Bindings) -> None:
    """Refuses overlapping regions of one argument, and overlaps of written regions in the fused buffers."""
    regions = sorted(args, key=lambda e: (e.xrt_arg_idx, e.offset))
    for a, b in itertools.pairwise(regions):
        if a.xrt_arg_idx == b.xrt_arg_idx and b.offset < a.end:
            raise TransactionError(
                f"{where} arg map",
                f"argument {a.xrt_arg_idx}, bytes {a.offset} to {a.end} and {b.offset} on",
                "regions that do not overlap",
                "correct offset and size in the arg map",
            )
    placed = []
    for entry in args:
        argument, shift = fused_position(where, entry, bindings)
        start = shift + entry.offset
        placed.append((argument, start, start + entry.size, entry))
    for argument, start, end, entry in placed:
        if entry.kind not in _WRITTEN:
            continue
        for other_argument, other_start, other_end, other in placed:
            apart = argument != other_argument or end <= other_start or other_end <= start
            same = other is entry or (other.kind == entry.kind and other.onnx_arg_idx == entry.onnx_arg_idx)
            if apart or same or (bindings.in_place and other.kind is ArgKind.INPUT):
                continue
            raise TransactionError(
                f"{where} bindings",
                f"{entry.kind.name} {start} to {end} over {other.kind.name} {other_start} to {other_end} "
                f"of fused argument {argument}",
                "regions that do not overlap where one is written",
                "plan them apart, or bind with in_place=True",
            )


class _Patches:
    """The DDR_PATCH operations of a transaction, as arrays."""

    def __init__(self, where: str, transaction: Transaction) -> None:
        self.where, self.transaction = where, transaction
        self.indices = transaction.indices("DDR_PATCH")
        self.arguments = transaction.column("DDR_PATCH", "arg_index", self.indices)
        self.offsets = transaction.column("DDR_PATCH", "arg_offset", self.indices)

    def refuse(self, bad: npt.NDArray[np.bool_], what: str, accepted: str, remedy: str) -> None:
        """Raises ``TransactionError`` for the first patch that is ``bad``, if any."""
        if not bad.any():
            return
        at = int(np.argmax(bad))
        raise TransactionError(
            f"{self.where} DDR_PATCH",
            f"argument {self.arguments[at]} offset {self.offsets[at]} {what}".rstrip(),
            accepted,
            remedy,
            op_index=int(self.indices[at]),
            byte_offset=int(self.transaction.offsets[self.indices[at]]),
        )


def _patched(
    where: str,
    transaction: Transaction,
    args: Sequence[ArgMap],
    bindings: Bindings,
    sizes: Mapping[int, int] | None,
) -> bytes:
    """The body with every DDR_PATCH rewritten, all patches of the transaction at once."""
    _check_regions(where, args, bindings)
    found = _Patches(where, transaction)
    patches, arguments, offsets = found.indices, found.arguments, found.offsets
    if not len(patches):
        return transaction.body
    written, extents = validation.patched_bds(transaction)
    fail = found.refuse
    fail(
        written < 0,
        "of a BD that was not written",
        "word 1 of a shim BD that a BLOCKWRITE before it writes",
        "write the BD first",
    )
    fail(offsets >= np.uint64(_OFFSET_LIMIT), "", "offsets below 2**48", "is the file damaged?")
    regions = sorted(args, key=lambda e: (e.xrt_arg_idx, e.offset))
    at = region_of(regions, arguments, offsets)
    listed = ", ".join(f"{e.xrt_arg_idx}: {e.offset} to {e.end}" for e in regions) or "no argument"
    fail(at < 0, "", f"the regions of the arg map ({listed})", "correct the arg map or the patch")
    ends = np.array([e.end for e in regions], np.uint64)
    fail(
        offsets >= ends[at],
        "past the end of its region",
        f"the regions of the arg map ({listed})",
        "correct the arg map or the patch",
    )
    targets = [fused_position(where, entry, bindings) for entry in regions]
    new_arguments = np.array([argument for argument, _ in targets], np.int64)[at]
    new_offsets = offsets.astype(np.int64) + np.array([shift for _, shift in targets], np.int64)[at]
    fail(
        new_offsets < 0,
        "before the start of its buffer",
        "padding that the buffer has in front",
        "let the planner leave room for padding_offset",
    )
    if sizes is not None:
        limits = np.array([sizes.get(argument, 0) for argument, _ in targets], np.int64)[at]
        reach = new_offsets + extents
        fail(
            reach > limits,
            "past the end of its fused buffer",
            f"buffers of these bytes: {dict(sizes)}",
            "correct the BD's length and steps, or the buffer sizes",
        )
        fail(
            offsets.astype(np.int64) + extents > ends[at].astype(np.int64),
            "by a BD that goes on past the end of its region",
            f"the regions of the arg map ({listed})",
            "correct the BD's length and steps, or the size in the arg map",
        )
    return _rewritten(transaction, patches, new_arguments, new_offsets)


def _rewritten(transaction: Transaction, patches: Ints, arguments: Ints, offsets: Ints) -> bytes:
    layout = spec.BY_NAME["DDR_PATCH"].layouts[transaction.version]
    words = transaction.words.copy()
    starts = transaction.offsets[patches]
    argument_field = layout.field("arg_index")
    at = (starts + argument_field.offset) >> 2
    if argument_field.width == 8:
        words[at], words[at + 1] = arguments, 0
    else:
        words[at] = (words[at] & ~np.uint32(0xFF)) | arguments.astype(np.uint32)
    at = (starts + layout.field("arg_offset").offset) >> 2
    words[at], words[at + 1] = offsets & 0xFFFFFFFF, offsets >> 32
    return bytes(memoryview(words.tobytes())[spec.HEADER_SIZE :])
