# SPDX-License-Identifier: Apache-2.0
"""Mean of several tensors: sums whose last one scales both of its terms."""

from __future__ import annotations

import numpy as np

from onedispatch.operators.declarations.registry import maps
from onedispatch.operators.families.elementwise import Eltwise, tensors_of
from onedispatch.operators.interface.operator import Lowering, NodeSpec


@maps("Mean", notes="one input or more, broadcasting; opset 8 or later broadcasts")
def map_mean(node: NodeSpec, lowering: Lowering) -> None:
    (total, *rest), output = tensors_of(node)
    if not rest:
        lowering.emit(Eltwise(node.name, "copy", [total], output, lowering.device))
    for tensor in rest:
        last = tensor is rest[-1]
        shape = np.broadcast_shapes(total.shape, tensor.shape)
        target = output if last else lowering.temp(output.dtype, shape)
        share = 1 / (1 + len(rest)) if last else 1.0
        terms = [total, tensor]
        lowering.emit(Eltwise(node.name, "add", terms, target, lowering.device, alpha=share, beta=share))
        total = target
