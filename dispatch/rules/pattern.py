# SPDX-License-Identifier: Apache-2.0
"""Rewrite rules as data: a pattern of nodes, conditions, and the standard ONNX node that replaces a match.

A pattern is text with the syntax of a Python expression; its root is the value that is replaced::

    Mul(Mul(x, Add(Erf(Div(x, 1.41421356)), 1)), 0.5)

- A call is a node with its operands by position; a keyword is an attribute that must have this value,
  given or by default. Operands of Add, Mul, Max and Min match in any order.
- A name in lower case is a value, the same one wherever the name is repeated; ``const(c)`` is a constant of
  one element, ``array(c)`` one of any shape. Every form has the value ``x``.
- A number is a constant of one element with that value, to the precision of its type.
- ``Split(x)[1]`` is one of several outputs of a node, counted from 0.
- ``(d := Sub(x, y))`` names the value of a node; ``P | Q`` is either of two patterns; a name in upper case is
  an entry of ``parts``.
- ``beside(P)`` is a node that is not replaced: it may have other readers, and goes only if it has none left.

``validation.py`` checks rules when they are loaded.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from onedispatch.transactions.base.cached import cached_property
from onedispatch.transactions.base.errors import InternalError


@dataclass(frozen=True)
class ValuePattern:
    """Any value, by name; ``constant``: a constant, of one element if it is ``single``."""

    name: str
    constant: bool = False
    single: bool = False


@dataclass(frozen=True)
class NumberPattern:
    """A constant of one element with this value."""

    value: float


@dataclass(frozen=True)
class NodePattern:
    """A node; ``name`` is the name of its value, "" if the rule gives none.

    ``output`` is the index of the output; -1 is the only output. ``beside``: the node is not replaced.
    """

    op_type: str
    operands: tuple[Pattern, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict, hash=False)
    name: str = ""
    output: int = -1
    beside: bool = False
    domain: str = ""


@dataclass(frozen=True)
class AnyOf:
    """Any one of several patterns."""

    choices: tuple[Pattern, ...]


Pattern = ValuePattern | NumberPattern | NodePattern | AnyOf


@dataclass(frozen=True)
class Condition:
    """A predicate on a ``Match`` beside its form; ``name`` says in words what it requires.

    ``given`` says what a match has instead.
    """

    name: str
    holds: Callable[[Any], bool]
    given: Callable[[Any], str] | None = None

    def failed(self, match: Any) -> str:
        """Returns why the condition does not hold."""
        return self.name if self.given is None else f"{self.name}, not {self.given(match)}"


@dataclass(frozen=True)
class Rule:
    """Replaces matches of ``forms`` by ``to``, a call of standard operators of operator set ``opset``.

    ``anchor`` is the operator that distinguishes the rule: every form has it, and a node of it that stays
    gets a remark with the condition that failed; of near misses of the form too, unless ``near`` is False.
    Names in ``to`` are values of the match, or entries of ``derive``, which computes arrays (constants) as
    operands and anything as attributes. Operators of other domains are written ``com.microsoft.Gelu(x)``;
    the root of a form is one of ONNX's.
    """

    name: str
    anchor: str
    forms: tuple[str, ...]
    to: str
    opset: int
    parts: Mapping[str, str] = field(default_factory=dict)
    where: tuple[Condition, ...] = ()
    derive: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)
    like: str = ""  # a value of the match, whose node's attributes the new node takes over
    near: bool = True

    @cached_property
    def patterns(self) -> tuple[NodePattern, ...]:
        """The alternatives of each form. Raises ``InternalError``, which names the rule, for bad syntax."""
        known: dict[str, Pattern] = {}
        for name, text in self.parts.items():  # a part may use those before it
            known[name] = _Parser(self.name, known).read(text)
        found = []
        for form in self.forms:
            for one in _choices(_Parser(self.name, known).read(form)):
                if not isinstance(one, NodePattern):
                    raise rule_error(self.name, f"the form {form!r}", "a form whose root is an operator")
                found.append(one)
        return tuple(found)

    @cached_property
    def needed(self) -> tuple[frozenset[str], ...]:
        """Of each pattern, the operators that every fit has: kept here, since patterns hash slowly."""
        return tuple(_needed(one) for one in self.patterns)

    @cached_property
    def target(self) -> NodeTemplate:
        """The node to write. Raises ``InternalError``, which names the rule, for bad syntax."""
        return _template(self.name, self.to, _parsed(self.name, self.to))


def _needed(pattern: Pattern) -> frozenset[str]:
    if isinstance(pattern, NodePattern):
        return frozenset({pattern.op_type}).union(*(_needed(one) for one in pattern.operands))
    choices = pattern.choices if isinstance(pattern, AnyOf) else ()
    found = [_needed(one) for one in choices]
    return frozenset.intersection(*found) if found else frozenset()


def parsed(rule: str, text: str, parts: Mapping[str, Pattern]) -> tuple[Pattern, ...]:
    """Returns the alternatives of a pattern; ``parts`` are patterns by names in upper case.

    Raises ``InternalError``, which names the rule, for bad syntax.
    """
    return _choices(_Parser(rule, parts).read(text))


@dataclass(frozen=True)
class NodeTemplate:
    """A node that a rule writes; its operands are names or templates, its attributes names or literals."""

    op_type: str
    operands: tuple[str | NodeTemplate, ...]
    attributes: Mapping[str, ast.expr] = field(hash=False)
    domain: str = ""

    @property
    def attribute_names(self) -> list[str]:
        """The names in ``derive`` that give values of attributes."""
        return [one.id for one in self.attributes.values() if isinstance(one, ast.Name)]


def _template(rule: str, text: str, node: ast.expr) -> NodeTemplate:
    match node:
        case ast.Call(func=ast.Name() | ast.Attribute() as called, args=args, keywords=keywords):
            operands = tuple(
                one.id if isinstance(one, ast.Name) else _template(rule, text, one) for one in args
            )
            domain, _, op_type = ast.unparse(called).rpartition(".")
            return NodeTemplate(op_type, operands, {str(k.arg): k.value for k in keywords}, domain)
    raise rule_error(rule, f"{ast.unparse(node)!r} in {text!r}", "calls of operators on names and calls")


def rule_error(rule: str, given: str, accepted: str) -> InternalError:
    """Returns the error for a mistake in a rule."""
    return InternalError(f"rule {rule}", given, accepted, f"correct the rule {rule} in dispatch/rules")


def _parsed(rule: str, text: str) -> ast.expr:
    try:
        return ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        given = f"{text.strip()!r}: {error.msg} (character {error.offset})"
        raise rule_error(rule, given, "the syntax of a pattern: calls, names, numbers, |, :=") from error


@dataclass(frozen=True)
class _Parser:
    """Parses text to patterns; ``parts`` are the patterns of names in upper case."""

    rule: str
    parts: Mapping[str, Pattern]

    def read(self, text: str) -> Pattern:
        """Raises ``InternalError``, which names the rule, for bad syntax."""
        tree = _parsed(self.rule, text)
        try:
            return self._of(tree)
        except (TypeError, ValueError) as error:  # a value that is not a literal, a name for a number
            raise self._error(text.strip()) from error

    def _of(self, node: ast.expr) -> Pattern:
        match node:
            case ast.Name(id=name):
                return self.parts.get(name, ValuePattern(name))
            case ast.Call(func=ast.Name(id="const" | "array" as kind), args=[ast.Name(id=name)]):
                return ValuePattern(name, constant=True, single=kind == "const")
            case ast.Call(func=ast.Name(id="beside"), args=[inner_node]):
                found = tuple(
                    replace(one, beside=True)
                    for one in _choices(self._of(inner_node))
                    if isinstance(one, NodePattern)
                )
                if found:
                    return AnyOf(found) if len(found) > 1 else found[0]
            case ast.Call(func=ast.Name() | ast.Attribute() as called, args=args, keywords=keywords):
                said = {str(k.arg): ast.literal_eval(k.value) for k in keywords}
                domain, _, op = ast.unparse(called).rpartition(".")
                return NodePattern(op, tuple(self._of(one) for one in args), said, domain=domain)
            case ast.NamedExpr(target=ast.Name(id=name), value=value):
                inner = self._of(value)
                if isinstance(inner, NodePattern):
                    return replace(inner, name=name)
                if isinstance(inner, AnyOf):
                    return AnyOf(tuple(replace(one, name=name) for one in inner.choices))  # type: ignore[arg-type]
            case ast.Subscript(value=value, slice=ast.Constant(value=int(output))):
                inner = self._of(value)
                if isinstance(inner, NodePattern):
                    return replace(inner, output=output)
            case ast.BinOp(op=ast.BitOr(), left=left, right=right):
                one, other = self._of(left), self._of(right)
                return AnyOf((*_choices(one), *_choices(other)))
            case ast.Constant() | ast.UnaryOp():
                return NumberPattern(float(ast.literal_eval(node)))
        raise self._error(ast.unparse(node))

    def _error(self, text: str) -> InternalError:
        return rule_error(self.rule, repr(text), "a pattern: calls, names, numbers, |, :=")


def _choices(pattern: Pattern) -> tuple[Pattern, ...]:
    return pattern.choices if isinstance(pattern, AnyOf) else (pattern,)
