# SPDX-License-Identifier: Apache-2.0
"""Mean of several tensors: sums whose last one scales both of its terms."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onedispatch.operators.declarations.dtypes import FLOATS
from onedispatch.operators.declarations.registry import maps
from onedispatch.operators.interface.operator import Lowering, NodeSpec, TensorSpec
from onedispatch.operators.kernels.elementwise import Eltwise, numpy_names
from onedispatch.operators.lowering.convert import emit_converted, in_float32
from onedispatch.operators.lowering.operands import operands_of

TAKEN = numpy_names(FLOATS)


@maps("Mean", dtypes=TAKEN, notes="one input or more, broadcasting; opset 8 or later broadcasts")
def map_mean(node: NodeSpec, lowering: Lowering) -> None:
    tensors, output = operands_of(node, TAKEN)
    if output.element.per_word > 1 and len(tensors) > 2:  # rounded once: sums are wide
        tensors = [in_float32(node.name, tensor, lowering) for tensor in tensors]
        wide = lowering.temp(np.dtype(np.float32), output.shape)
        _emit_mean(node.name, tensors, wide, lowering)
        emit_converted(node.name, wide, output, lowering)
        return
    _emit_mean(node.name, tensors, output, lowering)


def _emit_mean(name: str, tensors: Sequence[TensorSpec], output: TensorSpec, lowering: Lowering) -> None:
    total, *rest = tensors
    if not rest:
        lowering.emit(Eltwise(name, "copy", [total], output, lowering.device))
    for tensor in rest:
        last = tensor is rest[-1]
        shape = np.broadcast_shapes(total.shape, tensor.shape)
        target = output if last else lowering.temp(output.dtype, shape)
        share = 1 / (1 + len(rest)) if last else 1.0
        terms = [total, tensor]
        each = Eltwise(name, "add", terms, target, lowering.device, alpha=share)
        lowering.emit(each.replaced(beta=share))
        total = target
