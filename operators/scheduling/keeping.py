# SPDX-License-Identifier: Apache-2.0
"""Nests whose tensors stay in memory tiles: the same work, with buffers in place of device memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Mapping as Map
from copy import copy
from dataclasses import fields, replace
from typing import Any

import numpy as np

from onedispatch.operators.declarations.kernel import MAX_DIMS
from onedispatch.operators.declarations.tensor import Unsupported
from onedispatch.operators.scheduling.buffer import Buffer
from onedispatch.operators.scheduling.index_space import Access, IntArray, Operand, Packed, kept
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.operators.scheduling.schedule import Schedule
from onedispatch.operators.scheduling.solution import Mapping
from onedispatch.transactions.base.text import counted

NARROW_SUMS_SCALAR = "narrow_sums"  # of kernels whose sums wait as results are stored, where it is not 0

_PLAIN = Access(0)


def in_shares(nest: Nest, mapping: Mapping) -> bool:
    """Whether each column takes its own shares of what stays in memory tiles.

    A row broadcast comes from one column's memory tile, which has no more than its share. What neighbours
    have reaches the channel of the column broadcast, in chunks that hold nothing else.
    """
    split = nest.split
    if split is None:
        return True
    if nest.halo is not None and mapping.in1 != {nest.halo.name}:
        return False
    spread = mapping.rowcast and kept(x for x in nest.inputs if x.name not in mapping.in1)
    return (mapping.col_dim, mapping.columns) == (split.dim, split.columns) and not spread


def tile_rules(
    nest: Nest, mapping: Mapping, tiles: Sequence[IntArray], rows: int
) -> Iterator[tuple[int, IntArray, str]]:
    """What tiles of a nest keep to whose tensors stay in memory tiles, on columns of ``rows`` cores: the
    dimension, whether they do, for many tilings at once, and what is accepted."""
    split = nest.split
    if split is None:
        return
    times, extent = rows if mapping.row_dim == split.dim else 1, nest.dims[split.dim].extent
    own = f"{times} times a part of the {split.members} members that each column has"
    own += "" if extent % split.members == 0 else f", and a part of all {extent}"
    step = tiles[split.dim] * times
    whole = (-(-extent // (step * split.columns)) * step == split.members) & (extent % tiles[split.dim] == 0)
    yield (
        split.dim,
        whole & (tiles[split.dim] % split.multiple == 0),
        f"{own}, a multiple of {split.multiple}",
    )
    for d, dim in enumerate(nest.dims if nest.out_kept else ()):
        accepted = f"a part of {dim.extent}: each word of what stays in memory tiles is in one tile"
        yield d, dim.extent % tiles[d] == 0, accepted
    if _writes_over(nest) and mapping.row_dim not in (None, split.dim):
        number = -(-nest.dims[mapping.row_dim].extent // tiles[mapping.row_dim])
        fewer = np.less_equal(number, rows) & (not mapping.in1)  # then other rows do nothing
        accepted = (
            f"as many as are a multiple of {rows}: no row does a tile again, over which results may lie"
        )
        yield mapping.row_dim, (number % rows == 0) | fewer, accepted


def column_kind(schedule: Schedule, column: int) -> int:
    """Columns of one kind set up their memory tiles alike: all of them, unless they also take what their
    neighbours have, which those at the ends lack, or the last one has a smaller share."""
    nest, split = schedule.nest, schedule.nest.split
    if nest.halo is not None:
        return column
    uneven = split is not None and nest.dims[split.dim].extent % split.members > 0
    return int(uneven and column == schedule.mapping.columns - 1)


def _writes_over(nest: Nest) -> bool:
    """Whether results may lie where an operand does, element by element: see the planner of groups."""
    reads = any(x.buffer is not None for x in nest.strided_inputs)
    return nest.out_kept and reads and not nest.kernel.dims and not nest.kernel.members and not nest.reduces


def in_buffers(nest: Nest, buffers: Map[int, Buffer], occupied: int, k_step: int = 0) -> Nest:
    """``nest`` with ``buffers`` of its tensors, by their numbers, while ``occupied`` words of memory tiles
    are taken, and steps of the reduction take ``k_step`` members where that is not 0.

    Raises ``Unsupported`` where columns would need what lies in others.
    """
    for buffer in dict.fromkeys(buffers.values()):
        nest = cut_at(nest, buffer.period)
    inputs, outputs = (tuple(_held(x, buffers) for x in side) for side in (nest.inputs, nest.outputs))
    made = _with(nest, inputs=inputs, outputs=outputs, occupied=occupied, k_step=k_step)
    _ = made.split, made.halo  # refuse what does not go together
    return made


def _held(operand: Operand | Packed, buffers: Map[int, Buffer]) -> Operand | Packed:
    """``operand`` with its tensor's buffer, where that has one."""
    if isinstance(operand, Packed) or operand.tensor not in buffers:
        return operand
    return replace(operand, buffer=buffers[operand.tensor])


def in_steps_of(nest: Nest, schedule: Schedule) -> Nest:
    """``nest`` with sums in the steps that those of a ``schedule`` have, where their order shows."""
    return _with(nest, k_step=steps_of(schedule))


