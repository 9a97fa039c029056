# SPDX-License-Identifier: Apache-2.0
"""What the commands share: consoles, tables, JSON, and options that mean the same everywhere."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from rich.cells import cell_len
from rich.console import Console, ConsoleRenderable, JustifyMethod, RichCast
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from onedispatch.dispatch.base.array_files import read_arrays
from onedispatch.dispatch.cli.completion import devices
from onedispatch.dispatch.cli.rows import fitted, shortened
from onedispatch.dispatch.frontend.graph import Array
from onedispatch.dispatch.plugins.scaffold import Written
from onedispatch.transactions.base.errors import InputError

# Names come from models and files: they are text, never markup, emoji codes or terminal commands.
console = Console(markup=False, emoji=False, highlight=False)
errors = Console(stderr=True, markup=False, emoji=False, highlight=False)

Device = Annotated[
    str,
    typer.Option(
        autocompletion=devices, help="The NPU, as `onedispatch devices` names it, or its file: my_npu.toml."
    ),
]
Fallback = Annotated[
    str, typer.Option(help="cpu: what does not map runs on the host. error: refuse such models.")
]
_FOR_SCRIPTS: ContextVar[bool] = ContextVar("for scripts", default=False)  # of the command that runs


def _for_scripts(json: bool) -> bool:
    _FOR_SCRIPTS.set(json)
    return json


Json = Annotated[
    bool, typer.Option("--json", callback=_for_scripts, help="JSON instead of tables, for scripts.")
]
Shapes = Annotated[
    list[str] | None,
    typer.Option("--shape", help="Shape of an input with open dimensions: x=1,3,224,224. Repeatable."),
]
Frozen = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="An input becomes a constant: sr=16000, state=[[0,1]], mask=@mask.npy. One number fills an "
        "input of known shape. Repeatable.",
    ),
]
CastPolicy = Annotated[
    str,
    typer.Option(
        help="f32: a custom kernel computes in f32 what it lacks element types for. error: it refuses."
    ),
]
Precision = Annotated[
    str,
    typer.Option(help="bf16: float32 tensors are computed in bfloat16, between float32 inputs and outputs."),
]
Groups = Annotated[
    str, typer.Option(help="on: tensors stay in memory tiles between operators, where that costs less.")
]
KernelSeconds = Annotated[
    float | None,
    typer.Option(help="What a call of a custom kernel may take before the run ends; 60 by default."),
]
Threads = Annotated[int | None, typer.Option(help="Host threads; the default lets each part choose.")]


# Control characters but tab and line feed, what reverses or hides text, and lone surrogates.
_HIDDEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)


def visible(text: str) -> str:
    """``text`` as a terminal may see it: what it would obey instead of showing is an escape."""
    return _HIDDEN.sub(lambda found: ascii(found.group())[1:-1], text)


# What Markdown or HTML would obey; a bar also ends a table's cell, behind a backslash too.
_MARKED = re.compile(r"[\\`*_\[\]~#$]|^[-+=]")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "|": "&#124;"}


def as_markdown(text: str) -> str:
    """``text`` as Markdown that shows it on one line, in a paragraph or in a cell of a table."""
    plain = " ".join(visible(text).split())
    marked = _MARKED.sub(lambda found: f"\\{found.group()}", plain)
    marked = re.sub(r"^(\d+)([.)])(?= |$)", r"\1\\\2", marked)  # no list
    return re.sub(r"[&<>|]", lambda found: _ENTITIES[found.group()], marked)


def say(text: str, *, end: str = "\n") -> None:
    """Prints plain text, as it is but for what only a terminal would see."""
    print(visible(text), end=end)


def tell(text: object = "", *, style: str | None = None, to: Console = console, whole: bool = False) -> None:
    """Prints text that may be coloured, and wrapped unless it is to stay ``whole``, as what is copied."""
    to.print(Text(visible(str(text))), style=style, soft_wrap=whole)


def working(text: str | ConsoleRenderable | RichCast) -> AbstractContextManager[Any]:
    """A spinner on the error stream, so that output can be piped; none for a script, which asks for JSON."""
    if _FOR_SCRIPTS.get() or not errors.is_terminal:
        return nullcontext()
    return errors.status(Text(visible(text)) if isinstance(text, str) else text)


@contextmanager
def progress(text: str, total: float) -> Iterator[Callable[..., None]]:
    """A bar on the error stream; what it gives is called as a step ends: ``advance(1)``."""
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=errors, transient=True) as bar:
        task = bar.add_task(visible(text), total=total)

        def advance(steps: float = 1, text: str | None = None) -> None:
            bar.update(task, advance=steps, description=None if text is None else visible(text))

        yield advance


def written(made: Written, json: bool = False) -> None:
    """What ``kernel new`` and ``layer new`` wrote, and how to go on."""
    if json:
        print_json({"files": list(map(str, made.files)), "next": list(made.commands)})
        return
    for file in made.files:
        say(str(file))
    say("\nThe tests need no other package; where pytest is installed, `python -m pytest` runs them too.")
    say("\nNext:")
    for command in made.commands:
        say(f"  {command}")


def print_json(data: Any) -> None:
    """JSON as its standard has it: what is no number (NaN, infinities) is null."""
    print(json.dumps(_numbers(data), indent=2, default=_plain, allow_nan=False))


def _numbers(data: Any) -> Any:
    if isinstance(data, Mapping):
        return {key: _numbers(value) for key, value in data.items()}
    if isinstance(data, np.ndarray | list | set | frozenset | tuple):
        return [_numbers(value) for value in data]
    if isinstance(data, float | np.floating):
        return float(data) if np.isfinite(data) else None
    return data


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    return str(value)


def table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    right: Sequence[int] = (),
    droppable: Sequence[int] = (),
) -> None:
    """Prints a table; ``right`` are indices of columns of numbers, ``droppable`` those that a narrow terminal
    does without, the first before the others: it says which. What is piped has all, however wide."""
    cells = [[cell if isinstance(cell, Text) else Text(visible(str(cell))) for cell in row] for row in rows]
    longest = _MOST_WORD if console.is_terminal else None
    for count in range(len(droppable) + 1):
        kept = [index for index in range(len(columns)) if index not in droppable[:count]]
        names, shown = [columns[index] for index in kept], [[row[index] for index in kept] for row in cells]
        numbers = [at for at, index in enumerate(kept) if index in right]
        layout = _layout(names, shown, numbers, console.width, longest)
        if longest is None or layout.wide <= console.width:
            break
    _print_table(title, names, shown, numbers, layout)
    _tell_dropped([columns[index] for index in sorted(droppable[:count])])


def _print_table(
    title: str, names: Sequence[str], rows: Sequence[Sequence[Text]], right: Sequence[int], layout: _Layout
) -> None:
    result = Table(
        title=Text(visible(title)),
        title_justify="left",
        title_style="bold",
        header_style="bold cyan",
        padding=(0, layout.padding),
    )
    for index, (name, width) in enumerate(zip(names, layout.widths, strict=True)):
        justify: JustifyMethod = "right" if index in right else "left"
        result.add_column(name, justify=justify, overflow="fold", width=width)
    for row in rows:
        fitted = map(_fitted, row, layout.widths) if console.is_terminal else row
        result.add_row(*fitted)
    if console.is_terminal or layout.wide <= console.width:
        console.print(result)
    else:
        Console(file=console.file, width=layout.wide, markup=False, color_system=None).print(result)


def columns(
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    left: Sequence[int] = (0,),
    droppable: Sequence[Sequence[int]] = (),
) -> None:
    """Prints rows below each other, without lines, as ``rows.fitted`` has them; says what it left out."""
    cells = [[visible(cell) for cell in row] for row in rows]
    head, lines, dropped = fitted(heads, cells, console.width, left, droppable)
    for line in head:
        tell(line, style="bold cyan", whole=True)
    for line in lines:
        tell(line, whole=True)
    _tell_dropped(dropped)


def _tell_dropped(heads: Sequence[str]) -> None:
    if heads:
        tell(f"a wider terminal has more columns: {', '.join(heads)}; --json has all")


def place(name: str) -> Text:
    """Where a node runs (npu, cpu, folded), in the colour that it has everywhere."""
    return Text(name, style=_PLACES.get(name, ""))


_PLACES = {"npu": "green", "device": "green", "cpu": "yellow", "host": "yellow", "folded": "dim"}


class _Layout(NamedTuple):
    """The padding of cells, and the widths of columns."""

    padding: int
    widths: list[int]

    @property
    def wide(self) -> int:
        return (2 * self.padding + 1) * len(self.widths) + 1 + sum(self.widths)


def _layout(
    names: Sequence[str],
    rows: Sequence[Sequence[Text]],
    right: Sequence[int],
    width: int,
    longest: int | None,
) -> _Layout:
    """So that a table is ``width`` wide where it can be.

    No column is narrower than its numbers and the words of its title, the first not than its names, up to a
    bound, others not than their words, those of up to ``longest`` letters, or of any where there is room
    for all. What is left goes to columns that need more, in equal shares.
    """
    wanted = [max(_lengths(name, *(row[index].plain for row in rows))) for index, name in enumerate(names)]
    least = [max(_lengths(*name.split())) for name in names]
    for index in range(len(names)):
        cells = [row[index].plain for row in rows]
        least[index] = max(least[index], _least(cells, index == 0, index in right, longest))
    least = _with_words(least, rows, width - 3 * len(names) - 1)
    padding = 1 if sum(least) + 3 * len(names) + 1 <= width else 0
    spare = width - (2 * padding + 1) * len(names) - 1 - sum(least)
    widths = dict(enumerate(least))
    by_need = sorted(widths, key=lambda one: wanted[one] - least[one])
    for place, index in enumerate(by_need):
        more = min(max(0, wanted[index] - least[index]), max(0, spare) // (len(names) - place))
        widths[index] += more
        spare -= more
    return _Layout(padding, [widths[index] for index in range(len(names))])


def _with_words(least: Sequence[int], rows: Sequence[Sequence[Text]], room: int) -> list[int]:
    """The least widths with room for each column's longest word; of words that are too long for ``room``
    together, the longest in the table are the first to do without."""
    words = [
        max(_lengths(*(word for row in rows for word in row[i].plain.split()))) for i in range(len(least))
    ]
    for bound in sorted(set(words), reverse=True):
        wider = [max(width, min(word, bound)) for width, word in zip(least, words, strict=True)]
        if sum(wider) <= room:
            return wider
    return list(least)


def _least(cells: Sequence[str], first: bool, right: bool, longest: int | None) -> int:
    """What a column's cells need at least."""
    if right:
        return max(_lengths(*cells))
    words = _lengths(*(word for cell in cells for word in cell.split()))
    if longest is None:
        return max(words)
    names = [min(_MOST_NAME, length) for length in _lengths(*cells)] if first else []
    return max([0, *names, *(length for length in words if length <= longest)])


