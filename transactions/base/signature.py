# SPDX-License-Identifier: Apache-2.0
"""Finds the argument of a failed call that does not match the function's annotations.

Annotations are evaluated only after a call has failed. An annotation that cannot be resolved or tested
(names imported for type checkers only, protocols) matches every value.
"""

from __future__ import annotations

import inspect
import math
import operator
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from onedispatch.transactions.base.handlers import reraise_from_handler

_SERIES = (Collection, Iterable, Sequence)  # here strings and 0-d arrays do not count as sequences
_SHOWN = 200  # characters of a value


def first_mismatch(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[str, str] | None:
    """Returns (given, accepted) of the first argument that does not match, or None if all match."""
    form = inspect.signature(function)
    try:
        bound = form.bind(*args, **kwargs)
    except TypeError as error:
        return str(error), f"{function.__qualname__}{form}"
    for name, value in bound.arguments.items():
        parameter = form.parameters[name]
        hint = _resolved(function, parameter.annotation)
        for one in _each(parameter, value):
            if not matches_hint(one, hint):
                return f"{name}={bounded_repr(one)}", f"{name}: {_annotation_text(parameter.annotation)}"
    return None


def _each(parameter: inspect.Parameter, value: Any) -> Sequence[Any]:
    if parameter.kind is parameter.VAR_POSITIONAL:
        return tuple(value)
    return tuple(value.values()) if parameter.kind is parameter.VAR_KEYWORD else (value,)


def matches_hint(value: Any, hint: Any) -> bool:
    """True if ``value`` may be passed for a parameter annotated ``hint``."""
    try:
        return _fits(value, hint)
    except Exception as error:  # noqa: BLE001 (iterating over a foreign container may raise anything)
        reraise_from_handler(error)
        return False


def _fits(value: Any, hint: Any) -> bool:
    if hint is Any:
        return True
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(matches_hint(value, one) for one in inner)
    if origin is typing.Literal:
        return any(type(value) is type(one) and value == one for one in inner)
    if hint is None or hint is type(None):
        return value is None
    if hint in (int, float):
        return _is_number(value, hint)
    kind = origin or hint
    if not isinstance(kind, type) or getattr(kind, "_is_protocol", False):
        return True
    if not isinstance(value, kind):
        return False
    if kind in _SERIES and (isinstance(value, str | bytes) or getattr(value, "ndim", 1) == 0):
        return False
    return _inside_fits(value, inner)


def _is_number(value: Any, kind: type) -> bool:
    """True if Python accepts the value as an int or a float, NumPy scalars included."""
    try:
        operator.index(value) if kind is int else math.trunc(0 * value)
    except (ArithmeticError, ValueError) as error:
        reraise_from_handler(error)
        return kind is float  # infinities and NaN
    except Exception as error:  # noqa: BLE001 (a foreign class may raise anything; then it is no number)
        reraise_from_handler(error)
        return False
    return True


def _inside_fits(value: Any, inner: tuple[Any, ...]) -> bool:
    if isinstance(value, Mapping) and len(inner) == 2:
        return all(
            matches_hint(key, inner[0]) and matches_hint(item, inner[1]) for key, item in value.items()
        )
    if isinstance(value, tuple) and inner and Ellipsis not in inner and len(inner) > 1:
        return len(value) == len(inner) and all(map(matches_hint, value, inner))
    if inner and isinstance(value, Collection) and not isinstance(value, str | bytes):
        return all(matches_hint(item, inner[0]) for item in value)
    return True


def bounded_repr(value: Any) -> str:
    """Returns ``repr(value)``, shortened; never raises."""
    try:
        text = repr(value)
    except Exception as error:  # noqa: BLE001 (a foreign __repr__ may raise anything)
        reraise_from_handler(error)
        text = f"<a {type(value).__name__}, whose repr raises {type(error).__name__}>"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... (a {type(value).__name__})"


def _resolved(function: Callable[..., Any], annotation: Any) -> Any:
    if annotation is inspect.Parameter.empty:
        return Any
    holder = types.SimpleNamespace(__annotations__={"it": annotation})
    try:
        return typing.get_type_hints(holder, getattr(function, "__globals__", {}))["it"]
    except (NameError, TypeError, AttributeError):
        return Any


def _annotation_text(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
