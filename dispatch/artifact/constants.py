# SPDX-License-Identifier: Apache-2.0
"""Constants of device steps in files: what copies of the graph's constants make is not stored once more."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from onedispatch.dispatch.artifact.forms import Misfit
from onedispatch.dispatch.base.lendable import lendable
from onedispatch.dispatch.base.precisions import narrowed
from onedispatch.dispatch.compiler.executable import ConstantCopy, DeviceStep, Executable
from onedispatch.operators.scheduling.packing import Step, StridedCopy
from onedispatch.transactions.base.signature import bounded_repr
from onedispatch.transactions.base.text import counted

Array = np.ndarray[Any, Any]
Constant = Callable[[str], Array | None]
"""The bytes of a constant by its name, uint8; None for unknown ones."""


class Part(NamedTuple):
    """Bytes of a step's constants."""

    first: int
    size: int


@dataclass(frozen=True)
class Stored:
    """A step's constants as a file has them: zeros, ``parts`` of them the bytes of ``literal`` in order, and
    over these the ``copies``."""

    literal: Array
    parts: tuple[Part, ...]
    copies: tuple[ConstantCopy, ...]

    def starts(self, whole: Sequence[int]) -> tuple[int, ...]:
        """Where in ``literal`` a constant begins, of those that begin at ``whole``."""
        if not self.copies:
            return tuple(whole)
        return tuple(int(at) for at in np.cumsum([part.size for part in self.parts[:-1]], dtype=np.int64))

    def joined(self, size: int, constant: Constant) -> Array:
        """The constants, ``size`` bytes. Raises ``Misfit`` where these do not fit there or each other."""
        self._check(size)
        if not self.copies:
            return self.literal
        made, at = lendable(size), 0
        for first, count in self.parts:
            made[first : first + count] = self.literal[at : at + count]
            at += count
        for one in self.copies:
            _run(one, constant(one.constant), made)
        made.flags.writeable = False
        return made

    def _check(self, size: int) -> None:
        stored, written = sum(part.size for part in self.parts), sum(one.copy.nbytes for one in self.copies)
        if stored != self.literal.nbytes or any(part.first + part.size > size for part in self.parts):
            given = f"parts of {counted(stored, 'byte')} for {self.literal.nbytes}"
            raise Misfit("constants", given, f"the bytes that are stored, inside {size}")
        if not self.copies and self.parts != (Part(0, size),):
            raise Misfit("constants", f"parts {bounded_repr(self.parts)} without copies", f"all {size} bytes")
        if written > size:
            raise Misfit(
                "constants", f"copies of {counted(written, 'byte')}", f"up to {size}, each byte once"
            )


def bytes_of(constants: Mapping[str, Array]) -> Constant:
    """Of these arrays, but for text, and of what they are in a narrower type."""

    @lru_cache(1)  # copies of one constant are neighbours
    def found(name: str) -> Array | None:
        array = constants[name] if name in constants else narrowed(name, constants)
        if array is None or array.dtype.hasobject:
            return None
        return np.ascontiguousarray(array).reshape(-1).view(np.uint8)

    return found


def split(step: DeviceStep, constant: Constant) -> Stored:
    """What a file has to store of a step's constants beside those of ``constant``."""
    used = tuple(one for one in step.copies if _is_copy(one, constant(one.constant), step.const))
    if not used:
        return Stored(step.const, (Part(0, step.const.nbytes),), ())
    left = step.const.copy()
    for one in used:
        one.copy.clear(left)
    ends = pairwise([0, *step.const_starts, left.nbytes])
    parts = tuple(Part(first, last - first) for first, last in ends if left[first:last].any())
    pieces = [left[part.first : part.first + part.size] for part in parts]
    return Stored(np.concatenate([left[:0], *pieces]), parts, used)


def shared_constants(executables: Iterable[Executable], constant: Constant) -> dict[str, Array]:
    """The bytes of constants that more than one of the executables lays out."""
    found: set[str] = set()
    shared: set[str] = set()
    for one in executables:
        names = {each.constant for step in one.device_steps for each in step.copies}
        shared |= found & names
        found |= names
    given = ((name, constant(name)) for name in sorted(shared))
    return {name: array for name, array in given if array is not None}


def row_of(one: ConstantCopy) -> list[Any]:
    copy = one.copy
    return [one.constant, copy.itemsize, copy.source, copy.target, [list(step) for step in copy.steps]]


def copy_of(row: Sequence[Any]) -> ConstantCopy:
    name, itemsize, source, target, steps = row
    return ConstantCopy(name, StridedCopy(itemsize, source, target, tuple(Step(*step) for step in steps)))


def _is_copy(one: ConstantCopy, source: Array | None, made: Array) -> bool:
    return source is not None and one.copy.agrees(source, made)


def _run(one: ConstantCopy, source: Array | None, made: Array) -> None:
    where = f"a copy of constant {one.constant!r}"
    if source is None:
        raise Misfit(where, "no such constant of numbers", "one of the file's")
    try:
        one.copy.run(source, made)
    except (ValueError, TypeError, OverflowError) as error:
        accepted = f"inside {counted(source.nbytes, 'byte')}, into {made.nbytes}"
        raise Misfit(where, str(one.copy), accepted) from error
