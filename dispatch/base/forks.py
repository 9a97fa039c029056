# SPDX-License-Identifier: Apache-2.0
"""Makes locks usable in a forked child, which has one thread and copies of locks that other threads held.

The C++ side does the same (``cpp_ext/src/xrt/monitor.h``, ``cpp_ext/src/sim/engine/workers.h``).
"""

from __future__ import annotations

import os
import threading
import weakref


class ForkLock:
    """A re-entrant lock that is released in a forked child, unless the forking thread holds it.

    Callers write ``with lock.guard``: a ``__enter__`` in Python could be interrupted between acquiring the
    lock and returning.
    """

    def __init__(self) -> None:
        self.guard = threading.RLock()
        self._lost = False
        _LOCKS.add(self)

    def take_lost(self) -> bool:
        """True, once, if a thread that the fork ended held the lock: its state may be half changed."""
        lost, self._lost = self._lost, False
        return lost

    def renew(self) -> None:
        """Releases the lock in a child, right after the fork."""
        if self.guard.acquire(blocking=False):
            self.guard.release()
        else:
            self.guard = threading.RLock()
            self._lost = True


_LOCKS: weakref.WeakSet[ForkLock] = weakref.WeakSet()


def _in_child() -> None:
    for lock in list(_LOCKS):
        lock.renew()


os.register_at_fork(after_in_child=_in_child)
