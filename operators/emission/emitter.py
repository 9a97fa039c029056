# SPDX-License-Identifier: Apache-2.0
"""From a schedule to the transaction that runs it in the universal overlay.

Per nest: each used column's shim sends the configuration of its memory tile and cores as control
packets (``control``): descriptors, locks and first tasks, and behind them the parameter block,
which goes to all cores. Then tasks are pushed in the order in which the work needs them
(``flow``), and the nest ends when the last output has reached device memory, or where it stays.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from onedispatch.operators.declarations.kernel import MAX_DIMS
from onedispatch.operators.declarations.params import (
    DIM_FIELDS,
    DIM_WORDS,
    HEADER,
    LOCK_BASE,
    PORT_FIELDS,
    PORTS,
    ParamBlock,
    packed,
)
from onedispatch.operators.emission import control, flow, overlay
from onedispatch.operators.emission.flow import CORE_RANK, DRAIN_RANK, FEED_RANK, STREAM, Push
from onedispatch.operators.emission.mem_tile import MemTile
from onedispatch.operators.emission.programs import NestProgram, prebuilt, record
from onedispatch.operators.scheduling.access_pattern import MAX_REPEAT, ChunkTask, Pattern
from onedispatch.operators.scheduling.feeds import ConstantOffsets, Feeds
from onedispatch.operators.scheduling.index_space import Operand, Packed
from onedispatch.operators.scheduling.keeping import column_kind
from onedispatch.operators.scheduling.members import Members
from onedispatch.operators.scheduling.resources import (
    MM2S,
    OUT_FILL,
    ROW_LANES,
    S2MM,
    Resources,
    resources,
)
from onedispatch.operators.scheduling.schedule import Schedule
from onedispatch.transactions import Device, Transaction, TransactionBuilder
from onedispatch.transactions.base.cached import cached_property
from onedispatch.transactions.base.errors import OperatorError
from onedispatch.transactions.fusion.ahead import written_ahead
from onedispatch.transactions.machine import registers as reg

Array = np.ndarray[Any, Any]


class BoundNest:
    """One scheduled nest, bound to the operator's kernel arguments.

    ``argument`` maps an input index to its kernel argument (outputs are the first ones); the packed
    constants lie from byte ``const_at`` of ``const_argument`` on, or among ``places`` (see ``Feeds``).
    """

    def __init__(
        self,
        schedule: Schedule,
        argument: Mapping[int, int],
        const_argument: int,
        const_at: int,
        places: ConstantOffsets | None = None,
    ) -> None:
        self.schedule = schedule
        self.feeds = Feeds(schedule, const_at, places)
        self.argument = argument
        self.const_argument = const_argument
        self.loads_resident = True  # False: the previous nest left its resident operand in the cores
        self.retains_resident = False  # True: the next nest finds the resident operand in its core slot

    @property
    def identity(self) -> Hashable:
        """Nests for which this is equal are emitted alike. Scalars, and what depends on them, are in the
        parameter block, bit by bit."""
        s, nest = self.schedule, self.schedule.nest
        space = nest.kernel.name, nest.kernel.digest, nest.dims, nest.inputs, nest.outputs
        steps = nest.k_extent, nest.k_multiple, nest.k_whole, nest.occupied, s.solution
        places = self.const_argument, *self.argument.items(), *self.feeds.packed_at.items()
        return s.device.identity, space, steps, places, self.loads_resident, self.param_block

    def chunks(self, port: int) -> int:
        """Chunks of a port that a core is brought during the nest."""
        return self.schedule.chunks(port) if port != 0 or self.loads_resident else 0

    def reuses_resident(self, previous: BoundNest) -> bool:
        """Returns True if the previous nest left the same packed constant in the same core slot.

        Equal offsets in device memory mean the same constant in the layout of the same solution.
        """
        alike = previous.feeds.packed_at == self.feeds.packed_at and previous.core_layout == self.core_layout
        return self.schedule.in0_resident and alike

    def _arguments(self, operands: Sequence[Operand | Packed]) -> list[int]:
        """Where each of a chain's operands lies."""
        return [self._argument(x) for x in operands]

    def _argument(self, operand: Operand | Packed) -> int:
        if isinstance(operand, Packed):
            return self.const_argument
        return self.argument[operand.tensor] if operand.output is None else operand.output

    def feed(
        self, port: int, column: int, rows: list[int], channel: int
    ) -> tuple[list[ChunkTask], list[int]]:
        """Tasks of a shim channel for a port's chunks in the order of use, and the arguments of the chain."""
        tasks = list(self.feeds.feed(port, column, rows, channel))
        return tasks, self._arguments(self.schedule.fetched(port))

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

    @cached_property
    def param_block(self) -> bytes:
        s = self.schedule
        block = ParamBlock(s.nest.kernel)
        block.put(HEADER["row_mask"], [(1 << s.active_rows) - 1, s.inner_steps])
        cadences = (s.cadence(0), s.cadence(1), s.out_cadence)
        for port, (at, words, depth, empty, full) in enumerate(self.core_layout):
            acquire, release = (empty, full) if port == 2 else (full, empty)
            if port == 0 and self.retains_resident:  # the slot stays full
                release = full
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
            shape = s.chunk_shape(operand)
            reference, code = s.ref(operand.name), operand.dtype.code
            block.set_member_operand(operand.name, reference, code, members.axes[operand.name], shape)


