# SPDX-License-Identifier: Apache-2.0
"""Writes ONNX nodes for the callbacks of rules: ``g.Add(a, b)``, ``g.op("acme::Foo", x, alpha=0.5)``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import onnx
from onnx.defs import OpSchema

from onedispatch.dispatch.frontend.graph import Array, Value, type_name_of
from onedispatch.dispatch.sources.formats import FORMATS, permutation
from onedispatch.dispatch.sources.node import Known, Operand, SourceNode
from onedispatch.dispatch.sources.targets import Target, as_attribute, written
from onedispatch.transactions.base.errors import RuleError
from onedispatch.transactions.base.signature import bounded_repr
from onedispatch.transactions.base.text import counted, span

_MANY = 1 << 16  # what schemas call variadic has no bound
Given = Any
"""An operand as callbacks give it: the name of a tensor, None, a number, a list, or an array."""


@dataclass(frozen=True)
class Call:
    """A node that a rule writes: its operands and results by name, attributes as the target takes them."""

    target: Target
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(hash=False)
    layout: tuple[str, str] | None = None  # of a Transpose between formats: from which to which

    def version(self, opsets: Mapping[str, int]) -> int:
        """Returns the version of the target's operator set."""
        return opsets.get(self.target.domain, 1)

    def node(self, opsets: Mapping[str, int], name: str = "") -> onnx.NodeProto:
        """Returns the call as a node. Raises ``TypeError`` for attributes that ONNX cannot hold."""
        domain, schema = self.target.domain, self.target.schema(self.version(opsets))
        proto = onnx.helper.make_node(
            self.target.op_type, self.inputs, self.outputs, name=name, domain=domain
        )
        proto.attribute.extend(written(schema, *item) for item in self.attributes.items())
        return proto


class Writer(Known, Protocol):
    """Takes what a builder writes."""

    def write(self, call: Call) -> None: ...

    def add_constant(self, name: str, array: Array) -> None: ...

    def unique(self, name: str) -> str: ...


