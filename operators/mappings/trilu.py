# SPDX-License-Identifier: Apache-2.0
"""Trilu: a triangle of every matrix stays, the rest becomes zeros."""

from __future__ import annotations

import numpy as np

from onedispatch.operators.declarations.function_sets import COMPARISONS
from onedispatch.operators.declarations.registry import maps
from onedispatch.operators.declarations.tensor import NodeSpec, Unsupported
from onedispatch.operators.interface.operator import Lowering
from onedispatch.operators.kernels.logic import Compare, Select
from onedispatch.operators.lowering.movement import MOVED
from onedispatch.operators.lowering.shape_operands import listed


@maps("Trilu", dtypes=MOVED, notes="upper and lower, any diagonal")
def map_trilu(node: NodeSpec, lowering: Lowering) -> None:
    """Which elements stay follows from shape and k: a constant mask selects them, or a comparison with k."""
    x, output = node.input(0), node.outputs[0]
    if x is None or output is None:
        raise Unsupported("Trilu without its data or its result", "both")
    row, column = np.ogrid[: x.shape[-2], : x.shape[-1]]
    diagonal, k = column - row, node.input(1)
    upper = bool(node.attr("upper", 1))
    if k is None or k.value is not None:
        (number,) = listed(node, "k", 1) or [0]
        stays = lowering.const(diagonal >= number if upper else diagonal <= number)
    else:
        stays = lowering.temp(np.dtype(np.bool_), diagonal.shape)
        func = COMPARISONS.by_onnx["GreaterOrEqual" if upper else "LessOrEqual"]
        operands = [lowering.const(diagonal.astype(k.dtype)), k]
        lowering.emit(Compare(node.name, func, operands, stays, lowering.device))
    zero = lowering.const(np.zeros((), x.dtype))
    lowering.emit(Select(node.name, [stays, x, zero], output, lowering.device))
