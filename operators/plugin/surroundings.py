# SPDX-License-Identifier: Apache-2.0
"""What a Python body can reach beside its tile: arrays of the host, which no core has.

Constants belong to a kernel's code. Arrays and long lists do not: a core would have to be brought them, as an
input or an auxiliary tensor. Check mode exchanges what is found here, and sees whether results change.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

_FEW = 16  # numbers that a list or a dict may have and still be a constant of the code
_DEPTH = 4  # functions that call functions


@dataclass(frozen=True)
class Reached:
    """A name through which a body reaches ``value``; ``bind`` puts another object behind it."""

    name: str
    value: Any
    bind: Callable[[Any], None]

    @contextmanager
    def exchanged(self, seed: int) -> Iterator[None]:
        """Other numbers behind the name, for a while."""
        self.bind(_others(self.value, np.random.default_rng(seed)))
        try:
            yield
        finally:
            self.bind(self.value)


def reached(body: Callable[..., Any]) -> list[Reached]:
    """Arrays, and lists and dicts of many numbers, that ``body`` reaches by name, each once."""
    found: dict[int, Reached] = {}
    for one in _names(body, _DEPTH, set()):
        if _is_data(one.value):
            found.setdefault(id(one.value), one)
    return list(found.values())


def _names(function: Any, depth: int, seen: set[int]) -> Iterator[Reached]:
    """Everything behind names in the function's code, and in that of functions that it calls."""
    owner, function = getattr(function, "__self__", None), getattr(function, "__func__", function)
    if not isinstance(function, types.FunctionType) or id(function) in seen:
        return
    seen.add(id(function))
    names = set(_code_names(function.__code__))
    for name in names & function.__globals__.keys():
        yield from _behind(
            name, function.__globals__[name], _item(function.__globals__, name), names, depth, seen
        )
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            value = cell.cell_contents
        except ValueError:  # not bound yet
            continue
        yield from _behind(name, value, _attribute(cell, "cell_contents"), names, depth, seen)
    for name in names if owner is not None else ():
        holder = next((x for x in (owner, *type(owner).__mro__) if name in getattr(x, "__dict__", {})), None)
        if holder is not None:
            value = vars(holder)[name]
            yield from _behind(f"self.{name}", value, _attribute(holder, name), names, depth, seen)


def _behind(
    name: str, value: Any, bind: Callable[[Any], None], names: set[str], depth: int, seen: set[int]
) -> Iterator[Reached]:
    """A name, and what lies behind it: other functions, attributes of modules and objects."""
    yield Reached(name, value, bind)
    if depth and isinstance(value, types.FunctionType | types.MethodType):
        yield from _names(value, depth - 1, seen)
    elif isinstance(value, types.ModuleType) or (hasattr(value, "__dict__") and not callable(value)):
        for inner in names & vars(value).keys():
            yield Reached(f"{name}.{inner}", vars(value)[inner], _attribute(value, inner))


def _code_names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _code_names(constant)


def _item(holder: dict[str, Any], name: str) -> Callable[[Any], None]:
    return lambda value: holder.__setitem__(name, value)


def _attribute(holder: Any, name: str) -> Callable[[Any], None]:
    return lambda value: setattr(holder, name, value)


def _is_data(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return value.size > 1 and value.dtype.kind in "biuf"
    if isinstance(value, bytearray | memoryview):
        return len(value) > 1
    if isinstance(value, list | dict):
        numbers = value.values() if isinstance(value, dict) else value
        return len(value) > _FEW and all(isinstance(one, int | float | np.number) for one in numbers)
    return False


def _others(value: Any, rng: np.random.Generator) -> Any:
    """An object like ``value`` with other numbers of the same size."""
    if isinstance(value, dict):
        return dict(zip(value, _others(list(value.values()), rng), strict=True))
    if isinstance(value, list):
        return [type(one)(one + 1) for one in value]
    if isinstance(value, bytearray | memoryview):
        return bytearray(byte ^ 1 for byte in bytes(value))
    if value.dtype.kind == "b":
        return ~value
    return value + np.asarray(rng.integers(1, 3, value.shape)).astype(value.dtype)
