# SPDX-License-Identifier: Apache-2.0
"""A loop nest: an index space whose declaration was checked."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from onedispatch.operators.declarations.dtypes import DTYPES
from onedispatch.operators.declarations.expressions import Expr, ExprOp
from onedispatch.operators.scheduling.index_space import AUX, LoopNest, Packed, PackedPart
from onedispatch.operators.scheduling.nest_rules import check_nest
from onedispatch.transactions import Device
from onedispatch.transactions.base.cached import cached_property


@dataclass(frozen=True)
class Nest(LoopNest):
    """A loop nest: one kernel called for every tile of an index space. A value: data alone.

    Raises ``OperatorError`` for what the kernel does not declare, and for accesses that it would take
    for others: see ``nest_rules``.
    """

    def __post_init__(self) -> None:
        for name in ("roles", "scalars"):  # a nest that a problem or a schedule holds must not change
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))
        if self.kernel.members:  # auxiliary tensors are strided ones of the instance
            check_nest(self)
            return
        aux = tuple(
            PackedPart(t.name, DTYPES[t.dtypes], tuple((None, size) for size in t.shape))
            for t in self.kernel.aux
        )
        if aux and all(x.name != AUX for x in self.inputs):
            object.__setattr__(self, "inputs", (*self.inputs, Packed(AUX, (), aux)))
        check_nest(self)

    @cached_property
    def tile_cycles(self) -> dict[tuple[Device, tuple[int, ...], int], float]:
        """Of ``call_cost.tile_cycles``: what is known, by device and tiling."""
        return {}

    @property
    def priced(self) -> tuple[Hashable, ...]:
        """What the cost of a call depends on beside tiles and operands: scalars, and chosen functions."""
        return tuple(self.price(leaf) for leaf in self.kernel.cost.leaves() if leaf.op in _SCALARS)

    def price(self, leaf: Expr) -> Any:
        """The value of a scalar, or what the function that it chooses is counted in."""
        scalar = self.kernel.scalar(leaf.name)
        if scalar.table is None:
            value = self.scalars.get(leaf.name, scalar.default or 0)
            return float(np.float32(value)) if scalar.type == "f32" else float(value)
        row = self.function(scalar)
        return {ExprOp.WORK: row.work, ExprOp.FINISH: row.finish}.get(leaf.op, scalar.table.code(row.name))


_SCALARS = (ExprOp.SCALAR, ExprOp.WORK, ExprOp.FINISH)
