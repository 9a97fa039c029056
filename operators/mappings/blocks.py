# SPDX-License-Identifier: Apache-2.0
"""What puts elements in another order by blocks, or again and again: DepthToSpace, SpaceToDepth, Tile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from onedispatch.operators.declarations.registry import maps
from onedispatch.operators.declarations.tensor import NodeSpec, TensorSpec, Unsupported
from onedispatch.operators.interface.operator import Lowering
from onedispatch.operators.kernels.movement import carried
from onedispatch.operators.lowering.boxes import BoxCopy, CoordinateMap, emit_boxes
from onedispatch.operators.lowering.movement import MOVED, Copy
from onedispatch.operators.lowering.shape_operands import listed

AxisSteps = Mapping[str, tuple[int, int]]
"""index dimension -> (dimension of a tensor, step along it)"""


@maps("DepthToSpace", dtypes=MOVED, notes="DCR and CRD")
def map_depth_to_space(node: NodeSpec, lowering: Lowering) -> None:
    x, output = _ends(node)
    extents, deep, flat = _blocked(node, deep=x, flat=output)
    emit_boxes(node.name, [x], [_box("nchyWX", extents, deep, flat)], output, lowering)


@maps("SpaceToDepth", dtypes=MOVED, notes="DCR and CRD")
def map_space_to_depth(node: NodeSpec, lowering: Lowering) -> None:
    x, output = _ends(node)
    extents, deep, flat = _blocked(node, deep=output, flat=x)
    box = _box("nyXchW" if node.attr("mode", "DCR") == "DCR" else "ncyXhW", extents, flat, deep)
    boxes = [box]
    if carried(x)[0].per_word > 1:  # a kernel cannot follow two dimensions inside words: one nest for each
        boxes = [_member(box, box.source.steps.index(flat["X"]), i) for i in range(extents["X"])]
    emit_boxes(node.name, [x], boxes, output, lowering)


@maps("Tile", dtypes=MOVED, notes="opset 6 or later")
def map_tile(node: NodeSpec, lowering: Lowering) -> None:
    x, output = _ends(node)
    if node.opset < 6:
        raise Unsupported("Tile of an operator set before 6, which names one axis", "opset 6")
    repeats = listed(node, "repeats", 1) or []
    if all(times == 1 for times in repeats):
        lowering.emit(Copy(node.name, [x], output, lowering.device))
        return
    shape, source, target = [], [], []
    for d, (times, size) in enumerate(zip(repeats, x.shape, strict=True)):
        shape += [times, size]
        source += [(d, 0), (d, 1)]
        target += [(d, size), (d, 1)]
    begin = (0,) * len(x.shape)
    box = BoxCopy(0, tuple(shape), CoordinateMap(begin, tuple(source)), CoordinateMap(begin, tuple(target)))
    emit_boxes(node.name, [x], [box], output, lowering)


def _ends(node: NodeSpec) -> tuple[TensorSpec, TensorSpec]:
    x, output = node.input(0), node.outputs[0]
    if x is None or output is None:
        raise Unsupported(f"{node.op_type} without its data or its result", "both")
    return x, output


def _blocked(
    node: NodeSpec, *, deep: TensorSpec, flat: TensorSpec
) -> tuple[dict[str, int], AxisSteps, AxisSteps]:
    """Image n, channel c, block (h, W), and (y, X) inside it: extents, and steps in both tensors."""
    images, channels, _, _ = flat.shape
    size = int(node.attr("blocksize", 1))
    extents = dict(zip("nchWyX", (images, channels, *deep.shape[2:], size, size), strict=True))
    depth, column, row = (1, size * channels, channels)
    if node.attr("mode", "DCR") == "CRD":
        depth, column, row = (size * size, size, 1)
    return (
        extents,
        {"n": (0, 1), "c": (1, depth), "y": (1, column), "X": (1, row), "h": (2, 1), "W": (3, 1)},
        {"n": (0, 1), "c": (1, 1), "h": (2, size), "y": (2, 1), "W": (3, size), "X": (3, 1)},
    )


def _box(order: str, extents: Mapping[str, int], source: AxisSteps, target: AxisSteps) -> BoxCopy:
    walks = [CoordinateMap((0,) * 4, tuple(steps[name] for name in order)) for steps in (source, target)]
    return BoxCopy(0, tuple(extents[name] for name in order), *walks)


def _member(box: BoxCopy, d: int, i: int) -> BoxCopy:
    """Of index dimension ``d`` member ``i`` alone."""

    def at(walk: CoordinateMap) -> CoordinateMap:
        along, step = walk.steps[d]
        begin = tuple(b + i * step if own == along else b for own, b in enumerate(walk.begin))
        return CoordinateMap(begin, walk.steps)

    return replace(
        box, shape=(*box.shape[:d], 1, *box.shape[d + 1 :]), source=at(box.source), target=at(box.target)
    )
