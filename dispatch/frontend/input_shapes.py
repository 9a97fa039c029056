# SPDX-License-Identifier: Apache-2.0
"""Concrete shapes for a model's inputs, checked against what it declares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onedispatch.dispatch.base import limits
from onedispatch.dispatch.frontend.graph import Value
from onedispatch.transactions.base.errors import InputError


def bind_shapes(
    inputs: Sequence[Value], shapes: Mapping[str, Sequence[int]]
) -> dict[str, tuple[int, ...]] | None:
    """Concrete shapes of all tensor inputs, or None where some dimension stays open."""
    names = {v.name for v in inputs}
    for name, shape in shapes.items():
        if name not in names:
            raise InputError(
                "shapes", f"{name!r}: {shape}", f"lists of sizes for inputs {', '.join(sorted(names))}"
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
