# SPDX-License-Identifier: Apache-2.0
"""What a forked child needs of Python's side: it has one thread, and locks that others held.

The C++ side does the same for itself (``cpp_ext/src/xrt/monitor.h``, ``cpp_ext/src/sim/engine/workers.h``).
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from functools import cached_property


class ForkLock:
    """A re-entrant lock that a forked child finds open, unless the thread that forked holds it.

    ``with lock.guard``: the lock itself, since a ``__enter__`` in Python could be interrupted
    between taking it and saying so.
    """

    def __init__(self) -> None:
        self.guard = threading.RLock()
        self._lost = False
        _LOCKS.add(self)

    def take_lost(self) -> bool:
        """Whether a thread held it that is no more, so that what it guards may be half done. Tells once."""
        lost, self._lost = self._lost, False
        return lost

    def renew(self) -> None:
        """In a child, before it goes on."""
        if self.guard.acquire(blocking=False):
            self.guard.release()
        else:
            self.guard = threading.RLock()
            self._lost = True


_LOCKS: weakref.WeakSet[ForkLock] = weakref.WeakSet()


def _in_child() -> None:
    for lock in list(_LOCKS):
        lock.renew()
    if sys.version_info < (3, 12):
        _open_cached_properties()


def _open_cached_properties() -> None:
    """Before Python 3.12 each has a lock, which is held while it computes, for all objects of its class."""
    modules = [module for name, module in list(sys.modules.items()) if name.startswith("onedispatch.")]
    for module in modules:
        for cls in [value for value in vars(module).values() if isinstance(value, type)]:
            for member in vars(cls).values():
                if isinstance(member, cached_property):
                    member.lock = threading.RLock()  # type: ignore[attr-defined]


os.register_at_fork(after_in_child=_in_child)
