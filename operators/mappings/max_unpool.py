# SPDX-License-Identifier: Apache-2.0
"""MaxUnpool: values at the positions that MaxPool took them from, zeros elsewhere."""

from __future__ import annotations

from math import prod

import numpy as np

from onedispatch.operators.declarations.dtypes import FLOATS
from onedispatch.operators.declarations.registry import maps
from onedispatch.operators.interface.operator import Lowering, NodeSpec, TensorSpec, Unsupported
from onedispatch.operators.kernels.elementwise import numpy_names
from onedispatch.operators.lowering.convert import emit_converted, in_float32
from onedispatch.operators.lowering.segments import emit_extended
from onedispatch.operators.mappings.scatter import emit_placed


@maps(
    "MaxUnpool",
    dtypes=numpy_names(FLOATS),
    notes="any rank, output_shape; positions count within what was pooled",
)
def map_max_unpool(node: NodeSpec, lowering: Lowering) -> None:
    x, places, output = node.input(0), node.input(1), node.outputs[0]
    if x is None or places is None or output is None or str(x.dtype) not in numpy_names(FLOATS):
        raise Unsupported(f"MaxUnpool of {x.dtype if x else 'nothing'}", ", ".join(numpy_names(FLOATS)))
    wide = in_float32(node.name, x, lowering)
    pooled = _pooled_shape(node, x)
    if any(a > b for a, b in zip(pooled, output.shape, strict=True)):
        raise Unsupported(f"output_shape {list(output.shape)}", f"{list(pooled)} or more")
    whole = output.dtype == np.float32 and tuple(pooled) == output.shape
    filled = lowering.temp(np.dtype(np.float32), (prod(pooled),))
    emit_placed(node.name, places.reshaped((places.size,)), wide.reshaped((wide.size,)), filled, lowering)
    if whole:
        lowering.alias(output, filled)
        return
    made = filled.reshaped(pooled)
    if tuple(pooled) != output.shape:
        target = output if output.dtype == made.dtype else lowering.temp(made.dtype, output.shape)
        emit_extended(node.name, made, lowering.const(np.zeros((), made.dtype)), target, lowering)
        made = target
    if made.dtype != output.dtype:
        emit_converted(node.name, made, output, lowering)


def _pooled_shape(node: NodeSpec, x: TensorSpec) -> list[int]:
    """The shape of what was pooled, as far as the window tells."""
    kernel = [int(k) for k in node.attr("kernel_shape")]
    rank = len(kernel)
    strides = [int(s) for s in node.attr("strides") or [1] * rank]
    pads = [int(p) for p in node.attr("pads") or [0] * (2 * rank)]
    sizes = [
        (n - 1) * s + k - pads[d] - pads[d + rank]
        for d, (n, s, k) in enumerate(zip(x.shape[2:], strides, kernel, strict=True))
    ]
    return [*x.shape[:2], *sizes]
