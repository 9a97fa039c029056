# SPDX-License-Identifier: Apache-2.0
"""A scale and a shift per channel (BatchNormalization), and LRN, a window over channels."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor
from typing import Any

import numpy as np

from onedispatch.operators.declarations import expressions as e
from onedispatch.operators.declarations.dtypes import FLOATS
from onedispatch.operators.declarations.formulas import ENTRY, ROW, operations, scaled, vectors
from onedispatch.operators.declarations.functions import Activation
from onedispatch.operators.declarations.kernel import Kernel, Scalar, Tensor, declare
from onedispatch.operators.declarations.params import LIMITS
from onedispatch.operators.interface.operator import Operator, TensorSpec
from onedispatch.operators.kernels.elementwise import Eltwise, Layout, View, broadcast
from onedispatch.operators.kernels.rows import LENGTH, ROW_TENSOR, middle_axis_nest
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.transactions import Device

Array = np.ndarray[Any, Any]


def _lrn_cost() -> e.Expr:
    """Squares of the window of every element, vectors along i, and a power of their sum. Of the other
    products two are with numbers of the call, ``alpha`` and ``beta``, which are split into parts once."""
    length, op, mul = e.count("x", LENGTH), operations("x"), e.device("mul_cycles", "x")
    lines = e.named("lines", e.tile("o") * length * vectors(e.tile("i"), "x"))
    window = e.smallest(e.scalar("size"), length) * (mul + op)
    power = e.device("log_cycles", "x") + e.device("exp_cycles", "x") + scaled("x")
    split = 2 * e.device("pack_cycles", "x")
    return ENTRY + split + lines * (ROW + window + power + scaled("x") + mul + op)


LRN = declare(
    Kernel(
        "od::lrn@1",
        dims=("o", "i"),
        inputs=(Tensor("x", ROW_TENSOR, FLOATS, like="out"),),
        outputs=(Tensor("out", ROW_TENSOR, FLOATS),),
        scalars=(
            Scalar("size", low=1, high=LIMITS["lrn_size"]),
            Scalar("alpha", "f32"),
            Scalar("beta", "f32"),
            Scalar("bias", "f32"),
        ),
        cost=_lrn_cost(),
        joins="tiles",
        # ASSUMPTION: 96 instructions: squares, their sums, a power (exp and log).
        code_bytes=1536,
        summary="x / (bias + alpha / size * sum of squares over the window along length) ^ beta",
    )
)


def channel_view(shape: Sequence[int]) -> View:
    """A [C] tensor broadcast along dimension 1 of ``shape``."""
    return View([1 if d == 1 and n != 1 else 0 for d, n in enumerate(shape)])


def affine_views(x: TensorSpec) -> list[View]:
    """``x`` itself, and two tensors [C] along its dimension 1."""
    return [broadcast(x, x), channel_view(x.shape), channel_view(x.shape)]


class ChannelAffine(Eltwise):
    """``act(x * scale + shift)`` with constants [C] along dimension 1."""

    kind = "channel_affine"

    def __init__(
        self,
        name: str,
        x: TensorSpec,
        scale: Array,
        shift: Array,
        output: TensorSpec,
        device: Device,
        activation: Activation | None = None,
    ) -> None:
        self.scale, self.shift = scale, shift
        constants = [
            TensorSpec(f"{output.name}//{part}", value.dtype, value.shape, value)
            for part, value in (("scale", scale), ("shift", shift))
        ]
        layout, inputs = Layout(affine_views(x)), [x, *constants]
        super().__init__(name, "muladd", inputs, output, device, activation=activation, layout=layout)


class Lrn(Operator):
    """Local response normalisation of [N, C, ...] over ``size`` neighbouring channels."""

    kind = "lrn"
    applies_activation = False

    def __init__(
        self, name: str, x: TensorSpec, output: TensorSpec, device: Device, **attributes: float
    ) -> None:
        super().__init__(name, [x], output, device)
        self.size = int(attributes["size"])
        self.alpha, self.beta, self.bias = (attributes[k] for k in ("alpha", "beta", "bias"))

    def nests(self) -> list[Nest]:
        if not self.output.size:
            return []
        scalars = {"size": self.size, "alpha": self.alpha, "beta": self.beta, "bias": self.bias}
        return [middle_axis_nest(LRN, self.output, (1, 2), scalars)]

    def reference(self, *arrays: Array) -> Array:
        x = arrays[0].astype(np.float32)
        square, total = x * x, np.zeros_like(x)
        before, after = floor((self.size - 1) / 2), ceil((self.size - 1) / 2)
        for c in range(x.shape[1]):
            total[:, c] = square[:, max(0, c - before) : c + after + 1].sum(axis=1)
        scaled = np.float32(self.bias) + np.float32(self.alpha / self.size) * total
        y: Array = (x / scaled ** np.float32(self.beta)).astype(np.float32).astype(self.output.dtype)
        return y
