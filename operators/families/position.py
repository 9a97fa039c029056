# SPDX-License-Identifier: Apache-2.0
"""Tuples of indices as one index each: where they point among elements that lie behind one another."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
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
from onedispatch.operators.families.arithmetic import emit_arithmetic
from onedispatch.operators.families.take import INDICES, checked, turned
from onedispatch.operators.interface.operator import Lowering, Operator, TensorSpec
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


def emit_positions(
    name: str,
    indices: TensorSpec,
    bounds: Sequence[int],
    pitches: Sequence[int],
    lowering: Lowering,
    always: bool = False,
) -> TensorSpec:
    """[tuples] of int32: where each tuple of ``indices`` [..., n] points among ``pitches`` elements.

    Indices below zero count from the end of their of the ``bounds``. Single ones are what they are unless
    ``always`` looks at them. Raises ``Unsupported`` where a constant one is outside; a computed one ends the
    run with ``KernelIndexError``.
    """
    terms = len(bounds)
    many = prod(indices.shape[:-1])
    factors = [prod(pitches[d + 1 :]) for d in range(terms)]
    if not terms:  # tuples of no indices: each points at all of it
        return lowering.const(np.zeros(many, np.int32))
    if indices.value is not None:
        columns = np.asarray(indices.value).reshape(many, terms)
        at = np.zeros(many, np.int64)
        for d in range(terms):
            column = TensorSpec(indices.name, indices.dtype, (many,), columns[:, d])
            at += checked(column, bounds[d], name) * factors[d]
        return lowering.const(at.astype(np.int32))
    if terms == 1 and not always and tuple(bounds) == tuple(pitches):
        return indices.reshaped((many,))
    constants = [lowering.const(np.array(values, np.int32)) for values in (bounds, factors)]
    found = lowering.temp(np.dtype(np.int32), (many,))
    lowering.emit(Position(name, [indices, *constants], found, lowering.device))
    return found


def emit_counts(name: str, counts: TensorSpec, most: int, lowering: Lowering) -> TensorSpec:
    """Computed ``counts`` [n] as int32, of int32 or int64: one outside of [0, ``most``] ends the run.

    Indices below zero count from the end, but no count does: all of them become -1, that becomes the number
    behind ``most``, and that is outside.
    """
    bounded = lowering.temp(counts.dtype, counts.shape)
    emit_arithmetic(name, "max", [counts, lowering.const(np.full(1, -1, counts.dtype))], bounded, lowering)
    for bound in (most + 2, most + 1):
        tuples = bounded.reshaped((counts.size, 1))
        bounded = emit_positions(name, tuples, (bound,), (bound,), lowering, True)
    return bounded
