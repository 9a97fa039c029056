# SPDX-License-Identifier: Apache-2.0
"""Constants of device steps in files: what copies of the graph's constants make is not stored once more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby, pairwise
from typing import Any, NamedTuple

import numpy as np

from onedispatch.dispatch.artifact.container import Reader, Writer
from onedispatch.dispatch.artifact.forms import Misfit
from onedispatch.dispatch.base.lendable import lendable
from onedispatch.dispatch.base.precisions import narrowed
from onedispatch.dispatch.compiler.executable import ConstantCopy, DeviceStep, Executable
from onedispatch.operators.declarations.tensor import Scaled
from onedispatch.operators.scheduling.packing import ByteCopy, Step
from onedispatch.transactions.base.signature import bounded_repr
from onedispatch.transactions.base.text import counted

Array = np.ndarray[Any, Any]
Constant = Callable[[str], Array | None]
"""The bytes of a constant by its name, uint8; None for unknown ones."""


_MOST_WAYS = 64  # in which one constant is scaled, as heads that share their weights have it


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
        for one, source in _with_sources(self.copies, constant):
            _run(one, source, made)
        made.flags.writeable = False
        return made

    def _check(self, size: int) -> None:
        stored, written = sum(part.size for part in self.parts), sum(one.copy.nbytes for one in self.copies)
        if stored != self.literal.nbytes or any(part.first + part.size > size for part in self.parts):
            given = f"parts of {counted(stored, 'byte')} for {self.literal.nbytes}"
            raise Misfit("constants", given, f"the bytes that are stored, inside {size}")
        if not self.copies and self.parts != (Part(0, size),):
            raise Misfit(
                "constants",
                f"parts {bounded_repr(self.parts)} without copies",
                f"all {counted(size, 'byte')}",
            )
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
    used = tuple(_agreeing(step, constant))
    if all(one.own is not None for one in used):  # nothing is stored twice
        return Stored(step.const, (Part(0, step.const.nbytes),), ())
    left = step.const.copy()
    for one in used:
        one.copy.clear(left)
    ends = pairwise([0, *step.const_starts, left.nbytes])
    parts = tuple(Part(first, last - first) for first, last in ends if left[first:last].any())
    pieces = [left[part.first : part.first + part.size] for part in parts]
    return Stored(np.concatenate([left[:0], *pieces]), parts, used)


def _agreeing(step: DeviceStep, constant: Constant) -> Iterator[ConstantCopy]:
    """The copies that make just what the step has: constants may have become others since it was compiled."""
    for one in step.copies:
        with suppress(ValueError):  # so does not fit
            ((_, source),) = _with_sources([one], constant)
            if source is not None and one.copy.agrees(source, step.const):
                yield one


def shared_constants(executables: Iterable[Executable], constant: Constant) -> dict[str, Array]:
    """The bytes of constants that more than one of the executables lays out."""
    found: set[str] = set()
    shared: set[str] = set()
    for one in executables:
        copies = (each for step in one.device_steps for each in step.copies)
        names = {each.constant for each in copies if each.own is None}
        shared |= found & names
        found |= names
    given = ((name, constant(name)) for name in sorted(shared))
    return {name: array for name, array in given if array is not None}


def row_of(writer: Writer, one: ConstantCopy) -> list[Any]:
    copy = one.copy
    blobs = [None if array is None else writer.blob(array) for array in (one.factors, one.own)]
    steps = [list(step) for step in copy.steps]
    return [one.constant, copy.itemsize, copy.source, copy.target, steps, *blobs]


def copy_of(reader: Reader, row: Sequence[Any]) -> ConstantCopy:
    """Raises ``ValueError`` for factors that are no float32."""
    name, itemsize, source, target, steps, *blobs = row
    factors, own = (None if blob is None else reader.blob(blob) for blob in blobs)
    copy = ByteCopy(itemsize, source, target, tuple(Step(*step) for step in steps))
    return ConstantCopy(name, copy, None if factors is None else factors.view(np.float32), own)


def _with_sources(
    copies: Iterable[ConstantCopy], constant: Constant
) -> Iterator[tuple[ConstantCopy, Array | None]]:
    """The copies, by what they read, and its bytes: what is computed of a constant is so once.

    Raises ``Misfit`` for a constant without a member for each of its factors, and for too many of these.
    """
    ways: Counter[str] = Counter()
    for (name, is_scaled, factors), some in groupby(sorted(copies, key=_read), key=_read):
        source = constant(name)
        ways[name] += 1
        if ways[name] > _MOST_WAYS:
            given = f"{counted(ways[name], 'set')} of factors"
            raise Misfit(f"constant {name!r}", given, f"up to {_MOST_WAYS}")
        if source is not None and is_scaled:
            source = _scaled(name, source, np.frombuffer(factors, np.float32))
        for one in some:
            yield one, source if one.own is None else one.own


def _read(one: ConstantCopy) -> tuple[str, bool, bytes]:
    """Its constant, whether that is scaled, and the factors."""
    return one.constant, one.factors is not None, b"" if one.factors is None else one.factors.tobytes()


def _scaled(name: str, source: Array, factors: Array) -> Array:
    members = factors.size
    if not members or source.nbytes % (4 * members):
        given = f"{counted(source.nbytes, 'byte')} for {counted(members, 'factor')}"
        raise Misfit(f"constant {name!r}", given, "float32, as many members of the first axis")
    with np.errstate(all="ignore"):
        product = Scaled(source.view(np.float32).reshape(members, -1), factors).product
    return product.reshape(-1).view(np.uint8)


def _run(one: ConstantCopy, source: Array | None, made: Array) -> None:
    where = f"a copy of constant {one.constant!r}"
    if source is None:
        raise Misfit(where, "no such constant of numbers", "one of the file's")
    try:
        one.copy.run(source, made)
    except (ValueError, TypeError, OverflowError) as error:
        accepted = f"inside {counted(source.nbytes, 'byte')}, into {made.nbytes}"
        raise Misfit(where, str(one.copy), accepted) from error