@dataclass
class _NestEmitter:
    """Appends one nest after the other to a builder."""

    builder: TransactionBuilder
    params_argument: int
    bound: BoundNest
    params_at: int
    turned: bool
    params: bytearray = field(default_factory=bytearray)
    pushes: list[Push] = field(default_factory=list)
    restore: list[tuple[int, int]] = field(default_factory=list)
    _mem_tiles: dict[tuple[int, ...], MemTile] = field(default_factory=dict)  # by column, core rows served
    _streams: dict[tuple[int, ...], Pattern] = field(default_factory=dict)  # by their words

    @property
    def limits(self) -> Resources:
        return resources(self.bound.schedule.device)

    def emit(self) -> None:
        columns = self.bound.schedule.mapping.columns
        for column in range(columns):
            self._params(column)
            self._locks(column)
            self._turns(column)
            self._shim(column)
            self._tasks(column)
        tasks = flow.Flow(self.builder, self.limits, self.pushes, self._ends(), self.turned)
        early: dict[int, list[tuple[Push, int]]] = defaultdict(list)
        for push, word in tasks.at_once():
            early[push.column].append((push, word))
        streams = {column: self._stream(column, early[column]) for column in range(columns)}
        tasks.push_all(columns, streams)
        for address, value in self.restore:
            self.builder.write(address, value)

    def _ends(self) -> list[tuple[int, int]]:
        """(row, S2MM channel) of what takes the results: the shim, or the memory tile where they stay."""
        s = self.bound.schedule
        if not s.kept[2]:
            return [(reg.SHIM_ROW, 0)]
        return [(reg.MEM_ROW, OUT_FILL + lane) for lane in range(min(s.active_rows, ROW_LANES))]

    # -- tasks of memory tiles and cores -------------------------------------------------------

    def _params(self, column: int) -> None:
        push = self.pushes.append
        push(Push(-1, FEED_RANK, column, 0, MM2S, control.CHANNEL, 1, STREAM, (), (self.params_argument,)))
        in_bd, out_bd = self.limits.mem_param_bds
        pieces = self.bound.schedule.nest.kernel.block_pieces
        push(Push(-1, 0, column, 1, S2MM, 1, pieces, in_bd))
        push(Push(-1, 1, column, 1, MM2S, 0, pieces, out_bd))
        core_bd = self.limits.core_param_bds[pieces]
        for row in range(self.limits.rows):
            push(Push(-1, CORE_RANK, column, 2 + row, S2MM, 1, 1, core_bd))

    def _locks(self, column: int) -> None:
        for lock, _ in self._mem_tile(column).locks:
            self.restore.append((flow.address(column, 1, "LOCK_VALUE", lock), overlay.RING_SLOTS))

    def _turns(self, column: int) -> None:
        """Where one row of several that share a lane works, it does not wait for its turn."""
        if self.bound.schedule.active_rows > 1 or self.limits.sharers == 1:
            return
        merge = flow.address(column, reg.FIRST_CORE_ROW, "SWITCH_MERGE", overlay.OUT_ARBITER)
        words = overlay.merge_words(self.limits, 0)
        enable = merge + 4 * (len(words) - 1)
        self.builder.write(enable, 0)
        self.restore.append((enable, words[-1]))

    def _mem_tile(self, column: int) -> MemTile:
        served = tuple(self.bound.feeds.rows_served(column)) if self.bound.loads_resident else ()
        key = column_kind(self.bound.schedule, column), *served
        if key not in self._mem_tiles:
            self._mem_tiles[key] = MemTile(self.bound.schedule, served, self.bound.feeds, column)
        return self._mem_tiles[key]

    def _tasks(self, column: int) -> None:
        for t in self._mem_tile(column).tasks:
            self.pushes.append(Push(t.step, t.rank, column, 1, t.direction, t.channel, t.repeat, t.bd))
        queues = ((S2MM, 0), (S2MM, 1), (MM2S, 0))
        for row in range(self.bound.schedule.active_rows):
            for port, _, runs in self._core_ports:
                for step, repeat in runs:
                    push = Push(step, CORE_RANK, column, 2 + row, *queues[port], repeat, port)
                    self.pushes.append(push)

    @cached_property
    def _core_ports(self) -> list[tuple[int, Sequence[int], list[tuple[int, int]]]]:
        """(port, BD words, [(step, repeat) of each task]), the same for every core that works.

        But for the out BD where rows share a lane: ``_shared_out_bd``.
        """
        s = self.bound.schedule
        found: list[tuple[int, Sequence[int], list[tuple[int, int]]]] = []
        counts = (self.bound.chunks(0), self.bound.chunks(1), s.outer_steps)
        for port, (at, words, depth, empty, full) in enumerate(self.bound.core_layout):
            if not counts[port]:
                continue
            acquire, release = (full, empty) if port == 2 else (empty, full)
            bd = overlay.core_bd(at, words, acquire, release, depth, dims=s.arrival if port == 1 else ())
            per_run = s.steps_per_chunk(port)
            starts = range(0, counts[port], MAX_REPEAT)
            runs = [(done * per_run, min(MAX_REPEAT, counts[port] - done)) for done in starts]
            found.append((port, bd, runs))
        return found

    @cached_property
    def _shared_out_bd(self) -> Sequence[int]:
        at, words, depth, empty, full = self.bound.core_layout[2]
        return overlay.core_bd(at, words, full, empty, depth, overlay.OUT_PACKET)

    # -- control packets -----------------------------------------------------------------------

    def _stream(self, column: int, early: Sequence[tuple[Push, int]]) -> Pattern:
        """Returns the task that carries a column's control packets and parameter block."""
        writes = (*self._mem_writes(column), *self._core_writes(), *_queue_writes(early))
        words = tuple(control.packets(writes))
        if words not in self._streams:
            at = self.params_at + len(self.params)
            whole = (*words, control.feed_header())
            self.params += struct.pack(f"<{len(whole)}I", *whole) + self.bound.param_block
            end = self.params_at + len(self.params)
            self._streams[words] = Pattern(at // 4, (((end - at) // 4, 1),))
        return self._streams[words]

    def _mem_writes(self, column: int) -> Iterator[control.Write]:
        tile = self._mem_tile(column)
        for first, words in tile.writes():
            yield control.MEM, control.register("mem", "DMA_BD", first), words
        for lock, value in tile.locks:
            yield control.MEM, control.register("mem", "LOCK_VALUE", lock), [value]

    def _core_writes(self) -> Iterator[control.Write]:
        """Descriptors of the cores that work: what all of them have alike goes to all at once."""
        rows = range(self.bound.schedule.active_rows)
        for port, bd, _ in self._core_ports:
            at = control.register("core", "DMA_BD", port)
            yield control.UP_TO + rows[-1], at, bd
            shared = [row for row in rows if overlay.out_packet(self.limits, row) is not None]
            for row in shared if port == 2 else ():
                yield control.ONLY + row, at, self._shared_out_bd

    # -- shims ---------------------------------------------------------------------------------

    def _shim(self, column: int) -> None:
        bound, s = self.bound, self.bound.schedule
        rows = bound.feeds.rows_served(column), [0]
        for port in s.feed_order:
            if bound.chunks(port) and rows[port] and s.ring_words(port):
                for channel, some in s.channels(port, rows[port]):
                    self._feed(column, port, some, channel)
        tasks, arguments = ([], []) if s.kept[2] else bound.drain(column)
        for task in tasks:
            step = task.first // s.active_rows * s.inner_steps
            chain = tuple(arguments[i] for i in task.operands)
            drain = Push(step, DRAIN_RANK, column, 0, S2MM, 0, task.repeat, 0, task.patterns, chain)
            self.pushes.append(drain)

    def _feed(self, column: int, port: int, rows: list[int], channel: int) -> None:
        """Pushes the tasks of a shim channel that feeds ``rows`` of a port."""
        s = self.bound.schedule
        tasks, arguments = self.bound.feed(port, column, rows, channel)
        hold, per_chunk = s.holds[port], s.steps_per_chunk(port)
        # What waits for in1 in its queue comes behind what other columns begin with.
        rank = CORE_RANK if s.in1_first and (port, channel) == (0, 1) else FEED_RANK
        for task in tasks:
            panel = task.first // (len(rows) * hold.chunks)
            step = panel * hold.chunks * hold.repeat * per_chunk
            chain = tuple(arguments[i] for i in task.operands)
            self.pushes.append(
                Push(step, rank, column, 0, MM2S, channel, task.repeat, 0, task.patterns, chain)
            )


def _queue_writes(early: Iterable[tuple[Push, int]]) -> Iterator[control.Write]:
    """Pushes of a column's memory tile and cores; what cores from the first on share goes to all at once."""
    rows: dict[tuple[float, int, int, int, int], list[int]] = {}
    for push, word in early:
        kind = min(push.row, reg.FIRST_CORE_ROW)
        rows.setdefault((push.step, kind, push.direction, push.channel, word), []).append(push.row)
    for (_, kind, direction, channel, word), found in rows.items():
        block = "DMA_S2MM_QUEUE" if direction == S2MM else "DMA_MM2S_QUEUE"
        if kind == reg.MEM_ROW:
            yield control.MEM, control.register("mem", block, channel), [word]
        else:
            yield control.UP_TO + len(found) - 1, control.register("core", block, channel), [word]


_PROGRAMS: dict[Hashable, NestProgram] = {}
_PROGRAMS_KEPT = 256


def emit_nests(
    nests: list[BoundNest], device: Device, params_argument: int, *, turned: bool = False
) -> NestProgram:
    """The transaction and the parameters of an operator's nests, one after the other.

    Layers of a network repeat: equal nests are emitted once. ``turned``: with other descriptors of shims than
    without, as operators have them in turn.
    """
    for previous, bound in pairwise(nests):
        if bound.reuses_resident(previous):
            previous.retains_resident, bound.loads_resident = True, False
    key = device.identity, params_argument, turned, *(bound.identity for bound in nests)
    program = _PROGRAMS.get(key)
    if program is None:
        if len(_PROGRAMS) >= _PROGRAMS_KEPT:
            _PROGRAMS.clear()
        program = prebuilt(key)
    if program is None:  # those that are loaded stay with the catalog that has them
        program = _PROGRAMS[key] = _emitted(nests, device, params_argument, turned)
    record(key, program)
    return program


def _emitted(nests: Sequence[BoundNest], device: Device, params_argument: int, turned: bool) -> NestProgram:
    builder = TransactionBuilder.for_device(device)
    params, pieces = bytearray(), []
    for turn, bound in enumerate(nests):
        first = builder.op_count
        emitter = _NestEmitter(builder, params_argument, bound, len(params), turned ^ bool(turn % 2))
        emitter.emit()
        params += emitter.params
        pieces.append(range(first, builder.op_count))
    transaction = builder.to_bytes()
    if len(nests) > 1:
        transaction = written_ahead(Transaction.from_bytes(transaction), pieces).to_bytes()
    return NestProgram(transaction, bytes(params), tuple(bound.param_block for bound in nests))
