# SPDX-License-Identifier: Apache-2.0
"""Waits for native code that does not check Python's signals, in such a way that Ctrl-C ends the wait."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from onedispatch.transactions.base.handlers import SignalsDeferred

R = TypeVar("R")


def interruptible(work: Callable[[], R], stop: Callable[[], None] | None = None) -> R:
    """Returns ``work()``, or raises what a signal handler raises meanwhile.

    Python runs signal handlers on the main thread, between bytecode instructions; so a call on the main
    thread gives the work to another thread. If a handler raises, ``stop`` is called and the work goes on
    unattended: it must not touch objects that the caller uses afterwards.
    """
    if threading.current_thread() is not threading.main_thread():
        return work()
    results: list[R] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:  # noqa: BLE001 - raised on the thread that waits
            failures.append(error)
        finally:
            ended.release()

    # Thread.start and Thread.join wait in Python code, where a handler that raises would leave locks held.
    ended = threading.Lock()
    ended.acquire()
    thread = threading.Thread(target=run, name="onedispatch work")
    try:
        with SignalsDeferred():
            try:
                thread.start()
            except RuntimeError:  # the system has no more threads
                run()
        ended.acquire()
    except BaseException:
        if stop is not None:
            stop()
        raise
    if failures:
        raise failures.pop()
    return results.pop()
