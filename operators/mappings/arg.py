# SPDX-License-Identifier: Apache-2.0
"""ArgMax, ArgMin and Hardmax."""

from __future__ import annotations

from math import prod

import numpy as np

from onedispatch.operators.declarations.dtypes import FLOATS, NUMBERS
from onedispatch.operators.declarations.functions import Activation
from onedispatch.operators.declarations.registry import maps
from onedispatch.operators.interface.operator import Lowering, NodeSpec, TensorSpec, Unsupported
from onedispatch.operators.kernels.arg import Arg
from onedispatch.operators.kernels.elementwise import Eltwise, numpy_names
from onedispatch.operators.kernels.reduce import word_of
from onedispatch.operators.lowering.convert import emit_converted, in_float32
from onedispatch.operators.lowering.operands import operands_of
from onedispatch.operators.lowering.reduce import emit_each, reshaped
from onedispatch.operators.mappings.softmax import normalised_axes


def emit_arg(
    name: str, x: TensorSpec, output: TensorSpec, axis: int, lowering: Lowering, **flags: int
) -> None:
    """``Arg``; where rows are kept whose padding the result does not have, of words."""
    if axis + 1 < len(x.shape) and x.element.per_word > 1 and x.row_pitch != x.row:
        x = emit_converted(name, x, lowering.temp(word_of(x.element), x.shape), lowering)
    lowering.emit(Arg(name, x, output, axis, lowering.device, **flags))


_EXACT = 1 << 24  # places that float32 has all of


TAKEN = numpy_names(NUMBERS)


@maps("ArgMax", "ArgMin", dtypes=TAKEN, notes="any axis of any length")
def map_arg(node: NodeSpec, lowering: Lowering) -> None:
    x, output = node.input(0), node.outputs[0]
    if x is None or output is None or str(x.dtype) not in TAKEN:
        raise Unsupported(f"{node.op_type} of {x.dtype if x else 'nothing'}", ", ".join(TAKEN))
    axis = int(node.attr("axis", 0)) % max(len(x.shape), 1)
    if x.shape and x.shape[axis] == 0 and output.size:
        raise Unsupported(f"{node.op_type} over an empty extent", "at least one element")
    if not x.shape:
        x = TensorSpec(x.name, x.dtype, (1,), x.value)
    flags = {"least": int(node.op_type == "ArgMin"), "last": int(node.attr("select_last_index", 0) != 0)}
    emit_arg(node.name, x, output, axis, lowering, **flags)


@maps("Hardmax", dtypes=numpy_names(FLOATS), notes="any axis of any length")
def map_hardmax(node: NodeSpec, lowering: Lowering) -> None:
    """One where the place is that of the first largest: 1 - |place - its own|, cut at 0."""
    (x,), output = operands_of(node, numpy_names(FLOATS))
    axis, stop = normalised_axes(node, len(x.shape))
    name, f32 = node.name, np.dtype(np.float32)
    sizes = outer, length, inner = prod(x.shape[:axis]), prod(x.shape[axis:stop]), prod(x.shape[stop:])
    if not x.size:
        raise Unsupported(f"Hardmax of shape {x.shape}", "at least one element")
    if length == 1:
        lowering.emit(Eltwise(name, "fill", [], output, lowering.device, alpha=1.0))
        return
    if length > _EXACT:
        raise Unsupported(f"Hardmax along {length} elements", f"at most {_EXACT}, whose places are float32")
    wide = reshaped(in_float32(name, x, lowering), sizes, lowering)
    places = lowering.temp(np.dtype(np.int64), (outer, 1, inner))
    emit_arg(name, wide, places, 1, lowering)
    found = emit_converted(name, places, lowering.temp(f32, places.shape), lowering)
    own = lowering.const(np.arange(length, dtype=np.float32).reshape(1, length, 1))
    one = lowering.const(np.ones((1, 1, 1), np.float32))
    result = output if output.dtype == f32 else lowering.temp(f32, output.shape)
    apart = emit_each(name, "sub", [own, found], lowering, activation=Activation("abs"))
    emit_each(name, "sub", [one, apart], lowering, result, activation=Activation("relu"))
    if result is not output:
        emit_converted(name, result, output, lowering)
