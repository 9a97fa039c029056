# SPDX-License-Identifier: Apache-2.0
"""Pictures with squares, discs and crosses, and a network that finds them.

Its convolutions have seeded random weights; the last two, one for each map, are fitted to pictures by least
squares, which takes some seconds and gives the same weights every time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnxruntime
from onnx import ModelProto

import onedispatch as od

Array = np.ndarray[Any, Any]
SIZE = 96
KINDS = ("square", "disc", "cross")
WIDE = 512  # channels before the maps
TRAINED = 800  # pictures
ANCHORS = (20.0, 30.0)
SIDES = ((0, 26), (22, 99))  # of objects that the fine and the coarse map find
MAPS = (12, 6)  # rows and columns


@dataclass(frozen=True)
class Object:
    """Its box, and its place in ``KINDS``."""

    x0: int
    y0: int
    side: int
    kind: int

    @property
    def box(self) -> Array:
        """As the head says boxes."""
        corners = (self.x0, self.y0, self.x0 + self.side, self.y0 + self.side)
        return np.asarray([self.kind, 1, *corners], np.float32)

    def apart(self, other: Object) -> bool:
        gaps = (self.x0 - other.x0, self.y0 - other.y0)
        return any(gap >= other.side + 3 or -gap >= self.side + 3 for gap in gaps)

    @property
    def mask(self) -> Array:
        y, x = np.mgrid[: self.side, : self.side] - (self.side - 1) / 2
        return (
            np.ones((self.side, self.side), bool),
            x**2 + y**2 <= (self.side / 2) ** 2,
            (abs(x) <= self.side / 6) | (abs(y) <= self.side / 6),
        )[self.kind]


def picture(rng: np.random.Generator) -> tuple[Array, list[Object]]:
    """A picture [3, SIZE, SIZE] with values from 0 to 1, and what is on it."""
    image = rng.uniform(0, 0.35, (3, 1, 1)) + rng.normal(0, 0.05, (3, SIZE, SIZE))
    objects: list[Object] = []
    for _ in range(int(rng.integers(1, 4))):
        side = int(rng.integers(14, 37))
        x, y = rng.integers(1, SIZE - side - 1, 2).tolist()
        one = Object(x, y, side, int(rng.integers(len(KINDS))))
        if all(one.apart(other) for other in objects):
            image[:, y : y + side, x : x + side][:, one.mask] = rng.uniform(0.55, 1, (3, 1))
            objects.append(one)
    return image.clip(0, 1).astype(np.float32), objects


# -- the network ---------------------------------------------------------------------------------------


def body(g: Any, image: Any, rng: np.random.Generator) -> tuple[Any, Any]:
    """The features of both maps: four convolutions that halve the picture, the last joined to the third."""

    def conv(x: Any, channels: int, stride: int) -> Any:
        taken = x.shape[1] * 9
        weights = rng.normal(0, np.sqrt(2 / taken), (channels, x.shape[1], 3, 3)).astype(np.float32)
        bias = rng.normal(0, 0.3, channels).astype(np.float32)
        made = g.add_layer("Conv", [x, weights, bias], params={"strides": [stride] * 2, "pads": [1] * 4})
        return g.add_layer("LeakyRelu", [made], params={"alpha": 0.1})

    third = conv(conv(conv(image, 16, 2), 32, 2), 64, 2)
    fourth = conv(third, 96, 2)
    nearest = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    larger = g.add_layer("Resize", [fourth, None, np.asarray([1, 1, 2, 2], np.float32)], params=nearest)
    joined = g.add_layer("Concat", [third, larger], params={"axis": 1})
    return conv(joined, WIDE, 1), conv(fourth, WIDE, 1)


def features() -> ModelProto:
    g = od.Graph("features")
    for one in body(g, g.input("image", ("n", 3, SIZE, SIZE)), np.random.default_rng(1)):
        g.output(one)
    return g.to_onnx()


def detector(heads: list[Array]) -> ModelProto:
    """The whole network: ``heads`` are weights [features + 1, channels] of the two maps."""
    g = od.Graph("shapes")
    image = g.input("image", (1, 3, SIZE, SIZE))
    maps = [
        g.add_layer("Conv", [x, head[:-1].T[:, :, None, None].copy(), head[-1].copy()])
        for x, head in zip(body(g, image, np.random.default_rng(1)), heads, strict=True)
    ]
    boxes = g.add_layer("acme::detection_output", maps, params={"size": SIZE, "anchors": ANCHORS})
    g.output(boxes, "boxes")
    return g.to_onnx()


# -- the fitted weights --------------------------------------------------------------------------------


def fitted() -> list[Array]:
    """The weights of both maps, by least squares."""
    rng = np.random.default_rng(7)
    pictures = [picture(rng) for _ in range(TRAINED)]
    session = onnxruntime.InferenceSession(features().SerializeToString())
    made = [session.run(None, {"image": image[None]}) for image, _ in pictures]
    return [
        _fit(
            np.concatenate([one[index][0].reshape(WIDE, -1).T for one in made]),
            np.concatenate([_wanted(objects, index) for _, objects in pictures]),
        )
        for index in range(2)
    ]


def _wanted(objects: list[Object], index: int) -> Array:
    """What the cells of a map should say: [cells, 5 + kinds]; 1 in column 4 where an object's centre is."""
    cells, anchor, (least, most) = MAPS[index], ANCHORS[index], SIDES[index]
    wanted = np.zeros((cells, cells, 5 + len(KINDS)), np.float32)
    wanted[..., 4] = -1
    for one in objects:
        if not least <= one.side < most:
            continue
        centre = (np.asarray([one.x0, one.y0]) + one.side / 2) * cells / SIZE
        x, y = centre.astype(int)
        inside = np.clip(centre - [x, y], 0.03, 0.97)
        wanted[y, x, :2] = np.log(inside / (1 - inside))
        wanted[y, x, 2:4] = np.log(one.side / anchor)
        wanted[y, x, 4], wanted[y, x, 5:] = 1, -1
        wanted[y, x, 5 + one.kind] = 1
    return wanted.reshape(-1, wanted.shape[-1])


def _fit(features: Array, wanted: Array) -> Array:
    """Ridge regression: objects over all cells, with those that have one as heavy as a third of the others;
    the rest over cells with an object."""
    x = np.concatenate([features, np.ones((len(features), 1), np.float32)], 1)
    there = wanted[:, 4] > 0
    weight = np.where(there, (~there).sum() / there.sum() / 3, 1)[:, None].astype(np.float32)
    found = _solved(x[there].T @ x[there], x[there].T @ wanted[there], 3)
    found[:, 4:5] = _solved(x.T @ (x * weight), x.T @ (wanted[:, 4:5] * weight), 30)
    return found.astype(np.float32)


def _solved(a: Array, b: Array, ridge: float) -> Array:
    return np.linalg.solve(a + ridge * np.eye(len(a)), b)
