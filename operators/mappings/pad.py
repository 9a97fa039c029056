# SPDX-License-Identifier: Apache-2.0
"""Pad in every mode, and CenterCropPad."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from onedispatch.operators.declarations.registry import maps
from onedispatch.operators.declarations.tensor import NodeSpec, TensorSpec, Unsupported
from onedispatch.operators.interface.operator import Lowering
from onedispatch.operators.lowering.movement import MOVED
from onedispatch.operators.lowering.segments import Segment, emit_segments, runs
from onedispatch.operators.lowering.shape_operands import axes_of, listed

Array = np.ndarray[Any, Any]


def _reflected(members: Array, extent: int) -> Array:
    """There and back again, the ends not repeated."""
    period = max(2 * (extent - 1), 1)
    return np.asarray(np.minimum(members % period, -members % period))


# mode -> which of ``extent`` members lie where there are none
_BEYOND: dict[str, Callable[[Array, int], Array]] = {
    "edge": lambda members, extent: np.clip(members, 0, extent - 1),
    "reflect": _reflected,
    "wrap": lambda members, extent: members % extent,
}


def padded(mode: str, extent: int, before: int, after: int) -> list[Segment]:
    """A dimension of ``extent`` members with so many more before and after, or fewer where negative."""
    if mode == "constant":
        return _filled(extent, before, after)
    crop, extent = max(-before, 0), extent + min(before, 0) + min(after, 0)
    before, after = max(before, 0), max(after, 0)

    def beyond(first: int, end: int) -> list[Segment]:
        members = crop + _BEYOND[mode](np.arange(first, end), extent)
        return runs(members.tolist(), at=first + before)

    inside = [Segment(before, extent, crop)] if extent else []
    return [*beyond(-before, 0), *inside, *beyond(extent, extent + after)]


def _filled(extent: int, before: int, after: int) -> list[Segment]:
    """The members that stay, and filled ones before and after."""
    whole = extent + before + after
    first, end = max(before, 0), min(before + extent, whole)
    if end <= first:
        return [Segment(0, whole)] if whole else []
    cut = [Segment(0, first), Segment(first, end - first, first - before), Segment(end, whole - end)]
    return [segment for segment in cut if segment.count]


@maps("Pad", dtypes=MOVED, notes="every mode; negative pads crop")
def map_pad(node: NodeSpec, lowering: Lowering) -> None:
    x, output = node.input(0), node.outputs[0]
    if x is None or output is None:
        raise Unsupported("Pad without its data or its result", "both")
    pads = _pads(node, len(x.shape))
    mode = node.attr("mode", "constant")
    cuts = [padded(mode, extent, *pad) for extent, pad in zip(x.shape, pads, strict=True)]
    inputs = [x, _value(node, x, lowering)] if mode == "constant" else [x]
    emit_segments(node.name, inputs, cuts, output, lowering)


def _pads(node: NodeSpec, rank: int) -> list[tuple[int, int]]:
    """Members before and after each dimension."""
    given = listed(node, "pads", 1) or []
    axes = axes_of(node, 3, rank)
    pads = [(0, 0)] * rank
    for axis, before, after in zip(axes, given[: len(axes)], given[len(axes) :], strict=True):
        pads[axis] = (before, after)
    return pads


def _value(node: NodeSpec, x: TensorSpec, lowering: Lowering) -> TensorSpec:
    """What is put where there is no data: a scalar, constant or computed; lists of one are taken too."""
    given = node.input(2)
    if given is not None:
        return given.reshaped(())
    return lowering.const(np.asarray(node.attr("value", 0), x.dtype))


@maps("CenterCropPad", dtypes=MOVED, notes="zeros are put where there is no data")
def map_center_crop_pad(node: NodeSpec, lowering: Lowering) -> None:
    x, output = node.input(0), node.outputs[0]
    if x is None or output is None:
        raise Unsupported("CenterCropPad without its data or its result", "both")
    cuts = []
    for have, want in zip(x.shape, output.shape, strict=True):
        less = abs(want - have) // 2
        before = less if want > have else -less
        cuts.append(padded("constant", have, before, want - have - before))
    zero = lowering.const(np.zeros((), x.dtype))
    emit_segments(node.name, [x, zero], cuts, output, lowering)
