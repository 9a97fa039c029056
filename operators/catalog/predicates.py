# SPDX-License-Identifier: Apache-2.0
"""Predicates: typed rows that say of which problems a part of a catalog is, and of others why not.

In files a predicate is a dictionary, ``{is: Size, dim: m, least: 64}``. Reading one runs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, get_type_hints

from onedispatch.operators.catalog.features import Features
from onedispatch.operators.scheduling.exact import WORD_BITS, is_word
from onedispatch.transactions.base.errors import CatalogError, DeviceError
from onedispatch.transactions.base.signature import bounded_repr, matches_hint

_DEEPEST = 32  # predicates inside of each other


class Predicate:
    """Whether a problem is one of those that something is for."""

    def failure(self, seen: Features) -> str:
        """Why it does not hold of a problem; "" where it holds."""
        raise NotImplementedError

    def holds(self, seen: Features) -> bool:
        return not self.failure(seen)

    def __str__(self) -> str:
        values = {key: _said(value) for key, value in self.to_data().items() if key != "is"}
        said = values.values() if len(values) == 1 else (f"{key} {value}" for key, value in values.items())
        return f"{type(self).__name__} {', '.join(said)}".strip()

    def to_data(self) -> dict[str, Any]:
        """The predicate as a dictionary."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        return {"is": type(self).__name__} | {key: _plain(value) for key, value in values.items()}


@dataclass(frozen=True)
class Always(Predicate):
    """Holds of every problem."""

    def failure(self, seen: Features) -> str:
        return ""


@dataclass(frozen=True)
class And(Predicate):
    """Holds where all hold."""

    of: tuple[Predicate, ...]

    def __str__(self) -> str:
        return " and ".join(map(str, self.of))

    def failure(self, seen: Features) -> str:
        return next((why for one in self.of if (why := one.failure(seen))), "")


@dataclass(frozen=True)
class Or(Predicate):
    """Holds where one holds."""

    of: tuple[Predicate, ...]

    def __str__(self) -> str:
        return f"({' or '.join(map(str, self.of))})"

    def failure(self, seen: Features) -> str:
        failures = [one.failure(seen) for one in self.of]
        return " and ".join(failures) if all(failures) else ""


@dataclass(frozen=True)
class Not(Predicate):
    """Holds where another does not."""

    of: Predicate

    def __str__(self) -> str:
        return f"not ({self.of})"

    def failure(self, seen: Features) -> str:
        return "" if self.of.failure(seen) else f"{self.of} holds"


@dataclass(frozen=True)
class Hardware(Predicate):
    """The device is this one, to the last constant of its description."""

    device: str  # name@digest

    def failure(self, seen: Features) -> str:
        return _differs("the device", seen.hardware, self.device)


@dataclass(frozen=True)
class Columns(Predicate):
    """The device has at least so many columns, and at most ``most`` (0: any number)."""

    least: int = 1
    most: int = 0

    def failure(self, seen: Features) -> str:
        return _outside("columns", seen.device.columns, self.least, self.most)


@dataclass(frozen=True)
class Feature(Predicate):
    """A constant of the device's description lies between two values."""

    constant: str
    least: float
    most: float

    def failure(self, seen: Features) -> str:
        try:
            value = seen.device.constant(self.constant)
        except DeviceError:
            return f"the device has no constant {self.constant!r}"
        inside = self.least <= value <= self.most
        return "" if inside else f"{self.constant} is {value:g}, not {self.least:g} to {self.most:g}"


@dataclass(frozen=True)
class Operation(Predicate):
    """The operation: a canonical einsum, or a kernel's name."""

    name: str

    def failure(self, seen: Features) -> str:
        return _differs("the operation", seen.operation, self.name)


@dataclass(frozen=True)
class KernelIs(Predicate):
    """The kernel, in the version that a declaration's digest names."""

    kernel: str  # name#digest

    def failure(self, seen: Features) -> str:
        return _differs("the kernel", seen.kernel, self.kernel)


@dataclass(frozen=True)
class Types(Predicate):
    """Element types of operands, of parts of packed constants and of results, in order."""

    types: tuple[str, ...]

    def failure(self, seen: Features) -> str:
        return _differs("types", ",".join(seen.types), ",".join(self.types))


