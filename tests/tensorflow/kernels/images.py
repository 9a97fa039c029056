# SPDX-License-Identifier: Apache-2.0
"""Operators of the evaluator on images and boxes: resizing, cutting out, suppression of boxes."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Attributes = Mapping[str, Any]
Function = Callable[..., Any]


def coordinates(a: Attributes, given: int, wanted: int, nearest: bool = False) -> Array:
    """Where each row of the result lies in the image, in float32 as TensorFlow computes it."""
    rows = np.arange(wanted, dtype=np.float32)
    if a.get("align_corners") and wanted > 1:
        return rows * np.float32((given - 1) / np.float32(wanted - 1))
    scale = np.float32(given / np.float32(wanted))
    if a.get("half_pixel_centers"):
        return (rows + np.float32(0.5)) * scale - np.float32(0 if nearest else 0.5)
    return rows * scale


def resize_nearest(a: Attributes, x: Array, size: Array) -> Array:
    for axis, wanted in zip((1, 2), size.tolist(), strict=True):
        at = coordinates(a, x.shape[axis], wanted, nearest=True)
        rows = np.floor(at + 0.5) if a.get("align_corners") else np.floor(at)
        x = np.take(x, np.clip(rows.astype(int), 0, x.shape[axis] - 1), axis)
    return x


def resize_bilinear(a: Attributes, x: Array, size: Array) -> Array:
    made = x.astype(np.float64)
    for axis, wanted in zip((1, 2), size.tolist(), strict=True):
        given = x.shape[axis]
        at = coordinates(a, given, wanted)
        low = np.take(made, np.maximum(np.floor(at), 0).astype(int), axis)
        high = np.take(made, np.minimum(np.ceil(at), given - 1).astype(int), axis)
        share = (at - np.floor(at)).reshape([-1, *[1] * (3 - axis)])
        made = low + (high - low) * share
    return made.astype(np.float32)


def crop_places(low: float, high: float, given: int, wanted: int) -> Array:
    """Where each row of a crop lies in the image."""
    if wanted == 1:
        return np.asarray([0.5 * (low + high) * (given - 1)])
    return low * (given - 1) + np.arange(wanted) * (high - low) * (given - 1) / (wanted - 1)


def crop_and_resize(a: Attributes, image: Array, boxes: Array, of: Array, size: Array) -> Array:
    """Boxes are (y1, x1, y2, x2) from 0 to 1; what lies outside of the image is the extrapolation value."""
    (height, width), nearest = size.tolist(), a.get("method", "bilinear") == "nearest"
    made = np.full([len(boxes), height, width, image.shape[3]], a.get("extrapolation_value", 0.0), np.float32)
    for box, (y1, x1, y2, x2) in enumerate(boxes.astype(np.float64)):
        one = image[of[box]].astype(np.float64)
        for i, y in enumerate(crop_places(y1, y2, image.shape[1], height)):
            for j, x in enumerate(crop_places(x1, x2, image.shape[2], width)):
                if 0 <= y <= image.shape[1] - 1 and 0 <= x <= image.shape[2] - 1:
                    made[box, i, j] = sample(one, y, x, nearest)
    return made


def sample(image: Array, y: float, x: float, nearest: bool) -> Array:
    if nearest:
        return image[int(np.floor(y + 0.5)), int(np.floor(x + 0.5))]
    top, left = int(np.floor(y)), int(np.floor(x))
    bottom, right = int(np.ceil(y)), int(np.ceil(x))
    upper = image[top, left] + (image[top, right] - image[top, left]) * (x - left)
    lower = image[bottom, left] + (image[bottom, right] - image[bottom, left]) * (x - left)
    return upper + (lower - upper) * (y - top)


# -- suppression -----------------------------------------------------------------------------


def overlap(one: Array, two: Array) -> float:
    """The intersection over the union of two boxes, whose corners may be any two opposite ones."""
    corners = [np.sort(np.asarray(box, np.float64).reshape(2, 2), 0) for box in (one, two)]
    areas = [float(np.prod(high - low)) for low, high in corners]
    if min(areas) <= 0:
        return 0.0
    low, high = np.maximum(corners[0][0], corners[1][0]), np.minimum(corners[0][1], corners[1][1])
    inside = float(np.prod(np.maximum(high - low, 0)))
    return inside / (areas[0] + areas[1] - inside)


def suppressed(
    boxes: Array, scores: Array, most: int, iou: float, least: float = -np.inf, sigma: float = 0.0
) -> tuple[list[int], list[float]]:
    """Boxes from the highest score on, with their scores; with ``sigma`` overlaps lower scores instead."""
    queue = [(-float(s), i, 0) for i, s in enumerate(scores) if s > least]
    heapq.heapify(queue)
    chosen: list[int] = []
    kept: list[float] = []
    while queue and len(chosen) < most:
        negative, box, seen = heapq.heappop(queue)
        score, hard = -negative, False
        for other in reversed(chosen[seen:]):
            similar = overlap(boxes[box], boxes[other])
            hard = not sigma and similar > iou
            score *= np.exp(-0.5 / sigma * similar**2) if sigma and similar <= iou else float(similar <= iou)
            if hard or score <= least:
                break
        if not hard and score == -negative:
            chosen.append(box)
            kept.append(score)
        elif not hard and score > least:
            heapq.heappush(queue, (-score, box, len(chosen)))
    return chosen, kept


def suppression(a: Attributes, boxes: Array, scores: Array, most: Array, *limits: Array) -> Array:
    """V1 has the threshold as an attribute, V2 and V3 as operands."""
    given = [float(one) for one in limits] or [a.get("iou_threshold", 0.5)]
    return np.asarray(suppressed(boxes, scores, int(most), *given)[0], np.int32)


def suppression_v4(a: Attributes, boxes: Array, scores: Array, most: Array, *limits: Array) -> list[Array]:
    chosen, _ = suppressed(boxes, scores, int(most), *map(float, limits))
    padded = chosen + [0] * (int(most) - len(chosen)) if a.get("pad_to_max_output_size") else chosen
    return [np.asarray(padded, np.int32), np.asarray(len(chosen), np.int32)]


def suppression_v5(a: Attributes, boxes: Array, scores: Array, most: Array, *limits: Array) -> list[Array]:
    chosen, kept = suppressed(boxes, scores, int(most), *map(float, limits))
    more = int(most) - len(chosen) if a.get("pad_to_max_output_size") else 0
    numbers = np.asarray(kept + [0.0] * more, scores.dtype)
    return [np.asarray(chosen + [0] * more, np.int32), numbers, np.asarray(len(chosen), np.int32)]


FUNCTIONS: Mapping[str, Function] = {
    "ResizeNearestNeighbor": resize_nearest,
    "ResizeBilinear": resize_bilinear,
    "CropAndResize": crop_and_resize,
    "NonMaxSuppression": suppression,
    "NonMaxSuppressionV2": suppression,
    "NonMaxSuppressionV3": suppression,
    "NonMaxSuppressionV4": suppression_v4,
    "NonMaxSuppressionV5": suppression_v5,
}