def cut_at(nest: Nest, period: int) -> Nest:
    """``nest`` with an index dimension that walks several periods of a result in one cut into two, of which
    kernels that name theirs see the inner one."""
    if nest.kernel.members or len(nest.dims) == MAX_DIMS:
        return nest
    counted_by = {nest.roles[name] for name in nest.kernel.positions}
    for output in nest.outputs:
        for d, dim in enumerate(nest.dims):
            step = _step(output, d)
            if step is None or step >= period or step * dim.extent <= period or period % step:
                continue
            inner = period // step
            packed = any(d <= other for other in _packed_dims(nest))
            fixed = dim.whole or dim.padding or packed or d in counted_by
            if dim.extent % inner == 0 and not fixed and inner % dim.multiple == 0:
                return _cut_all(nest, d, inner)
    return nest


def _packed_dims(nest: Nest) -> Iterator[int]:
    """The dimensions that packed constants depend on: their operators count on the numbers of these."""
    return (dim for x in nest.inputs if isinstance(x, Packed) for dim in x.dims)


def _cut_all(nest: Nest, dim: int, inner: int) -> Nest:
    """``_cut`` where every view walks the dimension plainly, in whole words from one member of the new one to
    the next, or not at all; ``nest`` as it is where not."""
    walked = [(x.dtype.per_word, _step(x, dim)) for x in nest.strided if dim in x.depends_on()]
    plain = all(step is not None and step * inner % unit == 0 for unit, step in walked)
    return _cut(nest, dim, inner) if plain else nest


def _step(operand: Operand, dim: int) -> int | None:
    """Elements from a member of an index dimension to the next; None where a view does not walk it so."""
    along = zip(operand.strides, operand.access, strict=True)
    found = [(stride, access) for stride, access in along if access.dim == dim]
    plain = all(replace(access, dim=0, align=1) == _PLAIN for _, access in found)
    return found[0][0] if len(found) == 1 and plain else None


def _behind(other: int | None, dim: int) -> int | None:
    """The number of dimension ``other`` once ``dim`` has become two."""
    return other if other is None or other <= dim else other + 1


def _cut(nest: Nest, dim: int, inner: int) -> Nest:
    """Member ``i`` of ``dim`` becomes ``i // inner`` of a dimension before it and ``i % inner``."""

    def cut(operand: Operand | Packed) -> Operand | Packed:
        if isinstance(operand, Packed):
            return operand  # of dimensions before the one that is cut
        walked = []
        for size, step, access in zip(operand.shape, operand.strides, operand.access, strict=True):
            if access.dim == dim:
                walked.append((size // inner, step * inner, replace(access, align=1)))
                walked.append((inner, step, replace(access, dim=dim + 1)))
            else:
                walked.append((size, step, replace(access, dim=_behind(access.dim, dim))))
        shape, strides, accesses = zip(*walked, strict=True)
        return replace(operand, shape=shape, strides=strides, access=accesses)

    before = nest.dims[dim]
    outer = replace(before, name=f"{before.name}'", extent=before.extent // inner, multiple=1, padding=0)
    outer = replace(outer, max_tile=1) if nest.kernel.dims else outer
    dims = (*nest.dims[:dim], outer, replace(before, extent=inner), *nest.dims[dim + 1 :])
    inputs = tuple(cut(x) for x in nest.inputs)
    outputs = tuple(x for x in map(cut, nest.outputs) if isinstance(x, Operand))
    roles = {name: at + (at >= dim) for name, at in nest.roles.items()}
    return replace(nest, dims=dims, roles=roles, inputs=inputs, outputs=outputs)


def beside(nest: Nest, occupied: int) -> Nest:
    """``nest`` while ``occupied`` words of memory tiles are taken."""
    return nest if nest.occupied == occupied else _with(nest, occupied=occupied)


def _with(nest: Nest, **changes: Any) -> Nest:
    """A nest that was checked, with other fields that no check of it reads."""
    other = copy(nest)
    for name in nest.__dict__.keys() - {one.name for one in fields(nest)}:
        object.__delattr__(other, name)  # what was derived
    for name, value in changes.items():
        object.__setattr__(other, name, value)
    return other


def with_less_room(nest: Nest, schedule: Schedule) -> Schedule | None:
    """``schedule`` for ``nest``, the same with less room in memory tiles, where that changes nothing."""
    less = Schedule(nest, schedule.device, schedule.solution)
    same = less.rings_fit and (less.holds, less.out_parts) == (schedule.holds, schedule.out_parts)
    return less if same else None


def steps_of(schedule: Schedule) -> int:
    """Members of the reduction that every step must take for sums to be the same to the bit; 0: any.

    Sums of integers are exact where they keep all their bits from step to step.
    """
    nest = schedule.nest
    floats = any(x.dtype.is_float for x in nest.bound.values())
    rounded = floats or bool(nest.scalars.get(NARROW_SUMS_SCALAR))
    return schedule.k_tile if nest.reduces and nest.k_extent and rounded else 0


def check_order(before: Schedule, after: Schedule) -> None:
    """Raises ``Unsupported`` where the kernel adds up in another order (``lies_together`` of ``reduce``)."""
    if before.nest.kernel.joins != "columns":
        return
    columns, others = (one.tiles[one.nest.roles["i"]] for one in (before, after))
    if (columns == 1) != (others == 1):
        given = counted(others, "column")
        raise Unsupported(f"tiles of {given}", "sums in the order that they have ungrouped")
