# SPDX-License-Identifier: Apache-2.0
"""Files that are mapped, not read: their bytes take memory only while they are looked at.

Who cuts a mapped file short ends every process that reads it then. So nothing that outlives a call of this
package may lie in one: ``owned`` takes it out.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from onedispatch.transactions.base.handlers import reraise_from_handler

Array = np.ndarray[Any, Any]


class _Mapped(mmap.mmap):
    """A file's bytes, read-only."""


_MAPPED: WeakValueDictionary[int, _Mapped] = WeakValueDictionary()  # by identity


def mapped(number: int) -> memoryview | None:
    """The bytes of an open file; None where it cannot be mapped: an empty one, or one of another kind."""
    try:
        if os.fstat(number).st_size:
            file = _Mapped(number, 0, access=mmap.ACCESS_READ)
            _MAPPED[id(file)] = file
            return memoryview(file)
    except (OSError, ValueError) as error:
        reraise_from_handler(error)
    return None


def forget_pages() -> None:
    """Gives back the memory of what was looked at so far; who looks again reads again."""
    for reference in _MAPPED.valuerefs():  # a list: other threads may map files meanwhile
        file = reference()
        if file is not None:
            file.madvise(mmap.MADV_DONTNEED)


def owned(array: Array) -> Array:
    """The array, or a copy of one that lies in a mapped file."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    if not isinstance(base, memoryview) or not isinstance(base.obj, _Mapped):
        return array
    copy: Array = array.copy()
    copy.flags.writeable = False
    return copy


def all_owned(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """``owned`` of each."""
    return {name: owned(array) for name, array in arrays.items()}
