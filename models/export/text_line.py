# SPDX-License-Identifier: Apache-2.0
"""A recogniser of text lines: convolutions, two bidirectional LSTMs, a class per column (CRNN)."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from models.export.network import Network

_CLASSES, _HIDDEN = 97, 256


class Recogniser(nn.Module):
    """[1, 1, 32, W] to [W / 4 + 1, 1, classes], logarithms of probabilities."""

    def __init__(self) -> None:
        super().__init__()
        widths = (1, 64, 128, 256, 256, 512, 512)
        pools = {0: (2, 2), 1: (2, 2), 3: ((2, 2), (2, 1), (0, 1)), 5: ((2, 2), (2, 1), (0, 1))}
        layers: list[nn.Module] = []
        for at, (inputs, outputs) in enumerate(pairwise(widths)):
            layers += [nn.Conv2d(inputs, outputs, 3, 1, 1), nn.BatchNorm2d(outputs), nn.ReLU()]
            pool = pools.get(at)
            if pool is not None:
                layers.append(nn.MaxPool2d(*pool) if isinstance(pool[0], tuple) else nn.MaxPool2d(pool))
        layers += [nn.Conv2d(512, 512, 2), nn.ReLU()]
        self.columns = nn.Sequential(*layers)
        self.lstm = nn.LSTM(512, _HIDDEN, num_layers=2, bidirectional=True)
        self.classes = nn.Linear(2 * _HIDDEN, _CLASSES)

    def forward(self, line: Tensor) -> Tensor:
        columns = self.columns(line).squeeze(2).permute(2, 0, 1)
        states, _ = self.lstm(columns)
        return self.classes(states).log_softmax(2)


def text_line(width: int = 160) -> Network:
    return Network(Recogniser(), {"line": torch.randn(1, 1, 32, width)}, ("scores",))


NETWORKS = {"text_line": text_line}
