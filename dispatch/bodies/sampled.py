# SPDX-License-Identifier: Apache-2.0
"""RoiAlign and DeformConv by GridSample: both read an image between its elements, linearly."""

from __future__ import annotations

import numpy as np

from onedispatch.dispatch.bodies.writer import Body, body
from onedispatch.dispatch.frontend.graph import Array

_FAR = 1e9  # takes the smallest distance between two floats beyond an image out of it


def _number(b: Body, value: Array | float) -> str:
    return b.constant(value, np.float32)


def _scaled(b: Body, x: str, scale: Array | float, offset: Array | float) -> str:
    return b.op("Add", b.op("Mul", x, _number(b, scale)), _number(b, offset))


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
    rows, columns = bins[0] * ratio, bins[1] * ratio
    regions = b.op("Add", b.widened(1), _of_pictures(b, batch, count))
    x = b.reshaped(_along(b, regions, 0, columns, sizes[1]), count, 1, columns, 1)
    y = b.reshaped(_along(b, regions, 1, rows, sizes[0]), count, rows, 1, 1)
    whole = b.constant([count, rows, columns, 1], np.int64)
    grid = b.op("Concat", *(b.op("Expand", one, whole) for one in (x, y)), axis=3)
    image, together = b.widened(0), batch == 1  # all regions are of one picture
    if together:
        grid = b.reshaped(grid, 1, count * rows, columns, 2)
    else:
        image = b.op("Gather", image, b.input(2), axis=0)
    points = b.op("GridSample", image, grid, mode=_linear(b), padding_mode="zeros", align_corners=0)
    means = b.op("AveragePool", points, kernel_shape=[ratio, ratio], strides=[ratio, ratio])
    if together:
        means = b.op("Transpose", b.reshaped(means, channels, count, *bins), perm=[1, 0, 2, 3])
    return (b.like(means, 0),)


def _of_pictures(b: Body, batch: int, count: int) -> str:
    """Zeros, [regions, 1], that end the run where a region is of a picture that there is not: indices count
    from the end too, so each is looked up as it is and less ``batch``."""
    known = b.constant_of(2)
    if known is not None:
        if known.size and not 0 <= known.min() <= known.max() < batch:
            raise b.refusal(f"batch_indices from {known.min()} to {known.max()}", f"0 to {batch - 1}")
        return _number(b, 0)
    indices = b.op("Add", b.reshaped(b.input(2), count, 1), b.constant([[0, -batch]], np.int64))
    zeros = b.op("Gather", _number(b, np.zeros(batch)), indices, axis=0)
    return b.op("Add", _column(b, zeros, 0), _column(b, zeros, 1))


def _along(b: Body, regions: str, first: int, points: int, size: int) -> str:
    """Where the points of each region lie along a dimension of ``size``, from -1 to 1: [regions, points].

    ``first`` is the column of the regions' begins, two before that of their ends. Up to one element beyond
    the image points are at its border; others see nothing.
    """
    half = b.attributes["coordinate_transformation_mode"] == "half_pixel"
    scale, offset = b.attributes["spatial_scale"], -0.5 if half else 0.0
    begin, end = (_scaled(b, _column(b, regions, first + one), scale, offset) for one in (0, 2))
    extent = b.op("Sub", end, begin)
    if not half:
        extent = b.op("Max", extent, _number(b, 1))
    shares = (np.arange(points) + 0.5) / points
    at = b.op("Add", b.op("Mul", extent, _number(b, shares.reshape(1, -1))), begin)
    within = b.op("Clip", at, _number(b, 0), _number(b, size - 1))
    around = b.op("Clip", at, _number(b, -1), _number(b, size))
    beyond = b.op("Mul", b.op("Sub", at, around), _number(b, _FAR))
    return _scaled(b, b.op("Add", within, beyond), 2 / size, 1 / size - 1)


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
    image = b.reshaped(b.widened(0), batch * parts, channels // parts, *sizes)
    points = b.op("GridSample", image, grid, mode=_linear(b), padding_mode="zeros", align_corners=0)
    points, places = b.like(points, 0), out[0] * out[1]
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
    moved = _scaled(b, b.reshaped(b.widened(2), images, taps, 2, *out), 2 / at, still)
    turned = b.op("Transpose", moved, perm=[0, 1, 3, 4, 2])
    grid = b.op("Gather", turned, b.constant([1, 0], np.int64), axis=4)
    return b.reshaped(grid, images, taps * out[0], out[1], 2)
