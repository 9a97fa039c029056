# SPDX-License-Identifier: Apache-2.0
"""Scale and zero point of a quantised tensor, and the fused multiply-add of onnxruntime."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from onedispatch.operators.declarations.dtypes import nearest
from onedispatch.operators.kernels.elementwise import Array


@dataclass(frozen=True)
class QuantParams:
    """A tensor's scale and zero point."""

    scale: np.float32
    zero: int

    @classmethod
    def of(cls, scale: Array, zero: Array | None = None) -> QuantParams:
        """Of constants of one element each."""
        return cls(np.float32(scale.item()), 0 if zero is None else int(zero.item()))

    def floats(self, x: Array) -> Array:
        """What integers stand for, in float32."""
        return np.asarray(self.scale * (x.astype(np.int32) - self.zero).astype(np.float32), np.float32)

    def integers(self, values: Array, dtype: np.dtype[Any]) -> Array:
        """``values`` [float32] as integers: quotients rounded to even, saturated; NaN is the least."""
        return nearest(values / self.scale, self.zero, dtype)


def fused(a: Any, b: Any, c: Any) -> Array:
    """``a * b + c`` of float32, rounded once to float32.

    The product has 48 bits; their sum is rounded to odd in float64, which has enough bits behind those of
    float32 that the second rounding is right.
    """
    product, addend = np.multiply(a, b, dtype=np.float64), np.asarray(c, np.float64)
    total = np.asarray(product + addend)
    back = total - product
    lost = (product - (total - back)) + (addend - back)
    even = (total.view(np.int64) & 1) == 0
    odd = np.where(lost > 0, np.nextafter(total, np.inf), np.nextafter(total, -np.inf))
    return np.where((lost != 0) & even, odd, total).astype(np.float32)
