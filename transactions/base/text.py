# SPDX-License-Identifier: Apache-2.0
"""Text helpers of messages, reports and pages: plurals, ranges, sizes, spelling suggestions, tables."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

KIND_NAMES = {"shim": "shim", "mem": "memory tile", "core": "core"}


def counted(number: int, noun: str) -> str:
    """Returns a count with its noun in the right number: ``1 task``, ``2,000 tasks``, ``0 entries``."""
    if number == 1:
        return f"1 {noun}"
    if noun.endswith(("s", "x", "ch", "sh")):
        return f"{number:,} {noun}es"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return f"{number:,} {noun[:-1]}ies"
    return f"{number:,} {noun}s"


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """Returns ``did you mean 'x'?`` for the known name that is closest in spelling, "" if none is close."""
    near = difflib.get_close_matches(given, list(known), 1)
    return f"did you mean {near[0]!r}?" if near else ""


def encodable(text: str) -> str:
    """Returns a text that UTF-8 has: names of models may hold lone surrogates, which become escapes."""
    return text.encode("utf-8", "backslashreplace").decode()


def tile_name(column: int, row: int) -> str:
    """Returns a tile's place in the array as every text names it: ``c2 r1``."""
    return f"c{column} r{row}"


def span(low: int, high: int) -> str:
    """Returns an inclusive range: ``0 to 3``, ``3`` for a single value, ``nothing`` for an empty range."""
    if low > high:
        return "nothing"
    return f"{low}" if low == high else f"{low} to {high}"


def short_bytes(count: int) -> str:
    """Returns a byte count such as ``96K`` or ``1.5M``, at most five characters up to terabytes."""
    size, unit = float(count), ""
    for unit in ("", "K", "M", "G", "T"):
        if size < 1000 or unit == "T":
            break
        size /= 1024
    return f"{size:.1f}{unit}" if unit and size < 100 and size != int(size) else f"{size:.0f}{unit}"


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Returns a table in Markdown, without a line break at its end."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(
        "| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines
    )


def lock_condition(value: int) -> str:
    """Returns the condition on a lock's value that an acquire with ``value`` waits for."""
    return f">= {-value}" if value < 0 else f"== {value}"


_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))


def duration(seconds: float) -> str:
    """A time as people read it: three digits and a unit."""
    scale, unit = next(((s, u) for s, u in _UNITS if seconds >= s), _UNITS[-1])
    value = seconds / scale
    digits = f"{value:.0f}" if value >= 100 else f"{value:.3g}" if value >= 1 else f"{value:.2g}"
    return f"{digits} {unit}"
