# SPDX-License-Identifier: Apache-2.0
"""RoiAlign and DeformConv by GridSample: both read an image between its elements, linearly."""

from __future__ import annotations

import numpy as np

from onedispatch.dispatch.bodies.writer import Body, body
from onedispatch.dispatch.frontend.graph import Array


def _scaled(b: Body, x: str, scale: Array | float, offset: Array | float) -> str:
    return b.op("Add", b.op("Mul", x, b.floats(scale)), b.floats(offset))


def _column(b: Body, x: str, index: int) -> str:
    """A column of a matrix, [rows, 1]."""
    first, end, axis = (b.constant([one], np.int64) for one in (index, index + 1, 1))
    return b.op("Slice", x, first, end, axis)


@body("RoiAlign", since=16)
def roi_align(b: Body) -> tuple[str, ...]:
    """A grid of ``sampling_ratio`` points a side for each bin, whose mean is the bin's."""
    ratio, mode = b.attributes["sampling_ratio"], b.attributes["mode"]
    if ratio < 1:
        raise b.refusal("sampling_ratio 0: as many points as each region is large", "1 or more")
    if mode != "avg":
        raise b.refusal(f"mode {mode!r}", "'avg'")
    batch, channels, *sizes = b.shape(0, 4)
    count, _ = b.shape(1, 2)
    bins = b.attributes["output_height"], b.attributes["output_width"]
    places, inside = [], []
    for d in (1, 0):  # x, y
        at = _along(b, 1 - d, bins[d] * ratio)
        places.append(_scaled(b, at, 2 / sizes[d], 1 / sizes[d] - 1))
        low, high = b.op("GreaterOrEqual", at, b.floats(-1)), b.op("LessOrEqual", at, b.floats(sizes[d]))
        inside.append(b.op("And", low, high))
    rows, columns = bins[0] * ratio, bins[1] * ratio
    whole = b.constant([count, rows, columns, 1], np.int64)
    x, y = b.reshaped(places[0], count, 1, columns, 1), b.reshaped(places[1], count, rows, 1, 1)
    grid = b.op("Concat", *(b.op("Expand", one, whole) for one in (x, y)), axis=3)
    image = b.input(0)
    together = batch == 1  # all regions are of one picture
    if together:
        grid = b.reshaped(grid, 1, count * rows, columns, 2)
    else:
        image = b.op("Gather", image, b.input(2), axis=0)
    points = b.op("GridSample", image, grid, mode=_linear(b), padding_mode="border", align_corners=0)
    mask = b.op("And", b.reshaped(inside[0], count, 1, 1, columns), b.reshaped(inside[1], count, 1, rows, 1))
    if together:
        mask = b.reshaped(mask, 1, 1, count * rows, columns)
    points = b.op("Where", mask, points, b.floats(0))
    means = b.op("AveragePool", points, kernel_shape=[ratio, ratio], strides=[ratio, ratio])
    if not together:
        return (means,)
    return (b.op("Transpose", b.reshaped(means, channels, count, *bins), perm=[1, 0, 2, 3]),)


def _along(b: Body, first: int, points: int) -> str:
    """Where the points of each region lie along a dimension, in elements of the image: [regions, points].

    ``first`` is the column of the regions' begins, two before that of their ends.
    """
    half = b.attributes["coordinate_transformation_mode"] == "half_pixel"
    scale, offset = b.attributes["spatial_scale"], -0.5 if half else 0.0
    begin, end = (_scaled(b, _column(b, b.input(1), first + one), scale, offset) for one in (0, 2))
    extent = b.op("Sub", end, begin)
    if not half:
        extent = b.op("Max", extent, b.floats(1))
    shares = (np.arange(points) + 0.5) / points
    return b.op("Add", b.op("Mul", extent, b.floats(shares.reshape(1, -1))), begin)


def _linear(b: Body) -> str:
    return "bilinear" if b.opset < 20 else "linear"


@body("DeformConv", since=19)
def deform_conv(b: Body) -> tuple[str, ...]:
    """Every tap is sampled at its own places; a product with the weights is left."""
    batch, channels, *sizes = b.shape(0, 4)
    made, each, *kernel = b.shape(1, 4)
    out = b.shape(2, 4)[2:]
    taps, groups, parts = kernel[0] * kernel[1], b.attributes["group"], b.attributes["offset_group"]
    grid = _grid(b, sizes, kernel, (batch * parts, taps, *out))
    image = b.reshaped(b.input(0), batch * parts, channels // parts, *sizes)
    points = b.op("GridSample", image, grid, mode=_linear(b), padding_mode="zeros", align_corners=0)
    places = out[0] * out[1]
    if b.input(4):
        points = b.reshaped(points, batch * parts, channels // parts, taps * places)
        points = b.op("Mul", points, b.reshaped(b.input(4), batch * parts, 1, taps * places))
    points = b.reshaped(points, batch, groups, each * taps, places)
    sums = b.op("MatMul", b.reshaped(b.input(1), 1, groups, made // groups, each * taps), points)
    sums = b.reshaped(sums, batch, made, *out)
    return (b.op("Add", sums, b.reshaped(b.input(3), 1, made, 1, 1)) if b.input(3) else sums,)


def _grid(b: Body, sizes: list[int], kernel: list[int], shape: tuple[int, int, int, int]) -> str:
    """The places of all taps, from -1 to 1, x before y: [images, taps * rows, columns, 2]."""
    images, taps, *out = shape
    steps, begins = b.attributes.get("strides") or [1, 1], (b.attributes.get("pads") or [0] * 4)[:2]
    spread = b.attributes.get("dilations") or [1, 1]
    reach = np.indices(kernel).reshape(2, taps, 1, 1) * np.reshape(spread, (2, 1, 1, 1))
    own = np.indices(out).reshape(2, 1, *out) * np.reshape(steps, (2, 1, 1, 1))
    centres = reach + own - np.reshape(begins, (2, 1, 1, 1))  # [2, taps, rows, columns]
    at = np.reshape(sizes, (2, 1, 1))
    # An offset moves a tap by 2 / size; elements lie in the middle of their cells.
    still = (2 * centres.transpose(1, 0, 2, 3) + 1) / at - 1
    moved = _scaled(b, b.reshaped(b.input(2), images, taps, 2, *out), 2 / at, still)
    turned = b.op("Transpose", moved, perm=[0, 1, 3, 4, 2])
    grid = b.op("Gather", turned, b.constant([1, 0], np.int64), axis=4)
    return b.reshaped(grid, images, taps * out[0], out[1], 2)
