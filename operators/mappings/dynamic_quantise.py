# SPDX-License-Identifier: Apache-2.0
"""DynamicQuantizeLinear."""

from __future__ import annotations

import numpy as np

from onedispatch.operators.declarations.registry import maps
from onedispatch.operators.interface.operator import Lowering, NodeSpec, TensorSpec, Unsupported
from onedispatch.operators.kernels.dynamic_quantise import Extremes, F, QuantisationOf
from onedispatch.operators.kernels.quantise import Quantise, ScaleAxis


def emit_dynamic(
    name: str, x: TensorSpec, outputs: tuple[TensorSpec, TensorSpec, TensorSpec], lowering: Lowering
) -> None:
    """``outputs``: ``x`` of float32 as uint8, its scale and its zero point."""
    y, scale, zero = outputs
    device = lowering.device
    ends = x.reshaped((x.size,))
    if x.size > 2:
        ends = lowering.temp(F, (Extremes.pairs(x.size), 2))
        lowering.emit(Extremes(name, x, ends, device))
    for one in (scale, zero):
        lowering.emit(QuantisationOf(name, ends, one, device))
    lowering.emit(Quantise(name, [x, scale, zero], y, device, ScaleAxis()))


def dynamically_quantised(
    name: str, x: TensorSpec, lowering: Lowering
) -> tuple[TensorSpec, TensorSpec, TensorSpec]:
    """``x`` of float32 as uint8, its scale and its zero point, for operators that follow."""
    u8 = np.dtype(np.uint8)
    made = lowering.temp(u8, x.shape), lowering.temp(F, ()), lowering.temp(u8, ())
    emit_dynamic(name, x, made, lowering)
    return made


@maps("DynamicQuantizeLinear", notes="to uint8, with scale and zero point of what the tensor holds")
def map_dynamic_quantize(node: NodeSpec, lowering: Lowering) -> None:
    x = node.input(0)
    if x is None or x.dtype != F:
        raise Unsupported(f"DynamicQuantizeLinear of {x.dtype if x else 'nothing'}", "float32")
    if not x.size:
        raise Unsupported("DynamicQuantizeLinear of no elements, which have no scale", "one or more")
    u8, given = np.dtype(np.uint8), (*node.outputs, None, None, None)
    y = given[0] or lowering.temp(u8, x.shape)
    scale, zero = given[1] or lowering.temp(F, ()), given[2] or lowering.temp(u8, ())
    emit_dynamic(node.name, x, (y, scale, zero), lowering)