_MOST_WORD = 13  # letters of a word that no column of a terminal breaks or shortens: "probabilities"
_MOST_NAME = 24  # of the first column, in a table that is wider than the terminal


def _lengths(*texts: str) -> list[int]:
    return [cell_len(line) for text in texts for line in text.split("\n")] or [0]


def _fitted(cell: Text, width: int) -> Text:
    """The cell with words that are longer than its column shortened in the middle; --json has all of them."""
    words = re.split(r"(\s)", cell.plain)
    if max(map(cell_len, words)) <= width:
        return cell
    return Text("".join(shortened(word, width) for word in words), style=cell.style)


def number(text: str) -> int | None:
    """A size or an index as people write it, None for anything else."""
    digits = text.strip()
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 20 else None


_PERCENT = re.compile(r"(\d{1,6}(?:\.\d{1,6})?)%")


def parse_share(option: str, text: str) -> float:
    """``2%`` or ``0.5%`` as a share, 0.02 or 0.005. Raises ``InputError`` for other text."""
    found = _PERCENT.fullmatch(text.strip())
    if found is None or not text.isascii():
        raise InputError(option, repr(text), "a percentage, with its sign", "for instance 2% or 0.5%")
    return float(found[1]) / 100


def parse_shapes(texts: Sequence[str] | None) -> dict[str, tuple[int, ...]]:
    """``x=1,3,224,224`` as a dict. Raises ``InputError`` for other text, and for an input named twice."""
    shapes: dict[str, tuple[int, ...]] = {}
    for text in texts or ():
        name, _, sizes = text.rpartition("=")
        parts = sizes.replace("x", ",").split(",")
        numbers = [size for size in map(number, parts) if size is not None]
        if not name or len(numbers) < len(parts):
            raise InputError("--shape", repr(text), "name=size,size,...", "for instance x=1,3,224,224")
        if name in shapes:
            raise InputError("--shape", f"{text!r}: {name} once more", "one shape for each input")
        shapes[name] = tuple(numbers)
    return shapes


