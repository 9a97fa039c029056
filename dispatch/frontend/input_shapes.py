# SPDX-License-Identifier: Apache-2.0
"""Shapes and tensors for a model's inputs, checked against what it declares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from onedispatch.dispatch.base import limits
from onedispatch.dispatch.frontend.graph import Array, Value
from onedispatch.transactions.base.errors import InputError
from onedispatch.transactions.base.text import did_you_mean


def bind_shapes(
    inputs: Sequence[Value], shapes: Mapping[str, Sequence[int]]
) -> dict[str, tuple[int, ...]] | None:
    """Concrete shapes of all tensor inputs, or None where some dimension stays open."""
    names = {v.name for v in inputs}
    for name, shape in shapes.items():
        if name not in names:
            raise InputError(
                "shapes",
                f"{name!r}: {shape}",
                f"lists of sizes for inputs {', '.join(sorted(names))}",
                did_you_mean(name, names),
            )
    bound = {}
    for value in inputs:
        wanted = shapes.get(value.name)
        if wanted is not None:
            bound[value.name] = check_shape(value, tuple(int(d) for d in wanted))
        elif value.is_concrete:
            bound[value.name] = value.concrete_shape
        else:
            return None
    return bound


def completed(value: Value, sizes: Sequence[int]) -> tuple[int, ...] | None:
    """Returns the shape of ``value`` with ``sizes``: all of it, or its open dimensions, of which a first one
    that is left out is a batch of 1. None for any other number of sizes."""
    shape = value.shape or ()
    if len(sizes) == len(shape):
        return tuple(sizes)
    opened = [axis for axis, size in enumerate(shape) if not isinstance(size, int)]
    if opened[:1] == [0] and len(sizes) == len(opened) - 1:
        sizes = (1, *sizes)
    if len(sizes) != len(opened):
        return None
    left = iter(sizes)
    return tuple(size if isinstance(size, int) else next(left) for size in shape)


def check_shape(value: Value, shape: tuple[int, ...], where: str = "") -> tuple[int, ...]:
    """``shape`` if it fits the declaration of an input, or of what ``where`` names: only numbers bind.

    A name of a dimension is a hint: exporters call different dimensions "?" and onnxruntime runs
    them. Raises ``InputError``, also for sizes beyond ``limits``.
    """
    wanted = value.shape if value.shape is not None else (None,) * len(shape)
    fits = [not isinstance(size, int) or given == size for given, size in zip(shape, wanted, strict=False)]
    if len(shape) != len(wanted) or not all(fits):
        raise InputError(where or f"input {value.name!r}", f"shape {list(shape)}", f"{value}")
    if value.dtype is not None:
        limits.check_tensor(where or f"input {value.name!r}", value.dtype, shape, InputError)
    return shape


def as_array(where: str, value: Value, given: Any) -> Array:
    """A tensor of the value's dtype. Raises ``InputError`` for anything else."""
    dtype = value.dtype
    if not isinstance(given, np.ndarray | np.generic):
        raise InputError(where, f"a {type(given).__name__}", f"a NumPy array, {value}", "use numpy.asarray")
    array = np.asarray(given)
    if dtype is not None and dtype.hasobject:
        if array.dtype.kind not in "OUS":
            raise InputError(where, f"dtype {array.dtype}", f"{value}", "give an array of strings")
        return array.astype(np.object_) if array.dtype.kind != "O" else array
    if array.dtype != dtype:
        raise InputError(
            where, f"dtype {array.dtype}", f"{dtype}, {value}", f"convert it with .astype(numpy.{dtype})"
        )
    return np.ascontiguousarray(array).reshape(array.shape)  # ascontiguousarray makes scalars 1-d
