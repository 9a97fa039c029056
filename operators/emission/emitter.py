# SPDX-License-Identifier: Apache-2.0
"""From a schedule to the transaction that runs it in the universal overlay.

Per nest: one parameter block goes to all cores of the used columns; buffer descriptors of
cores and memory tiles are written once; then tasks are pushed in the order in which the
work needs them, never more than a channel's queue holds, and the nest ends when the last
output has reached device memory.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from itertools import islice
from math import prod
from typing import Any, NamedTuple

import numpy as np

from onedispatch.operators.declarations.kernel import MAX_DIMS
from onedispatch.operators.declarations.params import (
    DIM_FIELDS,
    DIM_WORDS,
    HEADER,
    LOCK_BASE,
    PORT_FIELDS,
    PORTS,
    Axis,
    ParamBlock,
    packed,
)
from onedispatch.operators.emission import overlay
from onedispatch.operators.emission.mem_tile import MemTile
from onedispatch.operators.scheduling.access_pattern import MAX_REPEAT, ChunkTask, Dims, Pattern
from onedispatch.operators.scheduling.feeds import Feeds
from onedispatch.operators.scheduling.index_space import Operand, Packed
from onedispatch.operators.scheduling.members import Members
from onedispatch.operators.scheduling.resources import MM2S, S2MM, Resources, resources
from onedispatch.operators.scheduling.schedule import Schedule
from onedispatch.transactions import Device, ShimBd, TransactionBuilder, queue_word
from onedispatch.transactions.base.errors import OperatorError
from onedispatch.transactions.machine import registers as reg

Array = np.ndarray[Any, Any]
# Of pushes that the work needs at the same time, memory tiles come first (ranks 0 and 1), then
# their feeds: so memory tiles fill while the controller still configures the cores.
FEED_RANK, CORE_RANK, DRAIN_RANK = 2, 3, 4
PARAMS = -1  # the start BD of the task that fetches parameters: its own


@dataclass(frozen=True)
class Emitted:
    transaction: bytes
    params: bytes


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
    def queue(self) -> tuple[int, int, int, int]:
        return self.column, self.row, self.direction, self.channel


class BoundNest:
    """One scheduled nest, bound to the operator's kernel arguments.

    ``argument`` maps an input index to its kernel argument (outputs are the first ones); the packed
    constants lie from byte ``const_at`` of ``const_argument`` on.
    """

    def __init__(
        self, schedule: Schedule, argument: Mapping[int, int], const_argument: int, const_at: int
    ) -> None:
        self.schedule = schedule
        self.feeds = Feeds(schedule, const_at)
        self.argument = argument
        self.const_argument = const_argument

    def _arguments(self, operands: Sequence[Operand | Packed]) -> list[int]:
        """Where each of a chain's operands lies."""
        return [self._argument(x) for x in operands]

    def _argument(self, operand: Operand | Packed) -> int:
        if isinstance(operand, Packed):
            return self.const_argument
        return self.argument[operand.tensor] if operand.output is None else operand.output

    def feed(self, port: int, column: int, rows: list[int]) -> tuple[list[ChunkTask], list[int]]:
        """Shim tasks of a port's chunks in the order of use, and the arguments of the chain."""
        return list(self.feeds.feed(port, column, rows)), self._arguments(self.schedule.ports[port])

    def drain(self, column: int) -> tuple[list[ChunkTask], list[int]]:
        """Shim tasks that write the out chunks of a column's active rows, and their arguments."""
        return list(self.feeds.drain(column)), self._arguments(self.schedule.nest.outputs)

    # -- the parameter block -----------------------------------------------------------------

    @cached_property
    def core_layout(self) -> list[tuple[int, int, int, int, int]]:
        """Per port (in0, in1, out): (byte address, words, slots, empty lock, full lock)."""
        s = self.schedule
        layout, at = [], overlay.CORE_BUFFERS_AT + 4 * s.nest.longer_block
        for port in (0, 1, 2):
            words = s.out_words if port == 2 else s.port_words(port)
            depth = s.out_depth if port == 2 else s.port_depth(port)
            empty, full = overlay.CORE_LOCKS[port, depth]
            layout.append((at, words, depth, empty, full))
            at += words * depth * 4
        return layout

    @property
    def scratch_at(self) -> int:
        """Where scratch begins in the core's memory: behind the slots of all ports, or with that of out."""
        at, words, depth, _, _ = self.core_layout[-1]
        return at if self.schedule.sums_in_slot else at + words * depth * 4

    def param_block(self) -> bytes:
        s = self.schedule
        block = ParamBlock(s.nest.kernel)
        block.put(HEADER["row_mask"], [(1 << s.active_rows) - 1, s.inner_steps])
        cadences = (s.cadence(0), s.cadence(1), s.out_cadence)
        for port, (at, words, depth, empty, full) in enumerate(self.core_layout):
            acquire, release = (empty, full) if port == 2 else (full, empty)
            locks = (LOCK_BASE + acquire, LOCK_BASE + release)
            facts = (reg.CORE_VIEW_MEMORY + at, words * 4, depth, *locks, cadences[port], words * 4)
            block.put(HEADER[f"port_{PORTS[port]}"], packed("port", PORT_FIELDS, *facts))
        for d in range(MAX_DIMS):
            if d < len(s.nest.dims):
                along = (s.nest.dims[d].extent, s.tiles[d], *s.strides(d), s.counts[d])
            else:
                along = (1, 1, 0, 0, 1, 1)
            block.put(HEADER["dims"] + DIM_WORDS * d, packed(f"dimension {d}", DIM_FIELDS, *along))
        order = [*s.mapping.order, *range(len(s.nest.dims), MAX_DIMS)]
        nibbles = sum(d << 4 * level for level, d in enumerate(order))
        scratch = reg.CORE_VIEW_MEMORY + self.scratch_at if s.scratch_words else 0
        block.put(HEADER["k_extent"], [s.nest.k_extent, s.k_tile, nibbles, scratch])
        self._set_arguments(block)
        return block.to_bytes()

    def _set_arguments(self, block: ParamBlock) -> None:
        s, nest = self.schedule, self.schedule.nest
        bound = nest.bound
        if nest.members is not None:
            self._set_members(block, nest.members)
        for name, dim in nest.roles.items():
            block.set_dim(name, dim)
        for tensor in nest.kernel.tensors:
            if tensor.name in bound and nest.members is None:
                code = bound[tensor.name].dtype.code
                axes = () if tensor in nest.kernel.outputs else s.axes(tensor)
                block.set_operand(tensor.name, s.ref(tensor.name), code, axes)
        for scalar in nest.kernel.scalars:
            given = nest.scalars.get(scalar.name, scalar.default)
            value = nest.function(scalar).name if scalar.table else given
            if value is None:  # nest_rules asks for one
                raise OperatorError(
                    f"nest of {nest.kernel.name}, scalar {scalar.name!r}", "nothing", "a value"
                )
            block.set_scalar(scalar.name, value)

    def _set_members(self, block: ParamBlock, members: Members) -> None:
        """The index space of an instance of a member kernel, and what of its tensors lies where."""
        s = self.schedule
        block.set_members(members.first, members.total, members.whole)
        for operand in s.nest.strided:
            shape = [int(n) for n in operand.chunk_shape(s.nest, s.tiles, s.k_tile)]
            said = members.axes[operand.name]
            axes = [
                Axis(one.extent, shape[d], prod(shape[d + 1 :]), one.a, one.b, one.align, one.den)
                for d, one in enumerate(said)
            ]
            along, spans = [one.along for one in said], [one.span for one in said]
            paddings = [one.padding for one in said]
            reference, code = s.ref(operand.name), operand.dtype.code
            block.set_member_operand(operand.name, reference, code, axes, along, spans, paddings)


