# SPDX-License-Identifier: Apache-2.0
"""Values that hold within a block, for the code that it calls in its thread."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")
V = TypeVar("V")


@contextmanager
def setting(variable: ContextVar[T | V], value: T) -> Iterator[T]:
    """Sets ``variable``, which has a default, within the block, and yields the value.

    What it had before comes back however the block ends. ``ContextVar.reset`` needs a token, which an
    exception of a signal handler may keep from being stored once the variable is set.
    """
    before = variable.get()
    try:
        variable.set(value)
        yield value
    finally:
        variable.set(before)
