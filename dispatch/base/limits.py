# SPDX-License-Identifier: Apache-2.0
"""How large anything may be that a model or a caller names: all limits, in one place.

A model of a few bytes can name sizes that no machine has. So every size is checked against
its limit before memory is taken or time is spent on it. The limits are far above what
models in use need: ONNX files end at 2 GiB (protobuf's limit), activations of hundreds of
megabytes are ordinary.
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
    """A bound on one kind of size: what it counts and where, the most, what to do beyond."""

    noun: str
    of: str
    most: int
    remedy: str

    def check(
        self, where: str, size: int, given: str = "", error: type[OneDispatchError] = ModelError
    ) -> None:
        """Raises ``error`` when ``size`` is beyond the limit; ``given`` says what has that size."""
        if size > self.most:
            shown = self._said(size) + (f": {given}" if given else "")
            raise error(where, shown, f"at most {self._said(self.most)}", self.remedy)

    def _said(self, size: int) -> str:
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
FOLDED_GROWTH = 8  # times the constants of the model may be computed from them besides
# What the host may compute from values of a run, because shapes follow from it: see frontend/decided.py. A
# list of sizes has an element for each dimension, a list of pads two.
SHAPE_ELEMENTS = Limit(
    "element", "in a tensor that shapes follow from", 16, "compute the sizes before the model runs"
)
SHAPE_OPERATIONS = Limit(
    "element operation", "on values that shapes follow from", 256, "compute the sizes before the model runs"
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
NAME_LENGTH = Limit("character", "in a name", 1 << 14, "use shorter names")
WINDOW = Limit(
    "element", "in a pad, stride, dilation or kernel", 1 << 24, "no tensor is that long: correct it"
)


def check_tensor(
    where: str, dtype: np.dtype[Any], shape: Sequence[int], error: type[OneDispatchError] = ModelError
) -> int:
    """The bytes of a tensor. Raises ``error`` beyond ``RANK`` or ``TENSOR_BYTES``."""
    RANK.check(where, len(shape), error=error)
    size = prod(shape) * dtype.itemsize
    TENSOR_BYTES.check(where, size, f"{dtype}{list(shape)}", error)
    return size


def folded_bytes(weights: int) -> Limit:
    """``FOLDED_BYTES`` for a model with ``weights`` bytes of constants: large ones may make more."""
    most = FOLDED_BYTES.most + FOLDED_GROWTH * weights
    return Limit(FOLDED_BYTES.noun, FOLDED_BYTES.of, most, FOLDED_BYTES.remedy)
