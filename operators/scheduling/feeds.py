# SPDX-License-Identifier: Apache-2.0
"""What passes between device memory and the array: the chunks of every port, as shim DMA tasks.

Which kernel arguments they lie in is nothing that this knows.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from onedispatch.operators.declarations.params import CADENCE_STEP, CADENCE_TILE, Axis
from onedispatch.operators.scheduling.access_pattern import MAX_CHAIN, ChunkTask, Dims, chunk_tasks
from onedispatch.operators.scheduling.index_space import AUX, IntArray, K, Operand, Packed, kept
from onedispatch.operators.scheduling.resources import MM2S, S2MM
from onedispatch.operators.scheduling.schedule import Schedule
from onedispatch.transactions.base.errors import SolutionError

Array = np.ndarray[Any, Any]

ConstantOffsets = dict[Hashable, int]
"""Where packed constants lie, by what they hold and how that is laid out."""


class Feeds:
    """Shim tasks of a schedule whose packed constants lie from byte ``const_at`` of their argument on, but
    for those that are among ``places`` already, which gets the others too.

    Attributes:
        packed: (name, byte, size in bytes) of each packed operand that lies nowhere else.
        packed_at: where each lies, wherever that is.
        const_bytes: what those of ``packed`` take together.
    """

    def __init__(self, schedule: Schedule, const_at: int = 0, places: ConstantOffsets | None = None) -> None:
        self.schedule = schedule
        places = {} if places is None else places
        self.packed: list[tuple[str, int, int]] = []
        self.packed_at: dict[str, int] = {}
        self._axes: dict[str, list[Axis]] = {}
        self._boxes: dict[str, Dims] = {}
        self._origins: dict[tuple[int, ...], list[IntArray]] = {}  # by column and rows: all ports ask
        at = const_at
        for operand in schedule.nest.inputs:
            if not isinstance(operand, Packed):
                continue
            held = self._content(operand)
            if held not in places:
                size = schedule.words(operand) * 4 * schedule.slot_count(operand)
                self.packed.append((operand.name, at, size))
                places[held] = at
                at += size
            self.packed_at[operand.name] = places[held]
        self.const_bytes = at - const_at

    def _content(self, operand: Packed) -> Hashable:
        """What the chunks of a packed operand hold: the same for nests of an operator that share them."""
        nest = self.schedule.nest
        if operand.name == AUX:  # made from the scalars of a nest
            return id(self), AUX
        return operand, self.schedule.solution, nest.dims, nest.k_extent

    # -- addresses -------------------------------------------------------------------------

    def _box(self, operand: Operand | Packed) -> Dims:
        """A chunk as (count, stride) in words, innermost first."""
        if operand.name not in self._boxes:
            self._boxes[operand.name] = self._boxed(_in_column(operand, 0))
        return self._boxes[operand.name]

    def _boxed(self, operand: Operand | Packed) -> Dims:
        if isinstance(operand, Packed):
            return ((self.schedule.words(operand), 1),)
        s = self.schedule
        shape = s.chunk_shape(operand)
        unit, words = operand.dtype.per_word, operand.dtype.words
        dims = list(zip(shape, operand.strides, strict=True))
        if unit > 1:
            dims[-1] = (dims[-1][0] // unit, unit)  # neighbours, word by word
        element = ((words, 1),) if words > 1 else ()
        return (*element, *((count, stride * words // unit) for count, stride in reversed(dims)))

    def _offsets(self, operand: Operand | Packed, origins: Sequence[IntArray], steps: IntArray) -> IntArray:
        """Word offsets of the chunks for the tile ``origins`` of every dimension and reduction ``steps``: in
        device memory, or in a column's memory tile."""
        s = self.schedule
        if isinstance(operand, Packed):
            tiles = [-(-origins[d] // s.tiles[d]) for d in operand.dims if d != K]
            slots = s.slot(operand, tiles, steps if K in operand.dims else 0)
            return self.packed_at[operand.name] // 4 + slots * s.words(operand)
        if operand.name not in self._axes:
            self._axes[operand.name] = operand.axes(s.chunk_shape(operand))
        total: IntArray = operand.offset
        for access, axis, stride in zip(
            operand.access, self._axes[operand.name], operand.strides, strict=True
        ):
            if access.dim is not None:
                at = steps * s.k_tile if access.dim == K else origins[access.dim]
                total = total + axis.origin(at) * stride
        return total * operand.dtype.words // operand.dtype.per_word

    def _sequence(
        self, operands: Sequence[Operand | Packed], column: int, rows: Sequence[int], inner: int
    ) -> Array:
        """Offsets [rows, outer steps, inner steps, operands] of the chunks of core ``rows``, in order."""
        s = self.schedule
        cores = column, *rows
        if cores not in self._origins:
            each = s.origins_of(column, rows)
            self._origins[cores] = [at if isinstance(at, int) else at[..., None] for at in each]
        shape = len(rows), *(s.counts[d] for d in s.mapping.order), inner
        found = np.empty((*shape, len(operands)), np.int64)
        for number, operand in enumerate(operands):
            here = _in_column(operand, column)
            found[..., number] = self._offsets(here, self._origins[cores], np.arange(inner))
        return found.reshape(len(rows), s.outer_steps, inner, len(operands))

    # -- tasks -----------------------------------------------------------------------------

    def rows_served(self, column: int) -> list[int]:
        """Core rows that a column's in0 feed serves."""
        s = self.schedule
        if not s.mapping.rowcast:
            return list(range(s.active_rows))
        columns, rows = s.device.columns, s.device.core_rows
        return [r for r in range(s.active_rows) if r * columns // rows == column]  # others take nothing

    def feed(self, port: int, column: int, rows: list[int], channel: int) -> Iterator[ChunkTask]:
        """Tasks of a shim's ``channel`` for a port's chunks that core ``rows`` take, in the order of use."""
        s = self.schedule
        operands = s.fetched(port)
        offsets = self._taken(port, operands, column, rows)[:, :: s.holds[port].repeat]
        # A memory tile takes a panel for one row, then one for the next.
        group, joined = s.holds[port].chunks, s.joined(port)
        panels = offsets.reshape(len(rows), -1, group, len(operands))[:, :, ::joined]
        sequence = panels.transpose(1, 0, 2, 3).reshape(-1, len(operands))
        boxes = [self._box(x) for x in operands]
        longest = len(s.limits.shim_bds[MM2S, channel])
        if joined == 1:
            yield from chunk_tasks(sequence, boxes, longest)
            return
        (((run, step), *others),) = boxes
        for task in chunk_tasks(sequence, [((run * joined, step), *others)], longest):
            yield replace(task, first=task.first * joined, chunks=task.chunks * joined)

    def send(self, port: int, column: int, row: int) -> Iterator[ChunkTask]:
        """Tasks of a memory tile for what of a port's chunks stays there, of core ``row``.

        Where shims bring more of each chunk, a last pattern of one word stands for it.
        """
        s = self.schedule
        if port == 1 and s.nest.halo is not None:
            return self._send_with_halo(s.nest.halo, column)
        operands = [x for x in s.ports[port] if kept([x])]
        offsets = self._taken(port, operands, column, [row])[0].reshape(-1, len(operands))
        boxes = [self._box(x) for x in operands]
        if s.ring_words(port):
            offsets = np.pad(offsets, ((0, 0), (0, 1)))
            boxes.append(((1, 1),))
        return chunk_tasks(offsets, boxes)

    def _send_with_halo(self, operand: Operand, column: int) -> Iterator[ChunkTask]:
        """The same of chunks that reach into the memory tiles of neighbours: members of the axis that columns
        share follow one another, those of each tile by a descriptor of their own."""
        s, buffer = self.schedule, operand.buffer
        assert buffer is not None
        at = buffer.split_axis(operand.shape, operand.strides)
        assert at is not None
        shape, held = s.chunk_shape(operand), buffer.share // operand.strides[at]
        rest = list(self._boxed(operand.in_column(column)))
        _, step = rest.pop(-1 - at)
        first = self._taken(1, [operand], column, [0]).reshape(-1)
        origins = self._taken(1, [_along(operand, at)], column, [0]).reshape(-1)
        ends = [*np.flatnonzero(np.diff(origins)) + 1, len(origins)]
        tile = s.limits.mem_view.pitch // 4  # words from a memory tile to its neighbour
        for start, end in pairwise([0, *ends]):
            member = int(origins[start])
            boxes, moves = [], []
            for owner in range(member // held, (member + shape[at] - 1) // held + 1):
                low, high = max(member, owner * held), min(member + shape[at], (owner + 1) * held)
                if abs(owner - column) > 1:
                    given = f"members {low} to {high - 1} for column {column}"
                    raise SolutionError(f"what {operand.name} keeps", given, "those of it and its neighbours")
                boxes.append((*rest, (high - low, step)))
                moves.append((low - member - (owner - column) * held) * step + (owner - column) * tile)
            offsets = first[start:end, None] + np.array(moves, np.int64)
            for task in chunk_tasks(offsets, boxes):
                yield replace(task, first=task.first + start)

    def _taken(
        self, port: int, operands: Sequence[Operand | Packed], column: int, rows: Sequence[int]
    ) -> Array:
        """Offsets [rows, outer steps, inner steps, operands] of the chunks that cores take on a port."""
        s = self.schedule
        inner = s.inner_steps if s.cadence(port) == CADENCE_STEP else 1
        outer = s.outer_steps if s.cadence(port) in (CADENCE_STEP, CADENCE_TILE) else 1
        return self._sequence(operands, column, rows, inner)[:, :outer]

    def drain(self, column: int, rows: Sequence[int] | None = None) -> Iterator[ChunkTask]:
        """Tasks that write the out chunks of a column's active rows, or of these: those of the shim, or of
        the memory tile where they stay there."""
        s = self.schedule
        outputs = s.nest.outputs
        offsets = self._sequence(outputs, column, rows or range(s.active_rows), 1)
        sequence = offsets.transpose(1, 0, 2, 3).reshape(-1, len(outputs))
        longest = MAX_CHAIN if s.kept[2] else len(s.limits.shim_bds[S2MM, 0])
        return chunk_tasks(sequence, [self._box(x) for x in outputs], longest)


def _along(operand: Operand, axis: int) -> Operand:
    """A view whose offsets, in words, are where chunks of ``operand`` begin along one of its axes."""
    strides = tuple(operand.dtype.per_word if d == axis else 0 for d in range(len(operand.strides)))
    return replace(operand, strides=strides, offset=0, buffer=None)


def _in_column(operand: Operand | Packed, column: int) -> Operand | Packed:
    return operand if isinstance(operand, Packed) else operand.in_column(column)
