# SPDX-License-Identifier: Apache-2.0
"""Inputs of a model that become constants of it, with values that the caller of ``compile`` chose."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np

from onedispatch.dispatch.frontend.graph import Array, Graph, Value
from onedispatch.dispatch.frontend.input_shapes import as_array, check_shape
from onedispatch.transactions.base.errors import InputError
from onedispatch.transactions.base.signature import bounded_repr
from onedispatch.transactions.base.text import did_you_mean


def frozen(graph: Graph, values: Mapping[str, Any]) -> Graph:
    """Returns ``graph`` with these inputs as constants, which ``graph.frozen`` has too.

    Args:
        values: by input: numbers and lists of them, which are converted, or arrays of the input's dtype. One
            number fills an input whose shape is known.

    Raises:
        InputError: no such input, or a value that its type or shape does not take.
    """
    if not values:
        return graph
    inputs = {value.name: value for value in graph.inputs}
    made = frozen_values(inputs, graph.constants, values)
    return replace(
        graph,
        inputs=tuple(value for name, value in inputs.items() if name not in made),
        constants={**graph.constants, **made},
        values={name: value for name, value in graph.values.items() if name not in made},
        frozen={**graph.frozen, **made},
    )


def frozen_values(
    inputs: Mapping[str, Value], constants: Collection[str], values: Mapping[str, Any]
) -> dict[str, Array]:
    """Returns the constants that these inputs become. Raises ``InputError`` as ``frozen`` does."""
    for name in values:
        if name not in inputs:
            what = f"{name!r}, a constant of the model" if name in constants else repr(name)
            accepted = f"inputs of the model: {', '.join(inputs) or 'it has none'}"
            raise InputError("inputs to freeze", what, accepted, did_you_mean(name, inputs))
    return {name: frozen_value(inputs[name], given) for name, given in values.items()}


def frozen_value(value: Value, given: Any) -> Array:
    """Returns what an input is frozen to, read-only. Raises ``InputError`` for what it does not take."""
    where = f"input {value.name!r}, frozen"
    if value.dtype is None:
        raise InputError(where, f"{value}", "inputs that are tensors")
    exact = isinstance(given, np.ndarray)
    array: Array = as_array(where, value, given) if exact else _converted(where, value, given)
    if array.ndim == 0 and value.is_concrete:
        array = np.full(value.concrete_shape, array, array.dtype)
    check_shape(value, array.shape, where)
    array = array.copy()
    array.flags.writeable = False
    return array


def _converted(where: str, value: Value, given: Any) -> Array:
    """Numbers, texts, and lists of them, as an array of the value's dtype."""
    dtype = value.dtype
    assert dtype is not None
    try:
        plain = np.array(given)
    except (ValueError, TypeError, OverflowError) as error:
        raise InputError(where, bounded_repr(given), f"lists of equal lengths, {value}") from error
    if plain.size and not _takes(dtype, plain):
        raise InputError(where, bounded_repr(given), f"{value}")
    with np.errstate(over="ignore"):
        array: Array = plain.astype(dtype)
    if dtype.kind not in "biuOc" and np.isinf(array.astype(np.float64)).sum() > np.isinf(plain).sum():
        raise InputError(where, bounded_repr(given), f"numbers that {dtype} has, {value}")
    return array


def _takes(dtype: np.dtype[Any], plain: Array) -> bool:
    """True if ``plain`` has the kind of values that a tensor of ``dtype`` has, integers in its range."""
    kind: str = plain.dtype.kind
    if dtype.hasobject:
        return kind == "U"
    if dtype.kind in "bc":
        return kind in {"b": "b", "c": "iufc"}[dtype.kind]
    try:
        bounds: Any = ml_dtypes.iinfo(dtype)  # type: ignore[no-untyped-call]
    except ValueError:
        return kind in "iuf"
    return kind in "iu" and bounds.min <= int(plain.min()) and int(plain.max()) <= bounds.max
