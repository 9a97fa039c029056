# SPDX-License-Identifier: Apache-2.0
"""Accepted values of a device file: ranges of its sizes, counts and rates.

The file states how many columns, rows, bytes, descriptors and locks a device has; the address map and the
register fields (``registers``) limit them. Rates are bounded so that every unit of work takes time and no
run overflows the clock. The C++ reader of device files uses the same table (``register_map.h``, generated).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from types import MappingProxyType

from onedispatch.transactions.base.text import span
from onedispatch.transactions.machine import registers as reg


@dataclass(frozen=True)
class AcceptedRange:
    """The values that a key of a device file accepts.

    Attributes:
        key: the key, or a pattern of ``fnmatch``.
        why: the reason for the limits.
        multiple: accepted values are multiples of this; 0 accepts fractions too.
        doubling: only powers of two are accepted.
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


def _bounds() -> Iterator[AcceptedRange]:
    core, mem, shim = reg.CORE, reg.MEM, reg.SHIM
    columns = (1 << 32 - reg.COLUMN_SHIFT) - 1
    yield AcceptedRange("device.columns", 1, columns, "bits 25 and up of an address")
    yield AcceptedRange(
        "device.core_rows", 1, reg.MAX_CORE_ROWS, "five row bits of an address, two rows taken"
    )
    yield AcceptedRange("device.device_generation", 0, 255, "one byte of a transaction header")
    pointers = f"a core's pointers, which end at {reg.CORE_VIEW_END:#x}"
    yield AcceptedRange(
        "core.data_memory_bytes", 1024, reg.CORE_VIEW_END - reg.CORE_VIEW_MEMORY, pointers, 64
    )
    program = core.block["PROGRAM_MEMORY"].size
    yield AcceptedRange("core.program_memory_bytes", 64, program, "its window of the tile's addresses", 4)
    stack = "of data memory, for the stack of the core's program and its tables"
    yield AcceptedRange("core.stack_bytes", 0, core.memory_bytes // 2, stack, 64)
    yield AcceptedRange("memory_tile.memory_bytes", 1024, mem.bd_reach, "the base field of a descriptor", 64)
    for section, tile in (("core", core), ("memory_tile", mem), ("shim", shim)):
        bds, locks = tile.block["DMA_BD"].count, tile.block["LOCK_VALUE"].count
        halves = 2 if tile is mem else 1  # even channels use the lower half of the BDs, odd ones the upper
        yield AcceptedRange(f"{section}.bds", 2, bds, "the start field of a task", halves)
        yield AcceptedRange(f"{section}.locks", 1, locks, "the lock fields of a descriptor")
    channels = shim.block["DMA_S2MM_QUEUE"].count
    yield AcceptedRange("shim.channels", 1, channels, "ports of the shim's switch that lead to its DMA")
    # A full task queue sets one bit of queue_size in the channel's status.
    yield AcceptedRange("dma.queue_depth", 1, reg.QUEUE_DEPTH, "one bit of a status register", doubling=True)


GEOMETRY_RANGES: Mapping[str, AcceptedRange] = MappingProxyType({bound.key: bound for bound in _bounds()})
"""Ranges of the geometry: keys that every device must have."""

_CYCLES = "cycles; no unit of work takes more than a million"
_RATE_RANGES = (
    AcceptedRange("*_cycles", 0, 10**6, _CYCLES, 0),
    AcceptedRange("kernel.*_lanes", 1, 4096, "lanes of a vector"),
    AcceptedRange("kernel.*_native_[mkn]", 1, 256, "sides of a native product"),
    AcceptedRange("kernel.*_part_bytes", 1, 64, "bytes of a packed element"),
    AcceptedRange("kernel.*_sum_bytes", 4, 8, "bytes of a sum", 4),
    AcceptedRange("kernel.vector_bytes", 1, 4096, "bytes of a load or store"),
    AcceptedRange("*_per_cycle", 0.001, 10**6, "units of work per cycle", 0),
    AcceptedRange("*_mhz", 1, 10**5, "megahertz", 0),
    AcceptedRange("*_us", 0, 10**7, "microseconds, up to ten seconds", 0),
    AcceptedRange("*_ns", 0, 10**6, "nanoseconds, up to a millisecond", 0),
    AcceptedRange("*gigabytes_per_second", 0.001, 10**5, "10^9 bytes per second", 0),
    AcceptedRange("ddr.read_share", 0.01, 1, "share of the rate of reads and writes", 0),
    AcceptedRange("ddr.burst_bytes", 4, 4096, "bytes of a burst", doubling=True),
    AcceptedRange("ddr.segment_words", 16, 1 << 20, "words that are served at once"),
)


def accepted_range(key: str) -> AcceptedRange | None:
    """Returns the range of ``"section.key"``; None for an unknown key."""
    rate = next((bound for bound in _RATE_RANGES if fnmatchcase(key, bound.key)), None)
    return GEOMETRY_RANGES.get(key, rate)


def unreachable_memory(count: Callable[[str], int]) -> Iterator[str]:
    """Yields a sentence for each memory that the fields of the register map cannot address completely.

    Args:
        count: returns the value of a key, as ``Device.count`` does.
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
    """The address range that a memory tile's BDs see: the west neighbour's memory, its own, the east one's.

    ``bytes`` is the size of one memory. Own memory begins at the same address on every device. The three
    memories lie ``pitch`` apart: their size, or the window of AMD's tiles if they are smaller; the gap behind
    a smaller memory does not exist.
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
        """The first byte that no BD can name: the end of the eastern memory, or of the base field's range."""
        return min(self.own + self.pitch + self.bytes, self.own + reg.MEM.bd_reach)

    @property
    def shared(self) -> range:
        """Bytes of a memory that BDs of both neighbours can name: none of the largest memories."""
        return range(self.pitch - self.own, self.end - self.own - self.pitch)

    def side(self, byte: int) -> int:
        """Returns the tile whose memory holds the byte: 0 west, 1 own, 2 east; more beyond all three."""
        return (byte + self.pitch - self.own) // self.pitch

    def offset(self, byte: int) -> int:
        """Returns the byte's offset in the memory of its side."""
        return (byte + self.pitch - self.own) % self.pitch

    def exists(self, first: int, end: int) -> bool:
        """True if all bytes in [first, end) are memory of the three tiles."""
        if not 0 <= first < end <= self.end:
            return False
        if self.bytes >= self.own:
            return True
        return self.side(first) == self.side(end - 1) and self.offset(end - 1) < self.bytes
