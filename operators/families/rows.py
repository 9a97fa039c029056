# SPDX-License-Identifier: Apache-2.0
"""Operators along one axis of [outer, length, inner]: Softmax, reductions, global pooling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from onedispatch.operators.declarations import expressions as e
from onedispatch.operators.declarations.functions import REDUCTIONS, Activation
from onedispatch.operators.declarations.kernel import Kernel, Scalar, Tensor, chooses, declare
from onedispatch.operators.declarations.registry import maps
from onedispatch.operators.families.elementwise import (
    ACTIVATION_SCALARS,
    Eltwise,
    View,
    streaming_cost,
    tensors_of,
)
from onedispatch.operators.interface.operator import Lowering, NodeSpec, Operator, TensorSpec, Unsupported
from onedispatch.operators.scheduling.index_space import (
    F32,
    OUTPUT,
    Access,
    Dim,
    K,
    Operand,
    contiguous_strides,
    strided_operand,
)
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.transactions import Device

Array = np.ndarray[Any, Any]


LENGTH = "*length"  # the axis that rows run along, whole in a chunk


def middle_axis_nest(kernel: Kernel, sizes: tuple[int, int, int], scalars: Mapping[str, float | str]) -> Nest:
    """A nest over [outer, length, inner] whose chunks hold the whole middle axis."""
    dims = (Dim("o", sizes[0]), Dim("i", sizes[2]))
    strides, access = contiguous_strides(sizes), (Access(0), Access(None), Access(1))
    x = Operand("x", 0, F32, sizes, strides, access)
    out = Operand("out", OUTPUT, F32, sizes, strides, access)
    return Nest(kernel, dims, (x,), (out,), {"o": 0, "i": 1}, scalars)


ROW_TENSOR = f"o {LENGTH} i"
ROW_ELEMENTS = e.ELEMENTS * e.count("x", LENGTH)
SOFTMAX = declare(
    Kernel(
        "od::softmax@1",
        dims=("o", "i"),
        inputs=(Tensor("x", ROW_TENSOR),),
        outputs=(Tensor("out", ROW_TENSOR),),
        scalars=(Scalar("log", high=1, default=0),),
        # Maximum, exponential and scaling each walk the row; one exponential per element.
        cost=streaming_cost(4 * ROW_ELEMENTS, ROW_ELEMENTS),
        summary="softmax, or its logarithm, along the middle axis of [o, length, i]",
    )
)
REDUCE = declare(
    Kernel(
        "od::reduce@1",
        dims=("r", "i"),
        reduces=True,
        inputs=(Tensor("x", "r k i"),),
        outputs=(Tensor("out", "r i"),),
        scalars=(chooses("mode", REDUCTIONS), *ACTIVATION_SCALARS),
        cost=streaming_cost(
            e.ELEMENTS * (e.K_COUNT + 1), e.ELEMENTS * e.LAST * (e.weight("act") + e.weight("mode"))
        ),
        summary="out[r][i] = reduce_k x[r][k][i], accumulated in the out chunk over the steps",
    )
)


class Softmax(Operator):
    """Softmax (or its logarithm) over the middle axis of [outer, length, inner]."""

    kind = "softmax"
    applies_activation = False

    def __init__(
        self,
        name: str,
        x: TensorSpec,
        output: TensorSpec,
        sizes: tuple[int, int, int],
        device: Device,
        log: bool = False,
    ) -> None:
        super().__init__(name, [x], output, device)
        self.sizes, self.log = sizes, log

    def nests(self) -> list[Nest]:
        if prod(self.sizes) == 0:
            return []

        return [middle_axis_nest(SOFTMAX, self.sizes, {"log": int(self.log)})]

    def reference(self, *arrays: Array) -> Array:
        x = arrays[0].reshape(self.sizes)
        shifted = x - x.max(axis=1, keepdims=True)
        total = np.exp(shifted).sum(axis=1, keepdims=True)
        y = shifted - np.log(total) if self.log else np.exp(shifted) / total
        y = np.asarray(y, np.float32)
        return y.reshape(self.output.shape)


class Reduce(Operator):
    """``act(reduce(x))`` over the middle axis of [outer, length, inner]; accumulates in steps."""

    kind = "reduce"

    def __init__(
        self,
        name: str,
        mode: str,
        x: TensorSpec,
        output: TensorSpec,
        sizes: tuple[int, int, int],
        device: Device,
        activation: Activation | None = None,
    ) -> None:
        super().__init__(name, [x], output, device, activation)
        self.mode, self.sizes = mode, sizes

    def nests(self) -> list[Nest]:
        outer, length, inner = self.sizes
        if outer * inner == 0:
            return []
        strides = contiguous_strides(self.sizes)
        accesses = (Access(0), Access(K), Access(1))
        x = strided_operand("x", 0, F32, list(zip(self.sizes, strides, accesses, strict=True)))
        out = Operand("out", OUTPUT, F32, (outer, inner), (inner, 1), (Access(0), Access(1)))
        dims, scalars = (Dim("o", outer), Dim("i", inner)), {"mode": self.mode, **self.activation.scalars}
        return [Nest(REDUCE, dims, (x,), (out,), {"r": 0, "i": 1}, scalars, k_extent=length)]

    def reference(self, *arrays: Array) -> Array:
        x = arrays[0].reshape(self.sizes)
        function = REDUCTIONS[self.mode].reference
        if function is None:
            raise NotImplementedError(self.mode)
        return self.activation.apply(np.asarray(function(x), np.float32)).reshape(self.output.shape)


# -- ONNX --------------------------------------------------------------------------------------


@maps("Softmax", "LogSoftmax", notes="any axis, any length")
def map_softmax(node: NodeSpec, lowering: Lowering) -> None:
    (x,), output = tensors_of(node)
    rank, flat = len(x.shape), node.opset < 13  # before opset 13 everything from the axis on
    axis = int(node.attr("axis", 1 if flat else -1))
    axis += rank if axis < 0 else 0
    stop = rank if flat else axis + 1
    sizes = (prod(x.shape[:axis]), prod(x.shape[axis:stop]), prod(x.shape[stop:]))
    log = node.op_type == "LogSoftmax"
    try:
        lowering.emit(Softmax(node.name, x, output, sizes, lowering.device, log))
    except Unsupported:
        _softmax_in_steps(node, lowering, x, output, sizes, log)


def _softmax_in_steps(
    node: NodeSpec,
    lowering: Lowering,
    x: TensorSpec,
    output: TensorSpec,
    sizes: tuple[int, int, int],
    log: bool,
) -> None:
    """For rows longer than a core holds: max, exp(x - max), sum, and the quotient."""
    device, name, dtype = lowering.device, node.name, x.dtype
    outer, _, inner = sizes
    whole, column = View(contiguous_strides(sizes)), View((inner, 0, 1))

    def step(func: str, tensors: Sequence[TensorSpec], target: TensorSpec, act: str = "none") -> None:
        op = Eltwise(
            name,
            func,
            tensors,
            target,
            device,
            activation=Activation(act),
            views=[whole, column],
            shape=sizes,
            out_view=whole,
        )
        lowering.emit(op)

    largest, total = (lowering.temp(dtype, (outer, inner)) for _ in range(2))
    shifted, powers = lowering.temp(dtype, x.shape), lowering.temp(dtype, x.shape)
    lowering.emit(Reduce(name, "max", x, largest, sizes, device))
    if log:
        step("sub", [x, largest], shifted)
        step("sub", [x, largest], powers, "exp")
        lowering.emit(Reduce(name, "sum", powers, total, sizes, device, Activation("log")))
        step("sub", [shifted, total], output)
    else:
        step("sub", [x, largest], powers, "exp")
        lowering.emit(Reduce(name, "sum", powers, total, sizes, device))
        step("div", [powers, total], output)


@maps("GlobalAveragePool", "GlobalMaxPool")
def map_global_pool(node: NodeSpec, lowering: Lowering) -> None:
    (x,), output = tensors_of(node)
    sizes: tuple[int, int, int] = (x.shape[0] * x.shape[1], prod(x.shape[2:]), 1)
    mode = "mean" if node.op_type == "GlobalAveragePool" else "max"
    if 0 in sizes and 0 not in output.shape:
        raise Unsupported("pooling over an empty extent", "at least one element")
    lowering.emit(Reduce(node.name, mode, x, output, sizes, lowering.device))


def _reduce_nothing(node: NodeSpec, lowering: Lowering, x: TensorSpec, output: TensorSpec) -> None:
    """``noop_with_empty_axes``: every element is reduced by itself, which for squares is a square."""
    operands, func = ([x, x], "mul") if node.op_type == "ReduceSumSquare" else ([x], "copy")
    lowering.emit(Eltwise(node.name, func, operands, output, lowering.device))


# What ONNX says of reductions over no values; of a mean it says nothing.
_OF_NOTHING = {"sum": 0.0, "sum_square": 0.0, "prod": 1.0, "max": -np.inf, "min": np.inf}


def _reduce_emptiness(node: NodeSpec, lowering: Lowering, output: TensorSpec) -> None:
    value = _OF_NOTHING.get(REDUCTIONS.by_onnx[node.op_type])
    if value is None:
        raise Unsupported("the mean of an empty extent", "at least one element")
    lowering.emit(Eltwise(node.name, "fill", [], output, lowering.device, alpha=value))


@maps(*REDUCTIONS.by_onnx, notes="neighbouring axes, constant")
def map_reduce(node: NodeSpec, lowering: Lowering) -> None:
    x, output = node.input(0), node.outputs[0]
    listed, given = node.input(1), node.attr("axes")
    if x is None or output is None or x.dtype != np.float32:
        raise Unsupported(f"{node.op_type} of {x.dtype if x else 'nothing'}", "float32")
    if listed is not None and listed.value is None:
        raise Unsupported("axes computed at run time", "constant axes")
    if listed is not None and listed.value is not None:
        given = [int(v) for v in np.asarray(listed.value).reshape(-1)]
    rank = len(x.shape)
    if not given:
        if node.attr("noop_with_empty_axes", 0):
            _reduce_nothing(node, lowering, x, output)
            return
        given = list(range(rank))
    axes = sorted({int(a) % rank for a in given}) if rank else []
    if axes and axes != list(range(axes[0], axes[-1] + 1)):
        raise Unsupported(f"axes {axes} with gaps", "neighbouring axes, or several reductions")
    first, stop = (axes[0], axes[-1] + 1) if axes else (0, 0)
    sizes = (prod(x.shape[:first]), prod(x.shape[first:stop]), prod(x.shape[stop:]))
    if sizes[1] == 0 and output.size:
        _reduce_emptiness(node, lowering, output)
        return
    lowering.emit(Reduce(node.name, REDUCTIONS.by_onnx[node.op_type], x, output, sizes, lowering.device))
