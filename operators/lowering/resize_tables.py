# SPDX-License-Identifier: Apache-2.0
"""Where each output of a resized axis lies on the input's, and which inputs it is made of.

Coordinates are float32, in onnxruntime's order of operations: which of two neighbours is the nearest may
hang on one rounding. Lengths are ONNX's: where a scale is given, the resized length is the scale times the
length, which may be a fraction.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
F = np.float32
OUTSIDE = -1  # an index for which the extrapolation value stands


@dataclass(frozen=True)
class AxisMap:
    """One axis: extents, the scale, the resized length that coordinates are computed with, and the region."""

    extent: int
    resized: int
    scale: float
    length: float
    roi: tuple[float, float] = (0.0, 1.0)

    @property
    def same(self) -> bool:
        """Whether the axis stays as it is, whatever the mode."""
        return self.extent == self.resized and abs(self.scale - 1) < 1e-9 and self.roi == (0.0, 1.0)

    def coordinates(self, mode: str) -> Array:
        """float32 [resized]: where each output lies. ``mode``: ONNX's coordinate_transformation_mode."""
        x, scale = np.arange(self.resized, dtype=F), F(self.scale)
        last, length = F(self.extent - 1), F(self.length)
        half = (x + F(0.5)) / scale
        if mode == "asymmetric":
            return np.asarray(x / scale)
        if mode == "tf_half_pixel_for_nn":
            return np.asarray(half)
        if mode == "align_corners":
            return x * F(0) if length == 1 else np.asarray(x * last / (length - F(1)))
        if mode == "pytorch_half_pixel":
            return np.asarray(half - F(0.5)) if length > 1 else x * F(0)
        if mode == "half_pixel_symmetric":
            adjustment = F(self.resized) / F(scale * F(self.extent))
            centre = F(self.extent) / F(2)
            return np.asarray(centre * (F(1) - adjustment) + half - F(0.5))
        if mode == "tf_crop_and_resize":
            start, end = F(self.roi[0]), F(self.roi[1])
            if length <= 1:
                return np.full(self.resized, F(0.5) * (start + end) * last, F)
            return np.asarray(start * last + x * (end - start) * last / (length - F(1)))
        return np.asarray(half - F(0.5))


@dataclass(frozen=True)
class ResampleFilter:
    """What a resized element is made of. ``mode``: nearest, linear, cubic."""

    mode: str = "nearest"
    coordinates: str = "half_pixel"
    nearest: str = "round_prefer_floor"
    cubic_a: float = -0.75
    exclude_outside: bool = False
    antialias: bool = False

    def table(self, axis: AxisMap) -> tuple[Array, Array | None]:
        """(index int32 [resized, taps], weight float32 [resized, taps]); no weights of the nearest.

        An element of which nothing lies inside (tf_crop_and_resize) has ``OUTSIDE`` for its indices.
        """
        at = axis.coordinates(self.coordinates)
        if self.mode == "nearest":
            index, weight = self._nearest(at, axis)[:, None], None
        else:
            index, weight = self._weighted(at, axis)
        index = np.clip(index, 0, axis.extent - 1)
        if self.coordinates == "tf_crop_and_resize":
            index[(at < 0) | (at > axis.extent - 1)] = OUTSIDE
        return index.astype(np.int32), weight

    def _nearest(self, at: Array, axis: AxisMap) -> Array:
        below = np.floor(at)
        if self.nearest == "simple":  # before opset 11: downwards, of smaller results upwards
            found = np.ceil(at) if axis.scale < 1 else np.trunc(at)
        elif self.nearest == "floor":
            found = below
        elif self.nearest == "ceil":
            found = np.ceil(at)
        elif self.nearest == "round_prefer_ceil":
            found = np.floor(at + F(0.5))
        else:
            found = np.where(at == below + F(0.5), below, np.floor(at + F(0.5)))
        return np.asarray(found).astype(np.int64)

    def _weighted(self, at: Array, axis: AxisMap) -> tuple[Array, Array]:
        """All inputs that the filter reaches, which is farther where smaller results are smoothed."""
        shrink = min(axis.scale, 1.0) if self.antialias else 1.0
        support = (1 if self.mode == "linear" else 2) / shrink
        if self.mode == "linear" and not self.antialias:
            at = np.clip(at, 0, axis.extent - 1)
        centre = at.astype(np.float64)[:, None]
        index = np.floor(centre - support).astype(np.int64) + 1 + np.arange(ceil(2 * support))
        weight = self._weights(np.abs(index - centre) * shrink)
        if self.exclude_outside:
            weight = np.where((index < 0) | (index >= axis.extent), 0.0, weight)
        if self.exclude_outside or self.antialias:
            total = weight.sum(axis=1, keepdims=True)
            weight = weight / np.where(total == 0, 1.0, total)
        return index, weight.astype(F)

    def _weights(self, distance: Array) -> Array:
        d, a = distance, self.cubic_a
        if self.mode == "linear":
            return np.asarray(np.clip(1 - d, 0, 1))
        near = ((a + 2) * d - (a + 3)) * d * d + 1
        far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
        return np.where(d <= 1, near, np.where(d < 2, far, 0.0))
