# SPDX-License-Identifier: Apache-2.0
"""Files that are mapped, not read: their bytes take memory only while they are looked at.

Nothing that outlives a call of this package may lie in one, ``owned`` takes it out; but for the weights of
large models that are compiled again for other shapes, which are ``kept`` there. Who cuts a mapped file short
would end every process that reads it, by SIGBUS; here pages that are gone read as zeros, and
``unchanged_files`` refuses what was made of them, as of a file that was written to meanwhile.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol
from weakref import WeakValueDictionary, finalize

import numpy as np

from onedispatch.transactions.base.context import setting
from onedispatch.transactions.base.errors import ModelError
from onedispatch.transactions.base.files import MOST_READ, read_open, reading
from onedispatch.transactions.base.handlers import reraise_from_handler

Array = np.ndarray[Any, Any]
_LEAST_KEPT = 16 << 20  # bytes in mapped files: fewer are copied


class Pages(Protocol):
    """What the C++ extension does for mapped files: see there."""

    def guard_pages(self, data: mmap.mmap, /) -> int: ...
    def unguard_pages(self, number: int, /) -> None: ...
    def missed_pages(self, number: int, /) -> bool: ...


class _Mapped(mmap.mmap):
    """A file's bytes, read-only."""

    path: str
    pages: Pages
    number: int  # of its pages
    stamp: tuple[int, int]
    handle: int

    is_kept: bool = False  # beyond the call that mapped it

    def check(self, error: Exception | None) -> None:
        """Raises ``ModelError``, which ``error`` may come from, where the file is not what was mapped."""
        if not self.pages.missed_pages(self.number) and _stamp(self.handle) == self.stamp:
            return
        given = "a file that was cut short or written to"
        if self.is_kept:
            accepted = "a file that stays as it is while its model may be compiled for other shapes"
            raise ModelError(
                self.path, f"{given} since it was opened", accepted, "open the model again, or give its bytes"
            ) from error
        accepted = "a file that stays as it is meanwhile"
        raise ModelError(
            self.path, f"{given} while it was read", accepted, "once it is whole, try again"
        ) from error


_MAPPED: WeakValueDictionary[int, _Mapped] = WeakValueDictionary()  # by identity
# Of the block of ``unchanged_files`` that runs.
_checked: ContextVar[tuple[Pages, list[_Mapped]] | None] = ContextVar("checked", default=None)


def view_file(path: str | os.PathLike[str], accepted: str) -> memoryview:
    """The bytes of a model's file: mapped within ``unchanged_files`` where that is possible, else read.

    Raises ``ModelError`` where it cannot be read.
    """
    with reading(path, ModelError, accepted) as file:
        view = _mapped(file.fileno(), os.fspath(path))
        return memoryview(read_open(file, path, ModelError)) if view is None else view


def _mapped(handle: int, path: str) -> memoryview | None:
    """None for an empty file, one of another kind, and where no block checks whether it changes."""
    block = _checked.get()
    try:
        if block is None or not 0 < os.fstat(handle).st_size <= MOST_READ:
            return None
        file = _Mapped(handle, 0, access=mmap.ACCESS_READ)
        file.number = block[0].guard_pages(file)
        if file.number < 0:
            return None
        finalize(file, block[0].unguard_pages, file.number)
        file.path, file.handle, file.pages = path, os.dup(handle), block[0]
        finalize(file, os.close, file.handle)
        file.stamp = _stamp(file.handle)
    except (OSError, ValueError) as error:
        reraise_from_handler(error)
        return None
    _MAPPED[id(file)] = file
    block[1].append(file)
    return memoryview(file)


def _stamp(handle: int) -> tuple[int, int]:
    """What another size or content changes."""
    status = os.fstat(handle)
    return status.st_size, status.st_mtime_ns


@contextmanager
def unchanged_files(pages: Pages, arrays: Mapping[str, Array] | None = None) -> Iterator[None]:
    """Raises ``ModelError`` at the end of the block where a file that it mapped has changed since, or one
    that ``arrays`` are ``kept`` in.

    What the block raised itself may come of that: then it is the cause.
    """
    files = list(arrays.files) if isinstance(arrays, Kept) else []
    with setting(_checked, (pages, files)):
        try:
            yield
        except Exception as error:
            for file in files:
                file.check(error)
            raise
        for file in files:
            file.check(None)


def forget_pages() -> None:
    """Gives back the memory of what was looked at so far; who looks again reads again."""
    for reference in _MAPPED.valuerefs():  # a list: other threads may map files meanwhile
        file = reference()
        if file is not None:
            file.madvise(mmap.MADV_DONTNEED)


def _file_of(array: Array) -> _Mapped | None:
    """The mapped file that an array lies in."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    return base.obj if isinstance(base, memoryview) and isinstance(base.obj, _Mapped) else None


def owned(array: Array) -> Array:
    """The array, or a copy of one that lies in a mapped file."""
    if _file_of(array) is None:
        return array
    copy: Array = array.copy()
    copy.flags.writeable = False
    return copy


def all_owned(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """``owned`` of each."""
    return {name: owned(array) for name, array in arrays.items()}


class Kept(Mapping[str, Array]):
    """Arrays of which some stay in mapped files: these are checked whenever one is taken."""

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        self._arrays = dict(arrays)
        found = {name: _file_of(array) for name, array in arrays.items()}
        self._files = {name: file for name, file in found.items() if file is not None}

    @property
    def files(self) -> list[_Mapped]:
        """The files, each once."""
        return list({id(file): file for file in self._files.values()}.values())

    @property
    def nbytes(self) -> int:
        """Bytes in files."""
        return sum(self._arrays[name].nbytes for name in self._files)

    def __getitem__(self, name: str) -> Array:
        """Raises ``ModelError`` for an array in a file that was written to since it was opened."""
        if name in self._files:
            self._files[name].check(None)
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __contains__(self, name: object) -> bool:
        return name in self._arrays


def kept(arrays: Mapping[str, Array]) -> Mapping[str, Array]:
    """The arrays, with copies of those in mapped files where these are few bytes."""
    large = Kept(arrays)
    if large.nbytes < _LEAST_KEPT:
        return all_owned(arrays)
    for file in large.files:
        file.is_kept = True
    return large
