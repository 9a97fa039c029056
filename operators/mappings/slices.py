# SPDX-License-Identifier: Apache-2.0
"""What takes parts of a tensor: Slice and Split."""

from __future__ import annotations

import numpy as np

from onedispatch.operators.declarations.registry import maps
from onedispatch.operators.declarations.tensor import NodeSpec, TensorSpec, Unsupported
from onedispatch.operators.interface.operator import Lowering
from onedispatch.operators.lowering.boxes import BoxCopy, along, emit_slab
from onedispatch.operators.lowering.movement import MOVED
from onedispatch.operators.lowering.segments import emit_segments, runs
from onedispatch.operators.lowering.shape_operands import axes_of, listed


@maps("Slice", dtypes=MOVED, notes="any step")
def map_slice(node: NodeSpec, lowering: Lowering) -> None:
    x, output = node.input(0), node.outputs[0]
    if x is None or output is None:
        raise Unsupported("Slice without its data or its result", "both")
    taken = _members(node, x)
    emit_segments(node.name, [x], [runs(members) for members in taken], output, lowering)


def _members(node: NodeSpec, x: TensorSpec) -> list[range]:
    """What is taken of each dimension."""
    starts, ends = listed(node, "starts", 1) or [], listed(node, "ends", 2) or []
    steps = listed(node, "steps", 4) or [1] * len(starts)
    axes = axes_of(node, 3, len(x.shape), most=len(starts))
    taken = [range(size) for size in x.shape]
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        taken[axis] = _clipped(start, end, step, x.shape[axis])
    return taken


def _clipped(start: int, end: int, step: int, size: int) -> range:
    """Bounds from the end are counted, those beyond clipped, as ONNX says: a walk downwards that starts
    before the first member begins with it, where Python's would be empty."""
    start, end = (bound + size if bound < 0 else bound for bound in (start, end))
    if step > 0:
        return range(min(max(start, 0), size), min(max(end, 0), size), step)
    return range(min(max(start, 0), size - 1), min(max(end, -1), size - 1), step)


@maps("Split", dtypes=MOVED, notes="equal parts, or of given sizes")
def map_split(node: NodeSpec, lowering: Lowering) -> None:
    x = node.input(0)
    if x is None:
        raise Unsupported("Split without its data", "a tensor")
    axis = int(node.attr("axis", 0)) % len(x.shape)
    borders = _borders(node, x.shape[axis])
    for i, (output, begin) in enumerate(zip(node.outputs, borders, strict=True)):
        if output is None:
            continue
        at = [begin if d == axis else 0 for d in range(len(x.shape))]
        box = BoxCopy(0, output.shape, along(at), along([0] * len(at)))
        emit_slab(f"{node.name}//{i}", x, box, output, lowering)


def _borders(node: NodeSpec, extent: int) -> list[int]:
    """Where parts begin. Equal ones are rounded up: the last may be smaller."""
    sizes = listed(node, "split", 1)
    if sizes is None:
        size = -(-extent // len(node.outputs))
        return [i * size for i in range(len(node.outputs))]
    return [0, *np.cumsum(sizes).tolist()][: len(node.outputs)]
