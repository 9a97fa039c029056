# SPDX-License-Identifier: Apache-2.0
"""Checks values of callers against the field types of their declaration.

Python does not enforce annotations: a selector may return anything. What passes here is made of exactly the
declared types, and of nothing that its maker can still change. ``plain`` does the same
for data that was read.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, TypeVar

import numpy as np

from onedispatch.transactions.base.errors import SolutionError
from onedispatch.transactions.base.signature import bounded_repr

T = TypeVar("T")
_Rule = Callable[[Any, str], Any]

WORD_BITS = 64  # of a whole number: more counts nothing that exists


def exact(kind: Callable[..., T], value: Any, where: str) -> T:
    """``value``, a ``kind``, rebuilt of its declared field types; ``where`` names it in errors.

    NumPy's integers become int and its truth values bool: tuners reckon in them. Nothing else is converted.
    Raises ``SolutionError`` for a field of another type.
    """
    found: T = _rule(kind)(value, where)
    return found


def is_word(value: int) -> bool:
    """Whether a number fits ``WORD_BITS``, with its sign."""
    return -(1 << WORD_BITS - 1) <= value < 1 << WORD_BITS - 1


def _wrong(where: str, given: Any, accepted: str) -> SolutionError:
    return SolutionError(where, bounded_repr(given), accepted, "choose another solution for this problem")


@cache
def _rule(kind: Any) -> _Rule:
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if is_dataclass(kind):
        return _whole(kind)
    if origin in (typing.Union, types.UnionType):
        (inner,) = (arg for arg in args if arg is not types.NoneType)
        rule = _rule(inner)
        return lambda value, where: None if value is None else rule(value, where)
    if origin is tuple:
        item = _rule(args[0])
        return lambda value, where: tuple(
            item(x, f"{where}[{i}]") for i, x in enumerate(_a(tuple, value, where))
        )
    if origin is frozenset:
        member = _rule(args[0])
        return lambda value, where: frozenset(member(x, where) for x in _a(frozenset, value, where))
    return {int: _integer, bool: _truth, str: _text}[kind]


def _whole(kind: Any) -> _Rule:
    hints = typing.get_type_hints(kind)
    names = [field.name for field in fields(kind)]

    def rebuild(value: Any, where: str) -> Any:
        _a(kind, value, where)
        return kind(**{name: _rule(hints[name])(getattr(value, name), f"{where}.{name}") for name in names})

    return rebuild


def _a(kind: type, value: Any, where: str) -> Any:
    if not isinstance(value, kind):
        raise _wrong(where, value, f"{_named(kind)}, not {_named(type(value))}")
    return value


def _named(kind: type) -> str:
    return f"{'an' if kind.__name__[0] in 'aeiou' else 'a'} {kind.__name__}"


def _integer(value: Any, where: str) -> int:
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or not is_word(int(value)):
        raise _wrong(where, value, f"an int of {WORD_BITS} bits")
    return int(value)


def _truth(value: Any, where: str) -> bool:
    return bool(value) if isinstance(value, np.bool_) else bool(_a(bool, value, where))


def _text(value: Any, where: str) -> str:
    return str(_a(str, value, where))
