# SPDX-License-Identifier: Apache-2.0
"""Softmax along rows that a core holds whole."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from onedispatch.operators.declarations import expressions as e
from onedispatch.operators.declarations.dtypes import FLOATS
from onedispatch.operators.declarations.formulas import (
    ENTRY,
    ROW,
    combined,
    comparisons,
    either,
    operations,
    scaled,
    summed,
    vectors,
)
from onedispatch.operators.declarations.kernel import Kernel, Scalar, Tensor, declare
from onedispatch.operators.interface.operator import Operator, TensorSpec
from onedispatch.operators.kernels.rows import LENGTH, ROW_TENSOR, SIDEWAYS, middle_axis_nest
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.transactions import Device

Array = np.ndarray[Any, Any]


def _softmax_cost() -> e.Expr:
    """Maximum, exponential with its sum, and scaling each walk every line of a tile. What a line is scaled by
    is split into parts once."""
    length, outer = e.count("x", LENGTH), e.tile("o")
    lines = e.named("lines", outer * either(SIDEWAYS, vectors(e.tile("i"), "x"), 1))
    line = e.named("line", either(SIDEWAYS, length, vectors(length, "x")))
    log, op = e.scalar("log"), operations("x")
    scale = either(log, 2 * op, scaled("x"))
    quotient = e.device("div_cycles", "x") + e.device("pack_cycles", "x")
    total = either(log, e.device("log_cycles", "x"), quotient)
    per_vector = comparisons("x") + op + e.device("exp_cycles", "x") + summed("x") + scale
    across = (1 - SIDEWAYS) * (combined(length, "x", comparisons("x")) + combined(length, "x", summed("x")))
    return ENTRY + lines * (3 * ROW + line * per_vector + total + across)


SOFTMAX = declare(
    Kernel(
        "od::softmax@1",
        dims=("o", "i"),
        inputs=(Tensor("x", ROW_TENSOR, FLOATS, like="out"),),
        outputs=(Tensor("out", ROW_TENSOR, FLOATS),),
        scalars=(
            Scalar("log", high=1, default=0),
            Scalar("length", default=0),  # members of the row; 0: all that the chunk has along it
        ),
        cost=_softmax_cost(),
        joins="tiles",
        # ASSUMPTION: 96 instructions: maximum, exp, sum, quotient, log.
        code_bytes=1536,
        ulp=4,  # powers, their sum and quotients are rounded each, as ONNX's function body says
        summary="softmax, or its logarithm, along the middle axis of [o, length, i]",
    )
)


class Softmax(Operator):
    """Softmax (or its logarithm) over axes ``first`` to before ``stop``.

    Computed in f32. Softmax rounds each step to the type, as ONNX's function body and its reference do, and
    as Attention says in words (``softmax_precision``); its logarithm is rounded once, since digits cancel.
    Several axes with the rows among them need rows without padding.
    """

    kind = "softmax"
    runs_in_bands = True
    applies_activation = False

    def __init__(
        self,
        name: str,
        x: TensorSpec,
        output: TensorSpec,
        axes: tuple[int, int],
        device: Device,
        log: bool = False,
    ) -> None:
        super().__init__(name, [x], output, device)
        self.axes, self.log = axes, log
        shape, (first, stop) = x.shape, axes
        self.sizes = prod(shape[:first]), prod(shape[first:stop]), prod(shape[stop:])

    def nests(self) -> list[Nest]:
        if prod(self.sizes) == 0:
            return []
        scalars = {"log": int(self.log), "length": self.sizes[1]}
        return [middle_axis_nest(SOFTMAX, self.inputs[0], self.axes, scalars)]

    def reference(self, *arrays: Array) -> Array:
        def step(result: Array) -> Array:
            return result if self.log else result.astype(self.output.dtype).astype(np.float32)

        x = arrays[0].astype(np.float32).reshape(self.sizes)
        shifted = step(x - x.max(axis=1, keepdims=True))
        powers = step(np.exp(shifted))
        total = step(powers.sum(axis=1, keepdims=True))
        y = np.asarray(shifted - np.log(total) if self.log else powers / total, np.float32)
        return y.astype(self.output.dtype).reshape(self.output.shape)
