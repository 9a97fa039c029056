# SPDX-License-Identifier: Apache-2.0
"""What a nest's work on a core costs: the kernel's formula over the quantities of its calls.

The simulator evaluates the same formula over the words of the parameter block
(``cpp_ext/src/program/cost.cpp``); ``tests/ops/test_cost.py`` compares the two.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

import numpy as np

from onedispatch.operators.declarations.dtypes import DTYPES, DType
from onedispatch.operators.declarations.expressions import NOTHING, Expr, ExprOp
from onedispatch.operators.declarations.kernel import MAX_CYCLES, Kernel, Tensor
from onedispatch.operators.scheduling.index_space import IntArray, K, Operand
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.transactions import Device
from onedispatch.transactions.base.errors import OperatorError


def op_cycles(nest: Nest, device: Device) -> int:
    """Core cycles before the first call: the parameter block is read, and the kernel set up by it."""
    words = nest.kernel.words_used * device.constant("kernel.parameter_word_cycles")
    return int(_charged(nest.kernel, "set-up", device.constant("kernel.op_setup_cycles") + words))


def _charged(kernel: Kernel, what: str, cycles: Any) -> Any:
    """Whole cycles. Raises ``OperatorError`` for what the simulator would not charge either."""
    low, high = np.min(cycles), np.max(cycles)  # both are NaN where one is
    if not (low >= 0 and high <= MAX_CYCLES):
        raise OperatorError(
            f"kernel {kernel.name}: {what}",
            f"{high if low >= 0 else low:g} cycles",
            f"0 to {MAX_CYCLES}",
            "look at its cost formula and at the constants in section [kernel] of the device",
        )
    return np.ceil(cycles)


def scratch_words(nest: Nest, device: Device, tiles: Sequence[IntArray], k_tile: IntArray) -> IntArray:
    """Words of core memory that calls use as they like, or keep over the steps of a tile."""
    return _words_of(nest.kernel.scratch, nest, device, tiles, k_tile)


def sums_words(nest: Nest, device: Device, tiles: Sequence[IntArray], k_tile: IntArray) -> IntArray:
    """Words of scratch, its first, where sums wait for the last step; 0 where results are their own sums."""
    return _words_of(nest.kernel.sums, nest, device, tiles, k_tile)


def _words_of(
    formula: Expr, nest: Nest, device: Device, tiles: Sequence[IntArray], k_tile: IntArray
) -> IntArray:
    if formula == NOTHING:
        return 0
    quantities = Quantities(nest, device, tiles, k_tile)
    quantities.begin(k_tile, 1)
    return np.ceil(formula.evaluate(quantities) / 4).astype(np.int64)


class CallCost:
    """Cycles of a nest's calls on one device, for one tiling or for arrays of them.

    Raises ``OperatorError`` where the kernel's formula gives what is no number of cycles.
    """

    def __init__(self, nest: Nest, device: Device, tiles: Sequence[IntArray], k_tile: IntArray) -> None:
        self.formula = nest.kernel.cost
        self.quantities = Quantities(nest, device, tiles, k_tile)
        self.fixed: dict[int, Any] = {}  # parts of the formula that no step changes
        with np.errstate(all="ignore"):  # what comes of it is judged
            for part in self.formula.unchanging:
                part.evaluate(self.quantities, self.fixed)

    def __call__(self, k_count: IntArray, last: IntArray) -> Any:
        """Cycles of one call of ``k_count`` members, the ``last`` step of its reduction or not."""
        self.quantities.begin(k_count, last)
        with np.errstate(all="ignore"):
            cycles = self.formula.evaluate(self.quantities, dict(self.fixed))
        return _charged(self.quantities.nest.kernel, "cost of a call", cycles)


def reduction_cycles(nest: Nest, device: Device, tiles: Sequence[IntArray], k_tile: IntArray) -> Any:
    """Cycles of all the calls of a tile, as the simulator will charge them."""
    cost = CallCost(nest, device, tiles, k_tile)
    if not nest.reduces:
        return cost(nest.k_extent, 1)
    steps = np.maximum(1, -(-nest.k_extent // np.asarray(k_tile)))
    return cost(nest.k_extent - (steps - 1) * k_tile, 1) + (steps - 1) * cost(k_tile, 0)


def tile_cycles(nest: Nest, device: Device, tiles: tuple[int, ...], k_tile: int) -> float:
    """The same of one tiling, which the nest keeps: schedules of many mappings ask for it."""
    key = device, tiles, k_tile
    if key not in nest.tile_cycles:
        nest.tile_cycles[key] = float(reduction_cycles(nest, device, tiles, k_tile))
    return nest.tile_cycles[key]


class Quantities:
    """The quantities of calls that a formula names, for ``Expr.evaluate``."""

    def __init__(self, nest: Nest, device: Device, tiles: Sequence[IntArray], k_tile: IntArray) -> None:
        self.nest, self.device, self.tiles, self.k_tile = nest, device, tiles, k_tile
        self.bound = nest.bound
        self.tensors = {tensor.name: tensor for tensor in nest.kernel.tensors}

    def begin(self, k_count: IntArray, last: IntArray) -> None:
        """Another call: ``k_count`` members of the reduction, its ``last`` step or not."""
        self.k_count, self.last = k_count, last
        self.walks: dict[str, tuple[Any, Any]] = {}

    def __call__(self, leaf: Expr) -> Any:
        name, operand = leaf.name, self.bound.get(leaf.name)
        match leaf.op:
            case ExprOp.TILE:
                return self.tiles[self.nest.roles[name]]
            case ExprOp.ELEMENTS:
                return prod(self.tiles)
            case ExprOp.K:
                return self.k_count
            case ExprOp.K_TILE:
                return self.k_tile
            case ExprOp.STEPS:
                return np.maximum(1, -(-self.nest.k_extent // np.asarray(self.k_tile)))
            case ExprOp.LAST:
                return self.last
            case ExprOp.SCALAR:
                return self.nest.price(leaf)
            case ExprOp.WORK | ExprOp.FINISH:
                rates = self._rates(leaf.part)
                counts = self.nest.price(leaf)
                return sum((times * self._constant(f"{rates}_{term}_cycles") for term, times in counts), 0.0)
            case ExprOp.COUNT if self.nest.kernel.members:
                return self._count(name, self.tensors[name].axis_names.index(leaf.part))
            case ExprOp.FILLED:
                return float(_filled(self.nest, self.tensors[name]))
            case ExprOp.COUNT | ExprOp.STRIDE:
                dim = self.nest.axis_dim(self.tensors[name], leaf.part)
                return self._along(name, dim)[leaf.op is ExprOp.STRIDE]
            case ExprOp.RUN | ExprOp.STEP:
                if name not in self.walks:
                    self.walks[name] = self._walk(self.tensors[name])
                return self.walks[name][leaf.op is ExprOp.STEP]
            case ExprOp.BYTES:
                return operand.dtype.itemsize if operand else 0
            case ExprOp.PRESENT:
                return float(operand is not None)
            case ExprOp.FILLED:
                return float(self.nest.fills(name))
            case ExprOp.DEVICE_BY_SUMS:
                row = self._row(leaf.part)
                return self._constant(f"{row.rates}_{DTYPES[row.word].rates}_{name}")
        types = [self._rates(tensor) + "_" for tensor in (leaf.part, leaf.other) if tensor]
        return self._constant("".join(types) + name)

    def _constant(self, name: str) -> float:
        return self.device.constant(f"kernel.{name}")

    def _row(self, operand: str) -> DType:
        """The element type of an operand; one that is absent is of the output's."""
        return self.bound.get(operand, self.nest.outputs[0]).dtype

    def _rates(self, operand: str) -> str:
        """Whose constants hold for an operand."""
        return self._row(operand).rates

    def _along(self, name: str, dim: int | None) -> tuple[Any, Any]:
        """(extent, stride) of a chunk along an axis; where it is broadcast, as the block says it."""
        operand = self.bound.get(name)
        for found, count, stride in operand.extents(self.nest, self.tiles, self.k_tile) if operand else ():
            if found == dim:
                return count, stride
        return 1, 0

    def _count(self, name: str, position: int) -> Any:
        """Extent of the chunk of a member kernel's operand along a dimension of its tensor."""
        operand = self.bound.get(name)
        if not isinstance(operand, Operand) or position >= len(operand.shape):
            return 1
        return operand.chunk_shape(self.nest, self.tiles, self.k_tile)[position]

    def _walk(self, tensor: Tensor) -> tuple[Any, Any]:
        """(members, step) of the longest walk of an operand with one step, its innermost axis first."""
        run: Any = 1
        step: Any = 0
        open_: Any = True  # nothing has ended the walk yet
        for members, stride, whole in self._members(tensor):
            many = np.greater(members, 1)
            begins = many & np.equal(run, 1)
            joins = many & open_ & (begins | (whole & np.equal(stride, np.multiply(run, step))))
            open_ = open_ & (joins | ~many)
            step = np.where(begins & joins, stride, step)
            run = np.where(joins, run * members, run)
        return run, step

    def _members(self, tensor: Tensor) -> Iterator[tuple[Any, Any, bool]]:
        """(members, elements from one to the next) along the operand's axes, innermost first.

        The last value tells whether every step is that long: fractions of a stride are so on average.
        """
        operand, nest = self.bound.get(tensor.name), self.nest
        if operand is None:  # what is absent ends no walk
            yield prod(self.tiles), 0, True
            return
        lies = {dim: (count, stride) for dim, count, stride in operand.extents(nest, self.tiles, self.k_tile)}
        for axis in reversed(tensor.axis_names[: None if nest.kernel.dims else len(nest.dims)]):
            dim = nest.axis_dim(tensor, axis)
            if dim is None:
                yield *lies.get(None, (1, 0)), True
                continue
            if dim != K and nest.dims[dim].extent == 1:
                continue
            a, den = 1, 1
            if isinstance(operand, Operand):
                a, den = next(((x.a, x.den) for x in operand.access if x.dim == dim), (0, 1))
            step = np.multiply(a, lies.get(dim, (1, 0))[1])
            yield (self.k_count if dim == K else self.tiles[dim]), np.divide(step, den), a % den == 0


def _filled(nest: Nest, output: Tensor) -> bool:
    """Whether the super kernel fills an output's chunk before a call of a member kernel."""
    value = nest.scalars.get(f"fill_{output.name}", output.fill)
    return value is not None and not np.isnan(value)
