# SPDX-License-Identifier: Apache-2.0
"""``--trace`` and ``--print-bytes``: kernel calls as table, CSV or timeline, and room for their lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from onedispatch.dispatch.cli import output as out
from onedispatch.dispatch.runtime.trace import COLUMNS, Trace
from onedispatch.transactions.base.errors import InputError
from onedispatch.transactions.base.files import write_file

PrintBytes = Annotated[
    int | None, typer.Option(help="Bytes for what an operation prints on a core; 32 KiB if not given.")
]
Target = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Kernel calls: FILE.json a timeline for Perfetto, FILE.csv a line per kernel, - a table.",
    ),
]
TABLE = "-"  # with --json, the report has it
_SUFFIXES = (".json", ".csv")


def check_target(target: str | None) -> None:
    """Raises ``InputError`` for what no trace is written to."""
    if target is not None and target != TABLE and Path(target).suffix.lower() not in _SUFFIXES:
        raise InputError("--trace", repr(target), "FILE.json (a timeline), FILE.csv, or - for a table")


def write(target: str, trace: Trace | None) -> None:
    """The trace, where ``target`` says; nothing for a model that runs on the host alone."""
    if trace is None:
        out.tell("no kernel ran, so there is no trace", to=out.errors)
        return
    if target == TABLE:
        out.table("Kernel calls", COLUMNS, trace.rows(), right=range(1, len(COLUMNS)))
    elif Path(target).suffix.lower() == ".csv":
        write_file(Path(target), trace.csv().encode())
    else:
        write_file(Path(target), json.dumps(trace.chrome()).encode())
    if trace.note:
        out.tell(f"trace: {trace.note}", to=out.errors)
