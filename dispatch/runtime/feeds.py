# SPDX-License-Identifier: Apache-2.0
"""What a caller gives for an input, checked against its type before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from onedispatch.dispatch.frontend.graph import Array, Value
from onedispatch.dispatch.frontend.input_shapes import check_shape
from onedispatch.transactions.base.errors import InputError


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


def as_value(where: str, kind: str, given: Any) -> Any:
    """A value of type ``kind``: ``seq(...)`` takes a list, ``optional(...)`` None or what is inside.

    Maps and sparse tensors are for the host's engine to judge. Raises ``InputError`` for the rest.
    """
    outer, _, inner = kind.partition("(")
    inner = inner.removesuffix(")")
    if outer == "optional":
        return None if given is None else as_value(where, inner, given)
    if outer == "seq":
        if not isinstance(given, list | tuple):
            raise InputError(where, f"a {type(given).__name__}", f"a list, {kind}")
        return [as_value(f"{where}, element {i}", inner, element) for i, element in enumerate(given)]
    value = Value(where, kind)
    return given if value.dtype is None else as_array(where, value, given)


def checked_feed(
    inputs: Mapping[str, Value], feed: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, tuple[int, ...]]]:
    """Returns the inputs as contiguous arrays, and the shapes of those that are tensors.

    Raises ``InputError`` for a wrong, missing or unknown name, and for a dtype or shape that does not fit.
    """
    if not isinstance(feed, Mapping):
        raise InputError("input_feed", f"a {type(feed).__name__}", "a dict of input name to array")
    wrong = [name for name in feed if name not in inputs]
    missing = [
        name for name, value in inputs.items() if name not in feed and not value.type.startswith("optional")
    ]
    if wrong or missing:
        given = [f"unknown {name!r}" for name in wrong] + [f"no {name!r}" for name in missing]
        raise InputError("input_feed", ", ".join(given), f"inputs {list(inputs)}")
    arrays: dict[str, Any] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    for name, value in inputs.items():
        if value.dtype is None:
            arrays[name] = as_value(f"input {name!r}", value.type, feed.get(name))
            continue
        array = as_array(f"input {name!r}", value, feed[name])
        shapes[name] = check_shape(value, array.shape)
        arrays[name] = array
    return arrays, shapes
