# SPDX-License-Identifier: Apache-2.0
"""A detector of the YOLOv8 kind, smallest size, up to its boxes (before suppression)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from models.export.network import Network, image

_CLASSES, _BINS, _STRIDES = 80, 16, (8, 16, 32)


class _Unit(nn.Module):
    def __init__(self, inputs: int, outputs: int, kernel: int = 1, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
        self.norm = nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        return functional.silu(self.norm(self.conv(x)))


class _Bottleneck(nn.Module):
    def __init__(self, width: int, residual: bool) -> None:
        super().__init__()
        self.first, self.second = _Unit(width, width, 3), _Unit(width, width, 3)
        self.residual = residual

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.second(self.first(x))
        return x + y if self.residual else y


class _Split(nn.Module):
    """Half of the channels passes bottlenecks; all that arises on the way is joined."""

    def __init__(self, inputs: int, outputs: int, depth: int, residual: bool) -> None:
        super().__init__()
        half = outputs // 2
        self.enter, self.leave = _Unit(inputs, outputs), _Unit((2 + depth) * half, outputs)
        self.steps = nn.ModuleList(_Bottleneck(half, residual) for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        parts = list(self.enter(x).chunk(2, 1))
        for step in self.steps:
            parts.append(step(parts[-1]))
        y: Tensor = self.leave(torch.cat(parts, 1))
        return y


class _Pyramid(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.enter, self.leave = _Unit(width, width // 2), _Unit(width * 2, width)
        self.pool = nn.MaxPool2d(5, 1, 2)

    def forward(self, x: Tensor) -> Tensor:
        parts = [self.enter(x)]
        for _ in range(3):
            parts.append(self.pool(parts[-1]))
        y: Tensor = self.leave(torch.cat(parts, 1))
        return y


class _Head(nn.Module):
    """Distances to four sides, each the mean of a softmax over bins, and a score per class."""

    def __init__(self, widths: tuple[int, ...]) -> None:
        super().__init__()
        box, score = 64, 80
        self.boxes = nn.ModuleList(
            nn.Sequential(_Unit(w, box, 3), _Unit(box, box, 3), nn.Conv2d(box, 4 * _BINS, 1)) for w in widths
        )
        self.scores = nn.ModuleList(
            nn.Sequential(_Unit(w, score, 3), _Unit(score, score, 3), nn.Conv2d(score, _CLASSES, 1))
            for w in widths
        )
        self.register_buffer("bins", torch.arange(_BINS, dtype=torch.float32).reshape(1, _BINS, 1, 1))

    def forward(self, levels: list[Tensor]) -> Tensor:
        rows, anchors, strides = [], [], []
        for stride, x, box, score in zip(_STRIDES, levels, self.boxes, self.scores, strict=True):
            height, width = x.shape[2:]
            rows.append(torch.cat([box(x), score(x)], 1).flatten(2))
            y, z = torch.meshgrid(torch.arange(height) + 0.5, torch.arange(width) + 0.5, indexing="ij")
            anchors.append(torch.stack([z, y]).reshape(1, 2, -1))
            strides.append(torch.full((1, 1, height * width), float(stride)))
        distances, scores = torch.cat(rows, 2).split([4 * _BINS, _CLASSES], 1)
        count = distances.shape[2]
        shares = distances.reshape(1, 4, _BINS, count).transpose(1, 2).softmax(1)
        sides = functional.conv2d(shares, self.get_buffer("bins")).reshape(1, 4, count)
        near, far = sides.chunk(2, 1)
        anchor, stride_of = torch.cat(anchors, 2), torch.cat(strides, 2)
        first, last = anchor - near, anchor + far
        boxes = torch.cat([(first + last) / 2, last - first], 1) * stride_of
        return torch.cat([boxes, scores.sigmoid()], 1)


class Detector(nn.Module):
    """[1, 3, H, W] to [1, 4 + classes, boxes]; H and W are multiples of 32."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(_Unit(3, 16, 3, 2), _Unit(16, 32, 3, 2), _Split(32, 32, 1, True))
        self.third = nn.Sequential(_Unit(32, 64, 3, 2), _Split(64, 64, 2, True))
        self.fourth = nn.Sequential(_Unit(64, 128, 3, 2), _Split(128, 128, 2, True))
        self.fifth = nn.Sequential(_Unit(128, 256, 3, 2), _Split(256, 256, 1, True), _Pyramid(256))
        self.up = nn.Upsample(scale_factor=2, mode="nearest")
        self.down_four, self.down_three = _Split(384, 128, 1, False), _Split(192, 64, 1, False)
        self.to_four, self.up_four = _Unit(64, 64, 3, 2), _Split(192, 128, 1, False)
        self.to_five, self.up_five = _Unit(128, 128, 3, 2), _Split(384, 256, 1, False)
        self.head = _Head((64, 128, 256))

    def forward(self, images: Tensor) -> Tensor:
        third = self.third(self.stem(images))
        fourth = self.fourth(third)
        fifth = self.fifth(fourth)
        four = self.down_four(torch.cat([self.up(fifth), fourth], 1))
        three = self.down_three(torch.cat([self.up(four), third], 1))
        four = self.up_four(torch.cat([self.to_four(three), four], 1))
        five = self.up_five(torch.cat([self.to_five(four), fifth], 1))
        boxes: Tensor = self.head([three, four, five])
        return boxes


def detector(size: int = 320) -> Network:
    return Network(Detector(), {"images": image(size)}, ("boxes",))


NETWORKS = {"detector": detector}
