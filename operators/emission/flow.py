# SPDX-License-Identifier: Apache-2.0
"""Tasks of a nest in the order in which the work needs them, never more than a channel's queue holds.

What queues of memory tiles and cores take at once goes to them as control packets; what shims do, and what
comes later, the controller pushes once those packets have arrived.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from itertools import islice
from math import prod
from typing import NamedTuple

from onedispatch.operators.emission import control
from onedispatch.operators.scheduling.access_pattern import Dims, Pattern
from onedispatch.operators.scheduling.resources import MM2S, S2MM, Resources
from onedispatch.transactions import ShimBd, TransactionBuilder, queue_word
from onedispatch.transactions.machine import registers as reg

# Of what the work needs at the same time, memory tiles come first (ranks 0 and 1), then their feeds.
FEED_RANK, CORE_RANK, DRAIN_RANK = 2, 3, 4
STREAM = -1  # the start BD of the task that carries control packets and parameters: a BD of its own
Queue = tuple[int, int, int, int]


class Push(NamedTuple):
    """One task for one channel: a static BD, or shim patterns that still need BDs."""

    step: float  # when the work first needs it
    rank: int
    column: int
    row: int
    direction: int
    channel: int
    repeat: int
    start_bd: int = 0
    patterns: tuple[Pattern, ...] = ()
    arguments: tuple[int, ...] = ()

    @property
    def queue(self) -> Queue:
        return self.column, self.row, self.direction, self.channel


class Flow:
    """The pushes of a nest, and what the controller does about them."""

    def __init__(
        self,
        builder: TransactionBuilder,
        limits: Resources,
        pushes: Iterable[Push],
        ends: Sequence[tuple[int, int]],
        turned: bool,
    ) -> None:
        self.builder, self.limits = builder, limits
        self._turned = turned  # neighbours begin with other descriptors of shims, which can be written ahead
        self._ends = ends  # (row, S2MM channel) of those whose last task ends the nest
        order = sorted(pushes, key=lambda push: push.step * 8 + push.rank)
        self._total: dict[Queue, int] = defaultdict(int)
        self._limit: dict[Queue, int] = defaultdict(lambda: limits.tasks_ahead)
        self._waited: dict[Queue, int] = defaultdict(int)
        self._free: dict[Queue, deque[int]] = {}
        self.order: list[tuple[Push, Queue, int]] = []  # with its queue and its number there
        for push in order:
            queue = push.queue
            self.order.append((push, queue, self._total[queue]))
            self._total[queue] += 1
            if push.patterns and push.start_bd != STREAM:
                pool = limits.shim_bds[push.direction, push.channel]
                self._limit[queue] = min(self._limit[queue], len(pool) // len(push.patterns))
        # What the first tasks came with must be there before more is pushed, which would overtake it.
        self._followed = {
            push.column for push, queue, number in self.order if push.row and not self._at_once(queue, number)
        }

    def at_once(self) -> Iterator[tuple[Push, int]]:
        """Pushes of memory tiles and cores that their queues hold from the start, with their words."""
        for push, queue, number in self.order:
            if push.row and self._at_once(queue, number):
                yield push, self._word(push, queue, number, push.start_bd)

    def push_all(self, columns: int, streams: Mapping[int, Pattern]) -> None:
        """Everything else, until all outputs are where they shall be; ``streams`` lie in device memory, by
        column."""
        for push, queue, number in self.order:
            at_once = self._at_once(queue, number)
            if push.row and at_once:
                continue
            if push.row:
                self._see(_stream_of(push.column), 1)
            if not at_once:
                self._wait(queue, number)
            if push.start_bd == STREAM:
                push = push._replace(patterns=(streams[push.column],))
            start = self._shim_bds(push) if push.patterns else push.start_bd
            word = self._word(push, queue, number, start)
            block = "DMA_S2MM_QUEUE" if push.direction == S2MM else "DMA_MM2S_QUEUE"
            self.builder.write(address(push.column, push.row, block, push.channel), word)
        for row, channel in self._ends:
            self.builder.tct("S2MM", 0, row, channel, columns=columns)

    def _at_once(self, queue: Queue, number: int) -> bool:
        return number < self._limit[queue]

    def _word(self, push: Push, queue: Queue, number: int, start_bd: int) -> int:
        _, row, direction, channel = queue
        ends = direction == S2MM and (row, channel) in self._ends
        last_drain = ends and number + 1 == self._total[queue]
        awaited = number + self._limit[queue] < self._total[queue]
        followed = push.start_bd == STREAM and push.column in self._followed
        token = (awaited or last_drain or followed) and push.row < reg.FIRST_CORE_ROW
        return _push_word(push.row, start_bd, push.repeat, token)

    def _wait(self, queue: Queue, number: int) -> None:
        """Waits until the queue has space for task ``number``."""
        column, row, direction, channel = queue
        if row >= reg.FIRST_CORE_ROW:
            # The overlay has no route for tokens of cores. A queue that is not full tells as much.
            block = "DMA_MM2S_STATUS" if direction == MM2S else "DMA_S2MM_STATUS"
            self.builder.maskpoll(address(column, row, block, channel), 0, self.limits.queue_full)
            return
        self._see(queue, number - self._limit[queue] + 1)

    def _see(self, queue: Queue, tokens: int) -> None:
        """Waits until ``tokens`` tasks of the queue have ended."""
        column, row, direction, channel = queue
        for _ in range(self._waited[queue], tokens):
            self.builder.tct("MM2S" if direction == MM2S else "S2MM", column, row, channel)
        self._waited[queue] = max(self._waited[queue], tokens)

    def _shim_bds(self, push: Push) -> int:
        """Write the chain of a shim task into free BDs; returns the first one."""
        stream = push.start_bd == STREAM
        if stream:
            numbers = [self.limits.shim_param_bds[self._turned and -1]]
        else:
            pool = self.limits.shim_bds[push.direction, push.channel]
            half = len(pool) // 2 if self._turned else 0
            ring = self._free.setdefault(push.queue, deque([*pool[half:], *pool[:half]]))
            numbers = list(islice(ring, len(push.patterns)))
            ring.rotate(-len(numbers))
        packet = None if stream or push.queue != _stream_of(push.column) else control.FEED
        for i, (pattern, number) in enumerate(zip(push.patterns, numbers, strict=True)):
            following = numbers[i + 1] if i + 1 < len(numbers) else None
            at = address(push.column, 0, "DMA_BD", number)
            self.builder.blockwrite(at, _shim_words(pattern.dims, pattern.iteration, following, packet))
            self.builder.ddr_patch(at + 4, push.arguments[i], pattern.base * 4)
        return numbers[0]


def _stream_of(column: int) -> Queue:
    return column, reg.SHIM_ROW, MM2S, control.CHANNEL


def address(column: int, row: int, block: str, index: int = 0) -> int:
    """Of a register, or of the first word of a BD."""
    offset = control.register(("shim", "mem")[row] if row < reg.FIRST_CORE_ROW else "core", block, index)
    return (column << reg.COLUMN_SHIFT | row << reg.ROW_SHIFT) + offset


@cache
def _push_word(row: int, start_bd: int, repeat: int, token: bool) -> int:
    return queue_word("mem" if row == reg.MEM_ROW else "core", start_bd, repeat, token)


@lru_cache(maxsize=4096)  # columns and operators of one kind have the same ones
def _shim_words(
    dims: Dims, iteration: tuple[int, int], following: int | None, packet: int | None = None
) -> Sequence[int]:
    """A shim BD without its base address, which DDR_PATCH adds."""
    wrap, step = iteration
    return ShimBd.at(
        0,
        prod(count for count, _ in dims),
        [(step, count) for count, step in dims]
        if len(dims) == 3
        # below the last dimension the outermost used one is bounded by the length, not by a wrap
        else [(step, count) for count, step in dims[:-1]] + [(dims[-1][1], 0)],
        iteration=(step, wrap) if wrap > 1 else None,
        next_bd=following,
        packet_id=packet,
        burst=2,
    ).to_words()
