# SPDX-License-Identifier: Apache-2.0
"""Converts a transaction to another version of the format."""

from __future__ import annotations

import dataclasses

from onedispatch.transactions.base.errors import TransactionError
from onedispatch.transactions.format import codec, spec
from onedispatch.transactions.format.binary import TransactionBinary
from onedispatch.transactions.format.spec import Version


def converted(transaction: TransactionBinary, version: Version) -> bytes:
    """Returns the bytes of the same operations in ``version``.

    Raises:
        TransactionError: the version is unknown, or cannot hold a value.
    """
    if version not in spec.VERSIONS:
        raise TransactionError("Transaction.converted", str(version), str(spec.VERSIONS), "use one of these")
    if version == transaction.version:
        return transaction.to_bytes()
    chunks = []
    for op in transaction.ops:
        known = spec.BY_CODE.get(op.code)
        if known is None or known.layouts[version] is known.layouts[transaction.version]:
            chunks.append(op.raw)
            continue
        try:
            chunks.append(codec.encode_op(op.code, version, op.fields, op.payload))
        except TransactionError as error:
            error.op_index, error.byte_offset = op.index, op.offset
            raise
    body = b"".join(chunks)
    header = dataclasses.replace(transaction.header, version=version, byte_size=spec.HEADER_SIZE + len(body))
    return header.to_bytes() + body
