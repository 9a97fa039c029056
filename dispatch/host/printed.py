# SPDX-License-Identifier: Apache-2.0
"""Collects what custom kernels print in host regions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from onedispatch.transactions.base.context import setting

Row = tuple[str, int, list[tuple[tuple[int, ...], str]]]  # kernel, lines lost, (member, text)


@dataclass
class Printed:
    """The rows printed in a run, each with its node; a row has at most ``print_bytes`` bytes."""

    print_bytes: int = 0
    rows: list[tuple[str, Row]] = field(default_factory=list)


_PRINTED: ContextVar[Printed | None] = ContextVar("printed", default=None)


@contextmanager
def collecting(print_bytes: int) -> Iterator[Printed]:
    """Collects what kernels print on this thread while the context is open."""
    with setting(_PRINTED, Printed(print_bytes)) as printed:
        yield printed


@contextmanager
def printing(node: str) -> Iterator[tuple[list[Any], int]]:
    """Yields where one kernel call prints: a list of rows, and the most bytes of each."""
    printed = _PRINTED.get() or Printed()
    rows: list[Any] = []
    try:
        yield rows, printed.print_bytes
    finally:
        printed.rows += [(node, row) for row in rows]
