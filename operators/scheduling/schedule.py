# SPDX-License-Identifier: Apache-2.0
"""A nest with its tiles chosen and its work laid over columns, rows, ports and loops.

A ``Solution`` says what was chosen; what it means for chunks, memory tiles and cores is here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from onedispatch.operators.declarations.kernel import Tensor
from onedispatch.operators.declarations.params import (
    CADENCE_LAST,
    CADENCE_NONE,
    CADENCE_ONCE,
    CADENCE_STEP,
    CADENCE_TILE,
    PORT_OUT,
    SCALAR_AXIS,
    Axis,
    port_ref,
)
from onedispatch.operators.scheduling.access_pattern import MAX_DIMS
from onedispatch.operators.scheduling.call_cost import scratch_words, sums_words, tile_cycles
from onedispatch.operators.scheduling.holds import STREAM, Hold, in1_first_pays, takes_both_channels
from onedispatch.operators.scheduling.index_space import (
    IntArray,
    K,
    Operand,
    Packed,
    PackedPart,
    contiguous_strides,
    depends,
    kept,
)
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.operators.scheduling.resources import ROW_LANES, Resources, resources
from onedispatch.operators.scheduling.solution import Mapping, Solution
from onedispatch.transactions import Device
from onedispatch.transactions.base.cached import cached_method, cached_property
from onedispatch.transactions.base.errors import OperatorError, SolutionError
from onedispatch.transactions.base.text import counted
from onedispatch.transactions.machine import registers as reg

MAX_PANEL_WORDS = reg.MEM.bd_field["length"].maximum
MAX_LOCK = reg.LOCK_MAX
MAX_WRAP = reg.MEM.bd_field["d0_wrap"].maximum  # shims have the same
MAX_CORE_WRAP = reg.CORE.bd_field["d0_wrap"].maximum
PANEL_PARTS = 4
GROUP_WORDS, MIN_PANELS = 12288, 8  # size and number of panels worth grouping chunks into


@dataclass(frozen=True, eq=False)
class Schedule:
    """A nest with its solution: its tiles chosen and its work laid over the cores of a device."""

    nest: Nest
    device: Device
    solution: Solution
    origin: str = ""  # where the solution comes from, if not from the search

    @property
    def mapping(self) -> Mapping:
        return self.solution.mapping

    @property
    def tiles(self) -> tuple[int, ...]:
        return self.solution.tiles

    @property
    def k_tile(self) -> int:
        return self.solution.k_tile

    @cached_property
    def grid(self) -> tuple[int, ...]:
        """Number of tiles per dimension."""
        return tuple(-(-d.extent // t) for d, t in zip(self.nest.dims, self.tiles, strict=True))

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Tiles that one core visits per dimension."""
        return tuple(-(-g // self.mapping.cores_along(d, self.limits.rows)) for d, g in enumerate(self.grid))

    @cached_property
    def outer_steps(self) -> int:
        return prod(self.counts)

    @cached_property
    def inner_steps(self) -> int:
        return max(1, -(-self.nest.k_extent // self.k_tile)) if self.nest.reduces else 1

    @cached_property
    def active_rows(self) -> int:
        """Core rows that work; all of them when they must take a column broadcast, or turns."""
        row, rows = self.mapping.row_dim, self.limits.rows
        if self.mapping.in1:
            return rows
        if row is None:
            return 1
        return rows if self.limits.sharers > 1 else min(rows, self.grid[row])

    @cached_property
    def limits(self) -> Resources:
        return resources(self.device)

    def strides(self, dim: int) -> tuple[int, int, int]:
        """(per column, per row, per outer step) increments of the tile coordinate.

        A column takes a block of neighbouring tiles, its rows take them in turn: so a
        column's feed walks through memory in one direction.
        """
        m = self.mapping
        rows = self.limits.rows if dim == m.row_dim else 1
        cc = self.counts[dim] * rows if dim == m.col_dim else 0
        return cc, 1 if dim == m.row_dim else 0, rows

    def origins_of(self, column: int, rows: Sequence[int]) -> list[IntArray]:
        """Tile origins of every dimension that cores of a column visit, in order (as the super kernel does).

        Arrays of core rows, and of the steps of each loop, outermost first, that broadcast together.
        """
        row, order = np.array(rows, np.int64), self.mapping.order
        found: list[IntArray] = []
        for d, (count, tile) in enumerate(zip(self.counts, self.tiles, strict=True)):
            if self.grid[d] == 1:  # one tile, at 0
                found.append(0)
                continue
            cc, cr, oc = self.strides(d)
            first = column * cc + row[:, None] * cr
            index = np.minimum(first + np.arange(count) * oc, self.grid[d] - 1)
            shape = [count if loop == d else 1 for loop in order]
            origins = np.minimum(index * tile, self.nest.dims[d].extent - tile)
            found.append(origins.reshape(len(row), *shape))
        return found

    # -- packed constants ------------------------------------------------------------------

    def _slot_sizes(self, operand: Packed) -> tuple[list[tuple[int, int]], int, int]:
        """((columns, outer tiles) per dimension, reduction steps, rows) of a packed operand."""
        m = self.mapping
        outer = [(m.columns if d == m.col_dim else 1, self.counts[d]) for d in operand.dims if d != K]
        steps = self.inner_steps if K in operand.dims else 1
        return outer, steps, self.limits.rows if m.row_dim in operand.dims else 1

    def slot_count(self, operand: Packed) -> int:
        """Chunk slots of a packed operand, a few of them unused where tiles do not divide."""
        outer, steps, rows = self._slot_sizes(operand)
        return prod(c * o for c, o in outer) * steps * rows

    def slot(self, operand: Packed, tiles: Sequence[IntArray], step: IntArray = 0) -> IntArray:
        """Where the chunk of ``tiles`` (indices, one per dimension but K) and ``step`` lies.

        Chunks lie in the order in which a column takes them: column, outer tile, reduction
        step, core row, so that a column's feed is one run through memory.
        """
        m = self.mapping
        sizes, steps, rows = self._slot_sizes(operand)
        dims = [d for d in operand.dims if d != K]
        at: IntArray = 0
        row: IntArray = 0
        for d, index, (columns, outer) in zip(dims, tiles, sizes, strict=True):
            if d == m.row_dim:
                row, index = index % self.limits.rows, index // self.limits.rows
            at = at * columns * outer + index
        return (at * steps + step) * rows + row

    # -- ports ---------------------------------------------------------------------------

    @cached_property
    def ports(self) -> tuple[list[Operand | Packed], list[Operand | Packed]]:
        """Operands of in0 and of in1, in the order in which they lie in a chunk: what stays in memory tiles
        comes first."""
        inputs = sorted(self.nest.inputs, key=lambda x: not kept([x]))
        in0 = [x for x in inputs if x.name not in self.mapping.in1]
        in1 = [x for x in inputs if x.name in self.mapping.in1]
        return in0, in1

    @property
    def in0_resident(self) -> bool:
        """True if every operand of in0 is core-resident."""
        return self.nest.in0_resident(self.mapping.in1)

    @cached_property
    def _chunks(self) -> dict[str, tuple[tuple[int, ...], int]]:
        """Shapes of chunks by name, none of packed operands, and their words."""
        nest, tiles, k_tile = self.nest, self.tiles, self.k_tile
        packed = [x for x in nest.inputs if isinstance(x, Packed)]
        shapes = {x.name: tuple(int(n) for n in x.chunk_shape(nest, tiles, k_tile)) for x in nest.strided}
        found = {x.name: (shapes[x.name], int(x.words_of(shapes[x.name]))) for x in nest.strided}
        return found | {x.name: ((), int(x.chunk_words(nest, tiles, k_tile))) for x in packed}

    def chunk_shape(self, operand: Operand) -> tuple[int, ...]:
        return self._chunks[operand.name][0]

    def words(self, operand: Operand | Packed) -> int:
        return self._chunks[operand.name][1]

    @cached_method
    def port_words(self, port: int) -> int:
        return sum(self.words(x) for x in self.ports[port])

    @cached_property
    def kept(self) -> tuple[bool, bool, bool]:
        """Whether something of what in0, in1 and out carry stays in memory tiles."""
        in0, in1 = self.ports
        return kept(in0), kept(in1), self.nest.out_kept

    @cached_property
    def arrival(self) -> tuple[tuple[int, int], ...]:
        """(stride in words, count), innermost first, by which a core puts together chunks of in1 that come
        member by member of the axis that columns share; none where they come as they lie. Raises
        ``SolutionError`` where descriptors of cores cannot say so."""
        operand = self.nest.halo
        if operand is None or operand.buffer is None:
            return ()
        at = operand.buffer.split_axis(operand.shape, operand.strides)
        shape = list(self.chunk_shape(operand))
        shape[-1] //= operand.dtype.per_word
        steps = contiguous_strides(shape)
        order = [d for d in range(len(shape)) if d != at and shape[d] > 1]
        walked = [(steps[d], shape[d]) for d in (*reversed(order), at) if d is not None]
        counts = [count for _, count in walked[:-1]]
        if len(walked) > MAX_DIMS or max(counts, default=0) > MAX_CORE_WRAP:
            accepted = f"{MAX_DIMS} dimensions, of up to {MAX_CORE_WRAP} words but for the last"
            raise SolutionError(f"chunks of {operand.name}", str(walked), accepted, "choose smaller tiles")
        return tuple(walked[:-1]) + ((walked[-1][0], 0),)

    @cached_method
    def fetched(self, port: int) -> list[Operand | Packed]:
        """Operands of an input port that shims bring: they lie in chunks behind those that stay."""
        return [x for x in self.ports[port] if not kept([x])]

    @cached_method
    def ring_words(self, port: int) -> int:
        """Words of a port's chunks in the rings of a memory tile: none of what stays there anyway."""
        if port == 2:
            return 0 if self.kept[2] else self.out_words
        return sum(self.words(x) for x in self.fetched(port))

    @cached_method
    def cadence(self, port: int) -> int:
        """How often a port's chunk changes: every step, every tile, once."""
        operands = self.ports[port]
        if not operands:
            return CADENCE_NONE
        along = depends(operands)
        if K in along and self.inner_steps > 1:
            return CADENCE_STEP
        if any(self.counts[d] > 1 for d in along if d != K):
            return CADENCE_TILE
        return CADENCE_ONCE

    @cached_method
    def chunks(self, port: int) -> int:
        """Chunks that a core takes on a port during the nest."""
        by_cadence = {
            CADENCE_NONE: 0,
            CADENCE_ONCE: 1,
            CADENCE_TILE: self.outer_steps,
            CADENCE_STEP: self.outer_steps * self.inner_steps,
        }
        return by_cadence[self.cadence(port)]

    def steps_per_chunk(self, port: int) -> int:
        """Reduction steps that one chunk of a port lasts (port 2: the output)."""
        return 1 if port < 2 and self.cadence(port) == CADENCE_STEP else self.inner_steps

    @cached_property
    def rows_served(self) -> int:
        """The most core rows that one column's in0 feed serves."""
        rows = self.limits.rows
        return -(-rows // self.device.columns) if self.mapping.rowcast else self.active_rows

    def channels(self, port: int, rows: Sequence[int]) -> list[tuple[int, list[int]]]:
        """What shim channels bring a port's chunks, and for which of the core ``rows`` that it serves."""
        if port == 1 or not self.halved:
            return [(port, list(rows))]
        half = -(-len(rows) // 2)
        return [(0, list(rows[:half])), (1, list(rows[half:]))]

    @cached_property
    def halved(self) -> bool:
        """Whether both channels of a shim bring in0, half of the rows each: see ``takes_both_channels``."""
        return self._halved(self.holds)

    def _halved(self, holds: tuple[Hold, Hold]) -> bool:
        first = holds[1].chunks * holds[1].repeat == self.chunks(1) or not self.ring_words(1)
        return self._may_halve and first and holds[0].repeat == 1

    @cached_property
    def _may_halve(self) -> bool:
        both = takes_both_channels(self.nest, self.mapping, self.limits) and self.ring_words(0) > 0
        if not (both and self.active_rows > 1):
            return False
        if not self.nest.reduces:
            return True
        if self._repeats(0) > 1:
            return False
        work = self.outer_steps * tile_cycles(self.nest, self.device, self.tiles, self.k_tile)
        in1 = self.chunks(1) // self._repeats(1) * self.ring_words(1)
        in0 = self.chunks(0) * self.ring_words(0) * self.rows_served
        return bool(in1_first_pays(self.device, self.mapping.columns, in1, in0, work))

    @property
    def in1_first(self) -> bool:
        """Whether all of in1 is in a memory tile before its channel brings in0, for half of the rows."""
        return self.halved and self.ring_words(1) > 0

    @property
    def feed_order(self) -> tuple[int, int]:
        """The input ports in the order in which memory tiles fill."""
        return (1, 0) if self.in1_first else (0, 1)

    @property
    def turns(self) -> bool:
        """Rows that one feed serves share a lane: it must not send two chunks for one of them in a row,
        or the others would starve while that one waits for a column broadcast that all must take."""
        return self.rows_served > ROW_LANES

    @cached_property
    def holds(self) -> tuple[Hold, Hold]:
        """What the memory tiles keep of in0 and in1 while inner loops repeat it."""
        return self._memory[0]

    @property
    def out_parts(self) -> tuple[int, ...]:
        """Words of the pieces in which memory tiles take an out chunk: two halves save memory."""
        return self._memory[1]

    @cached_property
    def _memory(self) -> tuple[tuple[Hold, Hold], tuple[int, ...]]:
        words = self.ring_words(2)
        whole, halves = (words,), (-(-words // 2), words // 2)
        # Fewer pieces where descriptors are short; ``resources`` sees to it that the plainest form fits.
        for pieces in (PANEL_PARTS, 1):
            plain, fits = self._hold(2 * words, pieces)
            if words > 1 and not (fits and any(h.repeat > 1 for h in plain)):
                lean, lean_fits = self._hold(words, pieces)
                better = any(h.repeat > 1 for h in lean) or not fits
                if lean_fits and better and self._enough_bds(lean, halves):
                    return lean, halves
            if fits and self._enough_bds(plain, whole):
                return plain, whole
        cut = words > 1 and not self._hold(2 * words, 1)[1]
        return (STREAM, STREAM), halves if cut else whole

    @property
    def rings_fit(self) -> bool:
        """Whether memory tiles can hold the leanest rings."""
        least = self.limits.least_out_ring(self.ring_words(2), self.rows_served, self.active_rows)
        return self._hold(int(least), 1)[1]

    def _enough_bds(self, holds: tuple[Hold, Hold], out_parts: tuple[int, ...]) -> bool:
        """Whether a memory tile has the descriptors and locks for this, whichever column it is."""
        used, rings = [0, 0], self.active_rows
        for port, rows in ((0, self.rows_served), (1, 1)):
            if not self.chunks(port) or not self.ring_words(port):
                continue
            parts = len(holds[port].parts)
            sends = parts * (holds[port].slots if holds[port].repeat > 1 else 1)
            rings += rows * parts
            second = rows // 2 if port == 0 and self._halved(holds) else 0
            used[port] += (rows - second) * parts  # S2MM 0 and 1 fill
            used[1] += second * parts
            used[0] += sends * (port == 1)  # MM2S 0
            for half in (0, 1) if port == 0 else ():  # MM2S 1 + lane: a column may serve odd rows alone
                used[half] += sends * -(-rows // 2)
        for row in range(0 if self.kept[2] else self.active_rows):
            used[row % 2] += len(out_parts)  # S2MM 2 + lane
            used[1] += len(out_parts)  # MM2S 5
        return max(used) <= min(map(len, self.limits.mem_bds)) and rings <= self.limits.rings

    def _hold(self, out_words: int, most_pieces: int) -> tuple[tuple[Hold, Hold], bool]:
        """The holds of both ports when a row's out ring takes ``out_words``, and whether that fits."""
        words = [self.ring_words(p) for p in (0, 1)]
        rows = [self.rows_served, 1]
        taken = 2 * (words[0] * rows[0] + words[1]) + out_words * self.active_rows
        free = self.limits.mem_words - self.nest.occupied - taken
        all_fits = free >= 0
        holds = [STREAM, STREAM]
        for port in (1, 0):
            if self.kept[port]:
                continue
            repeat = self._repeats(port)
            chunks = self.inner_steps if self.cadence(port) == CADENCE_STEP else 1
            whole = port == 1 and repeat == 1 and self._may_halve and self.chunks(1) > 1
            chunks = self.chunks(1) if whole else chunks
            panels = self.chunks(port) // (chunks * repeat)
            pieces = min(chunks, most_pieces if rows[port] == 1 and not whole else 1)
            parts = tuple(chunks // pieces + (i < chunks % pieces) for i in range(pieces))
            for slots in (2, 1) if panels > 1 else (1,):
                need = (slots * chunks - 2) * words[port] * rows[port]
                fits = need <= free and parts[0] * words[port] <= MAX_PANEL_WORDS
                fits = fits and not (port == 0 and self.turns and chunks > 1)
                if (repeat > 1 or whole) and fits and slots * repeat <= MAX_LOCK:
                    holds[port] = Hold(parts, repeat, slots)
                    free -= need
                    break
        for port in (0, 1):
            if holds[port] is STREAM and not self.kept[port]:
                group = self._group(port, free)
                holds[port] = Hold((group,), 1, 2)
                free -= 2 * (group - 1) * words[port] * rows[port]
        return (holds[0], holds[1]), all_fits

    def _group(self, port: int, free: int) -> int:
        """Chunks per panel of a port that only passes through: a few of many."""
        words, total = self.port_words(port), self.chunks(port)
        rows = self.rows_served if port == 0 else 1
        if port == 0 and self.turns:
            return 1
        if rows > 1 and len(self.ports[port]) > 1:
            return 1  # a chain of descriptors walks one progression, which would end with the group
        most = min(total // MIN_PANELS, GROUP_WORDS // max(words, 1), 1 + free // max(2 * words * rows, 1))
        joined = next((g for g in range(most, 1, -1) if self._can_join(port, g)), 0)
        return joined or next((g for g in range(most, 1, -1) if total % g == 0), 1)

    @cached_method
    def row_words(self, port: int) -> int:
        """Words of a row of a port's chunk where rows are parts of bursts that the next step goes on with;
        else 0."""
        operands, nest = self.ports[port], self.nest
        if self.cadence(port) != CADENCE_STEP or len(operands) != 1 or nest.k_extent % self.k_tile:
            return 0
        (operand,) = operands
        if isinstance(operand, Packed) or operand.strides[-1] != 1 or operand.lead_bytes:
            return 0
        last, unit = operand.access[-1], operand.dtype.per_word
        held = self.chunk_shape(operand)[-1]
        plain = last.dim == K and (last.a, last.den, last.start, last.end) == (1, 1, 0, 0)
        exact = held == self.k_tile and held % unit == 0 and operand.dtype.words == 1
        split = held * operand.itemsize % int(self.device.constant("ddr.burst_bytes")) != 0
        rows = self.port_words(port) * unit // held
        return held // unit if plain and exact and split and 1 < rows <= MAX_WRAP else 0

    def _can_join(self, port: int, chunks: int) -> bool:
        row = self.row_words(port)
        return row > 0 and chunks > 1 and self.inner_steps % chunks == 0 and chunks * row <= MAX_WRAP

    def joined(self, port: int) -> int:
        """Chunks of consecutive steps whose rows lie side by side in memory tiles too, as they do in device
        memory: it serves whole bursts, and memory tiles send chunk by chunk. 1 where each lies by itself."""
        hold = self.holds[port]
        return hold.chunks if hold.repeat == 1 and self._can_join(port, hold.chunks) else 1

    @cached_method
    def _repeats(self, port: int) -> int:
        """How often the innermost loops run over the same chunks of a port."""
        along = depends(self.ports[port])
        repeats = 1
        if not self.ports[port] or self.cadence(port) == CADENCE_ONCE:
            return repeats
        for d in reversed(self.mapping.order):
            if d in along:
                break
            repeats *= self.counts[d]
        return repeats

    def port_depth(self, port: int) -> int:
        return 2 if self.chunks(port) > 1 else 1

    @property
    def out_words(self) -> int:
        """Words of an out chunk: all outputs, one after the other."""
        return int(self.nest.out_words(self.tiles, self.k_tile))

    @cached_property
    def scratch_words(self) -> int:
        return int(scratch_words(self.nest, self.device, self.tiles, self.k_tile))

    @cached_property
    def sums_wait(self) -> bool:
        """Whether sums wait in scratch for the last step, which alone writes an out chunk."""
        return bool(sums_words(self.nest, self.device, self.tiles, self.k_tile))

    @property
    def out_depth(self) -> int:
        return self._out_form[0]

    @property
    def sums_in_slot(self) -> bool:
        """Whether sums wait where their results will lie: in the core's one out slot."""
        return self._out_form[1]

    @property
    def out_cadence(self) -> int:
        return CADENCE_LAST if self.sums_wait and not self.sums_in_slot else CADENCE_TILE

    @cached_property
    def _out_form(self) -> tuple[int, bool]:
        """(slots of out, whether sums wait in it): what overlaps most of what fits."""
        inputs = sum(self.port_words(p) * self.port_depth(p) for p in (0, 1)) + self.nest.longer_block
        for depth in (2, 1) if self.outer_steps > 1 else (1,):
            if self.limits.core_holds(inputs + depth * self.out_words, self.scratch_words):
                return depth, False
        return 1, self.sums_wait

    def ref(self, name: str) -> int:
        """The PortRef word of operand ``name``: strided, a part of a packed one, or an output."""
        at = 0
        for output in self.nest.outputs:
            if output.name == name:
                return port_ref(PORT_OUT, at)
            at += self.words(output) * 4
        for port, operands in enumerate(self.ports):
            at = 0
            for operand in operands:
                for part in operand.parts if isinstance(operand, Packed) else ():
                    if part.name == name:
                        return port_ref(port, at)
                    at += 4 * int(part.words(self.nest, self.tiles, self.k_tile))
                if isinstance(operand, Operand):
                    if operand.name == name:
                        return port_ref(port, at + operand.lead_bytes)
                    at += self.words(operand) * 4
        raise OperatorError(
            f"nest of {self.nest.kernel.name}", f"operand {name!r}", ", ".join(self.nest.bound)
        )

    def packed(self, name: str) -> Packed:
        return next(x for x in self.nest.inputs if isinstance(x, Packed) and x.name == name)

    def axes(self, tensor: Tensor) -> list[Axis]:
        """How an operand's chunk lies along its declared axes; a scalar where it is broadcast."""
        operand = self.nest.bound[tensor.name]
        along = self._part_axes(operand) if isinstance(operand, PackedPart) else self._operand_axes(operand)
        whole = iter([axis for dim, axis in along if dim is None])
        found = []
        for name in tensor.axis_names:
            dim = self.nest.axis_dim(tensor, name)
            candidates = whole if dim is None else (axis for d, axis in along if d == dim)
            found.append(next(candidates, SCALAR_AXIS))
        return found

    def _operand_axes(self, operand: Operand) -> list[tuple[int | None, Axis]]:
        dims = [access.dim for access in operand.access]
        return list(zip(dims, operand.axes(self.chunk_shape(operand)), strict=True))

    def _part_axes(self, part: PackedPart) -> list[tuple[int | None, Axis]]:
        """A packed chunk holds exactly the tile, and whole reduction steps filled up with zeros."""
        axes = []
        extents = part.extents(self.nest, self.tiles, self.k_tile)
        for (dim, whole), (_, count, stride) in zip(part.axes, extents, strict=True):
            extent = self.inner_steps * count if dim == K and not whole else count
            if dim is not None and dim != K:
                extent = self.nest.dims[dim].extent
            axes.append((dim, Axis(int(extent), int(count), int(stride))))
        return axes

    def explain(self) -> str:
        """The tiling in one line, and why cores idle where they do."""
        dims = self.nest.dims
        tiles = " ".join(f"{d.name}:{d.extent}/{t}" for d, t in zip(dims, self.tiles, strict=True))
        if self.nest.reduces:
            tiles += f" k:{self.nest.k_extent}/{self.k_tile}"
        m = self.mapping
        where = "both axes" if m.row_dim == m.col_dim and m.row_dim is not None else ""
        row = "-" if m.row_dim is None else dims[m.row_dim].name
        col = "-" if m.col_dim is None else dims[m.col_dim].name
        casts = ("in0 row broadcast" if m.rowcast else "in0 own") + (
            f", in1 column broadcast of {'+'.join(sorted(m.in1))}" if m.in1 else ""
        )
        return (
            f"{self.nest.kernel.short_name} {tiles}; rows over {row}, columns over {col} {where}; {casts}"
            f"{' by both channels' if self.halved else ''}"
            f"{'; core-resident' if self.in0_resident else ''}; "
            f"{self.busy_cores} of {self.device.columns * self.limits.rows} cores busy{self._idle_reason()}"
            f"{f'; {self.origin}' if self.origin else ''}"
        )

    @cached_property
    def redoes(self) -> bool:
        """Whether some members are computed twice: by a tile that is shifted back, or by a core that has no
        tile of its own."""
        sizes = zip(self.nest.dims, self.tiles, strict=True)
        visits = self.mapping.columns * self.active_rows * self.outer_steps
        return visits != prod(self.grid) or any(dim.extent % tile for dim, tile in sizes)

    @property
    def busy_cores(self) -> int:
        """Cores that have a tile of their own (others idle or redo the last tile)."""
        m = self.mapping
        rows = min(self.limits.rows, self.grid[m.row_dim]) if m.row_dim is not None else 1
        if m.col_dim is None:
            return rows
        return rows * min(m.columns, -(-self.grid[m.col_dim] // self.strides(m.col_dim)[0]))

    def _idle_reason(self) -> str:
        total = self.device.columns * self.limits.rows
        if self.busy_cores == total:
            return ""
        if (tiles := prod(self.grid)) < total:
            return f": only {counted(tiles, 'tile')}, smaller ones would cost more in commands than they save"
        return ": more would cost more in commands and traffic than they save"
