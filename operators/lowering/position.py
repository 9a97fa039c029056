# SPDX-License-Identifier: Apache-2.0
"""Emits linear indices for tuples of indices."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from onedispatch.operators.interface.operator import Lowering, TensorSpec
from onedispatch.operators.kernels.position import Position
from onedispatch.operators.lowering.arithmetic import emit_arithmetic
from onedispatch.operators.lowering.take import checked


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
