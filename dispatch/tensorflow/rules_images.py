# SPDX-License-Identifier: Apache-2.0
"""Rules for resizing, for cutting out boxes, and for choosing among boxes."""

from __future__ import annotations

from typing import Any

import numpy as np

from onedispatch.dispatch.sources.api import frontend
from onedispatch.dispatch.sources.builder import Builder
from onedispatch.dispatch.sources.facts import Refused
from onedispatch.dispatch.sources.node import Operand, SourceNode
from onedispatch.dispatch.tensorflow.rule_helpers import INT64, constant, floats, int64, numbers, size, vector

tf = frontend("tensorflow")

# -- resizing ------------------------------------------------------------------------------------


def _coordinates(n: SourceNode) -> str:
    """ONNX's name for where an element of the result lies in the image."""
    if n.attr("align_corners"):
        return "align_corners"
    return "half_pixel" if n.attr("half_pixel_centers") else "asymmetric"


@tf.expand("ResizeBilinear", inherit=False)
def resize_bilinear(g: Builder, n: SourceNode) -> Any:
    return _resized(g, n, floats(g, n.inputs[0]), mode="linear")


@tf.expand("ResizeNearestNeighbor", inherit=False)
def resize_nearest(g: Builder, n: SourceNode) -> Any:
    """TensorFlow leaves half an element out of half_pixel, which rounding puts back."""
    nearest = "floor" if _coordinates(n) == "asymmetric" else "round_prefer_ceil"
    return _resized(g, n, n.inputs[0], mode="nearest", nearest_mode=nearest)


def _resized(g: Builder, n: SourceNode, image: Operand, **how: Any) -> Any:
    x = g.relayout(image, "NHWC", "NCHW")
    wanted = n.inputs[1].constant
    if wanted is not None:
        sizes = vector(g, [size(g, x, 0), size(g, x, 1), *map(int, wanted)])
    else:
        sizes = g.Concat(g.Shape(x, end=2), int64(g, n.inputs[1]), axis=0)
    made = g.Resize(x, None, None, sizes, coordinate_transformation_mode=_coordinates(n), **how)
    return g.relayout(made, "NCHW", "NHWC")


# -- cutting out -----------------------------------------------------------------------------------


@tf.expand("CropAndResize", inherit=False)
def crop_and_resize(g: Builder, n: SourceNode) -> Any:
    """Places of each box by linear steps; then elements around them, by index."""
    image, boxes, of, _ = n.inputs
    x = image if image.dtype == np.float32 else g.Cast(image, to=np.dtype(np.float32))
    wanted = numbers(n, 3, "the size of crops")
    limits = [g.Cast(g.Sub(g.Shape(x, start=i, end=i + 1), 1), to=np.dtype(np.float32)) for i in (1, 2)]
    low, high = g.Slice(boxes, [0], [2], [1]), g.Slice(boxes, [2], [4], [1])
    places, inside = [], []
    for i, limit in enumerate(limits):
        first, last = (g.Mul(g.Slice(one, [i], [i + 1], [1]), limit) for one in (low, high))
        at = _places(g, first, last, wanted[i])
        inside.append(g.And(g.GreaterOrEqual(at, 0.0), g.LessOrEqual(at, limit)))
        places.append(g.Max(g.Min(at, limit), 0.0))
    # [boxes, height, 1] and [boxes, 1, width]
    rows, columns = g.Unsqueeze(places[0], [2]), g.Unsqueeze(places[1], [1])
    batch = g.Unsqueeze(int64(g, of), [1, 2])
    made = _sampled(g, n.attr("method"), x, batch, rows, columns)
    there = g.And(g.Unsqueeze(inside[0], [2]), g.Unsqueeze(inside[1], [1]))
    return g.Where(g.Unsqueeze(there, [3]), made, float(n.attr("extrapolation_value")))


def _places(g: Builder, first: Operand, last: Operand, count: int) -> Any:
    """Steps from one number to another; a single one is half way."""
    if count == 1:
        return g.Mul(g.Add(first, last), 0.5)
    steps = (np.arange(count) / (count - 1)).astype(np.float32)
    return g.Add(g.Mul(g.Sub(last, first), steps), first)


def _sampled(g: Builder, method: str, x: Operand, batch: Operand, rows: Operand, columns: Operand) -> Any:
    """Elements at places [boxes, height, 1] and [boxes, 1, width]."""
    if method == "nearest":
        return _elements(g, x, batch, g.Floor(g.Add(rows, 0.5)), g.Floor(g.Add(columns, 0.5)))
    top, left, bottom, right = g.Floor(rows), g.Floor(columns), g.Ceil(rows), g.Ceil(columns)
    down, across = (g.Unsqueeze(g.Sub(a, b), [3]) for a, b in ((rows, top), (columns, left)))
    corners = [_elements(g, x, batch, row, column) for row in (top, bottom) for column in (left, right)]
    upper, lower = (_between(g, one, other, across) for one, other in (corners[:2], corners[2:]))
    return _between(g, upper, lower, down)


def _between(g: Builder, one: Operand, other: Operand, share: Operand) -> Any:
    return g.Add(one, g.Mul(g.Sub(other, one), share))


def _elements(g: Builder, x: Operand, batch: Operand, rows: Operand, columns: Operand) -> Any:
    """The channels at places of one shape, once they are broadcast."""
    shape = g.Shape(g.Add(rows, columns))
    parts = [g.Expand(one, shape) for one in (batch, g.Cast(rows, to=INT64), g.Cast(columns, to=INT64))]
    return g.GatherND(x, g.Concat(*(g.Unsqueeze(one, [3]) for one in parts), axis=3))


# -- choosing --------------------------------------------------------------------------------------


@tf.expand("NonMaxSuppression", "NonMaxSuppressionV2", "NonMaxSuppressionV3", inherit=False)
def suppression(g: Builder, n: SourceNode) -> Any:
    """The first version has the threshold as an attribute, the third has one for scores too."""
    given = n.inputs[3:] or [g.constant([n.attr("iou_threshold")], np.float32)]
    return _chosen(g, n, given)


@tf.expand("NonMaxSuppressionV4", "NonMaxSuppressionV5", inherit=False)
def suppression_counted(g: Builder, n: SourceNode) -> Any:
    """With their number, and on demand with zeros behind; in version 5 with their scores."""
    soft = n.op_type.endswith("V5")
    if soft and np.any(constant(n, 5, "soft_nms_sigma")):
        raise Refused("soft_nms_sigma, which lowers scores in place of choosing")
    found = _chosen(g, n, n.inputs[3:5])
    count = g.Size(found)
    scores = [g.Gather(n.inputs[1], found)] if soft else []
    if n.attr("pad_to_max_output_size"):
        most = g.Reshape(int64(g, n.inputs[2]), [1])
        missing = g.Concat([0], g.Sub(most, g.Reshape(count, [1])), axis=0)
        found, scores = g.Pad(found, missing), [g.Pad(one, missing) for one in scores]
    return found, *scores, count


def _chosen(g: Builder, n: SourceNode, thresholds: Any) -> Any:
    """The numbers of the boxes, of one batch and class."""
    boxes, scores, most = n.inputs[:3]
    one = [g.Reshape(x, [1]) if x.rank == 0 else x for x in thresholds]
    most = g.Reshape(int64(g, most), [1])
    rows = g.NonMaxSuppression(g.Unsqueeze(boxes, [0]), g.Unsqueeze(scores, [0, 1]), most, *one)
    return g.Gather(rows, 2, axis=1)
