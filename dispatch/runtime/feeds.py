# SPDX-License-Identifier: Apache-2.0
"""What a caller gives for an input, checked against its type before anything runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from onedispatch.dispatch.frontend.graph import Array, Value
from onedispatch.dispatch.frontend.input_shapes import as_array, check_shape
from onedispatch.dispatch.ort.values import OrtValue
from onedispatch.transactions.base.boundary import error_line
from onedispatch.transactions.base.errors import InputError
from onedispatch.transactions.base.handlers import reraise_from_handler


class _Accepted(NamedTuple):
    """The last feed of tensors that was checked: name, dtype and shape of each."""

    tensors: tuple[tuple[str, np.dtype[Any], tuple[int, ...]], ...]
    shapes: dict[str, tuple[int, ...]]


class Inputs:
    """A model's inputs. Feeds like the last one are compared with it, and not checked again."""

    def __init__(self, values: Iterable[Value]) -> None:
        self.declared = {value.name: value for value in values}
        self._accepted: _Accepted | None = None  # replaced as a whole: threads share it

    def remember(self, arrays: Mapping[str, Any], shapes: dict[str, tuple[int, ...]]) -> None:
        """Keeps what was checked; no feed of sequences and the like, which have elements to check."""
        if len(shapes) == len(self.declared):
            tensors = tuple((name, arrays[name].dtype, shape) for name, shape in shapes.items())
            self._accepted = _Accepted(tensors, shapes)

    def like_last(self, feed: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, tuple[int, ...]]] | None:
        """What ``checked_feed`` would return, where names, dtypes and shapes are those of the last feed."""
        last = self._accepted
        if last is None or type(feed) is not dict or len(feed) != len(last.tensors):
            return None
        arrays: dict[str, Any] = {}
        for name, dtype, shape in last.tensors:
            array = feed.get(name)
            if type(array) is not np.ndarray or array.shape != shape or array.dtype != dtype:
                return None
            if not array.flags.c_contiguous:
                return None
            arrays[name] = array
        return arrays, last.shapes


def _tensor(where: str, value: Value, given: Any) -> Array:
    """A tensor of the value's dtype, of arrays, OrtValues and lists. Raises ``InputError`` for others.

    Lists become arrays of that dtype, as in onnxruntime; elements are converted as NumPy does.
    """
    if isinstance(given, OrtValue):
        given = given.numpy()
    elif isinstance(given, list):
        given = _from_list(where, value, given)
    return as_array(where, value, given)


def _from_list(where: str, value: Value, given: list[Any]) -> Array:
    dtype = value.dtype
    try:
        if dtype is None or dtype.hasobject:
            return np.array(given, np.str_)
        return np.array(given, dtype)
    except Exception as error:
        reraise_from_handler(error)  # methods of elements may raise anything
        raise InputError(where, f"a list: {error_line(error)}", f"{value}") from error


def as_value(where: str, kind: str, given: Any) -> Any:
    """A value of type ``kind``: ``seq(...)`` takes a list, ``optional(...)`` None or what is inside.

    Maps and sparse tensors are for the host's engine to judge. Raises ``InputError`` for the rest.
    """
    if isinstance(given, OrtValue):
        given = given.numpy()
    outer, _, inner = kind.partition("(")
    inner = inner.removesuffix(")")
    if outer == "optional":
        return None if given is None else as_value(where, inner, given)
    if outer == "seq":
        if not isinstance(given, list | tuple):
            raise InputError(where, f"a {type(given).__name__}", f"a list, {kind}")
        return [as_value(f"{where}, element {i}", inner, element) for i, element in enumerate(given)]
    value = Value(where, kind)
    return given if value.dtype is None else _tensor(where, value, given)


def checked_feed(known: Inputs, feed: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, tuple[int, ...]]]:
    """Returns the inputs as contiguous arrays, and the shapes of those that are tensors.

    Raises ``InputError`` for a wrong, missing or unknown name, and for a dtype or shape that does not fit.
    """
    as_before = known.like_last(feed)
    if as_before is not None:
        return as_before
    inputs = known.declared
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
        array = _tensor(f"input {name!r}", value, feed[name])
        shapes[name] = check_shape(value, array.shape)
        arrays[name] = array
    known.remember(arrays, shapes)
    return arrays, shapes
