# SPDX-License-Identifier: Apache-2.0
"""How fast transactions are read, checked and explained, on one core: ``make bench``.

The files are made of what AMD's hold most: 8-word BLOCKWRITEs, WRITEs, MASKPOLLs and a few patches.
Their sizes are those of the public corpus: median 68 KB, 95 in 100 below 1.2 MB, largest 4.1 MB.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from onedispatch.transactions import MemBd, ShimBd, Transaction, TransactionBuilder, queue_word, tile_address

pytestmark = pytest.mark.bench
SIZES = {"3 KB": 3_000, "68 KB": 68_000, "1.2 MB": 1_200_000, "4.1 MB": 4_100_000}
ARGUMENTS = [1 << 30] * 5
IDLE = 0x78003C


def _file(size: int) -> bytes:
    made = TransactionBuilder(4, 8)
    column = 0
    while made.byte_size < size:
        shim, mem = tile_address(column, 0, 0), tile_address(column, 1, 0)
        made.blockwrite(shim + 0x1D000, ShimBd.at(0, 4096, [(1, 64), (128, 64)]).to_words())
        made.ddr_patch(shim + 0x1D004, column % 3, 4096 * column)
        made.write(shim + 0x1D214, queue_word("shim", 0))
        for bd in range(8):
            words = MemBd.at(
                4096 * bd, 1024, [(1, 32), (64, 32)], acquire=(bd, -1), release=(bd, 1)
            ).to_words()
            made.blockwrite(mem + 0xA0000 + 0x20 * bd, words)
            made.write(mem + 0xC0000 + 0x10 * bd, 1)
            made.write(mem + 0xA0604, queue_word("mem", bd, repeat=2))
            made.maskpoll(mem + 0xA0660, 0, IDLE)
        column = (column + 1) % 8
    return made.to_bytes()


FILES = {name: _file(size) for name, size in SIZES.items()}
WORK: dict[str, Callable[[bytes], Any]] = {
    "decode": Transaction.from_bytes,
    "decode, validate": lambda data: Transaction.from_bytes(data).validate(),
    "decode, validate with argument sizes": lambda data: Transaction.from_bytes(data).validate(ARGUMENTS),
    "check": lambda data: Transaction.from_bytes(data).check(ARGUMENTS),
    "explain": lambda data: Transaction.from_bytes(data).explain().summary(),
    "text": lambda data: Transaction.from_bytes(data).text(),
}
SLOW = ("check", "explain", "text")


@pytest.mark.parametrize("size", FILES)
@pytest.mark.parametrize("work", WORK)
def test_read_transaction(benchmark: Any, work: str, size: str) -> None:
    if work in SLOW and size == "4.1 MB":
        pytest.skip("seconds a round")
    data = FILES[size]
    benchmark.group = f"transaction of {size}"
    result = benchmark(WORK[work], data)
    if work.startswith("decode,"):
        assert result == []
    if not benchmark.disabled:
        benchmark.extra_info["MB/s"] = round(len(data) / benchmark.stats.stats.median / 1e6, 1)
