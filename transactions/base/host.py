# SPDX-License-Identifier: Apache-2.0
"""What the host side of Python and of C++ must agree on; C++ has it by ``genheader``."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType
from typing import Any, NamedTuple

from onedispatch.transactions.base.errors import InputError

MOST_THREADS = 1024  # host threads that a caller may ask for: a guard against mistakes, no machine has more
KERNEL_MILLISECONDS = (
    60_000  # that a call of a kernel from outside may take: a guard against bodies that never end
)
LEAST_KERNEL_MILLISECONDS = 1
MOST_KERNEL_MILLISECONDS = 86_400_000
CHECK_SECONDS = 600.0  # that check mode may take in all: a guard against models that are too large for it
KERNEL_SECONDS = "ONEDISPATCH_KERNEL_SECONDS"  # environment: what holds where nobody says it


class _Limit(NamedTuple):
    seconds: float
    holder: FrameType  # whose block it is for
    before: _Limit | None


_limit: ContextVar[_Limit | None] = ContextVar("kernel_seconds", default=None)


@contextmanager
def kernel_limit(seconds: float | None) -> Iterator[None]:
    """``kernel_seconds()`` of what this thread does in the block; None changes nothing.

    It holds as long as the caller is on the stack: a signal handler that raises may end the block between
    any two instructions, and with it what would have put the limit back.
    """
    if seconds is None:
        yield
        return
    before = _limit.get()
    _limit.set(_Limit(seconds, sys._getframe(2), before))  # behind contextlib's frame that of the caller
    try:
        yield
    finally:
        _limit.set(before)


def _limit_in_force() -> float | None:
    """What the innermost ``kernel_limit`` says whose block has not ended."""
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
    """Seconds of the host that a call of a custom kernel's function may take: ``value``, or what
    ``kernel_limit`` says, or the environment, or a minute.

    Raises:
        InputError: no number, or one outside of 0.001 to 86400.
    """
    where = "kernel_seconds"
    value = _limit_in_force() if value is None else value
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
