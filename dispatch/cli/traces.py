# SPDX-License-Identifier: Apache-2.0
"""``--trace`` and ``--print-bytes``: kernel calls as table or CSV, a timeline, and room for printed lines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onedispatch.dispatch.cli import output as out
from onedispatch.dispatch.export.traces import FORMS, write_trace
from onedispatch.dispatch.runtime.report import RunReport
from onedispatch.dispatch.runtime.trace import COLUMNS
from onedispatch.transactions.base.errors import InputError
from onedispatch.transactions.base.files import write_file

PrintBytes = Annotated[
    int | None, typer.Option(help="Bytes for what an operation prints on a core; 32 KiB if not given.")
]
Target = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="A timeline for Perfetto: FILE.json, FILE.pftrace. Or kernel calls: FILE.csv, - a table.",
    ),
]
TABLE = "-"  # with --json, the report has it
_TABLES = (".csv",)


def check_target(target: str | None) -> None:
    """Raises ``InputError`` for what no trace is written to."""
    if target in (None, TABLE) or Path(target).suffix.lower() in (*FORMS, *_TABLES):
        return
    accepted = "FILE.json, FILE.pftrace or FILE.perfetto-trace (a timeline), FILE.csv, or - for a table"
    raise InputError("--trace", repr(target), accepted)


def file_of(target: str | None) -> Path | None:
    """The file that is written, if one is."""
    return None if target in (None, TABLE) else Path(target)


def write_asked(target: str | None, report: RunReport, json: bool) -> None:
    """The trace, where ``--trace`` asks for one; with ``--json`` no table."""
    if target is not None and not (json and target == TABLE):
        _write(target, report)


def _write(target: str, report: RunReport) -> None:
    """Nothing for a model that runs on the host alone."""
    trace = report.trace
    if trace is None:
        out.tell("no kernel ran, so there is no trace", to=out.errors)
        return
    if target == TABLE:
        out.table("Kernel calls", COLUMNS, trace.rows(), right=range(1, len(COLUMNS)))
    elif Path(target).suffix.lower() in _TABLES:
        write_file(Path(target), trace.csv().encode())
    else:
        write_trace(report, target)
    if trace.note:
        out.tell(f"trace: {trace.note}", to=out.errors)
