# SPDX-License-Identifier: Apache-2.0
"""Checks arguments of public functions on entry: each function returns the value or raises ``InputError``."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from onedispatch.transactions.base.errors import InputError
from onedispatch.transactions.base.host import MOST_THREADS
from onedispatch.transactions.base.signature import bounded_repr, matches_hint

_MOST_DIMENSION = (1 << 63) - 1  # ONNX's dimensions are int64


def integer(where: str, value: Any, least: int, most: int) -> int:
    """Returns an integer within bounds, NumPy's included, as an int."""
    if isinstance(value, bool) or not matches_hint(value, int) or not least <= operator.index(value) <= most:
        raise InputError(where, bounded_repr(value), f"a whole number from {least} to {most}")
    return operator.index(value)


def threads(value: Any) -> int | None:
    """Returns the number of host threads, None to let each part choose."""
    return None if value is None else integer("threads", value, 1, MOST_THREADS)


def choice(where: str, value: Any, accepted: Sequence[str]) -> str:
    """Returns ``value``, one of the ``accepted`` texts."""
    if not isinstance(value, str) or value not in accepted:
        raise InputError(where, bounded_repr(value), ", ".join(map(repr, accepted)))
    return value


def file_path(where: str, value: Any) -> Path:
    """Returns a non-empty path; whether it can be opened is not checked here."""
    try:
        path = os.fspath(value)
    except TypeError:
        path = b""
    if not isinstance(path, str) or not path or "\0" in path:
        raise InputError(where, bounded_repr(value), "the path of a file, as a str or os.PathLike")
    return Path(path)


def selector(value: Any) -> None:
    """Checks that a selector is None or has a method ``select``."""
    asked = getattr(value, "select", None)
    if value is not None and (isinstance(value, type) or not callable(asked)):
        raise InputError("selector", bounded_repr(value), "None, or an object with select(problem, device)")


def shapes(value: Any) -> dict[str, tuple[int, ...]]:
    """Returns the shape of each named input."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InputError("shapes", bounded_repr(value), "a dict of input name to sizes, or None")
    return {text("shapes", name): _sizes(name, sizes) for name, sizes in value.items()}


def profiles(value: Any) -> list[dict[str, tuple[int, ...]]]:
    """Returns sets of shapes of inputs; None: none."""
    if value is None:
        return []
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise InputError("profiles", bounded_repr(value), "a list of dicts of input name to sizes, or None")
    return [shapes(one) for one in value]


def _sizes(name: str, sizes: Any) -> tuple[int, ...]:
    where = f"shapes[{name!r}]"
    if isinstance(sizes, str | bytes) or not isinstance(sizes, Iterable):
        raise InputError(where, bounded_repr(sizes), "a list of sizes")
    return tuple(integer(where, size, 0, _MOST_DIMENSION) for size in sizes)


def by_name(where: str, value: Any) -> dict[str, Any]:
    """Returns what is given for each name; None: nothing."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InputError(where, bounded_repr(value), "a dict of names, or None")
    return {text(where, name): one for name, one in value.items()}


def paths(where: str, value: Any) -> list[str]:
    """Returns a list of paths; one path alone becomes a list of one."""
    if isinstance(value, str | os.PathLike):
        value = [value]
    if isinstance(value, bytes) or not isinstance(value, Iterable):
        raise InputError(where, bounded_repr(value), "a path, or a list of paths")
    return [os.fspath(file_path(where, path)) for path in value]


def names(where: str, value: Any) -> list[str]:
    """Returns a list of names; one name alone becomes a list of one, None an empty list."""
    if value is None:
        return []
    if isinstance(value, str):
        return [value]
    if isinstance(value, bytes) or not isinstance(value, Iterable):
        raise InputError(where, bounded_repr(value), "None, or a list of names")
    return [text(where, name) for name in value]


def text(where: str, value: Any) -> str:
    if not isinstance(value, str):
        raise InputError(where, f"the name {bounded_repr(value)}", "names as str")
    return value


def refuse_unknown(what: str, given: Mapping[str, object], known: type) -> None:
    """Raises ``TypeError``, as Python does, for options that the typed dict ``known`` has not."""
    unknown = sorted(given.keys() - known.__annotations__.keys())
    if unknown:
        raise TypeError(f"{what}() got an unexpected keyword argument {unknown[0]!r}")
