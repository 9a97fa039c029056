# SPDX-License-Identifier: Apache-2.0
"""Limits that the Python and C++ host code share; ``genheader`` generates the C++ side."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType
from typing import Any, NamedTuple

from onedispatch.transactions.base.errors import InputError

MOST_THREADS = 1024  # host threads that a caller may request: a guard against typing errors
# Bytes of the widest vectors: kernels may read as many behind memory that they are given, and memory
# that the host lends to a device begins at a multiple.
VECTOR_BYTES = 64
KERNEL_MILLISECONDS = 60_000  # time limit of a custom kernel's call: a guard against endless bodies
LEAST_KERNEL_MILLISECONDS = 1
MOST_KERNEL_MILLISECONDS = 86_400_000
CHECK_SECONDS = 600.0  # time limit of a whole check-mode run: a guard against models too large for it
KERNEL_SECONDS = "ONEDISPATCH_KERNEL_SECONDS"  # environment variable with the default limit of a call


class _KernelLimit(NamedTuple):
    seconds: float
    holder: FrameType  # the frame that opened the block
    before: _KernelLimit | None


_limit: ContextVar[_KernelLimit | None] = ContextVar("kernel_seconds", default=None)


@contextmanager
def kernel_limit(seconds: float | None) -> Iterator[None]:
    """Sets ``kernel_seconds()`` for this thread in the block; None changes nothing.

    The limit applies while the caller's frame is on the stack: an exception of a signal handler may end the
    block between any two instructions and skip the code that restores the limit.
    """
    if seconds is None:
        yield
        return
    before = _limit.get()
    _limit.set(
        _KernelLimit(seconds, sys._getframe(2), before)
    )  # frame 1 is contextlib's, frame 2 the caller's
    try:
        yield
    finally:
        _limit.set(before)


def _limit_in_force() -> float | None:
    """Returns the limit of the innermost ``kernel_limit`` block that has not ended."""
    held, frames = _limit.get(), set()
    frame: FrameType | None = sys._getframe(1) if held is not None else None
    while frame is not None:
        frames.add(frame)
        frame = frame.f_back
    while held is not None and held.holder not in frames:
        held = held.before
    _limit.set(held)
    return None if held is None else held.seconds


def kernel_seconds(value: Any = None) -> float:
    """Returns the host seconds that a call of a custom kernel may take: ``value``, else the limit of
    ``kernel_limit``, else the environment variable, else a minute.

    Raises:
        InputError: not a number, or outside of 0.001 to 86400.
    """
    where = "kernel_seconds"
    value = _limit_in_force() if value is None else value
    if value is None:
        value = os.environ.get(KERNEL_SECONDS) or KERNEL_MILLISECONDS / 1000
        where = KERNEL_SECONDS if KERNEL_SECONDS in os.environ else where
    return seconds_of(where, value)


def seconds_of(where: str, value: Any) -> float:
    """Returns ``value`` as a limit in seconds. Raises ``InputError`` if it is not a valid limit."""
    least, most = LEAST_KERNEL_MILLISECONDS / 1000, MOST_KERNEL_MILLISECONDS / 1000
    try:
        seconds = float("nan") if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        seconds = float("nan")
    if not least <= seconds <= most:
        raise InputError(where, repr(value), f"a number of seconds from {least:g} to {most:g}")
    return seconds
