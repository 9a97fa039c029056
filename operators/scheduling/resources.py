# SPDX-License-Identifier: Apache-2.0
"""What the universal overlay has of a device: rooms of memory, descriptors, locks, queues and lanes.

Lanes are stream-switch ports between neighbouring rows: six up and four down. Upwards one carries the
column broadcast (in1), four carry the rows' own inputs (in0) and one is left to control packets;
downwards four carry results. Up to four rows of cores have a lane each way to themselves; of more,
row ``r`` shares lane ``r % 4`` with every fourth one: packet ids tell inputs apart, and results
take turns (deterministic merge).

What limits the number of rows is the memory tile: per half of its descriptors (even and odd
channels) it takes two for each row, one for in1 and one for the parameter blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from onedispatch.operators.declarations.kernel import PIECES
from onedispatch.operators.declarations.params import BYTES as PARAM_BYTES
from onedispatch.operators.declarations.params import PARAM_LOCKS, SUPER_KERNEL_BYTES
from onedispatch.operators.scheduling.index_space import IntArray
from onedispatch.transactions import Device
from onedispatch.transactions.base.cached import cached_property
from onedispatch.transactions.base.errors import DeviceError
from onedispatch.transactions.base.text import counted, span
from onedispatch.transactions.machine import registers as reg
from onedispatch.transactions.machine.geometry import MemoryView

ROW_LANES = 4  # of in0 upwards, and of results downwards
CORE_BDS = 3 + len(PIECES)  # in0, in1, out; parameters: by their pieces
CORE_LOCKS = max(PARAM_LOCKS) + 1
SHIM_CHANNELS = 2
# Shim BDs of MM2S 0 and 1 and of S2MM 0, as parts of those that parameters leave.
_SHIM_SHARES = (6, 4, 4)
_SECOND_PARAM_BD = 16  # so many descriptors leave room for another one of parameters
MAX_HEAD_WORDS = 16  # of an image with a few kernels
SMALLEST_SHIM_POOL = 1  # a longer chain than a channel has descriptors for goes one by one
S2MM, MM2S = 0, 1
# Channels of memory tiles: S2MM from the shim, and from the first lane of results; MM2S to the shim.
FEED, OUT_FILL, DRAIN = (0, 1), 2, 5


def sending(port: int, row: int) -> int:
    """The MM2S channel of a memory tile that sends in0 to core ``row``, or in1 to all."""
    return 0 if port == 1 else 1 + row % ROW_LANES


@dataclass(frozen=True)
class Resources:
    """Of one device; ``resources`` makes them, and refuses what no overlay can serve."""

    device: Device

    @cached_property
    def rows(self) -> int:
        """Rows of cores."""
        return self.device.core_rows

    @property
    def sharers(self) -> int:
        """The most rows that share a lane."""
        return -(-self.rows // ROW_LANES)

    def rows_of_lane(self, lane: int) -> range:
        return range(lane, self.rows, ROW_LANES)

    # -- cores -----------------------------------------------------------------------------

    @cached_property
    def buffer_bytes(self) -> int:
        """Data memory of a core less the parameter block, and less stack and tables."""
        stack = self.device.count("core.stack_bytes")
        return self.device.count("core.data_memory_bytes") - PARAM_BYTES - stack

    @cached_property
    def slot_bytes(self) -> int:
        """What descriptors reach of ``buffer_bytes``: slots of ports lie there, scratch may lie beyond."""
        return min(self.buffer_bytes, reg.CORE.bd_reach - PARAM_BYTES)

    def core_holds(self, slots: IntArray, scratch: IntArray) -> IntArray:
        """Whether a core has room for ``slots`` words of ports, and ``scratch`` words behind them."""
        fits: IntArray = 4 * (slots + scratch) <= self.buffer_bytes
        return fits if self.slot_bytes == self.buffer_bytes else fits & (4 * slots <= self.slot_bytes)

    @cached_property
    def core_param_bds(self) -> dict[int, int]:
        """For parameter blocks, by the pieces that they come in."""
        last = self.device.count("core.bds") - 1
        return {pieces: last - i for i, pieces in enumerate(PIECES)}

    # -- memory tiles ----------------------------------------------------------------------

    @cached_property
    def mem_param_at(self) -> int:
        """Byte of a memory tile at which a parameter block rests: the last that hold one."""
        return self.device.count("memory_tile.memory_bytes") - PARAM_BYTES

    @cached_property
    def mem_words(self) -> int:
        """Words of a memory tile that rings may take."""
        return self.mem_param_at // 4

    @cached_property
    def mem_view(self) -> MemoryView:
        """What descriptors of a memory tile see of its memory and of its neighbours'."""
        return MemoryView(self.device.count("memory_tile.memory_bytes"))

    @cached_property
    def mem_bds(self) -> tuple[range, range]:
        """BDs for even and for odd channels, less one each for parameter blocks."""
        half = self.device.count("memory_tile.bds") // 2
        return range(half - 1), range(half, 2 * half - 1)

    @property
    def mem_param_bds(self) -> tuple[int, int]:
        """(in, out): of odd and of even channels."""
        return self.mem_bds[1].stop, self.mem_bds[0].stop

    @cached_property
    def mem_param_locks(self) -> tuple[int, int]:
        locks = self.device.count("memory_tile.locks")
        return locks - 2, locks - 1

    @property
    def rings(self) -> int:
        """Pairs of locks, (2i, 2i + 1), that rings may take."""
        return self.mem_param_locks[0] // 2 - 1

    def least_out_ring(self, words: IntArray, served: int, rows: int) -> IntArray:
        """Words of the leanest out ring of one of ``rows`` cores, for chunks of ``words``, where an in0 feed
        serves ``served`` of them: a chunk in two halves, or two whole ones."""
        return np.maximum(words, 2 * np.sign(words)) if self._takes_halves(served, rows) else 2 * words

    def _takes_halves(self, served: int, rows: int) -> bool:
        """Whether memory tiles have descriptors and locks for out chunks in halves while inputs stream."""
        second = served // 2 if self.sharers == 1 else 0  # that the other channel may bring
        sent = -(-served // 2)  # of in0, by even channels or by odd ones
        even = served + 1 + sent + 2 * -(-rows // 2)  # MM2S 0 sends in1
        odd = 1 + second + sent + 2 * (rows // 2) + 2 * rows  # MM2S 5 drains all of out
        return max(even, odd) <= min(map(len, self.mem_bds)) and rows + served + 1 <= self.rings

    # -- shims -----------------------------------------------------------------------------

    @cached_property
    def shim_param_bds(self) -> tuple[int, ...]:
        """For parameters, of operators in turn: one is written while the other one is at work."""
        last = self.device.count("shim.bds") - 1
        return (last, last - 1) if last + 1 >= _SECOND_PARAM_BD else (last,)

    @cached_property
    def shim_bds(self) -> dict[tuple[int, int], range]:
        """BDs of each (direction, channel); a task takes as many as its chain is long, or goes one by one."""
        return dict(
            zip(((MM2S, 0), (MM2S, 1), (S2MM, 0)), _shim_pools(min(self.shim_param_bds)), strict=True)
        )

    # -- queues ----------------------------------------------------------------------------

    @cached_property
    def tasks_ahead(self) -> int:
        """Tasks of a channel that have not ended when one more is pushed, at most.

        A queue holds that many beside the one that runs. Two there must be, though it holds one: the
        parameters, and what the operator sends behind them, which cores take at the same time.
        """
        return max(self.device.count("dma.queue_depth"), 2)

    @cached_property
    def queue_full(self) -> int:
        """The bit of a channel's status that says that its queue is full."""
        return self.device.count("dma.queue_depth") << reg.field_of(reg.STATUS_FIELDS, "queue_size").lsb


@cache
def resources(device: Device) -> Resources:
    """What operators have of ``device``.

    Raises:
        DeviceError: it has too little of something, or more rows than memory tiles can serve.
    """
    found = Resources(device)
    bds, locks = device.count("memory_tile.bds"), device.count("memory_tile.locks")
    by_bds, by_rings = bds // 4 - 1, (found.rings - 1) // 2
    most = max(min(by_bds, by_rings), 0)
    _require(
        device, "device.core_rows", device.core_rows, device.core_rows <= most,
        f"{span(1, most)}: a memory tile with {counted(bds, 'descriptor')} and {counted(locks, 'lock')} "
        "serves no more",
    )  # fmt: skip
    _at_least(device, "core.bds", CORE_BDS, "three ports, and parameter blocks by their length")
    _at_least(device, "core.locks", CORE_LOCKS, "the super kernel's locks")
    _at_least(device, "shim.channels", SHIM_CHANNELS, "both inputs of a column")
    pool = min(map(len, found.shim_bds.values()))
    _require(
        device, "shim.bds", device.count("shim.bds"), pool >= SMALLEST_SHIM_POOL,
        f"{_smallest_shim_bds()} or more: one of each channel, and parameters",
    )  # fmt: skip
    least = 4 * PARAM_BYTES + device.count("core.stack_bytes")
    _at_least(device, "core.data_memory_bytes", least, "a stack, a parameter block and some buffers")
    program = SUPER_KERNEL_BYTES + 4 * MAX_HEAD_WORDS
    _at_least(device, "core.program_memory_bytes", program, "the program that runs kernels")
    rings = 2 * _reached(device)  # so that one core's buffers always have rings
    _at_least(device, "memory_tile.memory_bytes", rings, "twice what descriptors reach of a core")
    return found


def _reached(device: Device) -> int:
    """Bytes of a core's data memory that its descriptors can name."""
    return min(device.count("core.data_memory_bytes"), reg.CORE.bd_reach)


def _smallest_shim_bds() -> int:
    most = reg.SHIM.block["DMA_BD"].count
    enough = (n for n in range(1, most) if min(map(len, _shim_pools(n))) >= SMALLEST_SHIM_POOL)
    return 1 + next(enough)


def _shim_pools(bds: int) -> list[range]:
    """``bds`` descriptors in shares."""
    ends = [bds * sum(_SHIM_SHARES[: i + 1]) // sum(_SHIM_SHARES) for i in range(len(_SHIM_SHARES))]
    return [range(first, end) for first, end in zip([0, *ends], ends, strict=False)]


def _at_least(device: Device, key: str, least: int, why: str) -> None:
    given = device.count(key)
    _require(device, key, given, given >= least, f"{least} or more: {why}")


def _require(device: Device, key: str, given: int, fits: bool, accepted: str) -> None:
    if not fits:
        raise DeviceError(
            f"the universal overlay on {device.name}", f"{key} = {given}", accepted, "use another device"
        )
