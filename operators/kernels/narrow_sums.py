# SPDX-License-Identifier: Apache-2.0
"""Sums of products in the type of their results, from one step of the reduction to the next.

That is what the published kernels do: each step loads what is stored, adds its product, and stores it rounded
and saturated. Larger tiles fit, and less is exact: how a product is cut into steps then shows in its results.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from onedispatch.operators.declarations import expressions as e
from onedispatch.operators.declarations.dtypes import saturated
from onedispatch.operators.declarations.formulas import kept, sums_bytes
from onedispatch.operators.declarations.kernel import Scalar
from onedispatch.operators.declarations.tensor import TensorSpec
from onedispatch.operators.scheduling import keeping

Array = np.ndarray[Any, Any]

MAX_SHIFT = 16  # bits of sums that their results lack below
# 0: sums keep all their bits; s + 1: they are stored as results are, integers shifted by s bits.
NARROW_SUMS = Scalar(keeping.NARROW_SUMS_SCALAR, high=MAX_SHIFT + 1, default=0)


def _exact() -> e.Expr:
    """1 where sums keep all their bits from step to step, 0 where they are stored as results are."""
    return 1 - e.differs(e.scalar(NARROW_SUMS.name), 0)


def waiting(out: str) -> e.Expr:
    """1 where sums wait in scratch for further steps, else 0."""
    return e.named("waiting", _exact() * kept(out))


def waiting_bytes(members: e.Expr, out: str, of: str) -> e.Expr:
    """Bytes of scratch for the sums of ``members`` results, products of ``of``'s type."""
    return _exact() * sums_bytes(members, out, of)


def shift_of(scale: TensorSpec | None) -> int | None:
    """By how many bits to the right a known scale shifts: 0 to ``MAX_SHIFT``; None where it does not."""
    if scale is None or scale.value is None or scale.size == 0:
        return None
    values = np.asarray(scale.value, np.float64).reshape(-1)
    shifts = [s for s in range(MAX_SHIFT + 1) if values[0] == 2.0**-s]
    return shifts[0] if shifts and (values == values[0]).all() else None


def _rows(b: Array, first: int, count: int) -> Array:
    """Rows of matrices, or members of a vector."""
    return b[first : first + count] if b.ndim == 1 else b[..., first : first + count, :]


def summed_floats(a: Array, b: Array, k_tile: int, dtype: np.dtype[Any]) -> Array:
    """``a @ b`` of float32; after every step but the last its sums are rounded to ``dtype``."""
    sums: Array = np.zeros((), np.float32)
    for step in range(0, a.shape[-1], k_tile):
        made = np.matmul(a[..., step : step + k_tile], _rows(b, step, k_tile))
        sums = made if step == 0 else sums.astype(dtype).astype(np.float32) + made
    return sums


def summed_integers(
    a: Array, b: Array, k_tile: int, shift: int, dtype: np.dtype[Any], bias: Array, zero: int
) -> Array:
    """``(a @ b + bias) / 2**shift + zero`` of int64, rounded half to even and saturated after every step."""
    stored = np.full((), zero, np.int64)
    for step in range(0, a.shape[-1], k_tile):
        made = np.matmul(a[..., step : step + k_tile], _rows(b, step, k_tile))
        sums = stored.astype(np.int64) * 2**shift + made + (bias if step == 0 else 0)
        stored = saturated(np.rint(sums / 2**shift), dtype)
    return stored
