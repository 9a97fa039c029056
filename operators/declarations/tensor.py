# SPDX-License-Identifier: Apache-2.0
"""What operators know of a graph: tensors, nodes, and the reason why something is not supported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, prod
from typing import Any, NamedTuple

import numpy as np

from onedispatch.operators.declarations.dtypes import DTYPES, DType, dtype_of, per_word
from onedispatch.transactions.base.errors import OperatorError
from onedispatch.transactions.base.text import counted, span


@dataclass(frozen=True)
class Quantisation:
    """What a quantised tensor's integers stand for: ``scale * (q - zero_point)``.

    One scale and zero point for the tensor (``axis`` None), or one per coordinate along ``axis``.
    Raises ``OperatorError`` on construction for what stands for nothing.
    """

    scale: tuple[float, ...]
    zero_point: tuple[int, ...] = (0,)
    axis: int | None = None

    def __post_init__(self) -> None:
        if not self.scale or any(not 0 < s < inf for s in self.scale):
            raise OperatorError("quantisation, scale", str(list(self.scale)), "finite numbers above zero")
        if len(self.zero_point) != len(self.scale):
            given = f"{counted(len(self.zero_point), 'zero point')} for {counted(len(self.scale), 'scale')}"
            raise OperatorError("quantisation", given, "as many zero points as scales")
        if self.axis is None and len(self.scale) != 1:
            given = f"{len(self.scale)} without an axis"
            raise OperatorError("quantisation, scales", given, "one, or an axis that they lie along")
        if self.axis is not None and self.axis < 0:
            raise OperatorError("quantisation, axis", str(self.axis), "a dimension counted from the first, 0")

    def check(self, tensor: TensorSpec) -> None:
        """Raises ``OperatorError`` unless ``tensor`` can hold such numbers."""
        what = f"quantisation of {tensor}"
        if tensor.dtype.kind not in "iu":
            raise OperatorError(f"{what}, element type", str(tensor.dtype), "integers")
        low, high = np.iinfo(tensor.dtype).min, np.iinfo(tensor.dtype).max
        outside = [z for z in self.zero_point if not low <= z <= high]
        if outside:
            raise OperatorError(f"{what}, zero points", str(outside), span(low, high))
        if self.axis is not None and self.axis >= len(tensor.shape):
            raise OperatorError(f"{what}, axis", str(self.axis), f"below {len(tensor.shape)}")
        if self.axis is not None and tensor.shape[self.axis] != len(self.scale):
            accepted = f"{tensor.shape[self.axis]}, one per coordinate along dimension {self.axis}"
            raise OperatorError(f"{what}, scales", str(len(self.scale)), accepted)


class Scaled(NamedTuple):
    """A float32 constant, each member of its first axis times a factor."""

    constant: np.ndarray[Any, Any]
    factors: np.ndarray[Any, Any]

    @property
    def product(self) -> np.ndarray[Any, Any]:
        """Computed in float32."""
        return np.asarray(self.constant * self.factors.reshape(-1, *[1] * (self.constant.ndim - 1)))


@dataclass(frozen=True, eq=False)
class TensorSpec:
    """A tensor with a concrete shape; ``value`` is set when it is constant at compile time.

    It alone knows how its elements lie in device memory. The array's DMAs move 32-bit words, so rows
    (last dimension) of narrower types are padded to whole words; wider types lie as in NumPy.
    Raises ``OperatorError`` on construction for a ``quantisation`` that does not fit.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    value: np.ndarray[Any, Any] | None = None
    quantisation: Quantisation | None = None
    scaled: Scaled | None = field(default=None, repr=False)  # what ``value`` was made of

    def __post_init__(self) -> None:
        if self.quantisation is not None:
            self.quantisation.check(self)

    @property
    def size(self) -> int:
        """Number of elements; 1 for a scalar."""
        return prod(self.shape)

    @property
    def is_const(self) -> bool:
        return self.value is not None

    @property
    def element(self) -> DType:
        """The row of the element type. Raises ``Unsupported`` where no kernel has one."""
        row = dtype_of(self.dtype)
        if row is None:
            raise Unsupported(
                f"{self.name} is {self.dtype}", ", ".join(str(d.numpy) for d in DTYPES.values())
            )
        return row

    @property
    def row(self) -> int:
        """Elements in a row (last dimension)."""
        return self.shape[-1] if self.shape else 1

    @property
    def rows(self) -> int:
        return prod(self.shape[:-1]) if self.shape else 1

    @property
    def row_pitch(self) -> int:
        """Elements from one row to the next in device memory."""
        unit = per_word(self.dtype.itemsize)
        return -(-self.row // unit) * unit

    @property
    def device_shape(self) -> tuple[int, ...]:
        """The shape with row padding as elements; one row where there is no dimension."""
        return (*self.shape[:-1], self.row_pitch)

    @property
    def strides(self) -> tuple[int, ...]:
        """Elements of device memory from one coordinate to the next, per dimension."""
        laid = self.device_shape
        return tuple(prod(laid[d + 1 :]) for d in range(len(self.shape)))

    @property
    def device_bytes(self) -> int:
        """Bytes in device memory, row padding included."""
        return self.rows * self.row_pitch * self.dtype.itemsize

    def reshaped(self, shape: Sequence[int]) -> TensorSpec:
        """The same bytes under the same name as a tensor of another ``shape``; rows keep their padding."""
        value = None if self.value is None else np.asarray(self.value).reshape(shape)
        return TensorSpec(self.name, self.dtype, tuple(shape), value)

    def lies_as(self, other: TensorSpec) -> bool:
        """Whether the elements of ``other``, in the same order, are the same bytes of device memory."""
        return self.device_bytes == other.device_bytes and self.lies_in(other, 0)

    def lies_in(self, other: TensorSpec, offset: int) -> bool:
        """Whether its elements are bytes of ``other``, from byte ``offset`` on, that follow one another."""
        dense = self.row_pitch == self.row and other.row_pitch == other.row
        return (
            offset % 4 == 0
            and 0 <= offset <= other.device_bytes - self.device_bytes
            and self.dtype.itemsize == other.dtype.itemsize
            and (dense or self.row == other.row)
        )

    def laid(self, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """``array`` as it lies in device memory: flat, rows padded with zeros."""
        flat = np.ascontiguousarray(array)
        if self.row_pitch == self.row:
            return flat.reshape(-1)
        image = np.zeros((self.rows, self.row_pitch), flat.dtype)
        image[:, : self.row] = flat.reshape(self.rows, self.row)
        return image.reshape(-1)

    def gathered(self, image: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The array whose flat image in device memory is ``image``: what ``laid`` takes."""
        return image.reshape(self.rows, self.row_pitch)[:, : self.row].reshape(self.shape)

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
