# SPDX-License-Identifier: Apache-2.0
"""The context of a transaction: its overlay, the lock use of its core programs, constant arguments.

A transaction alone does not show stream routes, the overlay's own BDs, initial lock values, or what
cores do between their inputs and their outputs. With a context, ``check`` knows what must have
happened before a wait ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from onedispatch.transactions.analysis.effects import Words
from onedispatch.transactions.format.binary import TransactionBinary
from onedispatch.transactions.machine.device import Device


@dataclass(frozen=True)
class LockUse:
    """A core program's use of its own locks for one parameter block.

    Attributes:
        acquired: lock -> number of acquires, by one each.
        released: lock -> number of releases, by one each.
        last: locks whose last release follows every acquire of the block.
    """

    acquired: Mapping[int, int]
    released: Mapping[int, int]
    last: frozenset[int]


# (words of a block, column, core row from 0) -> the lock use; None if the program refuses the block.
Uses = Callable[[Words, int, int], LockUse | None]


@dataclass(frozen=True)
class CoreProgram:
    """A core program that executes parameter blocks one by one.

    Attributes:
        starts: program memory from its first word on -> the function that returns the lock use of a block,
            or None if the memory does not hold this program.
        parameters_at: byte offset of a block in data memory.
        words: size of a block, or of each of its pieces; the first piece determines the lock use.
        full: the lock that signals a block's arrival: the program acquires it by one before any other lock.
    """

    starts: Callable[[Words], Uses | None]
    parameters_at: int
    words: int
    full: int


@dataclass(frozen=True)
class Context:
    """The environment that a transaction was made for.

    Attributes:
        overlay: the transaction that configured the array before.
        programs: core programs that the overlay may load.
        constants: kernel arguments whose bytes are known, and that only the host writes.
        device: the device of the array; one of AMD's if None.
    """

    overlay: TransactionBinary
    programs: tuple[CoreProgram, ...] = ()
    constants: Mapping[int, bytes] = field(default_factory=dict)
    device: Device | None = None
