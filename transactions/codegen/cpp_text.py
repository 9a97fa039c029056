# SPDX-License-Identifier: Apache-2.0
"""Text of C and C++: lists filled into lines, arrays, constants, namespaces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

LINE = 198  # characters


def filled(items: Iterable[str], head: str = "", end: str = "") -> Iterator[str]:
    """``head``, ``items`` with commas between them, and ``end``, as many items in a line as fit."""
    line, comma = head, ""
    for item in items:
        if comma and len(line) + len(item) + 3 > LINE:
            yield f"{line},"
            line, comma = "    ", ""
        line, comma = f"{line}{comma}{item}", ", "
    yield f"{line}{end}"


def braced(head: str, items: Iterable[str]) -> Iterator[str]:
    """The definition ``head {items};``."""
    return filled(items, f"{head} {{", "};")


def constants(entries: Mapping[str, int]) -> Iterator[str]:
    """Definitions of integer constants."""
    if entries:
        yield from filled(
            (f"{name} = {value}" for name, value in entries.items()), "constexpr uint32_t ", ";"
        )


def namespace(name: str, lines: Iterable[str]) -> Iterator[str]:
    """``lines`` in a namespace of C++; a single short one in the same line."""
    body = list(lines)
    short = f"namespace {name} {{ {body[0]} }}" if len(body) == 1 else f"namespace {name} {{}}"
    if len(body) <= 1 and len(short) <= LINE:
        yield short
        return
    yield f"namespace {name} {{"
    yield from body
    yield f"}}  // namespace {name}"
