# SPDX-License-Identifier: Apache-2.0
"""Distinguishes exceptions of the caller's signal handlers from failures of the code they interrupt.

Python runs a handler between two instructions of its main thread: ``signal.alarm`` with a handler that raises
``TimeoutError`` may interrupt any line of this package, even inside a ``try`` for file errors. Such an
exception belongs to the caller and must reach the caller unchanged. ``public`` ensures this for exceptions
that propagate; code that continues after an error calls ``reraise_from_handler`` first.
"""

from __future__ import annotations

import importlib
import signal
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

_PACKAGE = str(Path(__file__).parents[2])  # as code objects name it, with symbolic links unresolved


# Signals that an instruction itself causes cannot be deferred.
_SYNCHRONOUS = (
    signal.SIGSEGV,
    signal.SIGBUS,
    signal.SIGFPE,
    signal.SIGILL,
    signal.SIGABRT,
    signal.SIGTRAP,
)
_DEFERRED = tuple(sorted({int(one) for one in signal.valid_signals()} - set(_SYNCHRONOUS)))
# The Python wrapper ``signal.pthread_sigmask`` swallows a handler's exception while it names the signals.
_signal: Any = importlib.import_module("_signal")


class SignalsDeferred:
    """Defers signals in the block: Python's handlers for signals that arrive run after it.

    For steps that must not be interrupted, such as starting a thread, which would leave a lock held. Threads
    that start in the block receive no signals; the main thread handles signals anyway.
    """

    _before: set[int] | None = None

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            before = _signal.pthread_sigmask(signal.SIG_BLOCK, ())
            try:
                _signal.pthread_sigmask(signal.SIG_BLOCK, _DEFERRED)  # runs handlers of pending signals first
            except BaseException:
                _signal.pthread_sigmask(signal.SIG_SETMASK, before)
                raise
            self._before = before

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            _signal.pthread_sigmask(signal.SIG_SETMASK, self._before)


def reraise_from_handler(error: BaseException) -> None:
    """Raises the exception of a signal handler if ``error`` is one or was caused by one."""
    raised = from_handler(error)
    if raised is not None:
        raise raised from raised.__cause__


def from_handler(error: BaseException) -> BaseException | None:
    """Returns the exception in the cause chain of ``error`` that a signal handler raised during a call of
    this package, or None."""
    codes = set(_handler_codes())
    for one in _chain(error):
        frames = list(_frames(one))
        # The chain also holds exceptions that the caller was handling before the call; those interrupted
        # no frame of this package.
        if any(_is_handler(frame, codes) for frame in frames) and _interrupts_us(frames[0]):
            return one
    return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    left: list[BaseException | None] = [error]
    seen: set[int] = set()
    while left:
        one = left.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            yield one
            left += [one.__context__, one.__cause__]


def _frames(error: BaseException) -> Iterator[FrameType]:
    trace = error.__traceback__
    while trace is not None:
        yield trace.tb_frame
        trace = trace.tb_next


def _handler_codes() -> Iterator[CodeType]:
    """Yields the code objects of the installed signal handlers."""
    for number in signal.valid_signals():
        handler: Any = signal.getsignal(number)
        if callable(handler):
            for one in (handler, getattr(handler, "func", None), vars(type(handler)).get("__call__")):
                code = getattr(one, "__code__", None)
                if code is not None:
                    yield code


def _is_handler(frame: FrameType, codes: set[CodeType]) -> bool:
    """True if the frame runs a signal handler: an installed one, or a call whose arguments are a signal
    number and the interrupted frame, as Python passes them."""
    code = frame.f_code
    if code in codes:
        return True
    names = code.co_varnames[: code.co_argcount + 1]  # *args too
    given: list[Any] = []
    for name in names:
        value = frame.f_locals.get(name)
        given += value if type(value) is tuple else [value]
    return frame.f_back is not None and any(
        isinstance(number, int) and interrupted is frame.f_back for number, interrupted in pairwise(given)
    )


def _interrupts_us(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith(_PACKAGE) and frame.f_code.co_filename != __file__:
            return True
        frame = frame.f_back
    return False
