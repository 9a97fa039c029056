# SPDX-License-Identifier: Apache-2.0
"""TopK."""

from __future__ import annotations

import numpy as np

from onedispatch.operators.declarations.registry import maps
from onedispatch.operators.interface.operator import Lowering, NodeSpec, Unsupported
from onedispatch.operators.kernels.elementwise import numpy_names
from onedispatch.operators.kernels.reduce import word_of
from onedispatch.operators.kernels.top_k import TopK
from onedispatch.operators.lowering.convert import emit_converted

_TAKEN = numpy_names("f32 bf16 f16 i8 u8 i16 u16 i32 u32")


@maps("TopK", dtypes=_TAKEN, notes="any axis; k constant; equals in their order, a NaN is the largest")
def map_top_k(node: NodeSpec, lowering: Lowering) -> None:
    x, values, indices = node.input(0), *(*node.outputs, None)[:2]
    if x is None or str(x.dtype) not in _TAKEN:
        raise Unsupported(f"TopK of {x.dtype if x else 'nothing'}", ", ".join(_TAKEN))
    axis = int(node.attr("axis", -1)) % max(len(x.shape), 1)
    made = values or indices
    if made is None or not x.shape:
        raise Unsupported("TopK of a scalar, or without results", "one dimension or more, and a result")
    word, name = word_of(x.element), node.name
    wide = x if x.dtype == word else emit_converted(name, x, lowering.temp(word, x.shape), lowering)
    best = values if values is not None and x.dtype == word else lowering.temp(word, made.shape)
    places = indices or lowering.temp(np.dtype(np.int64), made.shape)
    largest = node.attr("largest", 1) == 1  # what else it is, onnxruntime takes the smallest
    lowering.emit(TopK(name, wide, best, places, axis, largest, lowering.device))
    if values is not None and best is not values:
        emit_converted(name, best, values, lowering)
