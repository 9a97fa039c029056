# SPDX-License-Identifier: Apache-2.0
"""Worker processes that end when their parent does, however it ends."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from onedispatch.transactions.base.errors import ResourceError
from onedispatch.transactions.base.handlers import SignalsDeferred

R = TypeVar("R")


def mapped(function: Callable[..., R], jobs: int, *columns: Sequence[Any], chunk: int = 1) -> Iterator[R]:
    """Yields ``map(function, *columns)`` in order, computed by ``jobs`` processes, or in this one if 1.

    Raises ``ResourceError`` where a process ends without an answer. Else see ``workers``.
    """
    if jobs <= 1:
        yield from map(function, *columns)
        return
    try:
        with workers(jobs) as pool:
            yield from pool.map(function, *columns, chunksize=chunk)
    except BrokenProcessPool as error:
        raise ResourceError(
            "worker processes", "one that ended without an answer", "", "try fewer, with more memory for each"
        ) from error


@contextmanager
def workers(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """A pool of ``jobs`` processes.

    They end at once, in the middle of a job, when the block is left by an exception, an interrupt's too, and
    when this process dies. They ignore SIGINT, which a terminal sends to them as well.

    Raises ``ResourceError`` where they cannot begin: each imports the program that starts them.
    """
    # Spawned, not forked: the simulator may have threads.
    context = multiprocessing.get_context("spawn")
    theirs, ours = context.Pipe(duplex=False)
    pool: ProcessPoolExecutor | None = None
    try:
        with SignalsDeferred():  # it holds semaphores of the system, which ``shutdown`` gives back
            pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=_begin, initargs=(theirs,))
        _start(pool, jobs)
        yield pool
        pool.shutdown()
    finally:
        theirs.close()
        ours.close()
        if pool is not None:
            pool.shutdown(cancel_futures=True)


def _start(pool: ProcessPoolExecutor, jobs: int) -> None:
    """Starts the workers with SIGINT blocked, a mask that they inherit, and waits for one to be there."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):  # multiprocessing's: still importing
        raise _unguarded("a process that is one of them, and begins")
    resource_tracker.ensure_running()  # starting it later would unblock signals
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        begun = [pool.submit(int) for _ in range(jobs)]  # starts a process as long as none has ended its job
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    try:
        begun[0].result()
    except BrokenProcessPool as error:
        raise _unguarded("processes that end as they begin") from error


def _unguarded(given: str) -> ResourceError:
    """Each worker imports the program that starts it: all that is under no question of ``__name__``."""
    accepted = """a program in a file, which starts them under 'if __name__ == "__main__":'"""
    return ResourceError("worker processes", given, accepted, "put what the program does under that line")


def _begin(parent: Connection) -> None:
    """Initialises a worker: watches for the end of the parent."""
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: Connection) -> None:
    """Exits when the pipe closes, because the parent closed it or died; nothing is ever sent through it."""
    try:
        parent.recv_bytes()
    except (EOFError, OSError):
        os._exit(1)
