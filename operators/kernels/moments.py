# SPDX-License-Identifier: Apache-2.0
"""Mean and spread of long rows, read once, in parts that fit a core."""

from __future__ import annotations

import numpy as np

from onedispatch.operators.declarations import expressions as e
from onedispatch.operators.declarations.formulas import (
    ENTRY,
    PAIR,
    ROW,
    combined,
    either,
    operations,
    vectors,
)
from onedispatch.operators.declarations.kernel import Kernel, Scalar, Tensor, declare
from onedispatch.operators.interface.operator import Operator, TensorSpec
from onedispatch.operators.kernels.elementwise import Array
from onedispatch.operators.kernels.rows import LENGTH
from onedispatch.operators.scheduling.index_space import F32, OUTPUT, Access, Dim, Operand
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.transactions import Device


def _cost() -> e.Expr:
    """Walks of every row: the sum, in pairs, where rows are centred, then the squares of what is left, added
    in halves of vectors, and what the members have within; of every row a quotient or two, and a root where
    it is finished."""
    length, op, mul = e.count("x", LENGTH), operations("x"), e.device("mul_cycles", "x")
    line, centre = e.named("line", vectors(length, "x")), e.scalar("centre")
    within, finish = e.present("within"), e.scalar("finish")
    walks = line * ((PAIR + 1) * centre * op + mul + 2 * op + within * op)
    across = centre * combined(length, "x", PAIR * op) + (1 + within) * combined(length, "x", op)
    ends = (centre + 2 * finish) * e.device("div_cycles", "x") + finish * e.device("sqrt_cycles", "x")
    loops = (1 + centre + within) * ROW
    return ENTRY + e.tile("o") * (loops + walks + across + ends + either(within, mul + op, 0))


MOMENTS = declare(
    Kernel(
        "od::moments@1",
        dims=("o",),
        inputs=(Tensor("x", f"o {LENGTH}"), Tensor("within", f"o {LENGTH}", optional=True)),
        outputs=(Tensor("mean", "o"), Tensor("spread", "o")),
        scalars=(
            Scalar("count", "f32", low=1.0, default=1.0),  # elements that every member stands for
            Scalar("epsilon", "f32", low=0.0, default=0.0),
            Scalar("centre", high=1, default=1),  # 0: the mean is taken to be 0
            Scalar("finish", high=1, default=0),  # 1: the spread is 1 / sqrt(variance + epsilon)
        ),
        cost=_cost(),
        # ASSUMPTION: 96 instructions: two sums, a quotient and a root.
        code_bytes=1536,
        summary="mean of x[o], and the squares of its deviations added up: count * (x - mean)^2 + within",
    )
)


class Moments(Operator):
    """Moments of the rows of x, float32 [rows, length], into ``mean`` and ``spread``, float32 [rows].

    Members are values, or with ``count`` the means of so many of them, and a second input of x's shape says
    what squares of deviations each has ``within``. The spread is what squares of deviations rows have in all;
    with ``epsilon`` it is 1 / sqrt(variance + epsilon).
    """

    kind = "moments"
    applies_activation = False

    def __init__(
        self,
        name: str,
        inputs: list[TensorSpec],
        outputs: tuple[TensorSpec, TensorSpec],
        device: Device,
        *,
        count: int,
        centre: bool,
        epsilon: float | None,
    ) -> None:
        super().__init__(name, inputs, outputs[0], device, further_outputs=outputs[1:])
        self.count, self.centre, self.epsilon = count, centre, epsilon

    def nests(self) -> list[Nest]:
        rows, length = self.inputs[0].shape
        along = (Access(0), Access(None))
        inputs = [
            Operand(name, i, F32, (rows, length), (length, 1), along)
            for i, name in enumerate(("x", "within")[: len(self.inputs)])
        ]
        mean, spread = (
            Operand(name, number, F32, (rows,), (1,), (Access(0),))
            for name, number in (("mean", OUTPUT), ("spread", OUTPUT - 1))
        )
        scalars = {
            "count": float(self.count),
            "epsilon": self.epsilon or 0.0,
            "centre": int(self.centre),
            "finish": int(self.epsilon is not None),
        }
        return [Nest(MOMENTS, (Dim("o", rows),), tuple(inputs), (mean, spread), {"o": 0}, scalars)]

    def reference(self, *arrays: Array) -> Array:
        return self.references(*arrays)[0]

    def references(self, *arrays: Array) -> list[Array]:
        x = arrays[0].astype(np.float64)
        mean = x.mean(axis=1, keepdims=True) * self.centre
        spread = self.count * ((x - mean) ** 2).sum(axis=1) + sum(
            y.astype(np.float64).sum(axis=1) for y in arrays[1:]
        )
        if self.epsilon is not None:
            spread = 1 / np.sqrt(spread / (self.count * x.shape[1]) + self.epsilon)
        return [mean[:, 0].astype(np.float32), spread.astype(np.float32)]
