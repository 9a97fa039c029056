# SPDX-License-Identifier: Apache-2.0
"""Emits normalisations of rows: whole rows in a core, or moments of parts that are merged."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from onedispatch.operators.declarations.functions import Activation
from onedispatch.operators.interface.operator import Lowering, TensorSpec, Unsupported
from onedispatch.operators.kernels.moments import Moments
from onedispatch.operators.kernels.normalise import Normalise
from onedispatch.operators.lowering.convert import emit_converted, in_float32
from onedispatch.operators.lowering.reduce import emit_each, emit_reduction, reshaped

# Members of a part: a quarter of a core's memory, twice. Shorter ones cost more than they save.
MOST, LEAST = 4096, 64


def _part(rows: int, length: int, cores: int) -> int | None:
    """Members of a part: the most that a core holds, of parts that keep the cores busy; None of rows that
    fall into short ones only."""
    divisors = [d for d in range(min(length, MOST), 0, -1) if length % d == 0]
    if divisors[0] < min(LEAST, length):
        return None
    return next((d for d in divisors if d >= LEAST and rows * (length // d) >= cores), divisors[0])


def emit_moments(
    name: str, x: TensorSpec, rows: int, centre: bool, epsilon: float, lowering: Lowering
) -> tuple[TensorSpec, TensorSpec] | None:
    """The mean and 1 / sqrt(variance + epsilon) of ``rows`` of ``x``, float32 without padding; None where
    they have no parts that fit a core."""
    device, length, count = lowering.device, x.size // rows, 1
    parts: list[int] = []
    while not parts or length > 1:
        part = _part(rows, length, device.columns * device.core_rows if not parts else 1)
        if part is None:
            return None
        parts, length = [*parts, part], length // part
    members, length = [x], x.size // rows
    for part in parts:
        length //= part
        shape = (rows * length, part)
        given: dict[str, Any] = {"count": count, "centre": centre, "epsilon": None if length > 1 else epsilon}
        inputs = [reshaped(tensor, shape, lowering) for tensor in members]
        mean, spread = (lowering.temp(np.dtype(np.float32), shape[:1]) for _ in range(2))
        lowering.emit(Moments(name, inputs, (mean, spread), device, **given))
        members, count = [mean, spread], count * part
    return mean, spread


class MultiPassNorm:
    """The same by other kernels, in float32 and over any axes: for rows longer than a core holds, and for
    the mean and deviation."""

    def __init__(self, name: str, lowering: Lowering, x: TensorSpec, axes: list[int], centre: bool) -> None:
        self.name, self.lowering, self.x, self.axes, self.centre = name, lowering, x, axes, centre
        self.kept = [1 if a in axes else n for a, n in enumerate(x.shape)]
        self.count = prod(x.shape[a] for a in axes)

    def each(
        self, func: str, tensors: list[TensorSpec], output: TensorSpec | None = None, **more: Any
    ) -> TensorSpec:
        return emit_each(self.name, func, tensors, self.lowering, output, **more)

    def _reduced(self, mode: str, tensor: TensorSpec) -> TensorSpec:
        target = self.lowering.temp(np.dtype(np.float32), self.kept)
        emit_reduction(self.name, mode, tensor, target, self.axes, self.lowering)
        return target

    def moments(self, epsilon: float) -> tuple[TensorSpec | None, TensorSpec]:
        """The mean and 1 / sqrt(variance + epsilon) of every row."""
        found = self._at_once(epsilon)
        if found is not None:
            return found
        mean, inverse, _ = self._one_by_one(epsilon)
        return mean, inverse

    def _at_once(self, epsilon: float) -> tuple[TensorSpec | None, TensorSpec] | None:
        """``moments`` of rows in one piece, read once; None of others, or where they have no parts."""
        rank = len(self.kept)
        if self.axes != list(range(rank - len(self.axes), rank)) or not self.count:
            return None
        found = emit_moments(self.name, self.x, prod(self.kept), self.centre, epsilon, self.lowering)
        if found is None:
            return None
        mean, inverse = (reshaped(tensor, self.kept, self.lowering) for tensor in found)
        return mean if self.centre else None, inverse

    def _one_by_one(self, epsilon: float) -> tuple[TensorSpec | None, TensorSpec, TensorSpec]:
        """``moments``, and the centred rows."""
        mean, centred = None, self.x
        if self.centre:
            mean = self._reduced("mean", self.x)
            centred = self.each("sub", [self.x, mean])
        squares = self._reduced("sum_square", centred)
        small = self.lowering.const(np.full([1] * len(self.kept), epsilon, np.float32))
        root = Activation("sqrt")
        deviation = self.each("add", [squares, small], alpha=1 / self.count, activation=root)
        inverse = self.each("copy", [deviation], activation=Activation("reciprocal"))
        return mean, inverse, centred

    def rows(self, epsilon: float, parameters: list[TensorSpec], parted: bool, output: TensorSpec) -> None:
        """Rows into ``output``; ``parameters`` broadcast, with one value for many elements if ``parted``."""
        found = self._at_once(epsilon)
        mean, factor, x = (*found, self.x) if found else (None, *self._one_by_one(epsilon)[1:])
        if parameters and parted:
            # Rows whose mean is still in them lose it with the bias, in the walk that scales them.
            factor, parameters = self.each("mul", [factor, parameters[0]]), parameters[1:]
            shift = self._shift(mean, factor, parameters)
            self.each("muladd" if shift else "mul", [x, factor, *shift], output)
            return
        # Here they lose it first: scaled, the rounding of a large mean would remain.
        x = x if mean is None else self.each("sub", [x, mean])
        normal = self.each("mul", [x, factor], None if parameters else output)
        if parameters:
            self.each("muladd" if len(parameters) == 2 else "mul", [normal, *parameters], output)

    def _shift(self, mean: TensorSpec | None, factor: TensorSpec, bias: list[TensorSpec]) -> list[TensorSpec]:
        """What is added to scaled rows: the bias less the scaled mean, as far as there are any."""
        if mean is None:
            return bias
        if not bias:
            return [self.each("mul", [mean, factor], activation=Activation("neg"))]
        return [self.each("sub", [bias[0], self.each("mul", [mean, factor])])]


def emit_normalised(
    name: str,
    inputs: Sequence[TensorSpec],
    output: TensorSpec,
    lowering: Lowering,
    *,
    sizes: tuple[int, int, int],
    epsilon: float,
    centre: bool = True,
    sections: int = 0,
) -> None:
    """``Normalise``, or its steps where a row does not fit a core.

    Raises ``Unsupported`` for an epsilon below 0.
    """
    if epsilon < 0:
        raise Unsupported(f"an epsilon of {epsilon:g}", "0 or more")
    batches, rows, length = sizes
    x, parameters = inputs[0], [in_float32(name, p, lowering) for p in inputs[1:]]
    given: dict[str, Any] = {"sizes": sizes, "epsilon": epsilon, "centre": centre, "sections": sections}
    whole = x.row_pitch == x.row or length == x.row
    if whole:
        try:
            lowering.emit(Normalise(name, [x, *parameters], output, lowering.device, **given))
            return
        except Unsupported:
            pass
    wide = in_float32(name, x, lowering)
    result = output if output.dtype == np.float32 else lowering.temp(np.dtype(np.float32), output.shape)
    try:
        if wide is x:
            raise Unsupported("a row of it does not fit a core")
        lowering.emit(Normalise(name, [wide, *parameters], result, lowering.device, **given))
    except Unsupported:
        shape = (batches, rows, max(sections, 1), length // max(sections, 1))
        steps = MultiPassNorm(name, lowering, reshaped(wide, shape, lowering), [2, 3], centre)
        form = (rows, sections, 1) if sections else (1, length)
        parameters = [reshaped(p, form, lowering) for p in parameters]
        steps.rows(epsilon, parameters, sections > 0, result)
    if result is not output:
        emit_converted(name, result, output, lowering)
