# SPDX-License-Identifier: Apache-2.0
"""Exceptions of the caller's signal handlers, as distinct from failures of what a handler interrupts.

Python runs a handler between two instructions of whatever its main thread does: ``signal.alarm`` with a
handler that raises ``TimeoutError`` may interrupt any line of this package, inside a ``try`` for errors of
files too. Such an exception is the caller's, and reaches the caller unchanged. ``public`` sees to that
for all that is raised; code that continues after an error calls ``let_through`` first.
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

_PACKAGE = str(Path(__file__).parents[2])  # as the code objects name it: links are not followed


# What an instruction itself causes is never put off.
_BY_INSTRUCTIONS = (
    signal.SIGSEGV,
    signal.SIGBUS,
    signal.SIGFPE,
    signal.SIGILL,
    signal.SIGABRT,
    signal.SIGTRAP,
)
_PUT_OFF = tuple(sorted({int(one) for one in signal.valid_signals()} - set(_BY_INSTRUCTIONS)))
# ``signal.pthread_sigmask`` names numbers in Python, where it takes what a handler raises for a failure.
_signal: Any = importlib.import_module("_signal")


class PutOff:
    """No signal handler of Python runs in the block; those whose signals came run behind it.

    For steps that belong together: starting a thread, say, which would leave a lock taken. Threads that start
    in the block take no signals, which the main thread handles anyway.
    """

    _before: set[int] | None = None

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            before = _signal.pthread_sigmask(signal.SIG_BLOCK, ())
            try:
                _signal.pthread_sigmask(signal.SIG_BLOCK, _PUT_OFF)  # runs handlers whose signals came before
            except BaseException:
                _signal.pthread_sigmask(signal.SIG_SETMASK, before)
                raise
            self._before = before

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            _signal.pthread_sigmask(signal.SIG_SETMASK, self._before)


def let_through(error: BaseException) -> None:
    """Raises what a signal handler raised, where ``error`` is that or was raised because of it."""
    raised = from_handler(error)
    if raised is not None:
        raise raised from raised.__cause__


def from_handler(error: BaseException) -> BaseException | None:
    """What a signal handler raised during a call of this package, in the chain of causes of ``error``."""
    codes = set(_handler_codes())
    for one in _chain(error):
        frames = list(_frames(one))
        # What the caller was handling before the call is in the chain too: no frame of ours was interrupted.
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
    """The code of handlers that are installed now."""
    for number in signal.valid_signals():
        handler: Any = signal.getsignal(number)
        if callable(handler):
            for one in (handler, getattr(handler, "func", None), vars(type(handler)).get("__call__")):
                code = getattr(one, "__code__", None)
                if code is not None:
                    yield code


def _is_handler(frame: FrameType, codes: set[CodeType]) -> bool:
    """Whether the frame is a handler's: of one that is installed, or a call with a signal's number and the
    frame that it interrupts, as Python makes it."""
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
