# SPDX-License-Identifier: Apache-2.0
"""Worker processes that end with the one who asked for their work, however that one ends."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from onedispatch.transactions.base.errors import ResourceError

R = TypeVar("R")


def mapped(function: Callable[..., R], jobs: int, *columns: Sequence[Any], chunk: int = 1) -> Iterator[R]:
    """``map(function, *columns)``, in order, by ``jobs`` processes; in this one where that is 1.

    Leaving the iterator, a failure or an interrupt (which goes to the workers of a terminal too, and
    means nothing to them) ends them at once, in the midst of what they do; so does the death of this
    process.
    """
    if jobs <= 1:
        yield from map(function, *columns)
        return
    # Not forked: the simulator may have threads.
    context = multiprocessing.get_context("spawn")
    theirs, ours = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=_begin, initargs=(theirs,))
    try:
        results = _started(pool, function, columns, chunk)
        theirs.close()
        yield from results
        pool.shutdown()
    except BrokenProcessPool as error:
        raise ResourceError(
            "worker processes", "one that ended without an answer", "", "try fewer, with more memory for each"
        ) from error
    finally:
        ours.close()
        pool.shutdown(cancel_futures=True)


def _started(
    pool: ProcessPoolExecutor, function: Callable[..., R], columns: Sequence[Sequence[Any]], chunk: int
) -> Iterator[R]:
    """The results to come, of workers that were born deaf to SIGINT: they inherit what this thread blocks."""
    resource_tracker.ensure_running()  # where it is not it starts now, and unblocks signals
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        return pool.map(function, *columns, chunksize=chunk)  # starts them all
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin(parent: Connection) -> None:
    """In a worker, first of all."""
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: Connection) -> None:
    """Nothing is ever sent: the pipe closes when the parent does, or the parent dies."""
    try:
        parent.recv_bytes()
    except (EOFError, OSError):
        os._exit(1)
