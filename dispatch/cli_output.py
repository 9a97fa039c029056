# SPDX-License-Identifier: Apache-2.0
"""What the commands share: consoles, tables, JSON, and options that mean the same everywhere."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from onedispatch.dispatch.graph import Array
from onedispatch.transactions.errors import InputError

console = Console()
errors = Console(stderr=True)

Device = Annotated[str, typer.Option(help="The NPU, as `onedispatch devices` names it.")]
Fallback = Annotated[
    str, typer.Option(help="cpu: what does not map runs on the host. error: refuse such models.")
]
Json = Annotated[bool, typer.Option("--json", help="JSON instead of tables, for scripts.")]
Shapes = Annotated[
    list[str] | None,
    typer.Option("--shape", help="Shape of an input with open dimensions: x=1,3,224,224. Repeatable."),
]
Threads = Annotated[int | None, typer.Option(help="Host threads; the default lets each part choose.")]


def working(text: str) -> AbstractContextManager[Any]:
    """A spinner on the error stream, so that output can be piped."""
    return errors.status(text)


def print_json(data: Any) -> None:
    print(json.dumps(data, indent=2, default=_plain))


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray | set | frozenset | tuple):
        return list(value)
    return str(value)


def table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], right: Sequence[int] = ()
) -> None:
    """Prints a table; ``right`` are indices of columns of numbers."""
    result = Table(title=title, title_justify="left", title_style="bold", header_style="bold cyan")
    for index, name in enumerate(columns):
        result.add_column(name, justify="right" if index in right else "left", overflow="fold")
    for row in rows:
        result.add_row(*(str(cell) for cell in row))
    console.print(result)


def parse_shapes(texts: Sequence[str] | None) -> dict[str, tuple[int, ...]]:
    """``x=1,3,224,224`` as a dict; ``x=`` is a scalar."""
    shapes = {}
    for text in texts or ():
        name, equals, sizes = text.rpartition("=")
        parts = [part for part in sizes.replace("x", ",").split(",") if part.strip()]
        if not equals or not name or not all(part.strip().isdigit() for part in parts):
            raise InputError("--shape", repr(text), "name=size,size,...", "for instance x=1,3,224,224")
        shapes[name] = tuple(int(part) for part in parts)
    return shapes


def parse_inputs(texts: Sequence[str] | None) -> dict[str, Array]:
    """``x=file.npy`` per input, or one ``.npz`` that holds them by name."""
    feed: dict[str, Array] = {}
    for text in texts or ():
        name, equals, path = text.partition("=")
        try:
            if equals:
                feed[name] = np.load(Path(path), allow_pickle=False)
            else:
                with np.load(Path(text), allow_pickle=False) as archive:
                    feed.update({key: archive[key] for key in archive.files})
        except (OSError, ValueError, AttributeError, TypeError) as error:
            raise InputError("--input", f"{text!r}: {error}", "name=array.npy, or arrays.npz") from error
    return feed
