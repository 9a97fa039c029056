# SPDX-License-Identifier: Apache-2.0
"""Frozen dataclasses as data that JSON can hold, and back: problems and solutions travel so.

A dataclass becomes a dictionary of its fields, a tuple a list, a frozen set a sorted list, an element type
its name. Reading follows the field types of the declaration and says where something else was found.
"""

from __future__ import annotations

import hashlib
import json
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import Field, fields, is_dataclass
from functools import cache
from typing import Any, TypeVar

from onedispatch.operators.declarations.dtypes import DTYPES, DType
from onedispatch.operators.scheduling.exact import WORD_BITS, is_word
from onedispatch.operators.scheduling.index_space import SERIALISED_NAME
from onedispatch.transactions.base.errors import SolutionError
from onedispatch.transactions.base.signature import bounded_repr

T = TypeVar("T")
_REMEDY = "read what to_data() wrote, of this version"


def plain(value: Any) -> Any:
    """``value`` as dictionaries, lists, strings and numbers."""
    kind: Any = type(value)
    if kind is DType:
        return value.name
    if names := _names_of(kind):
        return {key: plain(getattr(value, name)) for key, name in names}
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    if isinstance(value, frozenset):
        return sorted(plain(item) for item in value)
    return value


@cache
def _names_of(kind: Any) -> tuple[tuple[str, str], ...]:
    """A dataclass's fields as data names them, and their own names; of other types nothing."""
    return tuple((_serialised(one), one.name) for one in fields(kind)) if is_dataclass(kind) else ()


def _serialised(field: Field[Any]) -> str:
    """Returns the name of a field in data: the one it was first written with, so that digests stay."""
    return str(field.metadata.get(SERIALISED_NAME, field.name))


def digest_of(value: Any, size: int) -> str:
    """What names a value in every process and on every machine: ``size`` bytes in hexadecimal digits."""
    text = json.dumps(plain(value), sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=size).hexdigest()


def read(kind: Callable[..., T], data: Any, where: str) -> T:
    """A ``kind`` from what ``plain`` made of one.

    Raises ``SolutionError`` where a field is missing, unknown or of another type.
    """
    found: T = _reader(kind)(data, where)
    return found


_Reader = Callable[[Any, str], Any]


@cache
def _reader(kind: Any) -> _Reader:
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if kind is DType:
        return _dtype
    if is_dataclass(kind):
        return _dataclass_reader(kind)
    if origin in (typing.Union, types.UnionType):
        return _union_reader(args)
    if origin is tuple:
        return _tuple_reader(args)
    if origin is frozenset:
        inner = _reader(args[0])
        return lambda data, where: frozenset(inner(x, where) for x in _list(data, where))
    return lambda data, where: _scalar(kind, data, where)


def _wrong(where: str, given: Any, accepted: str) -> SolutionError:
    return SolutionError(where, bounded_repr(given), accepted, _REMEDY)


def _scalar(kind: type, data: Any, where: str) -> Any:
    whole = kind is float and isinstance(data, int)
    if isinstance(data, bool) != (kind is bool) or not (whole or isinstance(data, kind)):
        raise _wrong(where, data, kind.__name__)
    if kind is int and not is_word(data):
        raise _wrong(where, data, f"an int of {WORD_BITS} bits")
    return float(data) if whole else data


def _list(data: Any, where: str) -> Sequence[Any]:
    if not isinstance(data, list | tuple):
        raise _wrong(where, data, "a list")
    return data


def _dtype(data: Any, where: str) -> DType:
    if not isinstance(data, str) or data not in DTYPES:
        raise _wrong(where, data, ", ".join(DTYPES))
    return DTYPES[data]


def _dataclass_reader(kind: Any) -> _Reader:
    hints = typing.get_type_hints(kind)
    names = {_serialised(field): field.name for field in fields(kind)}

    def read_fields(data: Any, where: str) -> Any:
        if not isinstance(data, dict) or set(data) != set(names):
            given = sorted(map(str, data)) if isinstance(data, dict) else data
            raise _wrong(where, given, f"a dictionary of {', '.join(names)}")
        return kind(
            **{name: _reader(hints[name])(data[key], f"{where}.{key}") for key, name in names.items()}
        )

    return read_fields


def _tuple_reader(args: tuple[Any, ...]) -> _Reader:
    def read_items(data: Any, where: str) -> Any:
        items = _list(data, where)
        kinds = [args[0]] * len(items) if args[1:] == (...,) else args
        if len(items) != len(kinds):
            raise _wrong(where, data, f"a list of {len(kinds)}")
        pairs = enumerate(zip(kinds, items, strict=True))
        return tuple(_reader(kind)(item, f"{where}[{i}]") for i, (kind, item) in pairs)

    return read_items


def _union_reader(kinds: tuple[Any, ...]) -> _Reader:
    """The first kind that the data fits: dataclasses by their fields, others by their type."""

    def fits(kind: Any, data: Any) -> bool:
        if is_dataclass(kind):
            return isinstance(data, dict) and set(data) == set(map(_serialised, fields(kind)))
        try:
            _reader(kind)(data, "")
        except SolutionError:
            return False
        return True

    def read_one(data: Any, where: str) -> Any:
        for kind in kinds:
            if fits(kind, data):
                return _reader(kind)(data, where)
        raise _wrong(where, data, " or ".join(getattr(kind, "__name__", str(kind)) for kind in kinds))

    return read_one
