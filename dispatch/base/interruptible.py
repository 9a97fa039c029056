# SPDX-License-Identifier: Apache-2.0
"""Waiting for foreign code that knows nothing of Python's signals, so that Ctrl-C ends the wait."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from onedispatch.transactions.base.handlers import SignalsDeferred

R = TypeVar("R")


def interruptible(work: Callable[[], R], stop: Callable[[], None] | None = None) -> R:
    """``work()``, or what a signal handler raises meanwhile.

    Python handles signals on its main thread, between instructions of Python; so on that thread the
    work is given to another one. When a handler raises, ``stop`` is called and the work left alone:
    it must not touch what its caller goes on to use.
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

    # Thread.start and Thread.join wait in Python, where a handler that raises would leave locks taken.
    ended = threading.Lock()
    ended.acquire()
    thread = threading.Thread(target=run, name="onedispatch work")
    try:
        with SignalsDeferred():
            try:
                thread.start()
            except RuntimeError:  # the system gives no more threads
                run()
        ended.acquire()
    except BaseException:
        if stop is not None:
            stop()
        raise
    if failures:
        raise failures.pop()
    return results.pop()
