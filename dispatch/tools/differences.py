# SPDX-License-Identifier: Apache-2.0
"""Where two arrays differ first, by how much, and how many units in the last place that is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from onedispatch.dispatch.frontend.graph import Array

Number = float | int | str


@dataclass(frozen=True)
class Difference:
    """One element of two arrays. ``index`` is None where there is none: empty arrays, and unlike shapes.

    ``ulp`` is the error in units in the last place of the type of ``theirs``: how many numbers of that type
    lie between the two; of integers it is the difference.
    """

    index: tuple[int, ...] | None = None
    mine: Number | None = None
    theirs: Number | None = None
    error: float = 0.0
    ulp: float = 0.0


def errors_of(mine: Array, theirs: Array) -> Array:
    """Returns |mine - theirs| of each element: 0 for the same infinity or two NaNs, infinite beside a number.

    Arrays have one shape. Differences of integers are exact as far as float64 has them.
    """
    if mine.dtype == theirs.dtype and mine.dtype.kind in "iu":
        unsigned = np.dtype(f"u{mine.dtype.itemsize}")
        larger, smaller = np.maximum(mine, theirs), np.minimum(mine, theirs)
        return np.asarray(larger.astype(unsigned) - smaller.astype(unsigned), np.float64)
    wide = np.complex128 if "c" in (mine.dtype.kind, theirs.dtype.kind) else np.float64
    a, b = mine.astype(wide), theirs.astype(wide)
    with np.errstate(invalid="ignore", over="ignore"):
        found = np.abs(a - b)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    return np.where(same, 0.0, np.where(np.isfinite(a) & np.isfinite(b), found, np.inf))


def largest_of(array: Array) -> float:
    """Returns the largest finite |number| of an array, 0 where there is none."""
    wide = array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
    return float(np.abs(wide[np.isfinite(wide)]).max(initial=0.0))


def share_of(error: float, largest: float) -> float:
    """Returns an error as a share of the largest number, infinite where there is none to have a share of."""
    return error / largest if largest else (np.inf if error else 0.0)


def first_difference(mine: Array, theirs: Array, errors: Array, bound: float) -> Difference:
    """Returns the first element whose error is above ``bound``; where none is, the one that is worst."""
    if not errors.size:
        return Difference()
    above = errors > bound
    flat = int(np.argmax(above if above.any() else errors))
    index = tuple(int(one) for one in np.unravel_index(flat, errors.shape))
    a, b = mine[index], theirs[index]
    return Difference(index, _plain(a), _plain(b), float(errors[index]), ulps(a, b, theirs.dtype))


def ulps(mine: Any, theirs: Any, dtype: np.dtype[Any]) -> float:
    """Returns how many numbers of ``dtype`` two are apart, infinite where one only is a finite number."""
    if dtype.kind == "c":
        part = np.empty(0, dtype).real.dtype
        return max(ulps(mine.real, theirs.real, part), ulps(mine.imag, theirs.imag, part))
    if dtype.kind != "f" and "float" not in dtype.name:
        return float(abs(int(mine) - int(theirs)))
    a, b = float(mine), float(theirs)
    if a == b or (np.isnan(a) and np.isnan(b)):
        return 0.0
    with np.errstate(over="ignore"):
        one, other = (np.asarray(each).astype(dtype) for each in (mine, theirs))
    if not (np.isfinite(float(one)) and np.isfinite(float(other))):
        return float("inf")
    return float(abs(_position(one) - _position(other)))


def _position(number: Array) -> int:
    """Where a float stands among all of its type: their bits are in the order of their sizes."""
    bits = int(np.atleast_1d(number).view(f"u{number.dtype.itemsize}")[0])
    sign = 1 << (int(ml_dtypes.finfo(number.dtype).bits) - 1)  # type: ignore[no-untyped-call]
    return -(bits - sign) if bits & sign else bits


def _plain(number: Any) -> Number:
    """A number as Python and JSON have it."""
    if number.dtype.kind == "c":
        return str(number)
    if number.dtype.kind == "f" or "float" in number.dtype.name:
        return float(number)
    return int(number)
