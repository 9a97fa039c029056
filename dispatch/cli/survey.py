# SPDX-License-Identifier: Apache-2.0
"""``onedispatch txn survey``: everything that can be said of a folder of transactions."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import track

from onedispatch.dispatch.base.arguments import integer
from onedispatch.dispatch.cli import output as out
from onedispatch.dispatch.cli.txn import app
from onedispatch.dispatch.tools.survey import OTHER, PACKETS, TRANSACTION, FileSurvey
from onedispatch.dispatch.tools.survey import survey as run_survey
from onedispatch.transactions.base.host import MOST_THREADS
from onedispatch.transactions.base.text import counted


@app.command()
def survey(
    folder: Annotated[Path, typer.Argument(help="Every *.bin in it and below is looked at.")],
    jobs: Annotated[int, typer.Option(help="Processes at work.")] = os.cpu_count() or 1,
    replays: Annotated[bool, typer.Option("--replay/--no-replay", help="Also execute each.")] = True,
    json: out.Json = False,
) -> None:
    """Read, write back, convert, check and replay every transaction of a folder.

    Exits with 1 when a file is not whole, does not come back byte for byte, has errors, does not reach its
    last operation, or loses a task: writes a descriptor that nothing queues.
    """
    count, files = run_survey(folder, integer("--jobs", jobs, 1, MOST_THREADS), replays)
    with closing(files):  # ends the workers, wherever an interrupt comes
        found = list(track(files, "survey", count, console=out.errors, transient=True))
    bad = [file for file in found if not file.lossless or file.errors or not file.finished or file.lost]
    if json:
        out.print_json({"bad": len(bad), "files": [asdict(file) for file in found]})
    else:
        _show(found, replays)
        for file in found:
            if file.problem:
                out.say(f"{file.path}: {file.problem}")
        out.say(_summary(found, bad, replays))
    if bad:
        raise typer.Exit(1)


def _show(found: list[FileSurvey], replays: bool) -> None:
    families: dict[str, list[FileSurvey]] = {}
    for file in found:
        if file.kind != OTHER:
            families.setdefault(file.family, []).append(file)
    rows = []
    for name, files in sorted(families.items()):
        transactions = [file for file in files if file.kind == TRANSACTION]
        row = [
            name,
            len(transactions),
            len(files) - len(transactions),
            f"{sum(file.operations for file in transactions):,}",
            sum(file.lossless for file in files),
            sum(file.errors for file in files),
            sum(sum(file.warnings.values()) for file in files),
        ]
        ends = [sum(file.finished for file in transactions), sum(file.complete for file in transactions)]
        rows.append(row + (ends if replays else []))
    columns = ["folder", "txn", "ctrl", "ops", "lossless", "errors", "warnings"]
    columns += ["ended", "clean"] if replays else []
    out.table("Transactions", columns, rows, right=range(1, len(columns)))


def _summary(found: list[FileSurvey], bad: list[FileSurvey], replays: bool) -> str:
    kinds = Counter(file.kind for file in found)
    transactions = [file for file in found if file.kind == TRANSACTION]
    warnings = sum((Counter(file.warnings) for file in found), Counter[str]())
    listed = ", ".join(f"{number:,} {kind}" for kind, number in warnings.most_common()) or "none"
    text = (
        f"{counted(kinds[TRANSACTION], 'transaction')} of "
        f"{counted(sum(file.operations for file in transactions), 'operation')}, "
        f"{counted(kinds[PACKETS], 'file')} of control packets, {counted(kinds[OTHER], 'other')}; "
        f"{sum(file.lossless for file in found if file.kind != OTHER)} lossless, "
        f"{counted(sum(file.errors for file in found), 'error')}, warnings: {listed}"
    )
    if replays:
        text += (
            f"; {sum(file.finished for file in transactions)} ran to their last operation, "
            f"{sum(file.complete for file in transactions)} left nothing running"
        )
    verb = "is" if len(bad) == 1 else "are"
    return f"{text}. {counted(len(bad), 'file')} {verb} not as {'it' if len(bad) == 1 else 'they'} should be."