@dataclass
class _Emitter:
    """Appends one nest after the other to a builder."""

    builder: TransactionBuilder
    params_argument: int
    bound: BoundNest
    params_at: int
    pushes: list[Push] = field(default_factory=list)
    restore: list[tuple[int, int]] = field(default_factory=list)
    core_bds: list[tuple[int, Sequence[int]]] = field(default_factory=list)
    _mem_tiles: dict[tuple[int, ...], MemTile] = field(default_factory=dict)  # by core rows served

    @property
    def room(self) -> Resources:
        return resources(self.bound.schedule.device)

    def emit(self) -> None:
        columns = self.bound.schedule.mapping.columns
        for column in range(columns):
            self._params(column)
            self._mem_tile(column)
            self._turns(column)
            for row in range(self.room.rows):
                self._core(column, row)
            self._shim(column)
        self._flow(columns)
        for address, value in self.restore:
            self.builder.write(address, value)

    def _address(self, column: int, row: int, block: str, index: int = 0) -> int:
        offset, stride = _block(("shim", "mem")[row] if row < 2 else "core", block)
        return (column << reg.COLUMN_SHIFT | row << reg.ROW_SHIFT) + offset + index * stride

    # -- static configuration ------------------------------------------------------------------

    def _params(self, column: int) -> None:
        push = self.pushes.append
        pattern = Pattern(self.params_at // 4, ((self.bound.schedule.nest.kernel.block_words, 1),))
        push(Push(-1, FEED_RANK, column, 0, MM2S, 1, 1, PARAMS, (pattern,), (self.params_argument,)))
        in_bd, out_bd = self.room.mem_param_bds
        pieces = self.bound.schedule.nest.kernel.block_pieces
        push(Push(-1, 0, column, 1, S2MM, 1, pieces, in_bd))
        push(Push(-1, 1, column, 1, MM2S, 0, pieces, out_bd))
        core_bd = self.room.core_param_bds[pieces]
        # Memory tiles hold one piece: of longer blocks the rest comes when cores take the first, and feeds
        # whose descriptors do not suffice wait for all of it.
        step = 0 if pieces == 1 else -1
        for row in range(self.room.rows):
            push(Push(step, CORE_RANK, column, 2 + row, S2MM, 1, 1, core_bd))

    def _turns(self, column: int) -> None:
        """Where one row of several that share a lane works, it does not wait for its turn."""
        if self.bound.schedule.active_rows > 1 or self.room.sharers == 1:
            return
        merge = self._address(column, reg.FIRST_CORE_ROW, "SWITCH_MERGE", overlay.OUT_ARBITER)
        words = overlay.merge_words(self.room, 0)
        enable = merge + 4 * (len(words) - 1)
        self.builder.write(enable, 0)
        self.restore.append((enable, words[-1]))

    def _core(self, column: int, row: int) -> None:
        if row >= self.bound.schedule.active_rows:
            return
        queues = ((S2MM, 0), (S2MM, 1), (MM2S, 0))
        for port, bd, runs in self._core_ports:
            if port == 2 and overlay.out_packet(self.room, row) is not None:
                bd = self._shared_out_bd
            self.core_bds.append((self._address(column, 2 + row, "DMA_BD", port), bd))
            for step, repeat in runs:
                self.pushes.append(Push(step, CORE_RANK, column, 2 + row, *queues[port], repeat, port))

    @cached_property
    def _core_ports(self) -> list[tuple[int, Sequence[int], list[tuple[int, int]]]]:
        """(port, BD words, [(step, repeat) of each task]), the same for every core that works.

        But for the out BD where rows share a lane: ``_shared_out_bd``.
        """
        s = self.bound.schedule
        found: list[tuple[int, Sequence[int], list[tuple[int, int]]]] = []
        counts = (s.chunks(0), s.chunks(1), s.outer_steps)
        for port, (at, words, depth, empty, full) in enumerate(self.bound.core_layout):
            if not counts[port]:
                continue
            acquire, release = (full, empty) if port == 2 else (empty, full)
            bd = overlay.core_bd(at, words, acquire, release, depth)
            per_run = s.steps_per_chunk(port)
            starts = range(0, counts[port], MAX_REPEAT)
            runs = [(done * per_run, min(MAX_REPEAT, counts[port] - done)) for done in starts]
            found.append((port, bd, runs))
        return found

    @cached_property
    def _shared_out_bd(self) -> Sequence[int]:
        at, words, depth, empty, full = self.bound.core_layout[2]
        return overlay.core_bd(at, words, full, empty, depth, overlay.OUT_PACKET)

    def _mem_tile(self, column: int) -> None:
        served = tuple(self.bound.feeds.rows_served(column))
        tile = self._mem_tiles.get(served)
        if tile is None:
            tile = self._mem_tiles[served] = MemTile(self.bound.schedule, served)
        for first, words in tile.writes():
            self.builder.blockwrite(self._address(column, 1, "DMA_BD", first), words)
        for lock, value in tile.locks:
            address = self._address(column, 1, "LOCK_VALUE", lock)
            self.builder.write(address, value)
            self.restore.append((address, overlay.RING_SLOTS))
        for t in tile.tasks:
            self.pushes.append(Push(t.step, t.rank, column, 1, t.direction, t.channel, t.repeat, t.bd))

    def _shim(self, column: int) -> None:
        bound, s = self.bound, self.bound.schedule
        rows = bound.feeds.rows_served(column)
        for port, served in ((0, rows), (1, [0])):
            if not s.chunks(port) or not served:
                continue
            tasks, arguments = bound.feed(port, column, served)
            hold, per_chunk = s.holds[port], s.steps_per_chunk(port)
            for task in tasks:
                panel = task.first // (len(served) * hold.chunks)
                step = panel * hold.chunks * hold.repeat * per_chunk
                chain = tuple(arguments[i] for i in task.operands)
                self.pushes.append(
                    Push(step, FEED_RANK, column, 0, MM2S, port, task.repeat, 0, task.patterns, chain)
                )
        tasks, arguments = bound.drain(column)
        for task in tasks:
            step = task.first // s.active_rows * s.inner_steps
            chain = tuple(arguments[i] for i in task.operands)
            drain = Push(step, DRAIN_RANK, column, 0, S2MM, 0, task.repeat, 0, task.patterns, chain)
            self.pushes.append(drain)

    # -- dynamic part: pushes with flow control -----------------------------------------------

    def _flow(self, columns: int) -> None:
        order = sorted(self.pushes, key=lambda p: p.step * 8 + p.rank)
        total: dict[tuple[int, int, int, int], int] = defaultdict(int)
        room = self.room
        limit: dict[tuple[int, int, int, int], int] = defaultdict(lambda: room.tasks_ahead)
        for push in order:
            total[push.queue] += 1
            if push.patterns and push.start_bd != PARAMS:
                pool = room.shim_bds[push.direction, push.channel]
                limit[push.queue] = min(limit[push.queue], len(pool) // len(push.patterns))
        seen: dict[tuple[int, int, int, int], int] = defaultdict(int)
        free: dict[tuple[int, int, int, int], deque[int]] = {}
        for push in order:
            if push.rank >= CORE_RANK:
                self._configure_cores()
            queue, number = push.queue, seen[push.queue]
            seen[queue] += 1
            if number >= limit[queue]:
                self._wait(queue)
            drains = queue[1:] == (0, S2MM, 0)
            ends = number + limit[queue] < total[queue] or (drains and number + 1 == total[queue])
            token = ends and push.row < reg.FIRST_CORE_ROW
            start = push.start_bd
            if push.patterns:
                pool = room.shim_bds[push.direction, push.channel]
                ring = free.setdefault(queue, deque(pool))
                start = self._shim_bds(push, ring)
            word = _push_word(push.row, start, push.repeat, token)
            block = "DMA_S2MM_QUEUE" if push.direction == S2MM else "DMA_MM2S_QUEUE"
            self.builder.write(self._address(push.column, push.row, block, push.channel), word)
        self.builder.tct("S2MM", 0, 0, 0, columns=columns)

    def _configure_cores(self) -> None:
        for address, words in self.core_bds:
            self.builder.blockwrite(address, words)
        self.core_bds.clear()

    def _wait(self, queue: tuple[int, int, int, int]) -> None:
        """Until a task of the queue has ended."""
        column, row, direction, channel = queue
        if row >= reg.FIRST_CORE_ROW:
            # The overlay has no route for tokens of cores. A queue with room says the same.
            block = "DMA_MM2S_STATUS" if direction == MM2S else "DMA_S2MM_STATUS"
            self.builder.maskpoll(self._address(column, row, block, channel), 0, self.room.queue_full)
            return
        self.builder.tct("MM2S" if direction == MM2S else "S2MM", column, row, channel)

    def _shim_bds(self, push: Push, ring: deque[int]) -> int:
        """Write the chain of a shim task into free BDs; returns the first one."""
        if push.start_bd == PARAMS:
            numbers = [self.room.shim_param_bd]
        else:
            numbers = list(islice(ring, len(push.patterns)))
            ring.rotate(-len(numbers))
        for i, (pattern, number) in enumerate(zip(push.patterns, numbers, strict=True)):
            following = numbers[i + 1] if i + 1 < len(numbers) else None
            at = self._address(push.column, 0, "DMA_BD", number)
            self.builder.blockwrite(at, _shim_words(pattern.dims, pattern.iteration, following))
            self.builder.ddr_patch(at + 4, push.arguments[i], pattern.base * 4)
        return numbers[0]


@lru_cache(maxsize=4096)  # columns and operators of one kind have the same ones
def _shim_words(dims: Dims, iteration: tuple[int, int], following: int | None) -> list[int]:
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
        burst=2,
    ).to_words()


def emit_nests(nests: list[BoundNest], device: Device, params_argument: int) -> Emitted:
    """The transaction and the parameter blocks of an operator's nests, one after the other."""
    builder = TransactionBuilder.for_device(device)
    blocks = [bound.param_block() for bound in nests]
    params_at = 0
    for bound, block in zip(nests, blocks, strict=True):
        _Emitter(builder, params_argument, bound, params_at).emit()
        params_at += len(block)
    return Emitted(builder.to_bytes(), b"".join(blocks))


@cache
def _block(kind: str, block: str) -> tuple[int, int]:
    """Offset in a tile of that kind, and stride, of a block of registers."""
    found = reg.TILES[kind].block[block]
    return found.offset, found.stride


@cache
def _push_word(row: int, start_bd: int, repeat: int, token: bool) -> int:
    return queue_word("mem" if row == reg.MEM_ROW else "core", start_bd, repeat, token)
