# SPDX-License-Identifier: Apache-2.0
"""What a solution must keep to, so that what is emitted from it computes the nest and fits the array.

Raised errors say which part of the solution it is, what was given, and what would be taken.
"""

from __future__ import annotations

from weakref import WeakSet

from onedispatch.operators.declarations.params import LIMITS, MAX_PER_COLUMN
from onedispatch.operators.scheduling.candidates import covered, extra_scratch_words, slot_words
from onedispatch.operators.scheduling.index_space import Dim
from onedispatch.operators.scheduling.keeping import in_shares, tile_rules
from onedispatch.operators.scheduling.schedule import Schedule
from onedispatch.transactions.base.errors import SolutionError
from onedispatch.transactions.base.signature import bounded_repr
from onedispatch.transactions.base.text import counted, span


def check_solution(schedule: Schedule) -> None:
    """Raises ``SolutionError`` where the schedule's solution does not fit its nest and device."""
    if schedule in _FITTING:  # nothing of a schedule changes
        return
    solution, nest = schedule.solution, schedule.nest
    if solution.kernel != nest.kernel.name:
        raise _error(schedule, "kernel", solution.kernel, nest.kernel.name)
    _check_tiles(schedule)
    _check_axes(schedule)
    _check_resident(schedule)
    _check_ports(schedule)
    _check_shares(schedule)
    _check_memory(schedule)
    _FITTING.add(schedule)


_FITTING: WeakSet[Schedule] = WeakSet()


def _error(schedule: Schedule, part: str, given: object, accepted: str) -> SolutionError:
    where = f"solution for {schedule.nest.kernel.name} on {schedule.device.name}, {part}"
    return SolutionError(where, bounded_repr(given), accepted, "choose another solution for this problem")


def _check_tiles(schedule: Schedule) -> None:
    nest, solution = schedule.nest, schedule.solution
    if len(solution.tiles) != len(nest.dims):
        raise _error(schedule, "tiles", solution.tiles, f"{len(nest.dims)}, one per dimension")
    for dim, tile in zip(nest.dims, solution.tiles, strict=True):
        _check_tile(schedule, dim, tile)
    if nest.reduces and nest.k_extent:
        _check_tile(schedule, Dim("k", nest.k_extent, nest.k_whole, nest.k_multiple), solution.k_tile)
        if nest.k_step not in (0, solution.k_tile):
            raise _error(schedule, "k tile", solution.k_tile, f"{nest.k_step}: sums keep their order")
    elif solution.k_tile != 1:
        raise _error(schedule, "k tile", solution.k_tile, "1: nothing is reduced")


def _check_tile(schedule: Schedule, dim: Dim, tile: int) -> None:
    accepted = f"{dim.extent}, the whole dimension"
    if dim.whole:
        fits = tile == dim.extent
    else:
        most = min(dim.extent, max(dim.max_tile, dim.multiple))
        fits = 1 <= tile <= most and (tile % dim.multiple == 0 or tile == dim.extent)
        accepted = span(1, most) + (f", a multiple of {dim.multiple}" if dim.multiple > 1 else "")
    if not fits:
        raise _error(schedule, f"tile of {dim.name}", tile, accepted)


def _check_resident(schedule: Schedule) -> None:
    tiles, resident = schedule.outer_steps, sorted(schedule.nest.resident_operands)
    if resident and tiles != 1:
        accepted = f"one: cores keep {', '.join(resident)} for the nest that follows"
        raise _error(schedule, "tiles of a core", tiles, accepted)


def _check_axes(schedule: Schedule) -> None:
    nest, m, most = schedule.nest, schedule.mapping, schedule.device.columns
    for name, chosen in (("row dimension", m.row_dim), ("column dimension", m.col_dim)):
        if chosen is not None and chosen not in nest.cut:
            raise _error(schedule, name, chosen, f"none, or one that can be cut: {nest.cut}")
    if not 1 <= m.columns <= most:
        raise _error(schedule, "columns", m.columns, span(1, most))
    if (m.col_dim is None) != (m.columns == 1):
        accepted = "1 without a column dimension, and only then"
        raise _error(schedule, "columns", m.columns, accepted)
    if sorted(m.order) != list(range(len(nest.dims))):
        raise _error(schedule, "loop order", m.order, f"each of {span(0, len(nest.dims) - 1)} once")
    for d, dim in enumerate(nest.dims):
        if schedule.strides(d)[0] > MAX_PER_COLUMN:
            accepted = f"at most {MAX_PER_COLUMN} in one column"
            raise _error(schedule, f"tiles of {dim.name}", schedule.strides(d)[0], accepted)


def _check_ports(schedule: Schedule) -> None:
    nest, m = schedule.nest, schedule.mapping
    shared = {x.name for x in nest.inputs if m.row_dim is not None and m.row_dim not in x.depends_on()}
    if not m.in1 <= shared:
        accepted = f"operands that all rows share: {sorted(shared)}"
        raise _error(schedule, "column broadcast", sorted(m.in1), accepted)
    if not m.rowcast:
        return
    in0 = [x for x in nest.inputs if x.name not in m.in1]
    apart = m.row_dim != m.col_dim and m.columns == schedule.device.columns > 1
    if not apart or not in0 or any(m.col_dim in x.depends_on() for x in in0):
        accepted = (
            "none: all columns work, rows and columns run over different dimensions, and no operand of "
        )
        raise _error(schedule, "row broadcast", "one", accepted + "in0 depends on the columns' one")


def _check_shares(schedule: Schedule) -> None:
    """Of what stays in memory tiles, each word is in one tile, and each column has its own."""
    nest, split, m = schedule.nest, schedule.nest.split, schedule.mapping
    if split is None:
        return
    if not in_shares(nest, m):
        columns = counted(split.columns, "column")
        accepted = f"{columns} over dimension {split.dim}, no row broadcast of what stays"
        raise _error(schedule, "mapping", m, accepted)
    for d, holds, accepted in tile_rules(nest, m, schedule.tiles, schedule.limits.rows):
        if not holds:
            raise _error(schedule, f"tile of {nest.dims[d].name}", schedule.tiles[d], accepted)


def _check_memory(schedule: Schedule) -> None:
    nest, tiles, limits = schedule.nest, schedule.tiles, schedule.limits
    slots = int(slot_words(nest, tiles, schedule.k_tile))
    scratch = int(extra_scratch_words(nest, schedule.device, tiles, schedule.k_tile))
    if not limits.core_holds(slots, scratch):
        raise _error(
            schedule,
            f"tiles {tiles}, k tile {schedule.k_tile}",
            f"{counted(4 * slots, 'byte')} of slots, {4 * scratch} of scratch beside them",
            f"{limits.buffer_bytes}, slots {limits.slot_bytes}",
        )
    if not schedule.rings_fit:
        accepted = f"{counted(limits.mem_words * 4, 'byte')} of a memory tile for all rows"
        raise _error(schedule, f"tiles {tiles}, k tile {schedule.k_tile}", "rings beyond that", accepted)
    cover, most = int(covered(nest, tiles)), LIMITS["window_plane"]
    if cover > most:
        accepted = f"at most {most} elements of a channel under the windows of a tile"
        raise _error(schedule, f"tiles {tiles}", cover, accepted)
