# SPDX-License-Identifier: Apache-2.0
"""What a device file may say: bounds of its sizes and counts, and of its rates.

How many columns, rows, bytes, descriptors and locks a device has is its file's; how many there can
be at most is a fact of the address map and of the fields of the registers (``registers``). Rates are
bounded so that every piece of work takes time, and no run takes more than the clock can count. The C++
reader of device files has the same table (``register_map.h``, generated).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from types import MappingProxyType

from onedispatch.transactions.base.text import span
from onedispatch.transactions.machine import registers as reg


@dataclass(frozen=True)
class Bound:
    """What a key of a device file accepts: whole numbers, and ``why`` no others.

    ``key``: or a pattern of ``fnmatch``; ``multiple``: of which they are multiples, 0 where any number will
    do; ``doubling``: powers of two alone.
    """

    key: str
    lowest: float
    highest: float
    why: str
    multiple: int = 1
    doubling: bool = False

    def accepts(self, value: float) -> bool:
        if not self.multiple:
            return self.lowest <= value <= self.highest
        whole = int(value) if float(value).is_integer() else -1
        if not self.lowest <= whole <= self.highest or whole % self.multiple:
            return False
        return not self.doubling or whole & (whole - 1) == 0

    def __str__(self) -> str:
        lowest, highest = int(self.lowest), int(self.highest)
        if not self.multiple:
            return f"numbers from {self.lowest:g} to {highest} ({self.why})"
        if self.doubling:
            powers = (str(1 << bit) for bit in range(lowest.bit_length() - 1, highest.bit_length()))
            return f"{', '.join(powers)} ({self.why})"
        kind = f"multiples of {self.multiple}, " if self.multiple > 1 else ""
        return f"{kind}{span(lowest, highest)} ({self.why})"


def _bounds() -> Iterator[Bound]:
    core, mem, shim = reg.CORE, reg.MEM, reg.SHIM
    columns = (1 << 32 - reg.COLUMN_SHIFT) - 1
    yield Bound("device.columns", 1, columns, "bits 25 and up of an address")
    yield Bound("device.core_rows", 1, reg.MAX_CORE_ROWS, "five row bits of an address, two rows taken")
    yield Bound("device.device_generation", 0, 255, "one byte of a transaction header")
    pointers = f"a core's pointers, which end at {reg.CORE_VIEW_END:#x}"
    yield Bound("core.data_memory_bytes", 1024, reg.CORE_VIEW_END - reg.CORE_VIEW_MEMORY, pointers, 64)
    program = core.block["PROGRAM_MEMORY"].size
    yield Bound("core.program_memory_bytes", 64, program, "its window of the tile's addresses", 4)
    stack = "of data memory, for the stack of the core's program and its tables"
    yield Bound("core.stack_bytes", 0, core.memory_bytes // 2, stack, 64)
    yield Bound("memory_tile.memory_bytes", 1024, mem.bd_reach, "the base field of a descriptor", 64)
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
"""Of the geometry: without these no array can be built."""

_CYCLES = "cycles; no unit of work takes more than a million"
_RATES = (
    Bound("*_cycles", 0, 10**6, _CYCLES, 0),
    Bound("kernel.*_lanes", 1, 4096, "lanes of a vector"),
    Bound("kernel.*_native_[mkn]", 1, 256, "sides of a native product"),
    Bound("kernel.*_part_bytes", 1, 64, "bytes of a packed element"),
    Bound("kernel.*_sum_bytes", 4, 8, "bytes of a sum", 4),
    Bound("kernel.vector_bytes", 1, 4096, "bytes of a load or store"),
    Bound("*_per_cycle", 0.001, 10**6, "units of work per cycle", 0),
    Bound("*_mhz", 1, 10**5, "megahertz", 0),
    Bound("*_us", 0, 10**7, "microseconds, up to ten seconds", 0),
    Bound("*_ns", 0, 10**6, "nanoseconds, up to a millisecond", 0),
    Bound("*gigabytes_per_second", 0.001, 10**5, "10^9 bytes per second", 0),
    Bound("ddr.burst_bytes", 4, 4096, "bytes of a burst", doubling=True),
    Bound("ddr.segment_words", 16, 1 << 20, "words that are served at once"),
)


def bound_of(key: str) -> Bound | None:
    """What ``"section.key"`` of a device file accepts; None for what no device has."""
    rate = next((bound for bound in _RATES if fnmatchcase(key, bound.key)), None)
    return BOUNDS.get(key, rate)


def out_of_reach(count: Callable[[str], int]) -> Iterator[str]:
    """What fields of the register map do not reach of a device's memories, a sentence each.

    Args:
        count: the value of a key, as ``Device.count``.
    """
    core, mem = count("core.data_memory_bytes"), count("memory_tile.memory_bytes")
    if core > reg.CORE.bd_reach:
        yield (
            f"core.data_memory_bytes = {core}: descriptors and the controller reach the first "
            f"{reg.CORE.bd_reach}; all buffers lie there, scratch, stack and tables beyond"
        )
    view = MemoryView(mem)
    if mem > reg.MEM.memory_bytes:
        west, east = view.own, view.end - view.own - mem
        yield (
            f"memory_tile.memory_bytes = {mem}: the controller reaches the first {reg.MEM.memory_bytes}; "
            f"descriptors reach all of it, of the western neighbour's the last {west} and of the eastern "
            f"one's the first {east}"
        )


@dataclass(frozen=True)
class MemoryView:
    """Bytes as BDs of memory tiles of ``bytes`` count them: one range over west, own and east.

    Own memory begins at one place on every device. Memories of neighbours lie ``pitch`` apart, which is
    their size, or the window that AMD's have where they are smaller; gaps behind those do not exist.
    """

    bytes: int

    @property
    def own(self) -> int:
        return reg.MEM.own_memory_view

    @property
    def pitch(self) -> int:
        return max(self.own, self.bytes)

    @property
    def end(self) -> int:
        """The first byte that none names: the eastern neighbour has ended, or the base field."""
        return min(self.own + self.pitch + self.bytes, self.own + reg.MEM.bd_reach)

    def side(self, byte: int) -> int:
        """Whose memory it is: 0 west, 1 own, 2 east; more where nothing is."""
        return (byte + self.pitch - self.own) // self.pitch

    def offset(self, byte: int) -> int:
        """Where in the memory of that side it lies."""
        return (byte + self.pitch - self.own) % self.pitch

    def exists(self, first: int, end: int) -> bool:
        """Whether the bytes from ``first`` to before ``end`` are memory of three tiles side by side."""
        if not 0 <= first < end <= self.end:
            return False
        if self.bytes >= self.own:
            return True
        return self.side(first) == self.side(end - 1) and self.offset(end - 1) < self.bytes
