# SPDX-License-Identifier: Apache-2.0
"""Memory that the simulated device may read where it lies, without a copy of its own: ``bo.lent``."""

from __future__ import annotations

from typing import Any

import numpy as np

from onedispatch.transactions.base.host import VECTOR_BYTES

Array = np.ndarray[Any, Any]


def lendable(size: int) -> Array:
    """So many zeroed bytes."""
    block = np.zeros(size + 2 * VECTOR_BYTES, np.uint8)
    at = -block.ctypes.data % VECTOR_BYTES
    return block[at : at + size]


def with_room_behind(array: Array) -> Array | None:
    """The bytes of a read-only part of such memory and ``VECTOR_BYTES`` more; None for other arrays."""
    block = array.base
    if not isinstance(block, np.ndarray) or not all(_plain(one) for one in (array, block)):
        return None
    first, size = array.ctypes.data, array.nbytes
    at = first - block.ctypes.data
    if array.flags.writeable or first % VECTOR_BYTES or size % 4 or at + size + VECTOR_BYTES > block.nbytes:
        return None
    whole: Array = block[at : at + size + VECTOR_BYTES]
    return whole


def _plain(array: Array) -> bool:
    return array.dtype == np.uint8 and array.ndim == 1 and array.flags.c_contiguous
