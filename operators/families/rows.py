# SPDX-License-Identifier: Apache-2.0
"""Operators along whole rows of [outer, length, inner]: Softmax, and the nest that LRN shares."""

from __future__ import annotations

from collections.abc import Mapping
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
    summed,
    vectors,
)
from onedispatch.operators.declarations.functions import Activation
from onedispatch.operators.declarations.kernel import Kernel, Scalar, Tensor, declare
from onedispatch.operators.declarations.registry import maps
from onedispatch.operators.families.convert import emit_converted, in_float32
from onedispatch.operators.families.elementwise import numpy_names, operands_of
from onedispatch.operators.families.reduce import Reduce, emit_each, reshaped
from onedispatch.operators.interface.operator import Lowering, NodeSpec, Operator, TensorSpec, Unsupported
from onedispatch.operators.scheduling.index_space import (
    OUTPUT,
    Access,
    Dim,
    Operand,
    contiguous_strides,
)
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.transactions import Device

Array = np.ndarray[Any, Any]


LENGTH = "*length"  # the axis that rows run along, whole in a chunk


def middle_axis_nest(
    kernel: Kernel,
    tensor: TensorSpec,
    axes: tuple[int, int],
    scalars: Mapping[str, float | str],
    *held: Operand,
) -> Nest:
    """A nest over [outer, length, inner] whose chunks hold the whole middle axis.

    ``axes``: the first that the middle one joins, and the one behind the last. Row padding of ``tensor``
    is part of the middle axis or of the inner one, whichever has the rows. ``held``: further inputs.
    """
    first, stop = axes
    laid, row = tensor.device_shape, tensor.element
    sizes = prod(laid[:first]), prod(laid[first:stop]), prod(laid[stop:])
    strides, access = contiguous_strides(sizes), (Access(0), Access(None), Access(1))
    inner = Dim("i", sizes[2], multiple=row.per_word if stop < len(laid) else 1)
    shown = 2 if row.per_word > 1 and stop == len(laid) else 3  # a row of words ends with its elements
    x, out = (
        Operand(name, number, row, sizes[:shown], strides[:shown], access[:shown])
        for name, number in (("x", 0), ("out", OUTPUT))
    )
    return Nest(kernel, (Dim("o", sizes[0]), inner), (x, *held), (out,), {"o": 0, "i": 1}, scalars)


ROW_TENSOR = f"o {LENGTH} i"
SIDEWAYS = e.named("sideways", e.differs(e.tile("i"), 1))  # vectors hold neighbours along i


def _softmax_cost() -> e.Expr:
    """Maximum, exponential with its sum, and scaling each walk every line of a tile."""
    length, outer = e.count("x", LENGTH), e.tile("o")
    lines = e.named("lines", outer * either(SIDEWAYS, vectors(e.tile("i"), "x"), 1))
    line = e.named("line", either(SIDEWAYS, length, vectors(length, "x")))
    log, op = e.scalar("log"), operations("x")
    scale = either(log, 2 * op, e.device("mul_cycles", "x"))
    total = either(log, e.device("log_cycles", "x"), e.device("div_cycles", "x"))
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


# -- ONNX --------------------------------------------------------------------------------------


def normalised_axes(node: NodeSpec, rank: int) -> tuple[int, int]:
    """First and stop of the axes of Softmax and its kin: before opset 13 everything from one on."""
    flat = node.opset < 13
    axis = int(node.attr("axis", 1 if flat else -1))
    axis += rank if axis < 0 else 0
    return axis, rank if flat else axis + 1


@maps("Softmax", "LogSoftmax", dtypes=numpy_names(FLOATS), notes="any axis, any length")
def map_softmax(node: NodeSpec, lowering: Lowering) -> None:
    (x,), output = operands_of(node, numpy_names(FLOATS))
    rank = len(x.shape)
    axes = normalised_axes(node, rank)
    log = node.op_type == "LogSoftmax"
    if axes[1] < rank or axes[0] == rank - 1 or x.row_pitch == x.row:
        try:
            lowering.emit(Softmax(node.name, x, output, axes, lowering.device, log))
            return
        except Unsupported:
            pass  # rows longer than a core holds
    _softmax_in_steps(node.name, x, output, axes, log, lowering)


def _softmax_in_steps(
    name: str, x: TensorSpec, output: TensorSpec, axes: tuple[int, int], log: bool, lowering: Lowering
) -> None:
    """Where no core holds a row, or padding lies inside: max, exp(x - max), sum, and the quotient.

    In float32, whose rows have no padding; of half types what ``Softmax`` rounds is rounded in between.
    """
    f32, dtype, (first, stop) = np.dtype(np.float32), x.dtype, axes
    sizes = outer, _, inner = prod(x.shape[:first]), prod(x.shape[first:stop]), prod(x.shape[stop:])

    def each(func: str, *tensors: TensorSpec, act: str = "none") -> TensorSpec:
        return emit_each(name, func, tensors, lowering, activation=Activation(act))

    def of_rows(mode: str, tensor: TensorSpec, act: str = "none") -> TensorSpec:
        target = lowering.temp(f32, (outer, 1, inner))
        lowering.emit(Reduce(name, mode, tensor, target, (1, 2), lowering.device, Activation(act)))
        return target

    def rounded(tensor: TensorSpec) -> TensorSpec:
        flat = reshaped(tensor, (tensor.size,), lowering)
        narrow = emit_converted(name, flat, lowering.temp(dtype, flat.shape), lowering)
        return reshaped(in_float32(name, narrow, lowering), tensor.shape, lowering)

    wide = reshaped(in_float32(name, x, lowering), sizes, lowering)
    largest = of_rows("max", wide)
    if log:
        shifted = each("sub", wide, largest)
        powers = each("sub", wide, largest, act="exp")
        last = "sub", shifted, of_rows("sum", powers, "log")
    elif dtype == f32:
        powers = each("sub", wide, largest, act="exp")
        last = "div", powers, of_rows("sum", powers)
    else:
        powers = rounded(each("copy", rounded(each("sub", wide, largest)), act="exp"))
        last = "div", powers, rounded(of_rows("sum", powers))
    result = output if dtype == f32 else lowering.temp(f32, output.shape)
    emit_each(name, last[0], last[1:], lowering, result)
    if result is not output:
        emit_converted(name, result, output, lowering)
