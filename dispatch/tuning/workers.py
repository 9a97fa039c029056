# SPDX-License-Identifier: Apache-2.0
"""Who does the tasks of tuning: this thread, other threads, processes, or machines of a Dask cluster.

What a worker that dies was doing is done again, by another.
"""

from __future__ import annotations

import asyncio
import importlib
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, CancelledError, Executor, Future, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Protocol

from onedispatch.dispatch.base.processes import workers as processes
from onedispatch.dispatch.tuning.explore import Answer, Refused, Task
from onedispatch.transactions import Device
from onedispatch.transactions.base.errors import InputError, ResourceError

MOST_DEATHS = 8  # of workers in a row, without an answer in between
MOST_DEATHS_OF_ONE = 4  # of workers of one task
CONNECT_SECONDS = 20
EACH = 2  # tasks in flight for each worker


class Workers(Protocol):
    """``room``: how many tasks are worth having in flight."""

    room: int

    def submit(self, number: int, task: Task) -> None:
        """Has a task done, which ``number`` names."""
        ...

    def finished(self) -> list[tuple[int, Answer]]:
        """Waits until something is done, and returns it."""
        ...


class Inline:
    """This thread: it does a task when it is asked what is finished."""

    room = 1

    def __init__(self, device: Device) -> None:
        self._device = device
        self._tasks: deque[tuple[int, Task]] = deque()

    def submit(self, number: int, task: Task) -> None:
        self._tasks.append((number, task))

    def finished(self) -> list[tuple[int, Answer]]:
        number, task = self._tasks.popleft()
        return [(number, task.done(self._device))]


class Pooled:
    """A pool of threads, processes or machines.

    Of ``lost`` exceptions are those of tasks whose worker died: they are done again. Where the pool broke by
    that (``breaks``), another is opened.
    """

    def __init__(
        self,
        device: Device,
        jobs: int,
        opened: Callable[[], AbstractContextManager[Executor]],
        lost: tuple[type[BaseException], ...] = (),
        breaks: bool = False,
    ) -> None:
        self.room = EACH * jobs
        self._device, self._opened, self._lost, self._breaks = device, opened, lost, breaks
        self._stack = ExitStack()
        self._pool: Executor | None = None
        self._flying: dict[Future[Answer], tuple[int, Task]] = {}
        self._deaths: Counter[int] = Counter()  # of the workers of a task
        self._in_vain = 0

    def submit(self, number: int, task: Task) -> None:
        if self._pool is None:
            self._pool = self._stack.enter_context(self._opened())
        try:
            future = self._pool.submit(_done, task, self._device)
        except self._lost as error:  # as those in flight will say
            future = Future()
            future.set_exception(error)
        self._flying[future] = number, task

    def finished(self) -> list[tuple[int, Answer]]:
        done, _ = wait(self._flying, return_when=FIRST_COMPLETED)
        found, again = self._settled(done)
        if again and self._breaks:
            self.close()
            more, others = self._settled(list(self._flying))
            found, again = found + more, again + others
        self._in_vain = self._in_vain + 1 if again and not found else 0
        if self._in_vain > MOST_DEATHS:
            given = "that end without an answer, one after the other"
            raise ResourceError("worker processes", given, "", "try fewer, with more memory for each")
        found += [(number, answer) for number, task in again if (answer := self._again(number, task))]
        return sorted(found, key=lambda one: one[0])

    def _settled(
        self, futures: Iterable[Future[Answer]]
    ) -> tuple[list[tuple[int, Answer]], list[tuple[int, Task]]]:
        """What was answered, and what was lost."""
        found, again = list[tuple[int, Answer]](), list[tuple[int, Task]]()
        for future in futures:
            number, task = self._flying.pop(future)
            try:
                found.append((number, future.result()))
            except self._lost:
                again.append((number, task))
        return found, again

    def _again(self, number: int, task: Task) -> Refused | None:
        """Submits a lost task again; refuses one that workers die of."""
        self._deaths[number] += 1
        if self._deaths[number] > MOST_DEATHS_OF_ONE:
            return Refused("workers end while they are at it", True)
        self.submit(number, task)
        return None

    def close(self) -> None:
        """Lets go of the pool when what it is at is done."""
        stack, self._stack, self._pool = self._stack, ExitStack(), None
        stack.close()

    def __enter__(self) -> Pooled:
        return self

    def __exit__(self, *raised: Any) -> None:
        self._stack.__exit__(*raised)


def _done(task: Task, device: Device) -> Answer:
    return task.done(device)


KINDS = ("threads", "processes")


@contextmanager
def workers_of(device: Device, jobs: int, kind: str = "threads", scheduler: str = "") -> Iterator[Workers]:
    """``jobs`` workers in this machine, or those of the Dask scheduler at an address.

    Raises ``InputError`` where Dask is not installed, or nothing answers there.
    """
    if scheduler:
        with _cluster(device, scheduler) as cluster:
            yield cluster
    elif kind == "processes":
        lost = (BrokenProcessPool, CancelledError)
        with Pooled(device, jobs, lambda: processes(jobs), lost, breaks=True) as pool:
            yield pool
    elif jobs > 1:
        with Pooled(device, jobs, lambda: ThreadPoolExecutor(jobs)) as pool:
            yield pool
    else:
        yield Inline(device)


@contextmanager
def _cluster(device: Device, address: str) -> Iterator[Workers]:
    try:
        distributed: Any = importlib.import_module("distributed")
    except ImportError as error:
        remedy = "install it: pip install onedispatch[tune]"
        raise InputError("--scheduler", "Dask, which is not installed", "distributed", remedy) from error
    try:
        client = distributed.Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:
        given = f"{address}: {error or type(error).__name__}"
        accepted = "the address of a Dask scheduler, such as tcp://10.0.0.1:8786"
        raise InputError("--scheduler", given, accepted, "start one: dask scheduler") from error
    with client:
        try:
            client.wait_for_workers(1, timeout=CONNECT_SECONDS)
        except TimeoutError as error:
            given = f"{address}, which has no workers"
            raise InputError(
                "--scheduler", given, "one or more", f"start some: dask worker {address}"
            ) from error
        jobs = sum(client.nthreads().values())
        lost = (distributed.scheduler.KilledWorker, CancelledError)
        with Pooled(device, jobs, lambda: _Machines(client), lost) as pool:
            yield pool


class _Machines(Executor):
    """A Dask client's workers. Its own executor fails where one dies with an answer that just arrived."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        task = self._client.submit(fn, *args, pure=False, **kwargs)
        answer = self._client.gather(task, asynchronous=True)  # asks again for what was lost on the way
        return asyncio.run_coroutine_threadsafe(answer, self._client.loop.asyncio_loop)
