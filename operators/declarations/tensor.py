# SPDX-License-Identifier: Apache-2.0
"""What operators know of a graph: tensors, nodes, and the reason why something is not supported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np


@dataclass(frozen=True, eq=False)
class TensorSpec:
    """A tensor with a concrete shape; ``value`` is set when it is constant at compile time."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    value: np.ndarray[Any, Any] | None = None

    @property
    def size(self) -> int:
        """Number of elements; 1 for a scalar."""
        return prod(self.shape)

    @property
    def is_const(self) -> bool:
        return self.value is not None

    @property
    def row_pitch(self) -> int:
        """Elements from one row (last dimension) to the next in device memory.

        The array's DMAs move 32-bit words, so rows of narrower types are padded with zeros
        to a multiple of four bytes. 4-byte types lie as in NumPy.
        """
        last = self.shape[-1] if self.shape else 1
        per_word = max(1, 4 // self.dtype.itemsize)
        return -(-last // per_word) * per_word

    @property
    def device_bytes(self) -> int:
        """Bytes in device memory, row padding included."""
        rows = prod(self.shape[:-1]) if self.shape else 1
        return rows * self.row_pitch * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}{list(self.shape)}"


@dataclass(frozen=True)
class NodeSpec:
    """One ONNX node with concrete shapes. Absent optional inputs are ``None``."""

    name: str
    op_type: str
    domain: str
    opset: int  # version of the domain's operator set that the model imports
    inputs: Sequence[TensorSpec | None]
    outputs: Sequence[TensorSpec | None]
    attributes: Mapping[str, Any] = field(default_factory=dict)  # int, float, str, list, ndarray

    def attr(self, name: str, default: Any = None) -> Any:
        return self.attributes.get(name, default)

    def input(self, index: int) -> TensorSpec | None:
        """The input, or None where it is absent."""
        return self.inputs[index] if index < len(self.inputs) else None


class Unsupported(Exception):
    """A node that no device operator takes. ``reason`` says why, ``nearest`` what would be taken."""

    def __init__(self, reason: str, nearest: str = "") -> None:
        super().__init__(f"{reason} (nearest: {nearest})" if nearest else reason)
        self.reason = reason
        self.nearest = nearest
