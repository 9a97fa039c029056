# SPDX-License-Identifier: Apache-2.0
"""``onedispatch cache``: compiled models that commands keep."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import typer

from onedispatch.dispatch.cli import output as out
from onedispatch.dispatch.driver.cache_folder import age, clear, default_folder, folder, kept
from onedispatch.transactions.base.text import counted

app = typer.Typer(
    no_args_is_help=True,
    help="Compiled models that commands keep, to read them again instead of compiling.\n\n"
    "ONEDISPATCH_CACHE names a folder, or is on or off; without it they lie in ~/.cache/onedispatch, and "
    "none are kept where CI is set. --no-cache of a command leaves it out once. Beyond 2 GiB, what was not "
    "used for longest gives way.",
)


@app.command("path")
def path(json: out.Json = False) -> None:
    """Print the folder, whether or not it is used."""
    place, on = _place()
    if json:
        out.print_json({"path": str(place), "on": on})
    else:
        out.say(str(place))


@app.command("list")
def list_entries(json: out.Json = False) -> None:
    """List the models that are kept, the one used last first."""
    place, on = _place()
    rows = kept(place)
    if json:
        out.print_json({"path": str(place), "on": on, "entries": [asdict(row) for row in rows]})
        return
    out.table(
        str(place),
        ("model", "bytes", "last used"),
        [(row.path.stem, f"{row.nbytes:,}", _ago(age(row))) for row in rows],
        right=(1,),
    )
    total = sum(row.nbytes for row in rows)
    out.tell(f"{counted(len(rows), 'model')}, {counted(total, 'byte')}" + ("" if on else "; switched off"))


@app.command("clear")
def clear_entries(json: out.Json = False) -> None:
    """Remove all of them."""
    place, _ = _place()
    rows = clear(place)
    total = sum(row.nbytes for row in rows)
    if json:
        out.print_json({"path": str(place), "removed": len(rows), "bytes": total})
    else:
        out.tell(f"removed {counted(len(rows), 'model')}, {counted(total, 'byte')}")


def _place() -> tuple[Path, bool]:
    """The folder, and whether commands use it."""
    place = folder(command=True)
    return place or default_folder(), place is not None


def _ago(seconds: float) -> str:
    for unit, size in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= size:
            return f"{counted(int(seconds // size), unit)} ago"
    return "just now"
