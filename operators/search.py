# SPDX-License-Identifier: Apache-2.0
"""The shared scheduler's choice: which tiles, which mapping to the array, which loop order.

All tilings of a nest are judged at once (NumPy arrays of candidates), for every way of
laying index dimensions over the columns and rows of the array, by a simple model of the
slowest resource.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from math import prod
from typing import Any

import numpy as np

from onedispatch.operators.index_space import IntArray, K, Nest, Operand, Packed
from onedispatch.operators.schedule import (
    BUFFER_BYTES,
    CORE_ROWS,
    MAX_LOCK,
    MAX_PANEL_WORDS,
    MEM_WORDS,
    PANEL_PARTS,
    Mapping,
    Schedule,
)
from onedispatch.operators.tensor import Unsupported
from onedispatch.transactions import Device
from onedispatch.transactions.phrases import counted

Array = np.ndarray[Any, Any]

MAX_CANDIDATES = 200_000

# Rough controller cycles; only their proportion to the work matters for choosing.
COLUMN_SETUP_CYCLES = 2800
CORE_SETUP_CYCLES = 900
TASK_CYCLES = 600
MANY_STEPS = 16384
OTHERS_WEIGHT = 0.1
ORDERED_MAPPINGS = 6
IDLE_WEIGHT = 0.3  # an idle core is a chance missed where the estimate of compute is too low
BURST_BYTES = 64  # shorter runs in device memory cost as much

_CHOICES: OrderedDict[Hashable, tuple[Mapping, tuple[int, ...], int, int]] = OrderedDict()
_CHOICES_KEPT = 4096


def schedule_nest(nest: Nest, device: Device) -> Schedule:
    """The best schedule of ``nest`` on ``device``; equal nests are searched once per process.

    Raises ``Unsupported`` when not even the smallest tile fits into a core's memory.
    """
    key = (_signature(nest), device)
    choice = _CHOICES.get(key)
    if choice is None:
        choice = _search(nest, device)
        _CHOICES[key] = choice
        if len(_CHOICES) > _CHOICES_KEPT:
            _CHOICES.popitem(last=False)
    mapping, tiles, k_tile, estimate = choice
    return Schedule(nest, device, mapping, tiles, k_tile, estimate)


def _signature(nest: Nest) -> Hashable:
    """The nest as a key: where its tensors lie in device memory and which input they are does not matter."""
    operands = tuple(
        replace(x, tensor=0, offset=0) if isinstance(x, Operand) else x for x in (*nest.inputs, nest.output)
    )
    roles = tuple(sorted(nest.roles.items()))
    reduction = (nest.k_extent, nest.k_multiple, nest.k_whole)
    return nest.kernel.name, nest.dims, operands, roles, nest.priced, reduction


def _search(nest: Nest, device: Device) -> tuple[Mapping, tuple[int, ...], int, int]:
    tiles, k_tile = _candidates(nest)
    fits = _fitting(nest, tiles, k_tile)
    if not fits.any():
        need = int(_buffer_words(nest, [t[:1] for t in tiles], k_tile[:1])[0]) * 4
        raise Unsupported(
            f"the smallest tile needs {counted(need, 'byte')} of a core's {BUFFER_BYTES} byte data memory",
            "a smaller innermost extent or window",
        )
    tiles, k_tile = [t[fits] for t in tiles], k_tile[fits]
    judged: list[tuple[float, Mapping, int]] = []
    judged_by = _Judge(nest, device, tiles, k_tile)

    def judge(mapping: Mapping) -> None:
        cost = judged_by.cost(mapping)
        at = int(np.argmin(cost))
        judged.append((float(cost[at]), mapping, at))

    for mapping in _mappings(nest, device):
        judge(mapping)
    # Other loop orders only pay where the plain one already does well.
    for _, mapping, _ in sorted(judged, key=lambda j: j[0])[:ORDERED_MAPPINGS]:
        for order in _orders(nest):
            judge(replace(mapping, order=order))
    estimate, mapping, at = min(judged, key=lambda j: j[0])
    if not np.isfinite(estimate):
        raise Unsupported("no mapping of the index space to the array fits", "smaller extents")
    return mapping, tuple(int(t[at]) for t in tiles), int(k_tile[at]), int(estimate)


def _orders(nest: Nest) -> Iterator[tuple[int, ...]]:
    """Loop orders other than the plain one: each dimension that is cut, made innermost."""
    plain = tuple(range(len(nest.dims)))
    cut = [d for d in plain if nest.dims[d].extent > 1 and not nest.dims[d].whole]
    for d in cut[:-1]:
        yield (*(other for other in plain if other != d), d)


def _tile_choices(extent: int, whole: bool, multiple: int, max_tile: int, many: int) -> list[int]:
    """Candidate tile sizes: the extent, its even shares, and powers of two."""
    if whole or extent <= multiple:
        return [extent]
    wanted = {extent // s + (extent % s > 0) for s in (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 64)}
    wanted |= {1 << b for b in range(17)} | {48, 96}
    limit = min(extent, max_tile)
    rounded = {min(-(-w // multiple) * multiple, extent) for w in wanted}
    choices = sorted(w for w in rounded if w <= limit)
    if len(choices) > many:
        picks = np.unique(np.linspace(0, len(choices) - 1, many).astype(int))
        choices = [choices[i] for i in picks]
    return choices or [min(multiple, extent)]


def _candidates(nest: Nest) -> tuple[list[IntArray], IntArray]:
    many = {0: 30, 1: 30, 2: 24, 3: 14, 4: 10, 5: 8}[sum(d.extent > 1 and not d.whole for d in nest.dims)]
    per_dim = [_tile_choices(d.extent, d.whole, d.multiple, d.max_tile, many) for d in nest.dims]
    k_choices = [1]
    if nest.reduces and nest.k_extent > 0:
        k_choices = _tile_choices(nest.k_extent, nest.k_whole, nest.k_multiple, 1 << 30, 14)
    while prod(map(len, per_dim)) * len(k_choices) > MAX_CANDIDATES:
        longest = max(per_dim, key=len)
        del longest[1:-1:2]
    mesh = np.meshgrid(*[np.array(c, np.int64) for c in [*per_dim, k_choices]], indexing="ij")
    flat = [m.reshape(-1) for m in mesh]
    return flat[:-1], flat[-1]


def _buffer_words(nest: Nest, tiles: Sequence[IntArray], k_tile: IntArray) -> IntArray:
    """Core memory of the leanest form: double-buffered inputs, single output."""
    inputs = sum(x.chunk_words(nest, tiles, k_tile) for x in nest.inputs)
    return np.zeros_like(k_tile) + 2 * inputs + nest.output.chunk_words(nest, tiles, k_tile)


def _fitting(nest: Nest, tiles: Sequence[IntArray], k_tile: IntArray) -> np.ndarray[Any, Any]:
    fits: np.ndarray[Any, Any] = _buffer_words(nest, tiles, k_tile) * 4 <= BUFFER_BYTES
    return fits


def _mappings(nest: Nest, device: Device) -> Iterator[Mapping]:
    """Every way of laying dimensions over the array that the overlay's routes can serve."""
    cut = [d for d, dim in enumerate(nest.dims) if dim.extent > 1 and not dim.whole]
    axes: list[int | None] = [None, *cut]
    widths = sorted({c for c in (1, 2, 4, 8, device.columns) if c <= device.columns})
    for row_dim, col_dim, columns in product(axes, axes, widths):
        if (col_dim is None) != (columns == 1):
            continue
        shared = [x for x in nest.inputs if row_dim is None or row_dim not in x.depends_on()]
        for in1 in {frozenset[str](), frozenset(x.name for x in shared)}:
            if row_dim is None and in1:
                continue  # one row works: nothing to broadcast
            in0 = [x for x in nest.inputs if x.name not in in1]
            apart = row_dim != col_dim and columns == device.columns > 1
            rowcast = apart and bool(in0) and not any(col_dim in x.depends_on() for x in in0)
            yield Mapping(row_dim, col_dim, columns, in1, rowcast, tuple(range(len(nest.dims))))


