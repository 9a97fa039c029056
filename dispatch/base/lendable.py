# SPDX-License-Identifier: Apache-2.0
"""Memory that the simulated device may read where it lies, without a copy of its own: ``bo.lent``."""

from __future__ import annotations

from typing import Any

import numpy as np

LINE = 64  # bytes: where such memory begins, and how many behind it vector loads may touch

Array = np.ndarray[Any, Any]


def lendable(size: int) -> Array:
    """So many zeroed bytes."""
    block = np.zeros(size + 2 * LINE, np.uint8)
    at = -block.ctypes.data % LINE
    return block[at : at + size]


def with_line_behind(array: Array) -> Array | None:
    """The bytes of a read-only part of such memory and the line behind them; None for any other array."""
    block = array.base
    if not isinstance(block, np.ndarray) or not all(_plain(one) for one in (array, block)):
        return None
    first, size = array.ctypes.data, array.nbytes
    at = first - block.ctypes.data
    if array.flags.writeable or first % LINE or size % 4 or at + size + LINE > block.nbytes:
        return None
    whole: Array = block[at : at + size + LINE]
    return whole


def _plain(array: Array) -> bool:
    return array.dtype == np.uint8 and array.ndim == 1 and array.flags.c_contiguous
