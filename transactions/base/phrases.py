# SPDX-License-Identifier: Apache-2.0
"""Words and numbers as explanations, checks and pictures say them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

KIND_NAMES = {"shim": "shim", "mem": "memory tile", "core": "core"}


def counted(number: int, noun: str) -> str:
    """``1 task``, ``2,000 tasks``, ``3 addresses``, ``0 entries``."""
    if number == 1:
        return f"1 {noun}"
    if noun.endswith(("s", "x", "ch", "sh")):
        return f"{number:,} {noun}es"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return f"{number:,} {noun[:-1]}ies"
    return f"{number:,} {noun}s"


def nearest(given: str, known: Iterable[str]) -> str:
    """A question for the spelling that is almost the same; "" where there is none."""
    near = difflib.get_close_matches(given, list(known), 1)
    return f"did you mean {near[0]!r}?" if near else ""


def span(low: int, high: int) -> str:
    """``0 to 3``; ``3`` of a range of one; ``nothing`` of an empty one."""
    if low > high:
        return "nothing"
    return f"{low}" if low == high else f"{low} to {high}"


def short_bytes(count: int) -> str:
    """``96K``, ``1.5M``: at most five characters up to the terabytes."""
    size, unit = float(count), ""
    for unit in ("", "K", "M", "G", "T"):
        if size < 1000 or unit == "T":
            break
        size /= 1024
    return f"{size:.1f}{unit}" if unit and size < 100 and size != int(size) else f"{size:.0f}{unit}"


def condition(value: int) -> str:
    """What an acquire waits for."""
    return f">= {-value}" if value < 0 else f"== {value}"
