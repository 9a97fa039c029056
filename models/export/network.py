# SPDX-License-Identifier: Apache-2.0
"""A network ready to be written: the module, its example inputs, the names of its outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

SEED = 2026
OPSET = 20  # what both exporters of torch write


@dataclass(frozen=True)
class Network:
    """``inputs`` are what ``module.forward`` takes, in its order, with the names and shapes to export."""

    module: nn.Module
    inputs: dict[str, Tensor]
    outputs: tuple[str, ...]


Builder = Callable[[], Network]


class Taken(nn.Module):
    """A module of transformers that is called by keywords and returns fields: here by place, one of them."""

    def __init__(self, inner: nn.Module, field: str, names: Iterable[str], **fixed: Any) -> None:
        super().__init__()
        self.inner, self.field, self.names, self.fixed = inner, field, tuple(names), fixed

    def forward(self, *values: Tensor) -> Tensor:
        given = dict(zip(self.names, values, strict=True))
        result: Tensor = self.inner(**given, **self.fixed)[self.field]
        return result


def taken(module: nn.Module, field: str, inputs: dict[str, Tensor], **fixed: Any) -> Network:
    """The network that answers with ``field`` of what ``module`` returns for ``inputs``."""
    return Network(Taken(module, field, inputs, **fixed), inputs, (field,))


def image(size: int) -> Tensor:
    """One picture of noise, [1, 3, size, size]."""
    return torch.randn(1, 3, size, size)


def tokens(vocabulary: int, count: int, batch: int = 1) -> Tensor:
    return torch.randint(0, vocabulary, (batch, count))


def settle(module: nn.Module) -> None:
    """Statistics of batch norms as training might have left them: those of a new module are 0 and 1."""
    for part in module.modules():
        if (
            isinstance(part, nn.BatchNorm2d)
            and part.running_mean is not None
            and part.running_var is not None
        ):
            part.running_mean.normal_(0, 0.1)
            part.running_var.uniform_(0.5, 1.5)


def write(builder: Builder, path: Path, *, dynamo: bool = True) -> None:
    """Writes ``path``: by torch's exporter of captured graphs, or (``dynamo=False``) by its tracer."""
    torch.manual_seed(SEED)
    network = builder()
    module = network.module.eval()
    settle(module)
    with torch.no_grad():
        torch.onnx.export(
            module,
            tuple(network.inputs.values()),
            path,
            input_names=list(network.inputs),
            output_names=list(network.outputs),
            opset_version=OPSET,
            dynamo=dynamo,
            external_data=False,
        )
