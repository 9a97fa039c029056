# SPDX-License-Identifier: Apache-2.0
"""A loop nest: an index space whose declaration was checked, and what its calls cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onedispatch.operators.declarations.dtypes import DTYPES
from onedispatch.operators.declarations.expressions import Expr, Op
from onedispatch.operators.scheduling.index_space import AUX, IntArray, LoopNest, Packed, Part, product
from onedispatch.operators.scheduling.nest_rules import check_nest
from onedispatch.transactions import Device


@dataclass(frozen=True)
class Nest(LoopNest):
    """A loop nest: one kernel called for every tile of an index space. A value: data alone.

    Raises ``OperatorError`` for what the kernel does not declare, and for accesses that it would take
    for others: see ``nest_rules``.
    """

    def __post_init__(self) -> None:
        aux = tuple(
            Part(t.name, DTYPES[t.dtypes], tuple((None, size) for size in t.shape)) for t in self.kernel.aux
        )
        if aux and all(x.name != AUX for x in self.inputs):
            object.__setattr__(self, "inputs", (*self.inputs, Packed(AUX, (), aux)))
        check_nest(self)

    def scratch_words(self, tiles: Sequence[IntArray], k_tile: IntArray) -> IntArray:
        """Words of core memory that calls use as they like."""
        if not self.kernel.scratches:
            return 0
        quantities = _Quantities(self, None, tiles, k_tile, k_tile, 1)
        return np.ceil(self.kernel.scratch.evaluate(quantities) / 4).astype(np.int64)

    def own_words(self, tiles: Sequence[IntArray], k_tile: IntArray) -> IntArray:
        """Words of core memory beside chunks and a block as every nest has it."""
        return self.longer_block + self.scratch_words(tiles, k_tile)

    @property
    def priced(self) -> tuple[float, ...]:
        """What the cost of a call depends on beside tiles: scalars, and weights of chosen functions."""
        return tuple(self._price(leaf) for leaf in self.kernel.cost.leaves() if leaf.op in _SCALARS)

    def _price(self, leaf: Expr) -> float:
        """The value of a scalar, or the slow evaluations of the function that it chooses."""
        scalar = self.kernel.scalar(leaf.name)
        value = self.scalars.get(leaf.name, scalar.default or 0)
        if scalar.table is None:
            return float(value)
        code = scalar.table.code(value) if isinstance(value, str) else int(value)
        return scalar.table.rows[code].slow if leaf.op is Op.WEIGHT else code

    def call_cycles(
        self, device: Device, tiles: Sequence[IntArray], k_tile: IntArray, k_count: IntArray, last: IntArray
    ) -> Any:
        """Core cycles of one call, as the simulator charges them; arrays judge many tilings at once.

        ``k_count`` members of the reduction in a chunk of ``k_tile``; ``last`` is 1 for the last step.
        """
        return np.ceil(self.kernel.cost.evaluate(_Quantities(self, device, tiles, k_tile, k_count, last)))


_SCALARS = (Op.SCALAR, Op.WEIGHT)


class _Quantities:
    """The quantities of one call that a cost names, for ``Expr.evaluate``."""

    def __init__(
        self,
        nest: Nest,
        device: Device | None,
        tiles: Sequence[IntArray],
        k_tile: IntArray,
        k_count: IntArray,
        last: IntArray,
    ) -> None:
        self.nest, self.device, self.tiles, self.k_tile = nest, device, tiles, k_tile
        self.bound = nest.bound
        self.plain = {Op.ELEMENTS: product(tiles), Op.K: k_count, Op.LAST: last}

    def __call__(self, leaf: Expr) -> Any:
        if leaf.op in self.plain:
            return self.plain[leaf.op]
        if leaf.op is Op.TILE:
            return self.tiles[self.nest.roles[leaf.name]]
        if leaf.op is Op.PRESENT:
            return float(leaf.name in self.bound)
        if leaf.op in _SCALARS:
            return self.nest._price(leaf)
        if leaf.op in (Op.COUNT, Op.STRIDE):
            return self._along(leaf)[leaf.op is Op.STRIDE]
        rates = self.bound[leaf.part].dtype.rates + "_" if leaf.op is Op.DEVICE_BY_DTYPE else ""
        if self.device is None:
            raise RuntimeError(f"{leaf} outside of a cost")
        return self.device.constant(f"kernel.{rates}{leaf.name}")

    def _along(self, leaf: Expr) -> tuple[Any, Any]:
        """(extent, stride) of a chunk along an axis; where it is broadcast, as the block says it."""
        tensor = next(t for t in self.nest.kernel.tensors if t.name == leaf.name)
        dim = self.nest.axis_dim(tensor, leaf.part)
        operand = self.bound.get(leaf.name)
        for found, count, stride in operand.extents(self.nest, self.tiles, self.k_tile) if operand else ():
            if found == dim:
                return count, stride
        return 1, 0
