# SPDX-License-Identifier: Apache-2.0
"""LayerNormalization: rows of mean 0 and variance 1, scaled and shifted."""

from __future__ import annotations

from math import prod

import numpy as np

from onedispatch.operators.declarations import expressions as e
from onedispatch.operators.declarations.formulas import ENTRY, ROW, combined, operations, vectors
from onedispatch.operators.declarations.functions import Activation
from onedispatch.operators.declarations.kernel import Kernel, Scalar, Tensor, declare
from onedispatch.operators.declarations.registry import maps
from onedispatch.operators.families.elementwise import Array, Eltwise, View, need_float
from onedispatch.operators.families.reduce import Reduce
from onedispatch.operators.families.rows import LENGTH
from onedispatch.operators.interface.operator import Lowering, NodeSpec, Operator, TensorSpec, Unsupported
from onedispatch.operators.scheduling.index_space import F32, OUTPUT, Access, Dim, Operand
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.transactions import Device


def _cost() -> e.Expr:
    """Five walks of every row: its sum, centring, the squares' sum, scaling, scale with bias."""
    length, op, mul = e.count("x", LENGTH), operations("x"), e.device("mul_cycles", "x")
    line = e.named("line", vectors(length, "x"))
    per_vector = (3 + e.present("bias")) * op + 3 * mul
    per_row = 3 * e.device("div_cycles", "x") + e.device("sqrt_cycles", "x")  # mean, variance, deviation
    across = 2 * combined(length, "x", op)
    return ENTRY + e.tile("o") * (5 * ROW + line * per_vector + per_row + across)


LAYER_NORM = declare(
    Kernel(
        "od::layer_norm@1",
        dims=("o",),
        inputs=(Tensor("x", f"o {LENGTH}"), Tensor("scale", LENGTH), Tensor("bias", LENGTH, optional=True)),
        outputs=(Tensor("out", f"o {LENGTH}"),),
        scalars=(Scalar("epsilon", "f32", low=0.0),),
        cost=_cost(),
        # ASSUMPTION: 96 instructions: two sums, a root, scale and bias.
        code_bytes=1536,
        summary="out[o] = (x[o] - mean) / sqrt(variance + epsilon) * scale + bias over length",
    )
)


class LayerNorm(Operator):
    """Rows of [outer, length] normalised; ``scale`` and the optional ``bias`` are [length]."""

    kind = "layer_norm"
    applies_activation = False

    def __init__(
        self,
        name: str,
        inputs: list[TensorSpec],
        output: TensorSpec,
        length: int,
        device: Device,
        epsilon: float,
    ) -> None:
        super().__init__(name, inputs, output, device)
        self.length, self.epsilon = length, epsilon

    def nests(self) -> list[Nest]:
        if not self.output.size:
            return []
        n, outer = self.length, self.output.size // self.length
        rows = (outer, n), (n, 1), (Access(0), Access(None))
        row = (n,), (1,), (Access(None),)
        operands = [Operand("x", 0, F32, *rows), Operand("scale", 1, F32, *row)]
        operands += [Operand("bias", 2, F32, *row)] if len(self.inputs) == 3 else []
        out = Operand("out", OUTPUT, F32, *rows)
        return [
            Nest(LAYER_NORM, (Dim("o", outer),), tuple(operands), (out,), {"o": 0}, {"epsilon": self.epsilon})
        ]

    def reference(self, *arrays: Array) -> Array:
        x = arrays[0].reshape(-1, self.length)
        centred = x - x.mean(axis=1, keepdims=True)
        variance = (centred * centred).mean(axis=1, keepdims=True)
        y = centred / np.sqrt(variance + np.float32(self.epsilon)) * arrays[1].reshape(-1)
        y = y + arrays[2].reshape(-1) if len(arrays) == 3 else y
        return np.asarray(y, np.float32).reshape(self.output.shape)