class _Judge:
    """Modelled cycles of all candidate tilings of a nest, for one mapping after the other."""

    def __init__(self, nest: Nest, device: Device, tiles: Sequence[IntArray], k_tile: Array) -> None:
        self.nest, self.device, self.tiles, self.k_tile = nest, device, tiles, k_tile
        self.words = {x.name: x.chunk_words(nest, tiles, k_tile) for x in nest.inputs}
        # What device memory spends on a chunk, short runs counted as whole bursts.
        self.fetched = {
            x.name: self.words[x.name] * _burst_factor(x, nest, tiles, k_tile) for x in nest.inputs
        }
        self.out = nest.output.chunk_words(nest, tiles, k_tile)
        self.out_factor = _burst_factor(nest.output, nest, tiles, k_tile)
        ones = np.ones_like(k_tile)
        self.inner = np.maximum(ones, -(-nest.k_extent // k_tile)) if nest.reduces else ones
        # All steps of a reduction: what the simulator will charge.
        rest = nest.k_extent - (self.inner - 1) * k_tile
        self.cycles = nest.call_cycles(device, tiles, k_tile, rest, ones)
        if nest.reduces:
            full = nest.call_cycles(device, tiles, k_tile, k_tile, 0 * ones)
            self.cycles = (self.inner - 1) * full + self.cycles
        self.ragged = nest.k_extent % k_tile != 0 if nest.reduces else np.zeros(k_tile.shape, bool)
        rate = device.constant("ddr.gigabytes_per_second") * 1e3 / device.constant("clock.array_mhz")
        self.cycles_per_word = 4 / rate

    def cost(self, mapping: Mapping) -> Array:
        nest, out = self.nest, self.out
        rows = 1 if mapping.row_dim is None else CORE_ROWS
        counts = [
            -(-dim.extent // (self.tiles[d] * mapping.cores_along(d))) for d, dim in enumerate(nest.dims)
        ]
        outer = np.ones_like(self.k_tile)
        for count in counts:
            outer = outer * count
        served = -(-CORE_ROWS // self.device.columns) if mapping.rowcast else rows
        ports = [self._port(p, mapping, counts, outer) for p in (0, 1)]
        _hold(ports, (served, 1), out * rows)
        drain = outer * out * rows
        sources = CORE_ROWS if mapping.rowcast else rows * mapping.columns
        total = ports[0].taken * ports[0].fetched * sources + mapping.columns * (
            ports[1].taken * ports[1].fetched + drain * self.out_factor
        )
        loads = [
            (outer * self.cycles).astype(np.int64),
            ports[0].taken * ports[0].words * served,
            ports[1].taken * ports[1].words,
            np.maximum(ports[0].chunks * ports[0].words, ports[1].chunks * ports[1].words),
            drain,
            (total * self.cycles_per_word).astype(np.int64),
        ]
        slowest: Array = np.maximum.reduce(loads)
        # Resources contend: what is not the slowest still costs a little.
        contention = OTHERS_WEIGHT * (sum(loads) - slowest)
        idle = slowest * IDLE_WEIGHT * (1.0 - mapping.columns * rows / (self.device.columns * CORE_ROWS))
        # A single out buffer stops the core, and with it its inputs, while it drains.
        buffers = 2 * (ports[0].words + ports[1].words + out) * 4
        stalls = np.where(buffers > BUFFER_BYTES, outer * out, 0)
        fill = ports[0].words * served + ports[1].words + out
        commands = self._commands(mapping, ports, served, outer * rows)
        cost: Array = slowest + stalls + contention + idle + fill + commands
        return cost

    def _port(self, port: int, mapping: Mapping, counts: Sequence[IntArray], outer: Array) -> _Port:
        operands = [x for x in self.nest.inputs if (x.name in mapping.in1) == (port == 1)]
        result = _Port(np.zeros_like(self.k_tile))
        if not operands:
            return result
        depends = frozenset[int]().union(*(x.depends_on() for x in operands))
        looped = np.zeros(self.k_tile.shape, bool)
        for d in depends - {K}:
            looped = looped | (counts[d] > 1)
        result.words = sum(self.words[x.name] for x in operands)
        result.fetched = sum(self.fetched[x.name] for x in operands)
        result.panel = np.where((self.inner > 1) & (K in depends), self.inner, 1)
        result.chunks = np.where(looped | (result.panel > 1), outer * result.panel, 1)
        for d in reversed(mapping.order):
            if d in depends:
                break
            result.repeats = result.repeats * counts[d]
        result.repeats = np.where(result.chunks > 1, result.repeats, 1)
        result.taken = result.chunks
        return result

    def _commands(self, mapping: Mapping, ports: Sequence[_Port], served: int, outputs: Array) -> Array:
        """Controller cycles, seen from the array: set-up, shim tasks, and far too many steps."""
        per_group = np.where(self.ragged, 1.5, 0.25)
        groups = [p.taken // np.maximum(p.panel, 1) for p in ports]
        tasks = (groups[0] * served + groups[1]) * per_group + outputs / 8
        rows = 1 if mapping.row_dim is None else CORE_ROWS
        setup = COLUMN_SETUP_CYCLES + rows * CORE_SETUP_CYCLES
        steps = np.maximum(ports[0].chunks, ports[1].chunks)
        too_many = np.where(steps > MANY_STEPS, 1e6 * steps / MANY_STEPS, 0)
        commands: Array = mapping.columns * (setup + TASK_CYCLES * tasks) + too_many
        return commands


class _Port:
    """What a port carries, for all candidates at once."""

    def __init__(self, zero: Array) -> None:
        self.words: IntArray = zero  # per chunk
        self.fetched: IntArray = zero  # the same as device memory sees it
        self.chunks: IntArray = zero  # that a core takes
        self.taken: IntArray = zero  # that the memory tile takes from device memory
        self.panel: IntArray = zero  # chunks per reduction
        self.repeats: IntArray = zero + 1  # of a panel by the innermost loops


def _hold(ports: Sequence[_Port], rows: Sequence[int], out_words: IntArray) -> None:
    """What memory tiles can keep, as ``Schedule.holds`` will decide: sets ``taken``."""
    free = MEM_WORDS - 2 * (ports[0].words * rows[0] + ports[1].words) - out_words
    for number in (1, 0):
        port = ports[number]
        need = (port.panel - 2) * port.words * rows[number]  # one slot
        fits = (need <= free) & (port.panel * port.words <= PANEL_PARTS * MAX_PANEL_WORDS)
        keep = (port.repeats > 1) & fits & (port.repeats <= MAX_LOCK)
        port.taken = np.where(keep, port.chunks // port.repeats, port.chunks)
        free = free - np.where(keep, need, 0)


def _burst_factor(
    operand: Operand | Packed, nest: Nest, tiles: Sequence[IntArray], k_tile: IntArray
) -> IntArray:
    """How much more device memory spends on a chunk whose runs are shorter than a burst."""
    if isinstance(operand, Packed) or not operand.shape:
        return 1.0
    run = np.zeros_like(k_tile) + operand.itemsize
    expected = 1
    shape = operand.chunk_shape(nest, tiles, k_tile)
    whole = np.ones(k_tile.shape, bool)
    for count, extent, stride in zip(
        reversed(shape), reversed(operand.shape), reversed(operand.strides), strict=True
    ):
        if stride != expected:
            break
        run = np.where(whole, run * count, run)
        whole = whole & (count == extent)
        expected = stride * extent
    return np.maximum(1.0, BURST_BYTES / run)
