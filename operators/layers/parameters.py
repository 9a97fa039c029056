# SPDX-License-Identifier: Apache-2.0
"""The parameters of a layer: attributes of its nodes with types, and how they reach its bodies.

    class Crop(od.Layer):
        class Params:
            top: int
            size: tuple[int, ...] = (8, 8)
            mode: Literal["edge", "zero"] = "zero"

Numbers are scalars of the kernel. Lists and text lie in auxiliary tensors: their length, then their members.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np

from onedispatch.operators.declarations.kernel import Scalar
from onedispatch.operators.plugin.node import Node
from onedispatch.operators.plugin.operands import Aux
from onedispatch.operators.plugin.refusals import refusal

_SCALARS: Mapping[Any, str] = {int: "i32", float: "f32", bool: "u32"}
_LISTS: Mapping[Any, str] = {int: "i32", float: "f32"}
_I32 = np.iinfo(np.int32)
_TYPES = (
    "int, float, bool, str, Literal of texts, tuple[int, ...] or tuple[float, ...], of any or fixed length"
)


@dataclass(frozen=True)
class Parameter:
    """One parameter. ``member`` is the type of a list's members, ``length`` of one that is fixed, else -1;
    ``choices`` are those of a ``Literal``."""

    name: str
    type: Any
    default: Any = None  # nothing, of one that nodes must give
    member: Any = None
    length: int = -1
    choices: tuple[str, ...] = ()

    @property
    def required(self) -> bool:
        return self.default is None

    @property
    def scalar(self) -> Scalar | None:
        """As a scalar of the kernel; None where it lies in an auxiliary tensor."""
        if self.type not in _SCALARS:
            return None
        most = 1.0 if self.type is bool else None
        default = None if self.required else float(self.default) if self.type is float else int(self.default)
        return Scalar(self.name, _SCALARS[self.type], default=default, high=most)  # type: ignore[arg-type]

    @property
    def aux(self) -> Aux:
        return Aux(self.name, "u8" if self.type is str else _LISTS[self.member])

    def packed(self, value: Any) -> np.ndarray[Any, Any]:
        """A list or text as its auxiliary tensor: four elements of length and more for bytes, else one."""
        if self.type is str:
            data = value.encode()
            return np.frombuffer(len(data).to_bytes(4, "little") + data, np.uint8)
        dtype = np.int32 if self.member is int else np.float32
        return np.asarray([len(value), *value], dtype)

    def unpacked(self, array: np.ndarray[Any, Any]) -> Any:
        """What ``packed`` was made of."""
        if self.type is str:
            size = int.from_bytes(array[:4].tobytes(), "little")
            return array[4 : 4 + size].tobytes().decode()
        return tuple(self.member(x) for x in array[1 : 1 + int(array[0])])

    @property
    def example(self) -> Any:
        """A value of a list or text that a node may give."""
        if self.type is str:
            return self.choices[0] if self.choices else "text"
        return [self.member(2)] * (self.length if self.length >= 0 else 1)

    @property
    def accepted(self) -> str:
        """What a node may give, in words."""
        if self.choices:
            return " or ".join(map(repr, self.choices))
        if self.member is None:
            return {int: "a whole number", float: "a number", bool: "True or False", str: "text"}[self.type]
        count = "numbers" if self.length < 0 else f"{self.length} numbers"
        return f"a list of {'whole ' if self.member is int else ''}{count}"

    def checked(self, value: Any) -> Any:
        """``value`` as the parameter has it. Raises ``ValueError`` where it is none."""
        if isinstance(value, np.ndarray | np.generic):
            value = value.tolist()
        if self.member is not None:
            return self._checked_list(value)
        if self.type is str and isinstance(value, str) and value in (self.choices or (value,)):
            return value
        if self.type is bool and value in (0, 1) and isinstance(value, int):
            return bool(value)
        whole = isinstance(value, int) and not isinstance(value, bool)
        if (self.type is int and whole) or (self.type is float and (whole or isinstance(value, float))):
            return self.type(value)
        raise ValueError(self.accepted)

    def _checked_list(self, value: Any) -> tuple[Any, ...]:
        kinds = int if self.member is int else (int, float)
        numbers = isinstance(value, list | tuple) and all(
            isinstance(x, kinds) and not isinstance(x, bool) for x in value
        )
        if numbers and self.member is int and not all(_I32.min <= x <= _I32.max for x in value):
            raise ValueError(f"{self.accepted} from {_I32.min} to {_I32.max}")
        if not numbers or (self.length >= 0 and len(value) != self.length):
            raise ValueError(self.accepted)
        return tuple(map(self.member, value))


def parameters_of(layer: str, declared: Any) -> tuple[type, tuple[Parameter, ...]]:
    """A layer's ``Params`` as a frozen dataclass, and its parameters.

    Raises ``KernelDeclarationInvalidError`` for a type that no attribute of ONNX has, or a wrong default.
    """
    where = f"layer {layer}: Params"
    if not isinstance(declared, type):
        raise refusal("declaration_invalid", where, repr(declared), "a class with annotated names")
    try:
        cls = (
            declared if dataclasses.is_dataclass(declared) else dataclass(frozen=True, kw_only=True)(declared)
        )
        hints = get_type_hints(cls)
    except (TypeError, ValueError, NameError) as error:
        raise refusal("declaration_invalid", where, str(error), f"annotations: {_TYPES}") from error
    return cls, tuple(_parameter(where, field, hints[field.name]) for field in dataclasses.fields(cls))


def _parameter(where: str, field: Any, hint: Any) -> Parameter:
    default = field.default
    if default is dataclasses.MISSING and field.default_factory is not dataclasses.MISSING:
        default = field.default_factory()
    made = _typed(field.name, hint)
    if made is None:
        raise refusal("declaration_invalid", f"{where}.{field.name}", repr(hint), _TYPES)
    if default is dataclasses.MISSING:
        return made
    try:
        return dataclasses.replace(made, default=made.checked(default))
    except ValueError as error:
        where = f"{where}.{field.name}, default"
        raise refusal("declaration_invalid", where, repr(default), str(error)) from error


def _typed(name: str, hint: Any) -> Parameter | None:
    """A parameter of an annotated type; None where there is none."""
    if hint in _SCALARS or hint is str:
        return Parameter(name, hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal and all(isinstance(one, str) for one in arguments):
        return Parameter(name, str, choices=arguments)
    if origin is list and arguments and arguments[0] in _LISTS:
        return Parameter(name, list, member=arguments[0])
    members = [one for one in arguments if one is not Ellipsis]
    if origin is tuple and members and len({*members}) == 1 and members[0] in _LISTS:
        return Parameter(name, tuple, member=members[0], length=-1 if ... in arguments else len(members))
    return None


def of_node(cls: type, parameters: Sequence[Parameter], node: Node) -> Any:
    """The parameters that a node gives, as ``cls``. Raises ``KernelError`` for what is missing or wrong."""
    return cls(**{one.name: _given(one, node) for one in parameters})


def _given(parameter: Parameter, node: Node) -> Any:
    value = node.attr(parameter.name, parameter.default)
    if value is None:
        raise node.refuse(
            "missing_parameters", f"parameter {parameter.name}", "nothing", parameter.accepted, "give it"
        )
    try:
        return parameter.checked(value)
    except ValueError as error:
        where = f"parameter {parameter.name}"
        raise node.refuse("parameter_invalid", where, repr(value), str(error)) from error


def of_tile(cls: type, parameters: Sequence[Parameter], tile: Any) -> Any:
    """The parameters of the node that a call is for."""
    return cls(**{one.name: _in_tile(one, getattr(tile, one.name)) for one in parameters})


def _in_tile(parameter: Parameter, value: Any) -> Any:
    return parameter.type(value) if parameter.scalar else parameter.unpacked(np.asarray(value))
