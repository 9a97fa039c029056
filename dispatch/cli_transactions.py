# SPDX-License-Identifier: Apache-2.0
"""Commands about transactions: txn dump."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onedispatch.dispatch import cli_output as out
from onedispatch.dispatch import model as models
from onedispatch.dispatch.container import MAGIC
from onedispatch.transactions import Transaction
from onedispatch.transactions.errors import InputError


def read_transaction(path: Path) -> Transaction:
    """The transaction of a file: raw bytes, or the one of a compiled model."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(str(path), error.strerror or str(error), "a file that can be read") from error
    if data.startswith(MAGIC):
        data = models.load(path).transaction
    return Transaction.from_bytes(data)


def dump(
    path: Annotated[Path, typer.Argument(help="A transaction (.bin), or a file of `onedispatch compile`.")],
    full: Annotated[bool, typer.Option("--full", help="Every word of long block writes.")] = False,
    json: out.Json = False,
) -> None:
    """Print a transaction, one operation per line: registers named, descriptors decoded."""
    transaction = read_transaction(path)
    if json:
        findings = [str(finding) for finding in transaction.validate()]
        lines = transaction.text(full=full).splitlines()
        out.print_json({"operations": len(transaction), "findings": findings, "lines": lines})
        return
    print(transaction.text(full=full), end="")
