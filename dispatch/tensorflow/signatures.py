# SPDX-License-Identifier: Apache-2.0
"""The signatures of TensorFlow's operators: names and types of inputs, outputs and attributes.

One line of ``operator_table`` holds one signature, of one operator or of several that share it; indented
lines continue it:

    TopKV2(input: T, k: Tk) -> values: T, indices: index_type; sorted=true, T, Tk=int32, index_type=int32

Behind each port is its type: the attribute that holds it, or an element type. ``N*T`` are as many tensors as
the attribute ``N`` says, ``[T]`` one tensor for each element type that the attribute ``T`` lists. Behind the
semicolon are the attributes, with the defaults that TensorFlow gives them; ``none`` is an unknown shape.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np

from onedispatch.dispatch.tensorflow.operator_table import OPERATORS
from onedispatch.transactions.base.errors import InternalError, ModelError

Type = np.dtype[Any]

ELEMENT_TYPES: Mapping[str, Type] = {
    **{np.dtype(t).name: np.dtype(t) for t in ("float16", "float32", "float64", "complex64", "complex128")},
    **{f"{sign}int{bits}": np.dtype(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "bool": np.dtype(np.bool_),
    "string": np.dtype(np.object_),
}
_LINE = re.compile(r"(?P<names>[\w ]+)\((?P<inputs>[^)]*)\) ->(?P<outputs>[^;]*)(?:;(?P<attributes>.*))?")
_PORT = re.compile(r"(?P<name>\w+): (?:(?P<count>\w+)\*)?(?P<list>\[)?(?P<type>\w+)\]?")
_COMMA = re.compile(r",\s*(?![^\[]*\])")  # outside of brackets


@dataclass(frozen=True)
class Port:
    """An input or output of an operator, or a list of them.

    Attributes:
        name: as TensorFlow names it.
        type: an element type, or the attribute that holds it.
        count: the attribute that says how many tensors a list has, "" if there is none.
        listed: True if ``type`` is an attribute that holds one element type for each tensor of a list.
    """

    name: str
    type: str
    count: str = ""
    listed: bool = False

    @property
    def many(self) -> bool:
        """True for a list of tensors."""
        return bool(self.count) or self.listed


@dataclass(frozen=True)
class Signature:
    """The facts of one operator."""

    op_type: str
    input_ports: tuple[Port, ...]
    output_ports: tuple[Port, ...]
    attributes: tuple[str, ...]
    defaults: Mapping[str, Any] = field(default_factory=dict)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the inputs; a list of tensors is one."""
        return tuple(port.name for port in self.input_ports)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the outputs; a list of tensors is one."""
        return tuple(port.name for port in self.output_ports)

    def count(self, attributes: Mapping[str, Any], where: str = "") -> int:
        """Returns the number of output tensors of a node with these attributes.

        Raises:
            ModelError: an attribute that says it is missing, or of another kind.
        """
        return sum(self._length(port, attributes, where) for port in self.output_ports)

    def types(self, attributes: Mapping[str, Any]) -> list[Type | None]:
        """Returns the element type of each output tensor, None where the attributes do not say it.

        Raises ``ModelError`` like ``count``.
        """
        found: list[Type | None] = []
        for port in self.output_ports:
            if port.listed:
                found += [_as_type(one) for one in self._list(port, attributes)]
            else:
                found += [self._type(port, attributes)] * self._length(port, attributes)
        return found

    def of(self, name: str, attributes: Mapping[str, Any]) -> Any:
        """Returns an attribute of a node, the default where the node leaves it out, None if there is none."""
        return attributes.get(name, self.defaults.get(name))

    def _type(self, port: Port, attributes: Mapping[str, Any]) -> Type | None:
        fixed = ELEMENT_TYPES.get(port.type)
        return fixed if fixed is not None else _as_type(self.of(port.type, attributes))

    def _length(self, port: Port, attributes: Mapping[str, Any], where: str = "") -> int:
        if port.listed:
            return len(self._list(port, attributes, where))
        if not port.count:
            return 1
        count = self.of(port.count, attributes)
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise self._wrong(port.count, count, "a number of tensors, from 0 on", where)
        return count

    def _list(self, port: Port, attributes: Mapping[str, Any], where: str = "") -> list[Any]:
        given = self.of(port.type, attributes)
        if not isinstance(given, list):
            raise self._wrong(port.type, given, "a list of element types", where)
        return given

    def _wrong(self, name: str, given: Any, accepted: str, where: str) -> ModelError:
        shown = "no value" if given is None else repr(given)
        return ModelError(f"{where or self.op_type}, attribute {name!r}", shown[:80], accepted)


def signature_of(op_type: str) -> Signature | None:
    """Returns the signature of an operator, None for one that the table does not have."""
    return signatures().get(op_type)


@cache
def signatures() -> Mapping[str, Signature]:
    """Returns all signatures, by the operators' names."""
    found: dict[str, Signature] = {}
    for line in _whole_lines(OPERATORS):
        for one in read_line(line):
            if one.op_type in found:
                raise InternalError("operator_table", f"{one.op_type} twice", "every operator once")
            found[one.op_type] = one
    return found


def _whole_lines(text: str) -> list[str]:
    """Returns the lines without comments, each with the indented ones that continue it."""
    return [line for line in re.sub(r"\n +", " ", text).splitlines() if line and not line.startswith("#")]


def read_line(line: str) -> list[Signature]:
    """Returns the signatures that a line of the table says.

    Raises:
        InternalError: the line has another form.
    """
    match = _LINE.fullmatch(line)
    if match is None:
        raise InternalError("operator_table", repr(line), "NAME(inputs) -> outputs; attributes")
    inputs, outputs = (_ports(match[part], line) for part in ("inputs", "outputs"))
    names, defaults = [], {}
    for part in _parts(match["attributes"] or ""):
        name, equals, value = part.partition("=")
        names.append(name)
        if equals:
            defaults[name] = _default(value, line)
    _check_types(inputs + outputs, names, line)
    return [Signature(op, inputs, outputs, tuple(names), defaults) for op in match["names"].split()]


def _parts(text: str) -> list[str]:
    return [part.strip() for part in _COMMA.split(text) if part.strip()]


def _ports(text: str, line: str) -> tuple[Port, ...]:
    ports = []
    for part in _parts(text):
        match = _PORT.fullmatch(part)
        if match is None:
            raise InternalError("operator_table", f"port {part!r} in {line!r}", "NAME: TYPE")
        ports.append(Port(match["name"], match["type"], match["count"] or "", bool(match["list"])))
    return tuple(ports)


def _default(text: str, line: str) -> Any:
    if text in ELEMENT_TYPES:
        return ELEMENT_TYPES[text]
    if text == "none":
        return None
    try:
        return json.loads(text)
    except ValueError as error:
        given = f"default {text!r} in {line!r}"
        raise InternalError("operator_table", given, "a value as in JSON") from error


def _check_types(ports: tuple[Port, ...], attributes: list[str], line: str) -> None:
    """Raises ``InternalError`` for a port whose type or count is no attribute of the line."""
    for port in ports:
        known = port.type in attributes or (port.type in ELEMENT_TYPES and not port.listed)
        if not known or (port.count and port.count not in attributes):
            raise InternalError("operator_table", f"port {port.name!r} in {line!r}", "a type or an attribute")


def _as_type(value: Any) -> Type | None:
    return value if isinstance(value, np.dtype) else None
