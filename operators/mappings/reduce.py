# SPDX-License-Identifier: Apache-2.0
"""ONNX's reductions: over any axes, with what is done before and after them."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

import numpy as np

from onedispatch.operators.declarations.dtypes import FLOATS, WIDE
from onedispatch.operators.declarations.functions import REDUCTIONS, Activation
from onedispatch.operators.declarations.registry import maps
from onedispatch.operators.interface.operator import Lowering, NodeSpec, TensorSpec, Unsupported
from onedispatch.operators.kernels.elementwise import Eltwise, Layout, View, numpy_names
from onedispatch.operators.lowering.boxes import emit_boxes, filling
from onedispatch.operators.lowering.convert import emit_converted, in_float32
from onedispatch.operators.lowering.movement import Copy
from onedispatch.operators.lowering.reduce import emit_reduction

_LARGEST = float(np.finfo(np.float32).max)

# What becomes a function of the table, and what is done to its results: float arithmetic, by operator.
FINISHED = {
    "ReduceL2": ("sum_square", Activation("sqrt")),
    "ReduceLogSum": ("sum", Activation("log")),
    "ReduceLogSumExp": ("sum", Activation("log")),
}
# ONNX has no sums of narrow integers.
_FURTHER = {"max": f" i8 u8 bool {WIDE}", "min": f" i8 u8 bool {WIDE}", "sum": f" {WIDE}", "prod": f" {WIDE}"}
TAKEN = {
    op: numpy_names(f"{FLOATS} i32 u32" + _FURTHER.get(mode, "")) for op, mode in REDUCTIONS.by_onnx.items()
} | dict.fromkeys(FINISHED, numpy_names(FLOATS))


def emit_log_sum_exp(
    name: str, x: TensorSpec, output: TensorSpec, axes: Sequence[int], lowering: Lowering
) -> None:
    """log(sum(exp(x - max))) + max, in float32. The maximum is cut to finite numbers: an infinite one gives
    what onnxruntime gives, and no difference of infinities."""
    kept = [1 if a in axes else n for a, n in enumerate(x.shape)]
    x, device, f32 = in_float32(name, x, lowering), lowering.device, np.dtype(np.float32)
    largest, total = lowering.temp(f32, kept), lowering.temp(f32, kept)
    powers = lowering.temp(f32, x.shape)
    emit_reduction(name, "max", x, largest, axes, lowering, Activation("clip", -_LARGEST, _LARGEST))
    lowering.emit(Eltwise(name, "sub", [x, largest], powers, device, activation=Activation("exp")))
    emit_reduction(name, "sum", powers, total, axes, lowering, Activation("log"))
    result = output if output.dtype == f32 else lowering.temp(f32, output.shape)
    views = [View(result.strides or (1,))] * 2
    lowering.emit(Eltwise(name, "add", [total, largest], result, device, layout=Layout(views)))
    if result is not output:
        emit_converted(name, result, output, lowering)


def _reduce_nothing(node: NodeSpec, lowering: Lowering, x: TensorSpec, output: TensorSpec) -> None:
    """``noop_with_empty_axes``: every element is reduced by itself, which for squares is a square."""
    if x.element.name == WIDE:
        lowering.emit(Copy(node.name, [x], output, lowering.device))
        return
    operands, func = ([x, x], "mul") if node.op_type == "ReduceSumSquare" else ([x], "copy")
    alone = {"ReduceL1": "abs", "ReduceL2": "abs", "ReduceLogSum": "log"}.get(node.op_type, "none")
    lowering.emit(Eltwise(node.name, func, operands, output, lowering.device, activation=Activation(alone)))


def _of_nothing(op_type: str, dtype: np.dtype[Any]) -> Any:
    """What ONNX says of a reduction over no values; of a mean it says nothing."""
    if op_type.startswith("ReduceLog"):
        return -inf
    if op_type not in ("ReduceMax", "ReduceMin"):
        return int(op_type == "ReduceProd")
    largest = op_type == "ReduceMax"
    if dtype.kind in "iu":
        return np.iinfo(dtype).min if largest else np.iinfo(dtype).max
    if dtype.kind == "b":
        return not largest
    return -inf if largest else inf


def _reduce_emptiness(node: NodeSpec, lowering: Lowering, output: TensorSpec) -> None:
    if node.op_type == "ReduceMean":
        raise Unsupported("the mean of an empty extent", "at least one element")
    value = lowering.const(np.full((), _of_nothing(node.op_type, output.dtype), output.dtype))
    box = filling(0, [0] * len(output.shape), output.shape)
    emit_boxes(node.name, [value], [box], output, lowering)


def reduced_axes(node: NodeSpec, rank: int) -> list[int]:
    """The axes that a node names, by attribute or operand; [] where it names none."""
    listed, given = node.input(1), node.attr("axes")
    if listed is not None and listed.value is None:
        raise Unsupported("axes computed at run time", "constant axes")
    if listed is not None and listed.value is not None:
        given = np.asarray(listed.value).reshape(-1).tolist()
    return sorted({int(a) % rank for a in given or ()}) if rank else []


@maps(*TAKEN, dtypes=TAKEN, notes="any axes of any length; int64 by sums, products, largest and smallest")
def map_reduce(node: NodeSpec, lowering: Lowering) -> None:
    x, output = node.input(0), node.outputs[0]
    if x is None or output is None or str(x.dtype) not in TAKEN[node.op_type]:
        raise Unsupported(f"{node.op_type} of {x.dtype if x else 'nothing'}", ", ".join(TAKEN[node.op_type]))
    axes = reduced_axes(node, len(x.shape))
    if not axes:
        if node.attr("noop_with_empty_axes", 0):
            _reduce_nothing(node, lowering, x, output)
            return
        axes = list(range(len(x.shape)))
    if any(x.shape[a] == 0 for a in axes) and output.size:
        _reduce_emptiness(node, lowering, output)
        return
    if node.op_type == "ReduceLogSumExp":
        emit_log_sum_exp(node.name, x, output, axes, lowering)
        return
    mode, activation = FINISHED.get(node.op_type) or (REDUCTIONS.by_onnx[node.op_type], None)
    emit_reduction(node.name, mode, x, output, axes, lowering, activation)
