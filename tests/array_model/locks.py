# SPDX-License-Identifier: Apache-2.0
"""Locks: counters from 0 to 63 that DMAs, cores and the controller wait on.

An acquire names a signed value. A negative value -n waits until the lock holds at least n and
takes n. A value n >= 0 waits until the lock holds exactly n and takes nothing (see Readings in the
README).
A release adds a signed value; a result outside 0..63 is an error (silicon would set a sticky
overflow bit and go on with a wrong count).

An acquire and the change that it makes are one step: nothing comes between. Who comes first
when several wait for the same lock is not defined; transactions must not depend on it.

The controller has no acquire operation. It *reads* an address inside the request window that
names lock, direction and value; the read makes the attempt and bit 0 of what is read says
whether it succeeded. That is why a poll may never read once more after it has succeeded.
"""

from __future__ import annotations

from onedispatch.transactions.machine import bd, registers
from tests.array_model.memory import ModelFault


class Lock:
    def __init__(self, name: str) -> None:
        self.name = name
        self.value = 0
        self.rest = 0
        """What it was last set to: after a run it must have that value again."""

    def set(self, value: int) -> None:
        """A write to the value register."""
        if not 0 <= value <= registers.LOCK_MAX:
            raise ModelFault("lock", f"{self.name} set to {value}")
        self.value = self.rest = value

    def try_acquire(self, value: int) -> bool:
        """Take the lock if that is possible now; False, and no change, if it is not."""
        if value < 0:
            if self.value < -value:
                return False
            self.value -= -value
            return True
        return self.value == value

    def release(self, value: int) -> None:
        if not 0 <= self.value + value <= registers.LOCK_MAX:
            raise ModelFault("lock", f"{self.name} holds {self.value}, release of {value}")
        self.value += value


def read_request_window(locks: list[Lock], kind: str, offset: int) -> int:
    """A read inside the window performs the request; returns 1 when it was granted."""
    request = bd.decode_lock_request(kind, offset)
    if request is None:
        raise ModelFault("register", f"{kind} offset {offset:#x} is no lock request")
    lock, value, acquire = request
    if acquire:
        return int(locks[lock].try_acquire(value))
    locks[lock].release(value)
    return 1