class _Steps:
    """The same by other kernels: for rows longer than a core holds, and for the mean and deviation."""

    def __init__(self, node: NodeSpec, lowering: Lowering, x: TensorSpec, axis: int) -> None:
        self.name, self.lowering, self.x = node.name, lowering, x
        self.axes, length = (axis, len(x.shape)), prod(x.shape[axis:])
        self.sizes = (x.size // length, length, 1)
        self.whole, self.column, self.row = View((length, 1, 1)), View((1, 0, 0)), View((0, 1, 0))

    def temp(self, whole: bool = False) -> TensorSpec:
        """A tensor with one value per row, or as large as x."""
        return self.lowering.temp(self.x.dtype, self.x.shape if whole else (self.sizes[0],))

    def reduce(self, mode: str, tensor: TensorSpec, target: TensorSpec) -> TensorSpec:
        self.lowering.emit(Reduce(self.name, mode, tensor, target, self.axes, self.lowering.device))
        return target

    def each(self, func: str, tensors: list[TensorSpec], views: list[View], target: TensorSpec) -> TensorSpec:
        """An element-wise function over the rows."""
        device, whole = self.lowering.device, self.whole
        op = Eltwise(self.name, func, tensors, target, device, views=views, shape=self.sizes, out_view=whole)
        self.lowering.emit(op)
        return target

    def moments(self, mean: TensorSpec, deviation: TensorSpec, epsilon: float) -> TensorSpec:
        """Writes the mean and sqrt(variance + epsilon) of every row; returns the centred rows."""
        self.reduce("mean", self.x, mean)
        centred = self.each("sub", [self.x, mean], [self.whole, self.column], self.temp(whole=True))
        squares = self.reduce("sum_square", centred, self.temp())
        small = self.lowering.const(np.full(1, epsilon, np.float32))
        device, share, root = self.lowering.device, 1 / self.sizes[1], Activation("sqrt")
        terms, views, out, shape = [squares, small], [View((1,)), View((0,))], View((1,)), squares.shape
        self.lowering.emit(
            Eltwise(
                self.name, "add", terms, deviation, device,
                alpha=share, activation=root, views=views, shape=shape, out_view=out,
            )
        )  # fmt: skip
        return centred

    def statistics(self, mean: TensorSpec, inverse: TensorSpec, epsilon: float) -> None:
        """The outputs beside the first: the mean and 1 / sqrt(variance + epsilon)."""
        deviation = self.temp()
        self.moments(mean, deviation, epsilon)
        view, device = View((1,)), self.lowering.device
        turned = Activation("reciprocal")
        self.lowering.emit(
            Eltwise(
                self.name, "copy", [deviation], inverse, device,
                activation=turned, views=[view], shape=deviation.shape, out_view=view,
            )
        )  # fmt: skip

    def rows(self, parameters: list[TensorSpec], output: TensorSpec, epsilon: float) -> None:
        deviation = self.temp()
        centred = self.moments(self.temp(), deviation, epsilon)
        normal = self.each("div", [centred, deviation], [self.whole, self.column], self.temp(whole=True))
        func = "muladd" if len(parameters) == 2 else "mul"
        self.each(func, [normal, *parameters], [self.whole, *[self.row] * len(parameters)], output)


@maps("LayerNormalization", notes="scale and bias of the normalised shape")
def map_layer_normalization(node: NodeSpec, lowering: Lowering) -> None:
    inputs = [x for x in node.inputs if x is not None]
    y, mean, inverse = (*node.outputs, None, None)[:3]
    need_float(node, *inputs, y, mean, inverse)
    x, *parameters = inputs
    rank = len(x.shape)
    axis = int(node.attr("axis", -1)) % max(rank, 1)
    length, epsilon = prod(x.shape[axis:]), float(node.attr("epsilon", 1e-5))
    if y is None or node.attr("stash_type", 1) != 1:
        raise Unsupported("LayerNormalization without its first output, or with another stash_type", "1")
    for tensor in parameters:
        if tensor.size != length:
            raise Unsupported(f"{tensor.name} of shape {tensor.shape}", f"{length} elements, one per column")
    if not x.size:
        raise Unsupported(f"LayerNormalization of shape {x.shape}", "at least one element")
    steps = _Steps(node, lowering, x, axis)
    if mean is not None or inverse is not None:
        steps.statistics(mean or steps.temp(), inverse or steps.temp(), epsilon)
    try:
        lowering.emit(LayerNorm(node.name, inputs, y, length, lowering.device, epsilon))
    except Unsupported:
        steps.rows(parameters, y, epsilon)