def parse_profiles(texts: Sequence[str] | None) -> dict[str, list[tuple[int, ...]]]:
    """``x=320x320,640x640`` as a dict of lists. Raises ``InputError`` for other text."""
    profiles: dict[str, list[tuple[int, ...]]] = {}
    for text in texts or ():
        name, _, rest = text.rpartition("=")
        numbers = [[number(size) for size in one.split("x")] for one in rest.split(",")]
        if not name or any(size is None for one in numbers for size in one):
            accepted = "name=sizes,sizes,..., the sizes of one with x in between"
            raise InputError("--shapes", repr(text), accepted, "for instance images=320x320,640x640")
        if name in profiles:
            raise InputError("--shapes", f"{text!r}: {name} once more", "each input once")
        profiles[name] = [tuple(size for size in one if size is not None) for one in numbers]
    return profiles


def parse_frozen(texts: Sequence[str] | None) -> dict[str, Any]:
    """``sr=16000`` as a dict: numbers, true and false, lists of them, texts; ``@file.npy`` is an array.

    Raises ``InputError`` for other text, for a file that is none, and for an input named twice.
    """
    values: dict[str, Any] = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not name or not equals or not value:
            raise InputError("--set", repr(text), "name=value, for instance sr=16000, or name=@file.npy")
        if name in values:
            raise InputError("--set", f"{text!r}: {name} once more", "one value for each input")
        values[name] = _array_file("--set", text, value[1:]) if value[0] == "@" else _literal(value)
    return values


