# SPDX-License-Identifier: Apache-2.0
"""Computes one linear index from each tuple of indices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onedispatch.operators.declarations import expressions as e
from onedispatch.operators.declarations.dtypes import DTYPES
from onedispatch.operators.declarations.formulas import (
    ENTRY,
    ROW,
    busiest,
    read,
    vectors,
)
from onedispatch.operators.declarations.kernel import Kernel, Tensor, declare
from onedispatch.operators.interface.operator import Operator, TensorSpec
from onedispatch.operators.kernels.take import INDICES, turned
from onedispatch.operators.scheduling.index_space import OUTPUT, Access, Dim, Operand
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.transactions import Device

Array = np.ndarray[Any, Any]


def _cost() -> e.Expr:
    """For every place in a tuple: its indices are read apart, wrapped, compared, multiplied and added."""
    terms, j = e.count("index", "*n"), e.tile("j")
    each = e.device("compare_cycles", "out") + e.device("op_cycles", "out") + e.device("mul_cycles", "out")
    loads = read(terms, j, "index", e.stride("index", "j"))
    return ENTRY + terms * ROW + busiest(loads, e.as_expr(0), terms * (turned(j) + vectors(j, "out") * each))


POSITION = declare(
    Kernel(
        "od::position@1",
        dims=("j",),
        inputs=(
            Tensor("index", "j *n", INDICES),
            Tensor("bound", "*n", "i32"),
            Tensor("factor", "*n", "i32"),
        ),
        outputs=(Tensor("out", "j", "i32"),),
        cost=_cost(),
        # ASSUMPTION: 48 instructions: one loop, with a row for the edges.
        code_bytes=768,
        summary="out[j] = sum over n of index[j][n] * factor[n]; indices outside of bound[n] end the run",
    )
)


class Position(Operator):
    """``sum(index * factor)`` over the last dimension; an index below zero counts from its ``bound``.

    One outside of [-bound, bound) ends the run: ``KernelIndexError``.
    """

    kind = "position"
    applies_activation = False

    def __init__(self, name: str, inputs: Sequence[TensorSpec], output: TensorSpec, device: Device) -> None:
        super().__init__(name, inputs, output, device)

    def nests(self) -> list[Nest]:
        index, bound, factor = self.inputs
        terms, many = bound.size, self.output.size
        if not many:
            return []
        tuples = Operand("index", 0, index.element, (many, terms), (terms, 1), (Access(0), Access(None)))
        others = (
            Operand(name, n, tensor.element, (terms,), (1,), (Access(None),))
            for name, n, tensor in (("bound", 1, bound), ("factor", 2, factor))
        )
        out = Operand("out", OUTPUT, DTYPES["i32"], (many,), (1,), (Access(0),))
        return [Nest(POSITION, (Dim("j", many),), (tuples, *others), (out,), {"j": 0})]

    def reference(self, *arrays: Array) -> Array:
        index, bound, factor = arrays
        at = index.reshape(-1, bound.size).astype(np.int64)
        found = (np.where(at < 0, at + bound, at) * factor).sum(axis=1)
        return np.asarray(found, np.int32).reshape(self.output.shape)
