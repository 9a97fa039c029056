# SPDX-License-Identifier: Apache-2.0
"""What the host side of Python and of C++ must agree on; C++ has it by ``genheader``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from onedispatch.transactions.base.errors import InputError

MOST_THREADS = 1024  # host threads that a caller may ask for: a guard against mistakes, no machine has more
KERNEL_MILLISECONDS = (
    60_000  # that a call of a kernel from outside may take: a guard against bodies that never end
)
LEAST_KERNEL_MILLISECONDS = 1
MOST_KERNEL_MILLISECONDS = 86_400_000
CHECK_SECONDS = 600.0  # that check mode may take in all: a guard against models that are too large for it
KERNEL_SECONDS = "ONEDISPATCH_KERNEL_SECONDS"  # environment: what holds where nobody says it


_limit: ContextVar[float | None] = ContextVar("kernel_seconds", default=None)


@contextmanager
def kernel_limit(seconds: float | None) -> Iterator[None]:
    """``kernel_seconds()`` of what this thread does in the block; None changes nothing."""
    before = _limit.set(_limit.get() if seconds is None else seconds)
    try:
        yield
    finally:
        _limit.reset(before)


def kernel_seconds(value: Any = None) -> float:
    """Seconds of the host that a call of a custom kernel's function may take: ``value``, or what
    ``kernel_limit`` says, or the environment, or a minute.

    Raises:
        InputError: no number, or one outside of 0.001 to 86400.
    """
    where = "kernel_seconds"
    value = _limit.get() if value is None else value
    if value is None:
        value = os.environ.get(KERNEL_SECONDS) or KERNEL_MILLISECONDS / 1000
        where = KERNEL_SECONDS if KERNEL_SECONDS in os.environ else where
    return seconds_of(where, value)


def seconds_of(where: str, value: Any) -> float:
    """``value`` as a limit in seconds. Raises ``InputError`` for what is none."""
    least, most = LEAST_KERNEL_MILLISECONDS / 1000, MOST_KERNEL_MILLISECONDS / 1000
    try:
        seconds = float("nan") if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        seconds = float("nan")
    if not least <= seconds <= most:
        raise InputError(where, repr(value), f"a number of seconds from {least:g} to {most:g}")
    return seconds
