# SPDX-License-Identifier: Apache-2.0
"""BatchNormalization (a scale and a shift per channel) and LRN (a window over channels)."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor
from typing import Any

import numpy as np

from onedispatch.operators.declarations import expressions as e
from onedispatch.operators.declarations.dtypes import FLOATS
from onedispatch.operators.declarations.formulas import ENTRY, ROW, operations, vectors
from onedispatch.operators.declarations.functions import Activation
from onedispatch.operators.declarations.kernel import Kernel, Scalar, Tensor, declare
from onedispatch.operators.declarations.params import LIMITS
from onedispatch.operators.declarations.registry import maps
from onedispatch.operators.families.convert import emit_converted, in_float32
from onedispatch.operators.families.elementwise import (
    Eltwise,
    View,
    broadcast,
    numpy_names,
    operands_of,
)
from onedispatch.operators.families.rows import LENGTH, ROW_TENSOR, middle_axis_nest
from onedispatch.operators.interface.operator import Lowering, NodeSpec, Operator, TensorSpec, Unsupported
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.transactions import Device

Array = np.ndarray[Any, Any]


def _lrn_cost() -> e.Expr:
    """Squares of the window of every element, vectors along i, and a power of their sum."""
    length, op, mul = e.count("x", LENGTH), operations("x"), e.device("mul_cycles", "x")
    lines = e.named("lines", e.tile("o") * length * vectors(e.tile("i"), "x"))
    window = e.smallest(e.scalar("size"), length) * (mul + op)
    power = e.device("log_cycles", "x") + e.device("exp_cycles", "x") + mul
    return ENTRY + lines * (ROW + window + power + 2 * mul + op)


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
        views = affine_views(x)
        super().__init__(name, "muladd", [x, *constants], output, device, activation=activation, views=views)


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


def scale_and_shift(parameters: Sequence[Any], epsilon: float) -> tuple[Array, Array]:
    """What a batch normalisation multiplies by, and what it adds then: float64, shaped as its parameters.

    ``parameters`` are scale, bias, mean and variance, in ONNX's order.
    """
    scale, offset, mean, variance = (np.asarray(p, np.float64) for p in parameters)
    factor = scale / np.sqrt(variance + epsilon)
    return factor, offset - mean * factor


@maps("BatchNormalization", notes="inference form; bfloat16 too, with scale and shift rounded to it")
def map_batch_normalization(node: NodeSpec, lowering: Lowering) -> None:
    inputs, output = operands_of(node, ("float32", "bfloat16"))
    if node.attr("training_mode", 0) or any(x is not None for x in node.outputs[1:]):
        raise Unsupported("BatchNormalization in training mode", "training_mode=0, one output")
    if node.opset < 7 and not node.attr("is_test", 0):
        raise Unsupported(f"BatchNormalization of opset {node.opset} in training mode", "is_test=1")
    epsilon = float(node.attr("epsilon", 1e-5))
    x, parameters = inputs[0], inputs[1:5]
    values = [p.value for p in parameters]
    if all(v is not None for v in values):
        factor, added = (v.astype(x.dtype) for v in scale_and_shift(values, epsilon))
        if factor.ndim == 1:
            lowering.emit(ChannelAffine(node.name, x, factor, added, output, lowering.device))
        else:
            operands = [x, lowering.const(factor), lowering.const(added)]
            lowering.emit(Eltwise(node.name, "muladd", operands, output, lowering.device))
        return
    _computed_parameters(node, lowering, inputs, output, epsilon)


def _computed_parameters(
    node: NodeSpec, lowering: Lowering, inputs: Sequence[TensorSpec], output: TensorSpec, epsilon: float
) -> None:
    """The same with parameters that are only known at run time: five element-wise steps.

    Parameters are [C], or in old models (``spatial=0``) one per element of a sample, which broadcast.
    Narrow ones are widened for all steps but the last.
    """
    x, device, name, dtype = inputs[0], lowering.device, node.name, np.dtype(np.float32)
    scale, offset, mean, variance = (in_float32(name, one, lowering) for one in inputs[1:5])

    def temp() -> TensorSpec:
        return lowering.temp(dtype, scale.shape)

    small = lowering.const(np.full(scale.shape, epsilon, np.float32))
    deviation, factor, centred, shift = temp(), temp(), temp(), temp()
    root = Activation("sqrt")
    lowering.emit(Eltwise(name, "add", [variance, small], deviation, device, activation=root))
    lowering.emit(Eltwise(name, "div", [scale, deviation], factor, device))
    lowering.emit(Eltwise(name, "mul", [mean, factor], centred, device))
    lowering.emit(Eltwise(name, "sub", [offset, centred], shift, device))
    if x.dtype != dtype:
        factor, shift = (
            emit_converted(name, one, lowering.temp(x.dtype, one.shape), lowering) for one in (factor, shift)
        )
    views = affine_views(x) if len(scale.shape) == 1 else None
    lowering.emit(Eltwise(name, "muladd", [x, factor, shift], output, device, views=views))


@maps("LRN", dtypes=numpy_names(FLOATS), notes="all channels of a column must fit one core's memory")
def map_lrn(node: NodeSpec, lowering: Lowering) -> None:
    inputs, output = operands_of(node, numpy_names(FLOATS))
    defaults = {"alpha": 1e-4, "beta": 0.75, "bias": 1.0}
    attributes = {k: float(node.attr(k, v)) for k, v in defaults.items()}
    size = int(node.attr("size", 0))
    if not 1 <= size <= LIMITS["lrn_size"]:
        raise Unsupported(f"LRN with size {size}", f"sizes of 1 to {LIMITS['lrn_size']}")
    lowering.emit(Lrn(node.name, inputs[0], output, lowering.device, size=size, **attributes))
