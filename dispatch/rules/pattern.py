# SPDX-License-Identifier: Apache-2.0
"""Rules as data: what a few nodes look like, under which conditions they are one standard ONNX node.

A pattern is text in the form of an expression, whose root is the value that is replaced::

    Mul(Mul(x, Add(Erf(Div(x, 1.41421356)), 1)), 0.5)

- A call is a node, with its operands by position; a keyword is an attribute that must be so, or left at
  a default that is so. Operands of Add, Mul, Max and Min stand in any order.
- A name is a value, the same one wherever it stands again; ``const(c)`` one element that is constant.
- A number is a constant of one element of that value, to the precision of its type.
- ``Split(x)[1]`` is one of several values that a node makes, counted from 0.
- ``(d := Sub(x, y))`` names the value of a node; ``P | Q`` is either; a name of ``parts`` its pattern.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from onedispatch.transactions.base.errors import InternalError


@dataclass(frozen=True)
class Value:
    """Any value, by name; ``constant``: one element that is known."""

    name: str
    constant: bool = False


@dataclass(frozen=True)
class Number:
    value: float


@dataclass(frozen=True)
class Op:
    """A node; ``name`` is that of the value that it makes, "" where the rule names none.

    ``output`` says which of several values it is (from 0); -1 is the only one.
    """

    op_type: str
    operands: tuple[Pattern, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict, hash=False)
    name: str = ""
    output: int = -1


@dataclass(frozen=True)
class Either:
    choices: tuple[Pattern, ...]


Pattern = Value | Number | Op | Either


@dataclass(frozen=True)
class Condition:
    """What must hold of a match beside its form: ``holds`` of a ``Match``; ``name`` says what is wanted."""

    name: str
    holds: Callable[[Any], bool]


@dataclass(frozen=True)
class Rule:
    """``forms`` become ``to``: a call of a standard operator of operator set ``opset``.

    ``anchor`` is the operator that tells the rule from others: where a node of it stays, the condition
    that failed is told. Names in ``to`` are values of the match, or what ``derive`` makes of it: arrays
    (constants) as operands, anything as attributes.
    """

    name: str
    anchor: str
    forms: tuple[str, ...]
    to: str
    opset: int
    parts: Mapping[str, str] = field(default_factory=dict)
    where: tuple[Condition, ...] = ()
    derive: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)
    like: str = ""  # a value of the match: what is written has the attributes of its node

    @cached_property
    def patterns(self) -> tuple[Op, ...]:
        """One for each form. Raises ``InternalError`` for text that is no pattern."""
        known: dict[str, Pattern] = {}
        for name, text in self.parts.items():  # each of those before it
            known[name] = _Reader(self.name, known).read(text)
        found = [_Reader(self.name, known).read(form) for form in self.forms]
        return tuple(one for form in found for one in _choices(form) if isinstance(one, Op))

    @cached_property
    def target(self) -> Call:
        """What is written. Raises ``InternalError`` for text that is no call."""
        return _call(self.name, ast.parse(self.to, mode="eval").body)


@dataclass(frozen=True)
class Call:
    """A node that a rule writes: operands are names or calls, attributes names of ``derive`` or literals."""

    op_type: str
    operands: tuple[str | Call, ...]
    attributes: Mapping[str, ast.expr] = field(hash=False)


def _call(rule: str, node: ast.expr) -> Call:
    match node:
        case ast.Call(func=ast.Name(id=op_type), args=args, keywords=keywords):
            operands = tuple(one.id if isinstance(one, ast.Name) else _call(rule, one) for one in args)
            return Call(op_type, operands, {str(k.arg): k.value for k in keywords})
    raise _wrong(rule, ast.unparse(node))


def _wrong(rule: str, text: str) -> InternalError:
    return InternalError(f"rule {rule}", text, "a pattern: calls, names, numbers, |, :=")


@dataclass(frozen=True)
class _Reader:
    """Text to patterns; ``parts`` are patterns that names stand for."""

    rule: str
    parts: Mapping[str, Pattern]

    def read(self, text: str) -> Pattern:
        return self._of(ast.parse(text.strip(), mode="eval").body)

    def _of(self, node: ast.expr) -> Pattern:
        match node:
            case ast.Name(id=name):
                return self.parts.get(name, Value(name))
            case ast.Call(func=ast.Name(id="const"), args=[ast.Name(id=name)]):
                return Value(name, constant=True)
            case ast.Call(func=ast.Name(id=op), args=args, keywords=keywords):
                said = {str(k.arg): ast.literal_eval(k.value) for k in keywords}
                return Op(op, tuple(self._of(one) for one in args), said)
            case ast.NamedExpr(target=ast.Name(id=name), value=value):
                inner = self._of(value)
                if isinstance(inner, Op):
                    return replace(inner, name=name)
                if isinstance(inner, Either):
                    return Either(tuple(replace(one, name=name) for one in inner.choices))  # type: ignore[arg-type]
            case ast.Subscript(value=value, slice=ast.Constant(value=int(output))):
                inner = self._of(value)
                if isinstance(inner, Op):
                    return replace(inner, output=output)
            case ast.BinOp(op=ast.BitOr(), left=left, right=right):
                one, other = self._of(left), self._of(right)
                return Either((*_choices(one), *_choices(other)))
            case ast.Constant() | ast.UnaryOp():
                return Number(float(ast.literal_eval(node)))
        raise _wrong(self.rule, ast.unparse(node))


def _choices(pattern: Pattern) -> tuple[Pattern, ...]:
    return pattern.choices if isinstance(pattern, Either) else (pattern,)
