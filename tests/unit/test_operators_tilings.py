# SPDX-License-Identifier: Apache-2.0
"""What candidate tilings take of device memory."""

from __future__ import annotations

import numpy as np
import pytest

from onedispatch.operators.declarations.dtypes import DTYPES
from onedispatch.operators.kernels.elementwise import KERNEL as ELTWISE
from onedispatch.operators.scheduling.candidates import one_tile
from onedispatch.operators.scheduling.index_space import OUTPUT, Access, Dim, Operand
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.operators.scheduling.tilings import Tilings
from onedispatch.transactions import find_device

DEVICE = find_device("npu1")
BURST = 64


@pytest.mark.parametrize("gap", [0, 16, 20, 32])
@pytest.mark.parametrize("tile", [(8, 4), (8, 20), (16, 28), (4, 64)])
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_chunks_take_whole_bursts(dtype: str, tile: tuple[int, int], gap: int) -> None:
    """On average over all chunks: where they begin decides how many bursts their rows touch."""
    row, columns = DTYPES[dtype], 16 * tile[1]
    pitch = columns + gap
    dims = Dim("r", 64), Dim("c", columns, multiple=row.per_word)
    access = Access(0), Access(1, align=row.per_word)
    x = Operand("x0", 0, row, (64, columns), (pitch, 1), access)
    out = Operand("out", OUTPUT, row, (64, columns), (pitch, 1), (Access(0), Access(1)))
    tilings = Tilings(Nest(ELTWISE, dims, (x,), (out,)), DEVICE, *one_tile(tile, 1))
    first = np.arange(0, 64)[:, None] * pitch + np.arange(0, columns, tile[1])
    begin, end = first * row.itemsize, (first + tile[1]) * row.itemsize
    touched = -(-end // BURST) - begin // BURST
    expected = touched.mean() * BURST * tile[0] / 4
    assert tilings.fetched["x0"][0] == pytest.approx(expected, rel=0.02)
    assert tilings.out[0] * tilings.out_factor[0] == pytest.approx(expected, rel=0.02)
