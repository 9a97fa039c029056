# SPDX-License-Identifier: Apache-2.0
"""Decoding and validation of transactions in C++ (cpp_ext/src/txn). Only decode.py imports it.

Nothing here raises on bad data: results say what is wrong as numbers, Python has the texts. The
GIL is released while the bytes are read.
"""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

_Ints = npt.NDArray[np.int64]

CHECKS: tuple[str, ...]
"""Names of all checks of ``validate``."""

MOST_FINDINGS: int
"""Of one check; ``validate`` counts the others."""

def decode(data: bytes) -> tuple[int, int, int, int, _Ints]:
    """``(fault, ops, at, op_size, offsets)``.

    ``fault`` counts as ``Fault`` of decode.h does, 0 = none; ``ops`` were found before it, ``at``
    is its byte, ``op_size`` what a bad op says of its size. ``offsets`` has where each op starts
    and the end, if there is no fault.
    """

def validate(
    data: bytes, sizes: Mapping[int, int] | None = None, shape: tuple[int, int, int, int] | None = None
) -> list[tuple[str, int, int, int, int, int, int, int]]:
    """``(check, op or -1, byte offset, untold, four numbers)`` each; validate.h says which numbers.

    One with ``untold`` stands for so many findings of its check, from its op on.

    Args:
        data: what ``decode`` has found no fault in.
        sizes: argument -> bytes, both below 2**64; arguments stay unchecked if None.
    """

def patches(data: bytes) -> tuple[_Ints, _Ints, _Ints]:
    """Of each DDR_PATCH: its op, the byte where its shim BD was last written (-1 for none), extent.

    The extent counts bytes from the BD's base to the end of what its first execution touches.
    """
