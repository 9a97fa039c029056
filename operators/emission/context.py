# SPDX-License-Identifier: Apache-2.0
"""What operators' transactions run in, said so that a checker can follow them.

The overlay is a transaction; what the super kernel does with its locks follows from the parameter
block that it is given. That is said here as counts per block; the loop itself is
``cpp_ext/src/program/super_kernel.cpp``, and the tests hold both against each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from math import prod

from onedispatch.operators.declarations import params
from onedispatch.operators.declarations.kernel import MAX_DIMS
from onedispatch.operators.declarations.params import (
    CADENCE_LAST,
    CADENCE_NONE,
    CADENCE_ONCE,
    CADENCE_STEP,
    DIM_FIELDS,
    DIM_WORDS,
    HEADER,
    PORT_FIELDS,
    PORT_WORDS,
)
from onedispatch.operators.emission import overlay
from onedispatch.operators.emission.image import EMPTY, Image, image_hash
from onedispatch.transactions import Device, Transaction
from onedispatch.transactions.analysis.context import Context, CoreProgram, LockUse, Uses
from onedispatch.transactions.analysis.effects import Words
from onedispatch.transactions.machine import registers as reg
from onedispatch.transactions.machine.bd import unpack_fields

_PORTS = tuple(f"port_{name}" for name in params.PORTS)


def context(
    device: Device, arguments: Mapping[int, bytes] | None = None, image: Image | None = None
) -> Context:
    """What a transaction for ``device`` runs in.

    Args:
        arguments: the bytes of kernel arguments that hold parameter blocks; the device may not write them.
        image: what the overlay loads into program memory; None: unknown, and any kernel may run.
    """
    program = ANY_KERNEL if image is None else SUPER_KERNEL
    return Context(_overlay(device, image or EMPTY), (program,), dict(arguments or {}), device)


@lru_cache(maxsize=16)
def _overlay(device: Device, image: Image) -> Transaction:
    return Transaction.from_bytes(overlay.overlay_transaction(device, image))


def lock_use(words: Words, column: int, row: int) -> LockUse | None:
    """What the super kernel does to its locks for a block; None for what it refuses."""
    del column  # columns differ in where their tiles lie, not in how many there are
    if words[HEADER["magic"]] != params.MAGIC:
        return None
    empty, _ = params.PARAM_LOCKS
    taken: dict[int, int] = {}
    given = {empty: 1}
    last = {empty}
    if not words[HEADER["row_mask"]] >> row & 1:
        return LockUse(taken, given, frozenset(last))
    tiles = prod(words[HEADER["dims"] + DIM_WORDS * d + DIM_FIELDS[-1].word] for d in range(MAX_DIMS))
    for name in _PORTS:
        at = HEADER[name]
        port = unpack_fields(PORT_FIELDS, words[at : at + PORT_WORDS])
        cadence, acquire, release = port["cadence"], port["acquire"], port["release"]
        if cadence > (CADENCE_LAST if name == _PORTS[params.PORT_OUT] else CADENCE_ONCE):
            return None
        if cadence == CADENCE_NONE:
            continue
        if not all(reg.CORE_VIEW_LOCKS <= lock < reg.CORE_VIEW_LOCKS + empty for lock in (acquire, release)):
            return None
        acquire, release = acquire - reg.CORE_VIEW_LOCKS, release - reg.CORE_VIEW_LOCKS
        times = 1 if cadence == CADENCE_ONCE else tiles  # of the last steps alone too: each tile has one
        if cadence == CADENCE_STEP:
            times *= words[HEADER["inner_steps"]]
        taken[acquire] = taken.get(acquire, 0) + times
        given[release] = given.get(release, 0) + times
        if name == _PORTS[params.PORT_OUT]:  # inputs are acquired before the tile that they go into is given
            last.add(release)
    return LockUse(taken, given, frozenset(last))


def starts(memory: Words) -> Uses | None:
    """``lock_use`` for blocks of kernels that the image in program memory carries; None: it is no image."""
    table = _table(tuple(memory))
    if table is None:
        return None
    carried = frozenset(table[:: params.CARRIED_WORDS])

    def uses(words: Words, column: int, row: int) -> LockUse | None:
        return lock_use(words, column, row) if words[HEADER["kernel"]] in carried else None

    return uses


@lru_cache(maxsize=16)  # all cores have the same one
def _table(memory: tuple[int, ...]) -> tuple[int, ...] | None:
    """The table of kernels of the image in program memory; None: it is no image."""
    at = params.IMAGE
    head = (params.IMAGE_MAGIC, params.SUPER_KERNEL_ID, params.SUPER_KERNEL_VERSION)
    if len(memory) <= at["kernels"] or memory[: at["words"]] != head:
        return None
    last = memory[at["words"]] - 1
    end = at["kernels"] + params.CARRIED_WORDS * memory[at["count"]]
    if not end <= last < len(memory) or memory[last] != image_hash(memory[:last]):
        return None
    return memory[at["kernels"] : end]


def _starts_any(memory: Words) -> Uses | None:
    """``lock_use``, whatever kernels the image carries."""
    return None if _table(tuple(memory)) is None else lock_use


SUPER_KERNEL = CoreProgram(
    starts=starts,
    parameters_at=0,
    words=params.WORDS,
    full=params.PARAM_LOCKS[1],
)
ANY_KERNEL = replace(SUPER_KERNEL, starts=_starts_any)
