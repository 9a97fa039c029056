# SPDX-License-Identifier: Apache-2.0
"""What kernels print on the host: collected by whoever runs a host region."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

Row = tuple[str, int, list[tuple[tuple[int, ...], str]]]  # kernel, lines lost, (member, text)


@dataclass
class Heard:
    """Rows of ``print_bytes`` each at most, with the nodes that they are of, in the order of the run."""

    print_bytes: int = 0
    rows: list[tuple[str, Row]] = field(default_factory=list)


_HEARD: ContextVar[Heard | None] = ContextVar("heard", default=None)


@contextmanager
def listening(print_bytes: int) -> Iterator[Heard]:
    """Collects what kernels print on this thread."""
    heard = Heard(print_bytes)
    token = _HEARD.set(heard)
    try:
        yield heard
    finally:
        _HEARD.reset(token)


@contextmanager
def printing(node: str) -> Iterator[tuple[list[Any], int]]:
    """Where one call of a kernel prints: a list of rows, and the bytes of each."""
    heard = _HEARD.get() or Heard()
    rows: list[Any] = []
    try:
        yield rows, heard.print_bytes
    finally:
        heard.rows += [(node, row) for row in rows]
