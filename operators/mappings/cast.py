# SPDX-License-Identifier: Apache-2.0
"""Cast and CastLike."""

from __future__ import annotations

import numpy as np

from onedispatch.operators.declarations.dtypes import DTYPES, dtype_of
from onedispatch.operators.declarations.registry import maps
from onedispatch.operators.interface.operator import Lowering, NodeSpec, Unsupported
from onedispatch.operators.lowering.convert import emit_converted
from onedispatch.operators.lowering.movement import Copy

NAMES = tuple(str(row.numpy) for row in DTYPES.values())


@maps("Cast", "CastLike", dtypes=NAMES, notes="from and to these; floats are cut towards zero, integers wrap")
def map_cast(node: NodeSpec, lowering: Lowering) -> None:
    x, output = node.inputs[0], node.outputs[0]
    if x is None or output is None:
        raise Unsupported(f"{node.op_type} without its data or its result", "both")
    for end, tensor in (("of", x), ("to", output)):
        if dtype_of(tensor.dtype) is None:
            raise Unsupported(f"{node.op_type} {end} {tensor.dtype}", ", ".join(NAMES))
    if x.dtype == output.dtype:
        lowering.emit(Copy(node.name, [x], output, lowering.device))
        return
    if x.row_pitch != x.row and output.row_pitch != output.row:  # words in between lie without padding
        between = np.int32 if x.dtype.kind in "iub" and output.dtype.kind in "iub" else np.float32
        x = emit_converted(node.name, x, lowering.temp(np.dtype(between), x.shape), lowering)
    emit_converted(node.name, x, output, lowering)
