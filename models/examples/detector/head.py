# SPDX-License-Identifier: Apache-2.0
"""A plug-in: the head of a detector in the manner of YOLOv3 as a layer, from raw maps to boxes.

onedispatch run shapes.onnx --plugin head.py --random
"""

from __future__ import annotations

from typing import Any

import numpy as np

import onedispatch as od

Array = np.ndarray[Any, Any]


class DetectionOutput(od.Layer):
    """Boxes [most, 6] of two maps [1, 5 + classes, rows, columns]: class, score, x0, y0, x1, y1.

    A cell's channels are the centre within the cell (logistic), width and height (exponential, of the map's
    anchor), whether an object has its centre there, and a number for each class. Boxes come by score; one
    of which a better one covers more than ``overlap`` is left out, of any class.
    """

    name = "acme::detection_output"
    inputs = "fine coarse"
    outputs = "boxes"
    output_shape_is_dynamic = True

    class Params:
        size: int  # of the picture, which is square
        anchors: tuple[float, float]  # of fine and of coarse
        score: float = 0.7
        overlap: float = 0.4
        most: int = 16

    def shape(self, n: Any) -> Any:
        if n["fine"].shape[:2] != n["coarse"].shape[:2] or n["fine"].shape[0] != 1:
            maps = f"{list(n['fine'].shape)} and {list(n['coarse'].shape)}"
            raise n.refuse("input_size", "maps", maps, "maps of one picture, with the same channels")
        return n["fine"].like((self.params.most, 6))

    def local(self, t: Any) -> None:
        p = t.params
        boxes = np.concatenate(
            [decoded(x[0], p.size, anchor) for x, anchor in zip((t.fine, t.coarse), p.anchors, strict=True)]
        )
        kept = best(boxes[boxes[:, 1] > p.score], p.overlap, p.most)
        t.boxes[: len(kept)] = kept
        t.resize("boxes", (len(kept), 6))


def decoded(cells: Array, size: int, anchor: float) -> Array:
    """A row for each cell of a map [5 + classes, rows, columns]."""
    f32 = np.float32
    _, rows, columns = cells.shape
    step_y, step_x = f32(size / rows), f32(size / columns)
    x = (logistic(cells[0]) + np.arange(columns, dtype=f32)) * step_x
    y = (logistic(cells[1]) + np.arange(rows, dtype=f32)[:, None]) * step_y
    width, height = np.exp(cells[2]) * f32(anchor / 2), np.exp(cells[3]) * f32(anchor / 2)
    score = logistic(f32(6) * cells[4])
    kind = cells[5:].argmax(0).astype(f32)
    return np.stack([kind, score, x - width, y - height, x + width, y + height], -1).reshape(-1, 6)


def logistic(x: Array) -> Any:
    return np.float32(1) / (np.float32(1) + np.exp(-x))


def best(boxes: Array, overlap: float, most: int) -> Array:
    """Non-maximum suppression: boxes by score, without those that one before covers, or that cover it."""
    boxes = boxes[np.argsort(-boxes[:, 1], kind="stable")]
    kept: list[Array] = []
    for box in boxes:
        if len(kept) < most and all(covered(box, other) <= overlap for other in kept):
            kept.append(box)
    return np.stack(kept) if kept else boxes[:0]


def covered(a: Array, b: Array) -> float:
    """What both have of the smaller one."""
    return inside(a, b) / min(area(a), area(b))


def inside(a: Array, b: Array) -> float:
    low, high = np.maximum(a[2:4], b[2:4]), np.minimum(a[4:], b[4:])
    return float(np.prod(np.maximum(high - low, 0)))


def area(box: Array) -> float:
    return float(np.prod(box[4:] - box[2:4]))
