# SPDX-License-Identifier: Apache-2.0
"""How far the optimum can be: a bound on cycles from below, by constraint programming (OR-tools' CP-SAT).

It holds for every solution of a problem, of any tile sizes and not only those that the search tries. It knows
that

- a core reads its parameters, then computes whole tiles, the busiest one the most of them;
- its first call waits for its first chunks, which pass a shim and then a memory tile, and its last results
  pass a memory tile;
- device memory serves each operand once, to each column if columns do not share it;
- the controller configures each column.

What a call costs is bounded by the least per element, and the least beside that: see ``Rate``. It leaves out
what stages take from each other, bursts that rows fill in part, and waits for commands: so the optimum lies
between the bound and the best that is known. ``tests/bench/catalog_choice.py`` prints both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import product
from math import ceil, prod
from typing import Any

import numpy as np
from ortools.sat.python import cp_model

from onedispatch.operators.declarations.expressions import Expr, ExprOp
from onedispatch.operators.scheduling.call_cost import Quantities, op_cycles, reduction_cycles
from onedispatch.operators.scheduling.candidates import extra_scratch_words, slot_words, smallest
from onedispatch.operators.scheduling.commands import costs
from onedispatch.operators.scheduling.holds import memory_cycles, read_cycles
from onedispatch.operators.scheduling.index_space import Dim, Operand, Packed, kept
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.operators.scheduling.problem import Problem
from onedispatch.operators.scheduling.resources import resources
from onedispatch.transactions import Device

SCALE = 1 << 20  # of fractions of a cycle
MOST = 1 << 54
SAMPLED, ENUMERATED = 20_000, 8_000_000  # tilings


@dataclass(frozen=True)
class Rate:
    """No call costs less than ``each`` cycles for each element and member of the reduction, and ``beside``.

    ``each`` is the least of all tilings that fit a core, where there are no more than ``ENUMERATED``. Of more
    it is that of one call for the whole nest, were no number of vectors or rows rounded up: the smaller a
    tile, the more each element costs; what is drawn at random does not cost less.
    """

    each: float
    beside: float

    @classmethod
    def of(cls, nest: Nest, device: Device) -> Rate:
        extents = [dim.extent for dim in nest.dims]
        members = _members(nest)
        whole = _relaxed_cycles(nest, device, extents, members)
        tiles, k_tile = _samples(nest)
        steps = np.maximum(1, -(-members // k_tile))
        part = prod(tile / extent for tile, extent in zip(tiles, extents, strict=True))
        cycles = reduction_cycles(nest, device, tiles, k_tile)
        some = steps > part
        beside = float(((cycles - whole * part)[some] / (steps - part)[some]).min()) if some.any() else 0.0
        beside = max(0.0, beside) * (1 - 1e-9)
        each = (whole - beside) / (prod(extents) * members)
        assert (cycles >= (each * prod(tiles) * members + beside * steps) * (1 - 1e-9)).all(), (
            nest.kernel.name
        )
        return cls(max(each, _least_each(nest, device, beside)) * (1 - 1e-9), beside)


def _least_each(nest: Nest, device: Device, beside: float) -> float:
    """The least of all tilings that fit a core; 0 where there are too many to look at."""
    axes = _axes(nest)
    if prod(map(len, axes)) > ENUMERATED:
        return 0.0
    *tiles, k_tile = np.ix_(*(np.array(axis, np.int64) for axis in axes))
    members = _members(nest)
    steps = np.maximum(1, -(-members // k_tile))
    each = (reduction_cycles(nest, device, tiles, k_tile) - beside * steps) / (prod(tiles) * members)
    scratch = extra_scratch_words(nest, device, tiles, k_tile)
    fits = resources(device).core_holds(slot_words(nest, tiles, k_tile), scratch)
    return float(each[np.broadcast_to(fits, each.shape)].min())


def _samples(nest: Nest) -> tuple[list[Any], Any]:
    """Tiles of every dimension, and of the reduction."""
    rng, axes = np.random.default_rng(0), _axes(nest)
    ends = np.array(list(product(*((axis[0], axis[-1]) for axis in axes)))).T
    drawn = [np.concatenate([rng.choice(axis, SAMPLED), end]) for axis, end in zip(axes, ends, strict=True)]
    return drawn[:-1], drawn[-1]


def _relaxed_cycles(nest: Nest, device: Device, tiles: list[int], members: int) -> float:
    quantities = Quantities(nest, device, tiles, members)
    quantities.begin(members, 1)
    return float(_relaxed(nest.kernel.cost, quantities))


def _relaxed(formula: Expr, lookup: Callable[[Expr], Any]) -> Any:
    """The value of a formula that rounds nothing up."""
    if formula.op is ExprOp.CEIL:
        return _relaxed(formula.args[0], lookup)
    if not formula.args:
        return formula.evaluate(lookup)
    values = (Expr(ExprOp.NUMBER, value=float(_relaxed(arg, lookup))) for arg in formula.args)
    return Expr(formula.op, tuple(values)).evaluate(lookup)


def _axes(nest: Nest) -> list[list[int]]:
    """Every tile that a solution may have of each dimension, and of the reduction."""
    axes = [_sizes(dim) for dim in nest.dims]
    if not nest.reduces or not nest.k_extent:
        return [*axes, [1]]
    k = Dim("k", nest.k_extent, nest.k_whole, nest.k_multiple)
    return [*axes, [nest.k_step] if nest.k_step else _sizes(k)]


def _sizes(dim: Dim) -> list[int]:
    if dim.whole or dim.extent <= dim.multiple:
        return [dim.extent]
    most = min(dim.extent, max(dim.max_tile, dim.multiple))
    return sorted(
        {*range(dim.multiple, most + 1, dim.multiple), *([dim.extent] if most == dim.extent else [])}
    )


def _members(nest: Nest) -> int:
    return max(nest.k_extent, 1) if nest.reduces else 1


class Bound:
    """The model of one problem, of which a solution is known that takes ``known`` cycles."""

    def __init__(self, problem: Problem, device: Device, known: int) -> None:
        self.nest, self.device, self.limits = problem.nest, device, resources(device)
        self.most = known * SCALE
        self.model = cp_model.CpModel()
        self.cycles = self._number("cycles", 0, self.most)
        nest = self.nest
        self._tables = _axes(nest)
        self._at = [self._number(f"at{d}", 0, len(table) - 1) for d, table in enumerate(self._tables)]
        self.tiles = [self._looked_up(d, lambda tile: tile) for d in range(len(self._tables))]
        self._lay_out()
        self._work()
        self._memory()
        self.model.minimize(self.cycles)

    def solved(self, seconds: float) -> int:
        """What no solution takes less than."""
        solver = cp_model.CpSolver()
        solver.parameters.max_time_in_seconds = seconds
        solver.parameters.num_workers = 2
        status = solver.solve(self.model)
        known = status in (cp_model.OPTIMAL, cp_model.FEASIBLE, cp_model.UNKNOWN)
        assert known, self.model.validate() or solver.status_name(status)
        return ceil(solver.best_objective_bound / SCALE)

    # -- variables -------------------------------------------------------------------------

    def _number(self, name: str, low: int, high: int) -> Any:
        return self.model.new_int_var(low, high, name)

    def _looked_up(self, dim: int, value: Callable[[int], int]) -> Any:
        """A variable that is ``value`` of a dimension's tile; the last dimension is the reduction."""
        values = [int(value(tile)) for tile in self._tables[dim]]
        if len(set(values)) == 1:
            return values[0]
        found = self._number("", min(values), max(values))
        self.model.add_element(self._at[dim], values, found)
        return found

    def _product(self, factors: Iterable[Any]) -> Any:
        whole, found = 1, None
        for factor in factors:
            if isinstance(factor, int):
                whole *= factor
            elif found is None:
                found = factor
            else:
                both = [found, factor]
                found = self._number("", 0, min(MOST, prod(max(one.proto.domain) for one in both)))
                self.model.add_multiplication_equality(found, both)
        return whole if found is None else whole * found

    def _lay_out(self) -> None:
        """Which dimensions rows and columns run over, and the tiles of a core along each."""
        nest, model, rows, most = self.nest, self.model, self.limits.rows, self.device.columns
        self.columns = self._number("columns", 1, most)
        self.on_row = {d: model.new_bool_var(f"row{d}") for d in nest.cut}
        self.on_column = {d: model.new_bool_var(f"column{d}") for d in nest.cut}
        model.add_at_most_one(self.on_row.values())
        model.add_at_most_one(self.on_column.values())
        # One column is no share of a dimension, several are.
        model.add(self.columns <= 1 + (most - 1) * sum(self.on_column.values()))
        model.add(self.columns >= 1 + sum(self.on_column.values()))
        self.visits: list[Any] = []
        for d, dim in enumerate(nest.dims):
            if d not in nest.cut:
                self.visits.append(1)
                continue
            along = self._number("", 1, most)
            model.add(along == self.columns).only_enforce_if(self.on_column[d])
            model.add(along == 1).only_enforce_if(~self.on_column[d])
            cores = self._number("", 1, most * rows)
            by_row = 1 + (rows - 1) * self.on_row[d]
            model.add_multiplication_equality(cores, [along, by_row])
            tiles = self._looked_up(d, lambda tile, e=dim.extent: -(-e // tile))
            visits = self._number("", 1, dim.extent)
            model.add(self._product([visits, cores]) >= tiles)
            self.visits.append(visits)

    def _done(self, dim: int) -> Any:
        """Members of a dimension that a core computes: none more than a tile beyond its share."""
        done = self._product([self.visits[dim], self.tiles[dim]])
        return self._at_most(done, 2 * self.nest.dims[dim].extent)

    def _at_most(self, value: Any, most: float) -> Any:
        """The same value as a variable that says how large it may be."""
        if isinstance(value, int):
            return value
        bounded = self._number("", 0, min(int(most) + 1, MOST))
        self.model.add(bounded == value)
        return bounded

    # -- what takes time -------------------------------------------------------------------

    def _chunk(self, operand: Operand | Packed) -> Any:
        """Words of a chunk, rounded down."""
        if isinstance(operand, Packed):
            tiles, k_tile = smallest(self.nest)
            return int(operand.chunk_words(self.nest, tiles, k_tile))
        nest, sizes = self.nest, list[Any]()
        for access, extent in zip(operand.access, operand.shape, strict=True):
            dim = access.dim
            if dim is None or access.whole:
                sizes.append(int(extent))
                continue
            whole = nest.k_extent if dim < 0 else nest.dims[dim].extent
            sizes.append(self._looked_up(dim, lambda t, a=access, e=extent, w=whole: int(a.chunk(e, t, w))))
        elements = self._product(sizes)
        words = self._number("", 0, self.limits.buffer_bytes // 4)
        self.model.add(4 * words <= elements * operand.itemsize)
        self.model.add(4 * words >= elements * operand.itemsize - 3)
        return words

    def _work(self) -> None:
        """A core's calls, behind its first chunks and before its last results."""
        nest, device = self.nest, self.device
        rate = Rate.of(nest, device)
        shim = 1 / device.constant("dma.shim_words_per_cycle")
        done = self._product([_members(nest), *map(self._done, range(len(nest.dims)))])
        done = self._at_most(done, self.most / (rate.each * SCALE))
        steps = self._looked_up(len(nest.dims), lambda k: -(-nest.k_extent // k) if nest.reduces else 1)
        calls = self._at_most(self._product([*self.visits, steps]), self.most / max(rate.beside * SCALE, 1))
        work = int(rate.each * SCALE) * done + int(rate.beside * SCALE) * calls
        inputs = [x for x in nest.inputs if not kept([x]) and x.name not in nest.resident_operands]
        chunks = {x.name: self._chunk(x) for x in nest.inputs}
        out = [self._chunk(x) for x in nest.outputs]
        drained = int(SCALE * (1 if nest.out_kept else 1 + shim / 2)) * sum(out)
        self.model.add(self.cycles >= SCALE * op_cycles(nest, device) + work + drained)
        for operand in inputs:
            self.model.add(self.cycles >= work + drained + int(SCALE * (1 + shim)) * chunks[operand.name])
        slots = 1 if nest.resident_operands else 2
        self.model.add(4 * (slots * sum(chunks.values()) + sum(out)) <= self.limits.buffer_bytes)

    def _memory(self) -> None:
        """Device memory, and commands."""
        nest, device, model = self.nest, self.device, self.model
        shared = model.new_bool_var("rowcast")
        model.add(self.columns == device.columns).only_enforce_if(shared)
        read: Any = 0
        whole = [dim.extent for dim in nest.dims]
        for operand in nest.inputs:
            if kept([operand]) or operand.name in nest.resident_operands:
                continue
            words = int(operand.chunk_words(nest, whole, _members(nest)))
            own = sum(self.on_column[d] for d in operand.depends_on() if d in self.on_column)
            copies = self._number("", 1, device.columns)
            alone = model.new_bool_var("")  # each column fetches all of it
            model.add(copies >= self.columns).only_enforce_if(alone)
            model.add(own + shared >= 1).only_enforce_if(~alone)
            read = read + words * copies
        written = sum(int(x.chunk_words(nest, whole, _members(nest))) for x in nest.outputs)
        written = 0 if nest.out_kept else written
        model.add(self.cycles >= int(SCALE * read_cycles(device)) * read)
        model.add(self.cycles >= int(SCALE * memory_cycles(device)) * (read + written))
        task = costs(device).descriptor + costs(device).push
        model.add(self.cycles >= int(SCALE * task) * (1 + (not nest.out_kept)) * self.columns)
