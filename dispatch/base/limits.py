# SPDX-License-Identifier: Apache-2.0
"""Limits on every size that a model or a caller names.

A model of a few bytes can name sizes that no machine has, so every size is checked against its limit before
memory is allocated or time is spent on it. The limits are far above the needs of real models: protobuf
limits ONNX files to 2 GiB, and activations take hundreds of megabytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from onedispatch.transactions.base.errors import ModelError, OneDispatchError
from onedispatch.transactions.base.text import counted

GIB = 1 << 30


@dataclass(frozen=True)
class Limit:
    """A bound on one kind of size: the unit, where it is counted, the bound, and a remedy."""

    noun: str
    of: str
    most: int
    remedy: str

    def check(
        self, where: str, size: int, given: str = "", error: type[OneDispatchError] = ModelError
    ) -> None:
        """Raises ``error`` if ``size`` is above the limit; ``given`` describes the thing of that size."""
        if size > self.most:
            shown = self._counted(size) + (f": {given}" if given else "")
            raise error(where, shown, f"at most {self._counted(self.most)}", self.remedy)

    def _counted(self, size: int) -> str:
        return f"{counted(size, self.noun)} {self.of}".strip()


RANK = Limit("dimension", "in one tensor", 64, "NumPy has no arrays of more; reshape the tensor")
TENSOR_BYTES = Limit("byte", "in one tensor", 2 * GIB, "use a smaller batch or image, or split the tensor")
GRAPH_BYTES = Limit(
    "byte", "in all tensors between the nodes together", 64 * GIB, "use a smaller batch or image"
)
WEIGHT_BYTES = Limit("byte", "of constants in one model", 16 * GIB, "split the model")
FOLDED_BYTES = Limit(
    "byte", "computed from constants", GIB, "store the results in the model instead of the nodes"
)
FOLDED_GROWTH = 8  # folding may also compute this many times the bytes of the model's constants
# Bounds on what the host may compute from run-time values because shapes follow: see frontend/decided.py. A
# list of sizes has an element for each dimension, a list of pads two.
SHAPE_ELEMENTS = Limit(
    "element", "in a tensor that shapes follow from", 16, "compute the sizes before the model runs"
)
SHAPE_OPERATIONS = Limit(
    "element operation", "on values that shapes follow from", 256, "compute the sizes before the model runs"
)
# A tensor of a GraphDef may leave out values that equal the last one: a few bytes may say a large tensor.
REPEATED_BYTES = Limit(
    "byte", "of tensors whose last values are left out", GIB // 32, "store these tensors in full"
)
EMBEDDED_BYTES = Limit(
    "byte",
    "of external data in subgraphs and attributes",
    GIB,
    "move these tensors to initializers of the main graph",
)
BUFFER_BYTES = Limit("byte", "in the device's buffers", 16 * GIB, "use a smaller batch, or split the model")
NODES = Limit("node", "in one model", 100_000, "split the model; functions count as often as they are called")
EXPANDED_BYTES = Limit("byte", "of nodes with all functions inlined", GIB, "call the functions less often")
SUBGRAPH_DEPTH = Limit("level", "of subgraphs inside each other", 24, "make the subgraphs flatter")
TYPE_DEPTH = Limit("level", "of sequences and optionals inside each other", 8, "use flatter types")
NODE_OUTPUTS = Limit("tensor", "from one node", 4096, "split the node")
NAME_LENGTH = Limit("character", "in a name", 1 << 14, "use shorter names")
WINDOW = Limit(
    "element", "in a pad, stride, dilation or kernel", 1 << 24, "no tensor is that long: correct it"
)


def check_tensor(
    where: str, dtype: np.dtype[Any], shape: Sequence[int], error: type[OneDispatchError] = ModelError
) -> int:
    """Returns the bytes of a tensor. Raises ``error`` above ``RANK`` or ``TENSOR_BYTES``."""
    RANK.check(where, len(shape), error=error)
    size = prod(shape) * dtype.itemsize
    TENSOR_BYTES.check(where, size, f"{dtype}{list(shape)}", error)
    return size


def folded_bytes(weights: int) -> Limit:
    """Returns the limit on folded bytes of a model with ``weights`` bytes of constants."""
    most = FOLDED_BYTES.most + FOLDED_GROWTH * weights
    return Limit(FOLDED_BYTES.noun, FOLDED_BYTES.of, most, FOLDED_BYTES.remedy)


def repeated_bytes(file_bytes: int) -> Limit:
    """Returns the limit on tensors whose last values are left out, of a model of ``file_bytes`` bytes."""
    most = REPEATED_BYTES.most + FOLDED_GROWTH * file_bytes
    return Limit(REPEATED_BYTES.noun, REPEATED_BYTES.of, most, REPEATED_BYTES.remedy)
