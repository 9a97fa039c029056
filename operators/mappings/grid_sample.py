# SPDX-License-Identifier: Apache-2.0
"""GridSample."""

from __future__ import annotations

import numpy as np

from onedispatch.operators.declarations.dtypes import FLOATS
from onedispatch.operators.declarations.registry import maps
from onedispatch.operators.interface.operator import Lowering, NodeSpec, Unsupported
from onedispatch.operators.kernels.elementwise import numpy_names
from onedispatch.operators.kernels.grid_sample import MOST_DIMENSIONS, PADDINGS, TAPS, GridSample
from onedispatch.operators.lowering.convert import emit_converted, in_float32

TAKEN = numpy_names(FLOATS)
_MODES = {"bilinear": "linear", "bicubic": "cubic"}  # before opset 20


@maps("GridSample", dtypes=TAKEN, notes="1 to 3 dimensions, every mode and padding; computed in float32")
def map_grid_sample(node: NodeSpec, lowering: Lowering) -> None:
    x, grid, output = node.input(0), node.input(1), node.outputs[0]
    if x is None or grid is None or output is None:
        raise Unsupported("GridSample without its image, its grid or its result", "all of them")
    if str(x.dtype) not in TAKEN or str(grid.dtype) not in TAKEN:
        raise Unsupported(f"GridSample of {x.dtype} at places of {grid.dtype}", ", ".join(TAKEN))
    given, padding = node.attr("mode", "linear"), node.attr("padding_mode", "zeros")
    mode = _MODES.get(given, given)
    if mode not in TAPS or padding not in PADDINGS:
        accepted = f"{', '.join(TAPS)}; {', '.join(PADDINGS)}"
        raise Unsupported(f"GridSample with mode {given} and padding_mode {padding}", accepted)
    if not 1 <= len(x.shape) - 2 <= MOST_DIMENSIONS:
        raise Unsupported(
            f"GridSample of shape {list(x.shape)}", f"1 to {MOST_DIMENSIONS} spatial dimensions"
        )
    if 0 in x.shape[1:] and output.size:
        raise Unsupported(f"GridSample of shape {list(x.shape)}", "at least one element")
    x, grid = in_float32(node.name, x, lowering), in_float32(node.name, grid, lowering)
    result = output if output.dtype == np.float32 else lowering.temp(np.dtype(np.float32), output.shape)
    corners = bool(node.attr("align_corners", 0))
    lowering.emit(GridSample(node.name, x, grid, result, lowering.device, mode, padding, corners))
    if result is not output:
        emit_converted(node.name, result, output, lowering)