class Builder:
    """What a callback writes in place of the node ``name``.

    Methods with the name of one of ONNX's operators write such a node: operands by position, attributes by
    keyword, ``outputs=n`` where the number is not the operator's least. They return the result, or a tuple of
    results. Numbers, lists and arrays among the operands become constants, a number in the type of an operand
    that has to have the same one; None is an operand that is left out.

    Args:
        inherited: the node whose attributes every written node takes that has one of this name and is not
            given another value.
    """

    def __init__(self, name: str, writer: Writer, opset: int, inherited: SourceNode | None = None) -> None:
        self.name, self.opset = name, opset
        self.writer, self._source = writer, inherited

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if not name[:1].isupper():
            raise AttributeError(name)
        return lambda *operands, **rest: self.op(name, *operands, **rest)

    def op(self, op: str, *operands: Given, outputs: int | None = None, **attributes: Any) -> Any:
        """Writes a node of ``op``: ``"Add"``, ``"acme::Foo"``.

        Raises ``RuleError`` for an operator that ONNX lacks, and attributes or operands it does not take.
        """
        target = self._target(op)
        schema = target.schema(self.opset)
        inputs = [self._operand(op, one, _kind(schema, operands, i)) for i, one in enumerate(operands)]
        while inputs and not inputs[-1]:
            inputs.pop()
        if schema is not None:
            _check_count(target, "operand", len(inputs), schema.min_input, schema.max_input)
            _check_count(target, "output", outputs, schema.min_output, schema.max_output)
        said = self._taken_over(target, {*attributes}) | {
            name: self._attribute(target, name, value)
            for name, value in attributes.items()
            if value is not None
        }
        count = outputs if outputs is not None else schema.min_output if schema is not None else 1
        made = [Operand(self._unique(op), self.writer) for _ in range(max(count, 1))]
        self.writer.write(Call(target, tuple(inputs), tuple(made), said))
        return made[0] if count <= 1 else tuple(made)

    def constant(self, array: Any, dtype: Any = None) -> Operand:
        """Writes a constant, of the array's own type if ``dtype`` is None."""
        found = np.array(array, dtype, order="C")
        found.flags.writeable = False
        name = self._unique("const")
        self.writer.add_constant(name, found)
        return Operand(name, self.writer)

    def value(self, name: str) -> Value:
        """Returns what is known of a tensor."""
        return self.writer.value(name)

    def known(self, name: str) -> Array | None:
        """Returns the values of a constant, None of other tensors."""
        return self.writer.constant(name)

    def relayout(self, x: str, origin: str, current: str) -> Operand:
        """Returns ``x``, which is in format ``origin``, in another one: ``g.relayout(x, "NHWC", "NCHW")``.

        The transposes that this writes are moved and dropped once all of the graph is written. Raises
        ``RuleError`` for formats that are unknown, or that have other letters.
        """
        for one in (origin, current):
            if one not in FORMATS:
                raise RuleError("g.relayout: a format", repr(one), ", ".join(FORMATS))
        if origin == current:
            return Operand(x, self.writer)
        if sorted(origin) != sorted(current):
            raise RuleError("g.relayout", f"{origin} to {current}", "two formats with the same letters")
        array, perm = self.known(x), permutation(origin, current)
        shape = self.value(x).shape
        if shape is not None and len(shape) != len(perm):
            given = f"{x} of shape {list(shape)}"
            raise RuleError(f"g.relayout from {origin}", given, f"a tensor of rank {len(perm)}")
        if array is not None and array.ndim == len(perm):
            return self.constant(array.transpose(perm))
        made = Operand(self._unique("Transpose"), self.writer)
        call = Call(Target("", "Transpose"), (str(x),), (made,), {"perm": list(perm)}, (origin, current))
        self.writer.write(call)
        return made

    def _target(self, op: str) -> Target:
        try:
            target = Target.parsed(op)
        except ValueError as error:
            raise RuleError(f"g.op({op!r})", repr(op), '"Add" or "acme::Foo"') from error
        if not target.domain and target.schema(self.opset) is None:
            given = f"an operator that ONNX's operator set {self.opset} lacks, the graph's"
            raise RuleError(f"g.op({op!r})", given, "operators of ONNX", target.nearest())
        return target

    def _taken_over(self, target: Target, given: Collection[str]) -> dict[str, Any]:
        """The attributes of the source node that the target has under the same name and kind."""
        found = dict[str, Any]()
        known = target.attributes(self.opset) if self._source is not None else None
        for name in known or ():
            if self._source is not None and name in self._source.attributes and name not in given:
                with suppress(TypeError):
                    value = self._source.attributes[name]
                    found[name] = as_attribute(target.schema(self.opset), name, value)
                    self._source.mentioned.add(name)
        return found

    def _attribute(self, target: Target, name: str, value: Any) -> Any:
        schema = target.schema(self.opset)
        if schema is not None and name not in schema.attributes:
            raise RuleError(
                f"{target}: attribute {name!r}", repr(value), ", ".join(schema.attributes) or "no attributes"
            )
        try:
            return as_attribute(schema, name, value)
        except TypeError as error:
            raise RuleError(f"{target}: attribute {name!r}", str(error)) from error

    def _operand(self, op: str, given: Given, kind: np.dtype[Any] | None) -> str:
        if given is None:
            return ""
        if isinstance(given, str):  # "" is an operand that is left out
            return str(given)
        if isinstance(given, bool | int | float | np.generic):
            exact = kind is None or "float" in kind.name or np.asarray(given).astype(kind) == given
            if not isinstance(given, np.generic) and not exact:
                raise RuleError(f"{op}: an operand", bounded_repr(given), f"numbers of {kind}")
            return self.constant(given, None if isinstance(given, np.generic) else kind)
        if isinstance(given, list | tuple | np.ndarray) and not _tensors(given):
            array = np.asarray(given)
            return self.constant(array, np.int64 if array.dtype.kind == "i" and not _array(given) else None)
        accepted = "results of g, inputs of the node, numbers, arrays, None"
        raise RuleError(f"{op}: an operand", f"{given!r}, a {type(given).__name__}", accepted)

    def _unique(self, what: str) -> str:
        return self.writer.unique(f"{self.name}/{what.rpartition('::')[2]}")


def _check_count(target: Target, what: str, given: int | None, least: int, most: int) -> None:
    if given is not None and not least <= given <= most:
        raise RuleError(str(target), counted(given, what), span(least, min(most, _MANY)))


def _kind(schema: OpSchema | None, operands: Sequence[Given], index: int) -> np.dtype[Any] | None:
    """Returns the type of a number as operand ``index``: of the operands that ONNX gives the same type.

    Where there are none, the type of the first operand if numbers of that type may be there (an exponent),
    else None: of ``g.Where(condition, x, 0)`` the 0 has the type of x, of ``g.Gather(x, 0)`` it is an index.
    """
    if not isinstance(operands[index], bool | int | float):
        return None
    typed = {i: one.dtype for i, one in enumerate(operands) if isinstance(one, Operand) and one.dtype}
    if schema is None or not schema.inputs:
        return next(iter(typed.values()), None)
    formals = [schema.inputs[min(i, len(schema.inputs) - 1)] for i in range(len(operands))]
    same = [dtype for i, dtype in typed.items() if formals[i].type_str == formals[index].type_str]
    others = [one for one in typed.values() if one.kind != "b" and type_name_of(one) in formals[index].types]
    number = np.dtype(np.float32) if isinstance(operands[index], float) else None
    return next(iter([*same, *others]), number)


def _array(given: Any) -> bool:
    return isinstance(given, np.ndarray)


def _tensors(given: Iterable[Any]) -> bool:
    """Whether a list has names of tensors, where numbers were meant or the list is to be unpacked."""
    return isinstance(given, Sequence) and any(isinstance(one, str) for one in given)
