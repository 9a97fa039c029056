# SPDX-License-Identifier: Apache-2.0
"""BatchNormalization and LRN."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onedispatch.operators.declarations.dtypes import FLOATS
from onedispatch.operators.declarations.functions import Activation
from onedispatch.operators.declarations.params import LIMITS
from onedispatch.operators.declarations.registry import maps
from onedispatch.operators.interface.operator import Lowering, NodeSpec, TensorSpec, Unsupported
from onedispatch.operators.kernels.channel_norm import Array, ChannelAffine, Lrn, affine_views
from onedispatch.operators.kernels.elementwise import Eltwise, Layout, numpy_names
from onedispatch.operators.lowering.convert import emit_converted, in_float32
from onedispatch.operators.lowering.operands import operands_of


def scale_and_shift(parameters: Sequence[Any], epsilon: float) -> tuple[Array, Array]:
    """What a batch normalisation multiplies by, and what it adds then: float64, shaped as its parameters.

    ``parameters`` are scale, bias, mean and variance, in ONNX's order.
    """
    scale, offset, mean, variance = (np.asarray(p, np.float64) for p in parameters)
    factor = scale / np.sqrt(variance + epsilon)
    return factor, offset - mean * factor


@maps(
    "BatchNormalization",
    dtypes=("float32", "float16"),
    notes="inference form; float16 in float32; bfloat16 too, with scale and shift rounded to it",
)
def map_batch_normalization(node: NodeSpec, lowering: Lowering) -> None:
    inputs, output = operands_of(node, numpy_names(FLOATS))
    if node.attr("training_mode", 0) or any(x is not None for x in node.outputs[1:]):
        raise Unsupported("BatchNormalization in training mode", "training_mode=0, one output")
    if node.opset < 7 and not node.attr("is_test", 0):
        raise Unsupported(f"BatchNormalization of opset {node.opset} in training mode", "is_test=1")
    epsilon = float(node.attr("epsilon", 1e-5))
    if output.dtype != np.float16:  # whose range scales may leave
        return _normalise(node.name, inputs, output, epsilon, lowering)
    wide = lowering.temp(np.dtype(np.float32), output.shape)
    widened = [in_float32(node.name, one, lowering) for one in inputs[:5]]
    _normalise(node.name, widened, wide, epsilon, lowering)
    emit_converted(node.name, wide, output, lowering)


def _normalise(
    name: str, inputs: Sequence[TensorSpec], output: TensorSpec, epsilon: float, lowering: Lowering
) -> None:
    x, parameters = inputs[0], inputs[1:5]
    values = [p.value for p in parameters]
    if any(v is None for v in values):
        return _computed_parameters(name, inputs, output, epsilon, lowering)
    factor, added = (v.astype(x.dtype) for v in scale_and_shift(values, epsilon))
    if factor.ndim == 1:
        lowering.emit(ChannelAffine(name, x, factor, added, output, lowering.device))
    else:
        operands = [x, lowering.const(factor), lowering.const(added)]
        lowering.emit(Eltwise(name, "muladd", operands, output, lowering.device))


def _computed_parameters(
    name: str, inputs: Sequence[TensorSpec], output: TensorSpec, epsilon: float, lowering: Lowering
) -> None:
    """The same with parameters that are only known at run time: five element-wise steps.

    Parameters are [C], or in old models (``spatial=0``) one per element of a sample, which broadcast.
    Narrow ones are widened for all steps but the last.
    """
    x, device, dtype = inputs[0], lowering.device, np.dtype(np.float32)
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
    layout = Layout(affine_views(x)) if len(scale.shape) == 1 else None
    lowering.emit(Eltwise(name, "muladd", [x, factor, shift], output, device, layout=layout))


@maps("LRN", dtypes=numpy_names(FLOATS), notes="all channels of a column must fit one core's memory")
def map_lrn(node: NodeSpec, lowering: Lowering) -> None:
    inputs, output = operands_of(node, numpy_names(FLOATS))
    defaults = {"alpha": 1e-4, "beta": 0.75, "bias": 1.0}
    attributes = {k: float(node.attr(k, v)) for k, v in defaults.items()}
    size = int(node.attr("size", 0))
    if not 1 <= size <= LIMITS["lrn_size"]:
        raise Unsupported(f"LRN with size {size}", f"sizes of 1 to {LIMITS['lrn_size']}")
    lowering.emit(Lrn(node.name, inputs[0], output, lowering.device, size=size, **attributes))