@dataclass(frozen=True)
class Layout(Predicate):
    """How operands arrive; see ``Features.layout``."""

    layout: str

    def failure(self, seen: Features) -> str:
        return _differs("the layout", seen.layout, self.layout)


@dataclass(frozen=True)
class Attribute(Predicate):
    """A scalar of the kernel, which its cost depends on."""

    scalar: str
    value: float | str

    def failure(self, seen: Features) -> str:
        return _differs(self.scalar, seen.scalars.get(self.scalar), self.value)


@dataclass(frozen=True)
class Size(Predicate):
    """The extent of a dimension: within bounds (``most`` 0: any), and a multiple."""

    dim: str
    least: int = 1
    most: int = 0
    multiple: int = 1

    def failure(self, seen: Features) -> str:
        size = seen.sizes.get(self.dim)
        if size is None:
            return f"no dimension {self.dim!r}, but {', '.join(seen.sizes)}"
        outside = _outside(self.dim, size, self.least, self.most)
        if outside or size % self.multiple == 0:
            return outside
        return f"{self.dim} is {size}, no multiple of {self.multiple}"


PREDICATES: dict[str, type[Predicate]] = {
    cls.__name__: cls
    for cls in (
        *(Always, And, Or, Not),
        *(Hardware, Columns, Feature),
        *(Operation, KernelIs, Types, Layout, Attribute, Size),
    )
}


def predicate_of(data: Any, where: str, depth: int = 0) -> Predicate:
    """The predicate that ``to_data`` wrote. Raises ``CatalogError`` for anything else."""
    if not isinstance(data, dict) or not isinstance(data.get("is"), str) or depth > _DEEPEST:
        raise CatalogError(where, bounded_repr(data), "a dictionary with `is`, not nested deeper than 32")
    cls = PREDICATES.get(data["is"])
    if cls is None:
        known = ", ".join(PREDICATES)
        raise CatalogError(
            where, f"predicate {data['is']!r}", known, "read it with the version that wrote it"
        )
    hints = get_type_hints(cls)
    known_names = {field.name: field for field in fields(cls)}  # type: ignore[arg-type]
    given = {key: value for key, value in data.items() if key != "is"}
    missing = [n for n, f in known_names.items() if n not in given and f.default is f.default_factory]
    unknown = sorted(given.keys() - known_names.keys(), key=str)
    if missing or unknown:
        wrong = f"without {', '.join(missing)}" if missing else f"with {', '.join(map(str, unknown))}"
        raise CatalogError(where, f"{data['is']} {wrong}", ", ".join(known_names) or "nothing but `is`")
    return cls(**{key: _value(hints[key], value, f"{where}.{key}", depth) for key, value in given.items()})


def _value(hint: Any, value: Any, where: str, depth: int) -> Any:
    if hint is Predicate:
        return predicate_of(value, where, depth + 1)
    if hint == tuple[Predicate, ...]:
        parts = enumerate(_a_list(value, where))
        return tuple(predicate_of(one, f"{where}[{i}]", depth + 1) for i, one in parts)
    if hint == tuple[str, ...]:
        value = tuple(_a_list(value, where))
    if isinstance(value, int) and not is_word(value):
        raise CatalogError(where, bounded_repr(value), f"a number of {WORD_BITS} bits")
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not matches_hint(value, hint) or isinstance(value, bool):
        raise CatalogError(where, bounded_repr(value), str(getattr(hint, "__name__", hint)))
    if hint is int and where.endswith(".multiple") and value < 1:
        raise CatalogError(where, str(value), "1 or more")
    return value


def _a_list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise CatalogError(where, bounded_repr(value), "a list")
    return list(value)


def _said(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _plain(value: Any) -> Any:
    if isinstance(value, Predicate):
        return value.to_data()
    return [_plain(one) for one in value] if isinstance(value, tuple) else value


def _differs(what: str, given: object, wanted: object) -> str:
    return "" if given == wanted else f"{what} is {given}, not {wanted}"


def _outside(what: str, value: int, least: int, most: int) -> str:
    if least <= value and (not most or value <= most):
        return ""
    return (
        f"{what} is {value}, not {least} or more" if not most else f"{what} is {value}, not {least} to {most}"
    )
