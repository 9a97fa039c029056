# SPDX-License-Identifier: Apache-2.0
"""QuantizeLinear and DequantizeLinear."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import TensorProto

from onedispatch.operators.declarations.dtypes import FLOATS
from onedispatch.operators.declarations.params import MAX_DENOMINATOR
from onedispatch.operators.declarations.registry import MICROSOFT, Inferred, maps
from onedispatch.operators.interface.operator import Lowering, NodeSpec, TensorSpec, Unsupported
from onedispatch.operators.kernels.elementwise import (
    numpy_names,
)
from onedispatch.operators.kernels.quantise import BIASES, QUANTISED, Dequantise, Quantise, ScaleAxis
from onedispatch.operators.kernels.repeat import Repeat

TO = numpy_names(QUANTISED)
FROM = numpy_names(BIASES)
FLOATING = numpy_names(FLOATS)
PRECISIONS = {
    TensorProto.UNDEFINED: "f32",  # before there was a precision
    TensorProto.FLOAT: "f32",
    TensorProto.FLOAT16: "f16",
    TensorProto.BFLOAT16: "bf16",
}
_GRANULARITY = "per tensor, per axis or in blocks; zero points or none"


def _quantised(node: NodeSpec) -> Inferred:
    """Of onnxruntime's own: integers of the type of the zero point, uint8 without one."""
    x, zero = node.input(0), node.input(2)
    return [(np.dtype(np.uint8) if zero is None else zero.dtype, x.shape if x is not None else ())]


def _dequantised(node: NodeSpec) -> Inferred:
    """Of onnxruntime's own: floats of the type of the scale."""
    x, scale = node.input(0), node.input(1)
    return [(np.dtype(np.float32) if scale is None else scale.dtype, x.shape if x is not None else ())]


_TO = f"to {', '.join(TO)}; {_GRANULARITY}"
_FROM = f"to {', '.join(FLOATING)}; {_GRANULARITY}"


@maps("QuantizeLinear", dtypes=FLOATING, notes=_TO)
@maps("QuantizeLinear", dtypes=FLOATING, domain=MICROSOFT, infer=_quantised, notes=_TO)
def map_quantize(node: NodeSpec, lowering: Lowering) -> None:
    inputs, output = _operands_of(node, FLOATING, TO)
    precision = _precision(node, inputs[1])
    inputs, along = _laid(node, inputs, output, lowering)
    lowering.emit(Quantise(node.name, inputs, output, lowering.device, along, precision))


def _precision(node: NodeSpec, scale: TensorSpec) -> str:
    """The type that is divided in: until opset 23, and in onnxruntime's own, float32."""
    named = node.attr("precision", 0)
    if named not in PRECISIONS:
        raise Unsupported(f"QuantizeLinear with precision {named}", ", ".join(FLOATING))
    since = not node.domain and node.opset >= 23
    return scale.element.name if since and not named else PRECISIONS[named]


@maps("DequantizeLinear", dtypes=FROM, notes=_FROM)
@maps("DequantizeLinear", dtypes=FROM, domain=MICROSOFT, infer=_dequantised, notes=_FROM)
def map_dequantize(node: NodeSpec, lowering: Lowering) -> None:
    inputs, output = _operands_of(node, FROM, FLOATING)
    inputs, along = _laid(node, inputs, output, lowering)
    lowering.emit(Dequantise(node.name, inputs, output, lowering.device, along))


def _operands_of(
    node: NodeSpec, taken: Sequence[str], made: Sequence[str]
) -> tuple[list[TensorSpec], TensorSpec]:
    """x, scales, and zero points where they are given; and the output."""
    x, scale, zero, output = node.input(0), node.input(1), node.input(2), node.outputs[0]
    if x is None or scale is None or output is None:
        raise Unsupported(f"{node.op_type} without its data, its scale or its result", "all of them")
    for what, tensor, accepted in (("of", x, taken), ("by", scale, FLOATING), ("to", output, made)):
        if str(tensor.dtype) not in accepted:
            raise Unsupported(f"{node.op_type} {what} {tensor.dtype} ({tensor.name})", ", ".join(accepted))
    return [x, scale, *([zero] if zero is not None else [])], output


def _laid(
    node: NodeSpec, inputs: list[TensorSpec], output: TensorSpec, lowering: Lowering
) -> tuple[list[TensorSpec], ScaleAxis]:
    """The inputs, and whose scale an element has. Where blocks of rows begin inside words, scales and zero
    points are laid out anew, one for every element."""
    x, scale = inputs[:2]
    rank, block = len(x.shape), int(node.attr("block_size", 0))
    if scale.size == 1 and (rank == 0 or not block or len(scale.shape) < 2):
        return inputs, ScaleAxis()
    axis = int(node.attr("axis", 1))
    axis += rank if axis < 0 else 0
    if not block:
        return inputs, ScaleAxis(axis)
    block = max(1, min(block, x.shape[axis]))
    per_word = max(tensor.element.per_word for tensor in (x, output))
    if axis < rank - 1 or block % per_word == 0 or block in (1, x.shape[axis]):
        return inputs, ScaleAxis(axis, block)
    return [x, *(_spread(node, tensor, x, axis, block, lowering) for tensor in inputs[1:])], ScaleAxis(
        axis, 1
    )


def _spread(
    node: NodeSpec, tensor: TensorSpec, x: TensorSpec, axis: int, block: int, lowering: Lowering
) -> TensorSpec:
    """``tensor`` with an element for every one of ``x``."""
    if tensor.value is not None:
        return lowering.const(np.ascontiguousarray(ScaleAxis(axis, block).spread(tensor.value, x.shape)))
    if block > MAX_DENOMINATOR:
        raise Unsupported(
            f"blocks of {block} that begin inside words", f"at most {MAX_DENOMINATOR}, or whole words"
        )
    found = lowering.temp(tensor.dtype, x.shape)
    steps = [(1, block if d == axis else 1, 0) for d in range(len(x.shape))]
    lowering.emit(Repeat(node.name, tensor, found, steps, lowering.device))
    return found
