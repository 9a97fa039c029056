# SPDX-License-Identifier: Apache-2.0
"""QLinearConcat and QLinearWhere: tensors of scales of their own become parts of one result.

Each is requantised where its scale or zero point is not the result's, by a table, or of 16 bits by way of
floats; it is moved as it is where both are.
"""

from __future__ import annotations

import numpy as np

from onedispatch.operators.declarations.registry import MICROSOFT, Inferred, maps
from onedispatch.operators.interface.operator import Lowering, NodeSpec, TensorSpec, Unsupported
from onedispatch.operators.kernels.logic import Select
from onedispatch.operators.kernels.quant_params import QuantParams
from onedispatch.operators.kernels.quantise import Dequantise, Quantise, ScaleAxis
from onedispatch.operators.lowering.qlinear import (
    NARROW,
    SCALED,
    broadcast_shape,
    bytes_of,
    emit_table,
    result_of,
    scale_of,
)
from onedispatch.operators.mappings.movement import MOST_INPUTS, concatenated


def emit_requantised(
    name: str,
    x: TensorSpec,
    read: QuantParams,
    written: QuantParams,
    lowering: Lowering,
    output: TensorSpec | None = None,
) -> TensorSpec:
    """Integers that stand ``written`` for what ``x`` stands for ``read``: ``x`` itself where that is the same
    and no ``output`` is wanted."""
    if output is None and read == written:
        return x
    made = output or lowering.temp(x.dtype, x.shape)
    if x.element.itemsize > 1:
        floats, device = lowering.temp(np.dtype(np.float32), x.shape), lowering.device
        lowering.emit(Dequantise(name, [x, *_numbers(read, x, lowering)], floats, device, ScaleAxis()))
        lowering.emit(Quantise(name, [floats, *_numbers(written, x, lowering)], made, device, ScaleAxis()))
        return made
    emit_table(name, x, made, lambda numbers: written.integers(read.floats(numbers), x.dtype), lowering)
    return made


def _numbers(scale: QuantParams, x: TensorSpec, lowering: Lowering) -> list[TensorSpec]:
    """The scale, and the zero point of the type of ``x`` where there is one."""
    zero = [lowering.const(np.array(scale.zero, x.dtype))] if scale.zero else []
    return [lowering.const(np.array(scale.scale)), *zero]


def _part(node: NodeSpec, index: int, written: QuantParams, lowering: Lowering) -> TensorSpec:
    """Input ``index``, whose scale is the next one, as the result's integers."""
    x, read = bytes_of(node, index, NARROW), scale_of(node, index + 1)
    return emit_requantised(node.name, x, read, written, lowering)


def _tensors(node: NodeSpec) -> list[int]:
    return list(range(2, len(node.inputs), 3))


def _axis(node: NodeSpec, rank: int) -> int:
    axis = node.attr("axis")
    if axis is None or not -rank <= axis < rank:
        raise Unsupported(f"QLinearConcat along axis {axis} of rank {rank}", "one of its dimensions")
    return int(axis) % rank


def _joined(node: NodeSpec) -> Inferred:
    parts = [bytes_of(node, index, NARROW) for index in _tensors(node)]
    shape = list(parts[0].shape)
    axis = _axis(node, len(shape))
    if any(len(part.shape) != len(shape) for part in parts):
        raise Unsupported("QLinearConcat of several ranks", "one rank")
    shape[axis] = sum(part.shape[axis] for part in parts)
    return [(parts[0].dtype, tuple(shape))]


@maps(
    "QLinearConcat",
    dtypes=NARROW,
    domain=MICROSOFT,
    infer=_joined,
    notes=f"scales that differ by table, of 16 bits by floats; {SCALED}",
)
def map_qlinear_concat(node: NodeSpec, lowering: Lowering) -> None:
    output, written = result_of(node, NARROW), scale_of(node, 0)
    if len(_tensors(node)) > MOST_INPUTS:
        raise Unsupported(f"QLinearConcat of {len(_tensors(node))} tensors", f"at most {MOST_INPUTS}")
    parts = [_part(node, index, written, lowering) for index in _tensors(node)]
    concatenated(node.name, parts, output, _axis(node, len(output.shape)), lowering)


def _chosen(node: NodeSpec) -> Inferred:
    condition, x, y = node.input(0), bytes_of(node, 1, NARROW), bytes_of(node, 4, NARROW)
    return [(x.dtype, broadcast_shape(node, condition, x, y))]


@maps(
    "QLinearWhere",
    dtypes=NARROW,
    domain=MICROSOFT,
    infer=_chosen,
    notes=f"scales that differ by table, of 16 bits by floats; {SCALED}",
)
def map_qlinear_where(node: NodeSpec, lowering: Lowering) -> None:
    condition, output, written = node.input(0), result_of(node, NARROW), scale_of(node, 7)
    if condition is None:
        raise Unsupported("QLinearWhere without its condition", "condition, x, y")
    x, y = (_part(node, index, written, lowering) for index in (1, 4))
    lowering.emit(Select(node.name, [condition, x, y], output, lowering.device))
