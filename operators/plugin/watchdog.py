# SPDX-License-Identifier: Apache-2.0
"""Ends functions of custom kernels that do not end, and those on other threads that go on after Ctrl-C.

A thread looks twenty times a second at the bodies that run, and raises ``BodyTimeout`` or ``BodyInterrupt``
in those that are late. Python sees it between two of its instructions: a single call of NumPy that takes for
ever is beyond it.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from onedispatch.operators.plugin.refusals import refusal
from onedispatch.transactions.base.boundary import attributed_to, error_line, plugin_failure, source_of
from onedispatch.transactions.base.errors import OneDispatchError
from onedispatch.transactions.base.handlers import reraise_from_handler
from onedispatch.transactions.base.host import kernel_seconds

T = TypeVar("T")
_LOOK = 0.05  # seconds between two looks
_PATIENCE = 0.25  # seconds that a body has to end by itself after Ctrl-C
_IDLE = 2.0  # seconds without a body before the thread ends


class BodyTimeout(BaseException):
    """Raised in a body that takes too long."""


class BodyInterrupt(BaseException):
    """Raised in a body that goes on after Ctrl-C."""


class _Entry:
    """A body that runs."""

    def __init__(self, seconds: float, interrupts: Callable[[], int]) -> None:
        self.deadline = time.monotonic() + seconds
        self.interrupts, self.before = interrupts, interrupts()
        self.noticed = 0.0  # when an interrupt was first seen
        self.fired = 0.0  # when something was last raised in it

    def due(self, now: float) -> type[BaseException] | None:
        """What is to be raised in the body now; once more where it caught what was."""
        if self.interrupts() != self.before and not self.noticed:
            self.noticed = now
        if self.fired and now - self.fired < _PATIENCE:
            return None
        if self.noticed and now - self.noticed > _PATIENCE:
            return BodyInterrupt
        return BodyTimeout if now >= self.deadline else None


class _Watch:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.running: dict[int, _Entry] = {}
        self.thread: threading.Thread | None = None

    def enter(self, entry: _Entry) -> _Entry | None:
        """The body that this thread was running when this one began inside it."""
        with self.lock:
            outer = self.running.get(threading.get_ident())
            self.running[threading.get_ident()] = entry
            if self.thread is None or not self.thread.is_alive():
                self.thread = threading.Thread(target=self._look, name="onedispatch watchdog", daemon=True)
                self.thread.start()
            return outer

    def leave(self, outer: _Entry | None) -> None:
        """Nothing is raised for the inner body from here on but what has been raised already."""
        with self.lock:
            if outer is None:
                self.running.pop(threading.get_ident(), None)
            else:
                self.running[threading.get_ident()] = outer

    def renew(self) -> None:
        """In a forked child: the thread that looks is the parent's, and may have held the lock."""
        own = threading.get_ident()
        self.lock, self.thread = threading.Lock(), None
        self.running = {own: self.running[own]} if own in self.running else {}

    def _look(self) -> None:
        idle = time.monotonic()
        while True:
            time.sleep(_LOOK)
            now = time.monotonic()
            with self.lock:
                if self.running:
                    idle = now
                elif now - idle > _IDLE:
                    self.thread = None
                    return
                for ident, entry in self.running.items():
                    raised = entry.due(now)
                    if raised is not None:
                        entry.fired = now
                        _raise_in(ident, raised)


_WATCH = _Watch()
os.register_at_fork(after_in_child=_WATCH.renew)


class _Settled(BaseException):
    """Takes the place of what was raised in a thread and has not arrived."""


def _raise_in(ident: int, raised: type[BaseException]) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(raised))


def _settle() -> None:
    """Nothing that was raised in this thread arrives from here on.

    Another exception takes its place and is awaited: Python 3.11 withdraws one without lowering the flag that
    says that there is one, and then goes round in circles where a profiler or debugger is on.
    """
    with suppress(_Settled):
        _raise_in(threading.get_ident(), _Settled)
        while True:
            pass


def asked(
    function: Callable[..., Any],
    about: str,
    *arguments: Any,
    meant: type[Exception] = OneDispatchError,
    named: Callable[..., Any] | None = None,
) -> Any:
    """``function(*arguments)`` of a custom kernel or mapping, under the clock of its body.

    ``about`` says for what it runs, ``meant`` is what it may raise: what else goes wrong names both. It does
    not end the process by ``SystemExit``, which a signal handler of the caller may. Messages show the source
    of ``named``, if that is another function or class.
    """
    shown = function if named is None else named
    with attributed_to(shown, about, meant):
        try:
            return watched(function, kernel_seconds(), *arguments, what=f"{about}, {source_of(shown)}")
        except SystemExit as error:
            reraise_from_handler(error)
            raise plugin_failure(shown, about, error_line(error)) from error


def asked_of(
    operator: Any, about: str, question: Callable[[], T], meant: type[Exception] = OneDispatchError
) -> T:
    """``question()``, which an operator's methods answer: under the clock where its class is from outside.

    Errors that such a class raises by itself name operator and class, too.
    """
    cls = type(operator)
    if cls.__module__.partition(".")[0] != "onedispatch":
        try:
            answer: T = asked(question, about, meant=meant, named=cls)
        except meant:
            raise
        except OneDispatchError as error:
            if about not in error.where:
                error.where = f"{about}, {source_of(cls)}: {error.where}"
            raise
        return answer
    with attributed_to(cls, about, meant):
        return question()


def watched(
    function: Callable[..., Any],
    seconds: float,
    *arguments: Any,
    interrupts: Callable[[], int] = int,
    what: str = "the body",
) -> Any:
    """``function(*arguments)``, ended after ``seconds``; ``interrupts`` counts those of the process.

    Raises:
        KernelError: it did not end in time (``KernelTimeoutError``).
        BodyInterrupt: Ctrl-C came, and it went on.
    """
    entry, outer = _Entry(seconds, interrupts), None
    try:
        try:
            outer = _WATCH.enter(entry)
            return function(*arguments)
        finally:
            _WATCH.leave(outer)
            if entry.fired:
                _settle()  # it came to its end meanwhile
    except BodyTimeout as error:
        if not entry.fired:
            raise  # the body around this one is late
        _WATCH.leave(outer)
        accepted = "less: InferenceSession(..., kernel_seconds=...), ONEDISPATCH_KERNEL_SECONDS"
        raise refusal("timeout", what, f"no end within {seconds:g} seconds", accepted) from error