def _literal(text: str) -> Any:
    """What JSON makes of a text; a number as Python reads it (inf), or else the text itself."""
    for read in (json.loads, float):
        try:
            return read(text)
        except (ValueError, RecursionError):
            continue
    return text


def _array_file(option: str, text: str, path: str) -> Array:
    """The array of an ``.npy``. Raises ``InputError`` that names the option, and ``text`` that follows it."""
    found = read_arrays(path, option, "name=@array.npy", text)
    if list(found) != [""]:
        raise InputError(option, f"{text!r}: several arrays", "name=@array.npy, a file of one")
    return found[""]


def archive(option: str, path: str) -> dict[str, Array]:
    """The arrays of an ``.npz``, by name. Raises ``InputError`` that names the option."""
    accepted = "arrays.npz, as numpy.savez writes it"
    found = read_arrays(path, option, accepted)
    if "" in found:
        raise InputError(option, f"{path!r}, an array without a name", accepted)
    return found


def parse_inputs(texts: Sequence[str] | None) -> dict[str, Array]:
    """``x=file.npy`` per input, or one ``.npz`` that holds them by name."""
    feed: dict[str, Array] = {}
    accepted = "name=array.npy, or arrays.npz"
    for text in texts or ():
        name, equals, path = text.partition("=")
        found = read_arrays(path if equals else text, "--input", accepted)
        if bool(equals) != ("" in found):
            raise InputError("--input", repr(text), accepted)
        feed |= {name: found[""]} if equals else found
    return feed
