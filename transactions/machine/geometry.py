# SPDX-License-Identifier: Apache-2.0
"""What the register map lets a device have: bounds of the sizes and counts in a device file.

How many columns, rows, bytes, descriptors and locks a device has is its file's; how many there can
be at most is a fact of the address map and of the fields of the registers (``registers``). The C++
reader of device files has the same table (``register_map.h``, generated).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from onedispatch.transactions.base.phrases import span
from onedispatch.transactions.machine import registers as reg


@dataclass(frozen=True)
class Bound:
    """What a key of a device file accepts: whole numbers, and ``why`` no others.

    ``multiple``: of which they are multiples; ``doubling``: powers of two alone.
    """

    key: str
    lowest: int
    highest: int
    why: str
    multiple: int = 1
    doubling: bool = False

    def accepts(self, value: float) -> bool:
        whole = int(value) if float(value).is_integer() else -1
        if not self.lowest <= whole <= self.highest or whole % self.multiple:
            return False
        return not self.doubling or whole & (whole - 1) == 0

    def __str__(self) -> str:
        if self.doubling:
            powers = (str(1 << bit) for bit in range(self.lowest.bit_length() - 1, self.highest.bit_length()))
            return f"{', '.join(powers)} ({self.why})"
        kind = f"multiples of {self.multiple}, " if self.multiple > 1 else ""
        return f"{kind}{span(self.lowest, self.highest)} ({self.why})"


def _bounds() -> Iterator[Bound]:
    core, mem, shim = reg.CORE, reg.MEM, reg.SHIM
    columns = (1 << 32 - reg.COLUMN_SHIFT) - 1
    yield Bound("device.columns", 1, columns, "bits 25 and up of an address")
    yield Bound("device.core_rows", 1, reg.MAX_CORE_ROWS, "five row bits of an address, two rows taken")
    yield Bound("device.device_generation", 0, 255, "one byte of a transaction header")
    window = "its window of the tile's addresses, and the base field of a descriptor"
    yield Bound("core.data_memory_bytes", 1024, core.memory_bytes, window, 64)
    program = core.block["PROGRAM_MEMORY"].size
    yield Bound("core.program_memory_bytes", 64, program, "its window of the tile's addresses", 4)
    stack = "of data memory, for the stack of the core's program and its tables"
    yield Bound("core.stack_bytes", 0, core.memory_bytes // 2, stack, 64)
    yield Bound("memory_tile.memory_bytes", 1024, mem.memory_bytes, window, 64)
    for section, tile in (("core", core), ("memory_tile", mem), ("shim", shim)):
        bds, locks = tile.block["DMA_BD"].count, tile.block["LOCK_VALUE"].count
        halves = 2 if tile is mem else 1  # even channels use the lower half, odd ones the upper
        yield Bound(f"{section}.bds", 2, bds, "the start field of a task", halves)
        yield Bound(f"{section}.locks", 1, locks, "the lock fields of a descriptor")
    channels = shim.block["DMA_S2MM_QUEUE"].count
    yield Bound("shim.channels", 1, channels, "ports of the shim's switch that lead to its DMA")
    # A task queue that is full shows as one bit of queue_size in the channel's status.
    yield Bound("dma.queue_depth", 1, reg.QUEUE_DEPTH, "one bit of a status register", doubling=True)


BOUNDS: Mapping[str, Bound] = MappingProxyType({bound.key: bound for bound in _bounds()})
