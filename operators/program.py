# SPDX-License-Identifier: Apache-2.0
"""From a schedule to the transaction that runs it in the universal overlay.

Per nest: one parameter block goes to all cores of the used columns; buffer descriptors of
cores and memory tiles are written once; then tasks are pushed in the order in which the
work needs them, never more than a channel's queue holds, and the nest ends when the last
output has reached device memory.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from onedispatch.operators import overlay
from onedispatch.operators.access_pattern import ChunkTask, Dims, Pattern, chunk_tasks
from onedispatch.operators.index_space import K, Operand, Packed
from onedispatch.operators.params import CADENCE_STEP, CADENCE_TILE, HEADER, ParamBlock
from onedispatch.operators.schedule import CORE_ROWS, Schedule
from onedispatch.transactions import Device, ShimBd, TransactionBuilder, queue_word
from onedispatch.transactions import registers as reg

S2MM, MM2S = 0, 1
QUEUE_TASKS = reg.QUEUE_DEPTH
MAX_REPEAT = 256
PARAM_SHIM_BD = 15
# Shim BDs of each channel; a task takes as many as its chain is long.
SHIM_BDS = {(MM2S, 0): range(0, 6), (MM2S, 1): range(6, 10), (S2MM, 0): range(10, 15)}

# Memory-tile BDs: even channels may use 0-23, odd ones 24-47.
IN0_FILL_BD = 0  # S2MM0: a chain over the rows served
IN0_SEND_BD = (24, 4, 25, 5)  # MM2S1..4
IN1_FILL_BD, IN1_SEND_BD = 26, 6  # S2MM1, MM2S0
OUT_FILL_BD = (8, 27, 9, 28)  # S2MM2..5
OUT_SEND_BD = 32  # MM2S5: a chain over the active rows
HELD_BD = 16  # a held port's second send BD lies this much further
# Memory-tile rings (pairs of locks): in0 by row, in1, out by row.
IN1_RING, OUT_RING = 4, 5


@dataclass(frozen=True)
class Emitted:
    transaction: bytes
    params: bytes


@dataclass(frozen=True)
class Push:
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


class NestProgram:
    """One scheduled nest, bound to the operator's kernel arguments.

    ``argument`` maps an input index to its kernel argument (0 is the output); the packed
    constants lie from byte ``const_at`` of ``const_argument`` on.
    """

    def __init__(
        self, schedule: Schedule, argument: Mapping[int, int], const_argument: int, const_at: int
    ) -> None:
        self.schedule = schedule
        self.argument = argument
        self.const_argument = const_argument
        self.packed: list[tuple[str, int, int]] = []
        self._packed_at: dict[str, int] = {}
        at = const_at
        for operand in schedule.nest.inputs:
            if isinstance(operand, Packed):
                size = schedule.words(operand) * 4 * schedule.slot_count(operand)
                self.packed.append((operand.name, at, size))
                self._packed_at[operand.name] = at
                at += size
        self.const_bytes = at - const_at

    # -- addresses -------------------------------------------------------------------------

    def box(self, operand: Operand | Packed) -> Dims:
        """A chunk as (count, stride) in words, innermost first."""
        if isinstance(operand, Packed):
            return ((self.schedule.words(operand), 1),)
        s = self.schedule
        shape = [int(n) for n in operand.chunk_shape(s.nest, s.tiles, s.k_tile)]
        dims = []
        for d in reversed(range(len(shape))):
            count, stride = shape[d], operand.strides[d]
            if operand.itemsize < 4 and stride == 1:
                count, stride = -(-count * operand.itemsize // 4), 1
            elif operand.itemsize != 4:
                stride = stride * operand.itemsize // 4
            dims.append((count, stride))
        return tuple(dims)

    def offsets(self, operand: Operand | Packed, origins: Any, steps: Any) -> np.ndarray[Any, Any]:
        """Word offsets of the chunks for tile ``origins`` [n, dims] and reduction ``steps`` [n]."""
        s = self.schedule
        if isinstance(operand, Packed):
            tiles = [-(-origins[:, d] // s.tiles[d]) for d in operand.dims if d != K]
            slots = s.slot(operand, tiles, steps if K in operand.dims else 0)
            at = np.zeros(len(steps), np.int64) + slots
            return self._packed_at[operand.name] // 4 + at * s.words(operand)
        total = np.full(len(steps), operand.offset, np.int64)
        for access, axis, stride in zip(
            operand.access, operand.axes(s.nest, s.tiles, s.k_tile), operand.strides, strict=True
        ):
            if access.dim is None:
                continue
            at = steps * s.k_tile if access.dim == K else origins[:, access.dim]
            wanted = axis.a * at + axis.b
            wanted = wanted - wanted % axis.align
            total += np.clip(wanted, 0, axis.extent - axis.chunk) * stride
        return total * operand.itemsize // 4

    def _argument(self, operand: Operand | Packed) -> int:
        if isinstance(operand, Packed):
            return self.const_argument
        return 0 if operand.tensor < 0 else self.argument[operand.tensor]

    # -- feeds -----------------------------------------------------------------------------

    def rows_served(self, column: int) -> list[int]:
        """Core rows that a column's in0 feed serves."""
        s = self.schedule
        if not s.mapping.rowcast:
            return list(range(s.active_rows))
        return [r for r in range(CORE_ROWS) if r * s.device.columns // CORE_ROWS == column]

    def feed(self, port: int, column: int, rows: list[int]) -> tuple[list[ChunkTask], list[int]]:
        """Shim tasks of a port's chunks in the order of use, and the arguments of the chain."""
        s = self.schedule
        operands = s.ports[port]
        inner = s.inner_steps if s.cadence(port) == CADENCE_STEP else 1
        outer = s.outer_steps if s.cadence(port) in (CADENCE_STEP, CADENCE_TILE) else 1
        fetched = slice(0, outer, s.holds[port].repeat)
        per_row = []
        for row in rows:
            origins = np.repeat(s.tile_origins(column, row)[fetched], inner, axis=0)
            steps = np.tile(np.arange(inner), len(origins) // inner)
            columns = [self.offsets(x, origins, steps) for x in operands]
            per_row.append(np.stack(columns, axis=-1))
        # A memory tile takes a panel for one row, then one for the next.
        group = s.holds[port].chunks
        panels = np.stack(per_row).reshape(len(rows), -1, group, len(operands))
        sequence = panels.transpose(1, 0, 2, 3).reshape(-1, len(operands))
        return chunk_tasks(sequence, [self.box(x) for x in operands]), [
            self._argument(x) for x in operands
        ]

    def drain(self, column: int) -> list[ChunkTask]:
        """Shim tasks that write the out chunks of a column's active rows."""
        s = self.schedule
        out = s.nest.output
        steps = np.zeros(s.outer_steps, np.int64)
        rows = [self.offsets(out, s.tile_origins(column, r), steps) for r in range(s.active_rows)]
        sequence = np.stack(rows, axis=1).reshape(-1, 1)
        return chunk_tasks(sequence, [self.box(out)])

    # -- the parameter block -----------------------------------------------------------------

    def core_layout(self) -> list[tuple[int, int, int, int, int]]:
        """Per port (in0, in1, out): (byte address, words, slots, empty lock, full lock)."""
        s = self.schedule
        layout, at = [], overlay.CORE_BUFFERS_AT
        for port in (0, 1, 2):
            words = s.out_words if port == 2 else s.port_words(port)
            depth = s.out_depth if port == 2 else s.port_depth(port)
            empty, full = overlay.CORE_LOCKS[port, depth]
            layout.append((at, words, depth, empty, full))
            at += words * depth * 4
        return layout

    def param_block(self) -> bytes:
        s = self.schedule
        block = ParamBlock(s.nest.kernel)
        block.put(HEADER["row_mask"], [(1 << s.active_rows) - 1, s.inner_steps])
        cadences = (s.cadence(0), s.cadence(1), CADENCE_TILE)
        for port, (at, words, depth, empty, full) in enumerate(self.core_layout()):
            acquire, release = (empty, full) if port == 2 else (full, empty)
            locks = depth | (48 + acquire) << 8 | (48 + release) << 16 | cadences[port] << 24
            block.put(4 + 4 * port, [reg.CORE_VIEW_MEMORY + at, words * 4, locks, words * 4])
        for d in range(5):
            if d < len(s.nest.dims):
                cc, cr, oc = s.strides(d)
                words4 = [s.nest.dims[d].extent, s.tiles[d], cc | cr << 16 | oc << 20, s.counts[d]]
            else:
                words4 = [1, 1, 1 << 20, 1]
            block.put(HEADER["dims"] + 4 * d, words4)
        order = [*s.mapping.order, *range(len(s.nest.dims), 5)]
        nibbles = sum(d << 4 * level for level, d in enumerate(order))
        block.put(HEADER["k_extent"], [s.nest.k_extent, s.k_tile, nibbles])
        block.set_args(s.nest.args(s))
        return block.to_bytes()


@dataclass
class _Emitter:
    """Appends one nest after the other to a builder."""

    builder: TransactionBuilder
    params_argument: int
    program: NestProgram
    params_at: int
    pushes: list[Push] = field(default_factory=list)
    restore: list[tuple[int, int]] = field(default_factory=list)

    def emit(self) -> None:
        columns = self.program.schedule.mapping.columns
        for column in range(columns):
            self._params(column)
            self._mem_tile(column)
            for row in range(CORE_ROWS):
                self._core(column, row)
            self._shim(column)
        self._flow(columns)
        for address, value in self.restore:
            self.builder.write(address, value)

    def _address(self, column: int, row: int, block: str, index: int = 0) -> int:
        kind = ("shim", "mem")[row] if row < 2 else "core"
        found = reg.TILES[kind].block[block]
        base = column << reg.COLUMN_SHIFT | row << reg.ROW_SHIFT
        return base + found.offset + index * found.stride

    # -- static configuration ------------------------------------------------------------------

    def _params(self, column: int) -> None:
        push = self.pushes.append
        pattern = Pattern(self.params_at // 4, ((overlay.PARAM_WORDS, 1),))
        push(Push(-1, 3, column, 0, MM2S, 1, 1, PARAM_SHIM_BD, (pattern,), (self.params_argument,)))
        push(Push(-1, 1, column, 1, S2MM, 1, 1, overlay.MEM_PARAM_IN_BD))
        push(Push(-1, 2, column, 1, MM2S, 0, 1, overlay.MEM_PARAM_OUT_BD))
        for row in range(CORE_ROWS):
            push(Push(-1, 0, column, 2 + row, S2MM, 1, 1, overlay.CORE_PARAM_BD))

    def _static(
        self, rank: int, queue: tuple[int, int, int, int], bd: int, count: int, per_run: int, first: int = 0
    ) -> None:
        """Push ``bd`` ``count`` times; one run covers ``per_run`` steps of the work from ``first`` on."""
        for done in range(0, count, MAX_REPEAT):
            repeat = min(MAX_REPEAT, count - done)
            self.pushes.append(Push(first + done * per_run, rank, *queue, repeat, bd))

    def _core(self, column: int, row: int) -> None:
        s = self.program.schedule
        active = row < s.active_rows
        if not active:
            return
        counts = (s.chunks(0), s.chunks(1), s.outer_steps)
        queues = ((S2MM, 0), (S2MM, 1), (MM2S, 0))
        for port, (at, words, depth, empty, full) in enumerate(self.program.core_layout()):
            if not counts[port]:
                continue
            acquire, release = (full, empty) if port == 2 else (empty, full)
            bd = overlay.core_bd(at, words, acquire, release, depth)
            self.builder.blockwrite(self._address(column, 2 + row, "DMA_BD", port), bd)
            self._static(0, (column, 2 + row, *queues[port]), port, counts[port], s.steps_per_chunk(port))

    def _mem_tile(self, column: int) -> None:
        s = self.program.schedule
        self.bds: dict[int, list[int]] = {}
        self.mem_at = 0
        rows = self.program.rows_served(column)
        packet = overlay.ROW_PACKET if s.mapping.rowcast else overlay.OWN_PACKET
        if s.chunks(0) and rows:
            for i, row in enumerate(rows):
                following = IN0_FILL_BD + i + 1 if i + 1 < len(rows) else None
                bds = (IN0_FILL_BD + i, IN0_SEND_BD[row])
                self._ring(column, 0, row, bds, (MM2S, 1 + row), following, packet)
            self._fill(column, 0, (S2MM, 0), IN0_FILL_BD)
        if s.chunks(1):
            self._ring(column, 1, IN1_RING, (IN1_FILL_BD, IN1_SEND_BD), (MM2S, 0), None, None)
            self._fill(column, 1, (S2MM, 1), IN1_FILL_BD)
        for row in range(s.active_rows):
            start, empty, full = self._buffer(OUT_RING + row, 2 * s.out_words)
            following = OUT_SEND_BD + row + 1 if row + 1 < s.active_rows else None
            self.bds[OUT_FILL_BD[row]] = overlay.mem_bd(start, s.out_words, empty, full, 2)
            self.bds[OUT_SEND_BD + row] = overlay.mem_bd(start, s.out_words, full, empty, 2, following)
            self._static(1, (column, 1, S2MM, 2 + row), OUT_FILL_BD[row], s.outer_steps, s.inner_steps)
        self._static(2, (column, 1, MM2S, 5), OUT_SEND_BD, s.outer_steps, s.inner_steps)
        for first, words in _adjacent(self.bds):
            self.builder.blockwrite(self._address(column, 1, "DMA_BD", first), words)

    def _buffer(self, ring: int, words: int) -> tuple[int, int, int]:
        """(byte address, empty lock, full lock) of a ring's memory."""
        start = self.mem_at
        self.mem_at += words * 4
        if self.mem_at > overlay.MEM_PARAM_AT:
            raise RuntimeError(f"memory tile rings need {self.mem_at} bytes of {overlay.MEM_PARAM_AT}")
        return start, 2 * ring, 2 * ring + 1

    def _fill(self, column: int, port: int, channel: tuple[int, int], bd: int) -> None:
        s = self.program.schedule
        hold = s.holds[port]
        runs = s.chunks(port) // (hold.chunks * hold.repeat)
        per_run = s.steps_per_chunk(port) * hold.chunks * hold.repeat
        self._static(1, (column, 1, *channel), bd, runs, per_run)

    def _ring(
        self,
        column: int,
        port: int,
        ring: int,
        bds: tuple[int, int],
        send: tuple[int, int],
        following: int | None,
        packet: int | None,
    ) -> None:
        """One input ring of a memory tile: its fill BD, its send BDs, and the tasks that send.

        A held panel is filled once (taking ``repeat`` empties, giving ``repeat`` fulls) and sent
        ``repeat`` times, each time taking a full and giving an empty.
        """
        s = self.program.schedule
        hold, per_chunk = s.holds[port], s.steps_per_chunk(port)
        words = s.port_words(port) * hold.chunks
        start, empty, full = self._buffer(ring, words * hold.slots)
        fill_bd, send_bd = bds
        count = hold.repeat
        self.bds[fill_bd] = overlay.mem_bd(start, words, empty, full, hold.slots, following, None, count)
        if hold.repeat == 1:
            self.bds[send_bd] = overlay.mem_bd(start, words, full, empty, hold.slots, None, packet)
            runs = s.chunks(port) // hold.chunks
            self._static(2, (column, 1, *send), send_bd, runs, hold.chunks * per_chunk)
            return
        self._held_lock(column, empty, hold.slots * hold.repeat)
        numbers = (send_bd, send_bd + HELD_BD)
        for slot in range(hold.slots):
            at = start + slot * words * 4
            self.bds[numbers[slot]] = overlay.mem_bd(at, words, full, empty, 1, None, packet)
        panels = s.chunks(port) // (hold.chunks * hold.repeat)
        for panel in range(panels):
            first = panel * hold.chunks * hold.repeat * per_chunk
            bd = numbers[panel % hold.slots]
            self._static(2, (column, 1, *send), bd, hold.repeat, hold.chunks * per_chunk, first)

    def _held_lock(self, column: int, lock: int, value: int) -> None:
        """Set a ring's empties for this nest; put back when the nest is done."""
        address = self._address(column, 1, "LOCK_VALUE", lock)
        self.builder.write(address, value)
        self.restore.append((address, overlay.RING_SLOTS))

    def _shim(self, column: int) -> None:
        program, s = self.program, self.program.schedule
        rows = program.rows_served(column)
        for port, served in ((0, rows), (1, [0])):
            if not s.chunks(port) or not served:
                continue
            tasks, arguments = program.feed(port, column, served)
            hold, per_chunk = s.holds[port], s.steps_per_chunk(port)
            for task in tasks:
                panel = task.first // (len(served) * hold.chunks)
                step = panel * hold.chunks * hold.repeat * per_chunk
                chain = tuple(arguments[i] for i in task.operands)
                self.pushes.append(
                    Push(step, 3, column, 0, MM2S, port, task.repeat, 0, task.patterns, chain)
                )
        for task in program.drain(column):
            step = task.first // s.active_rows * s.inner_steps
            self.pushes.append(Push(step, 3, column, 0, S2MM, 0, task.repeat, 0, task.patterns, (0,)))

    # -- dynamic part: pushes with flow control -----------------------------------------------

    def _flow(self, columns: int) -> None:
        order = sorted(self.pushes, key=lambda p: p.step * 8 + p.rank)
        total: dict[tuple[int, int, int, int], int] = defaultdict(int)
        limit: dict[tuple[int, int, int, int], int] = defaultdict(lambda: QUEUE_TASKS)
        for push in order:
            total[push.queue] += 1
            if push.patterns and push.start_bd != PARAM_SHIM_BD:
                pool = SHIM_BDS[push.direction, push.channel]
                limit[push.queue] = min(limit[push.queue], len(pool) // len(push.patterns))
        seen: dict[tuple[int, int, int, int], int] = defaultdict(int)
        free: dict[tuple[int, int, int, int], deque[int]] = {}
        for push in order:
            queue, number = push.queue, seen[push.queue]
            seen[queue] += 1
            if number >= limit[queue]:
                self._wait(queue)
            drains = queue[1:] == (0, S2MM, 0)
            token = number + limit[queue] < total[queue] or (drains and number + 1 == total[queue])
            start = push.start_bd
            if push.patterns:
                pool = SHIM_BDS[push.direction, push.channel]
                ring = free.setdefault(queue, deque(pool))
                start = self._shim_bds(push, ring)
            word = _push_word(push.row, start, push.repeat, token)
            block = "DMA_S2MM_QUEUE" if push.direction == S2MM else "DMA_MM2S_QUEUE"
            self.builder.write(self._address(push.column, push.row, block, push.channel), word)
        self.builder.tct("S2MM", 0, 0, 0, columns=columns)

    def _wait(self, queue: tuple[int, int, int, int]) -> None:
        column, row, direction, channel = queue
        self.builder.tct("MM2S" if direction == MM2S else "S2MM", column, row, channel)

    def _shim_bds(self, push: Push, ring: deque[int]) -> int:
        """Write the chain of a shim task into free BDs; returns the first one."""
        if push.start_bd == PARAM_SHIM_BD:
            numbers = [PARAM_SHIM_BD]
        else:
            numbers = [ring[0] for _ in push.patterns if not ring.rotate(-1)]
        for i, (pattern, number) in enumerate(zip(push.patterns, numbers, strict=True)):
            following = numbers[i + 1] if i + 1 < len(numbers) else None
            at = self._address(push.column, 0, "DMA_BD", number)
            self.builder.blockwrite(at, _shim_words(pattern, following))
            self.builder.ddr_patch(at + 4, push.arguments[i], pattern.base * 4)
        return numbers[0]


def _shim_words(pattern: Pattern, following: int | None) -> list[int]:
    wrap, step = pattern.iteration
    return ShimBd.at(
        0,
        pattern.words,
        [(step, count) for count, step in pattern.dims] if len(pattern.dims) == 3 else
        # below the last dimension the outermost used one is bounded by the length, not by a wrap
        [(step, count) for count, step in pattern.dims[:-1]] + [(pattern.dims[-1][1], 0)],
        iteration=(step, wrap) if wrap > 1 else None,
        next_bd=following,
        burst=2,
    ).to_words()


def _adjacent(bds: Mapping[int, list[int]]) -> Iterator[tuple[int, list[int]]]:
    """BDs joined into runs of neighbours: (first BD, words)."""
    run: tuple[int, list[int]] | None = None
    previous = -2
    for number in sorted(bds):
        if run is not None and number == previous + 1:
            run[1].extend(bds[number])
        else:
            if run is not None:
                yield run
            run = (number, list(bds[number]))
        previous = number
    if run is not None:
        yield run


def emit_program(programs: list[NestProgram], device: Device, params_argument: int) -> Emitted:
    """The transaction and the parameter blocks of an operator's nests, one after the other."""
    builder = TransactionBuilder(device.device_generation, device.columns)
    blocks = [program.param_block() for program in programs]
    for number, program in enumerate(programs):
        _Emitter(builder, params_argument, program, number * len(blocks[number])).emit()
    return Emitted(builder.to_bytes(), b"".join(blocks))


@cache
def _push_word(row: int, start_bd: int, repeat: int, token: bool) -> int:
    return queue_word("mem" if row == reg.MEM_ROW else "core", start_bd, repeat, token)
