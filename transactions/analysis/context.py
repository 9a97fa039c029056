# SPDX-License-Identifier: Apache-2.0
"""What a transaction runs in: the overlay, what its core programs do, and constant arguments.

A transaction alone does not show where streams lead, what the overlay's own BDs hold, at which
values locks start, or what cores do between their inputs and their outputs. Whoever has these can
hand them to ``check``, which then knows what must have happened when a wait ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from onedispatch.transactions.analysis.effects import Words
from onedispatch.transactions.format.binary import TransactionBinary
from onedispatch.transactions.machine.device import Device


@dataclass(frozen=True)
class LockUse:
    """What a core program does to its own locks for one parameter block.

    Attributes:
        taken: lock -> how often it is acquired, by one each time.
        given: lock -> how often it is released, by one each time.
        last: locks whose last release comes after every acquire of the block.
    """

    taken: Mapping[int, int]
    given: Mapping[int, int]
    last: frozenset[int]


# (words of a block, column, core row from 0) -> what the program then does; None: it refuses the block.
Uses = Callable[[Words, int, int], LockUse | None]


@dataclass(frozen=True)
class CoreProgram:
    """A program that takes one parameter block after the other, each wholly before the next.

    Attributes:
        starts: words of program memory from its first on -> what the program that they hold does for the
            words of a block in a column and core row (from 0), or None where they hold no such program.
        parameters_at: byte of data memory at which a block lies.
        words: of a block, or of each of its pieces; ``starts`` is told the first piece.
        full: the lock that says that a block is there: acquired by one before anything else.
    """

    starts: Callable[[Words], Uses | None]
    parameters_at: int
    words: int
    full: int


@dataclass(frozen=True)
class Context:
    """The overlay that a transaction was made for.

    Attributes:
        overlay: what configured the array before.
        programs: core programs that the overlay may load.
        constants: kernel arguments whose bytes are known, and that nobody but the host writes.
        device: whose array it is; one of AMD's if None.
    """

    overlay: TransactionBinary
    programs: tuple[CoreProgram, ...] = ()
    constants: Mapping[int, bytes] = field(default_factory=dict)
    device: Device | None = None
