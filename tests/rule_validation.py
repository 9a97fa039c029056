# SPDX-License-Identifier: Apache-2.0
"""Checks rewrite rules, so that a mistake in one is an error that names the rule.

Without these checks a misspelt operator, part or value would make a form that never matches, in silence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

from onedispatch.dispatch.frontend.schemas import NEWEST, onnx_attributes, onnx_schema
from onedispatch.dispatch.rules.pattern import (
    AnyOf,
    NodePattern,
    NodeTemplate,
    Pattern,
    Rule,
    ValuePattern,
    rule_error,
)
from onedispatch.transactions.base.text import counted


def validated(rules: Sequence[Rule]) -> tuple[Rule, ...]:
    """Returns the rules as they are.

    Raises:
        InternalError: the first mistake in a rule; ``where`` names the rule.
    """
    names: set[str] = set()
    for rule in rules:
        if not rule.name or rule.name in names:
            raise rule_error(rule.name, f"the name {rule.name!r}", "a name that no other rule has")
        names.add(rule.name)
        _check_target(rule, _checked_names(rule))
    return tuple(rules)


def _checked_names(rule: Rule) -> set[str]:
    """Checks the forms and returns the names of their values."""
    found: set[str] = set()
    if not rule.patterns:
        raise rule_error(rule.name, "no forms", "one form or more")
    for form in rule.patterns:
        nodes = list(_nodes(form))
        for node in nodes:
            _check_pattern(rule, node)
        if all(node.op_type != rule.anchor for node in nodes):
            given = f"the anchor {rule.anchor!r}, which is not in the form {rule.forms[0]!r}"
            raise rule_error(rule.name, given, "an operator that every form has")
        names = _names(form)
        for name in sorted(names - rule.parts.keys()):
            if name != name.lower():
                raise rule_error(rule.name, f"the name {name!r}", f"a part ({_listed(rule.parts)}), or x")
        undefined = sorted(names & rule.parts.keys())
        if undefined:
            raise rule_error(
                rule.name, f"the part {undefined[0]!r}", "parts that stand before those that use it"
            )
        missing = sorted({"x", *([rule.like] if rule.like else [])} - names)
        if missing:
            raise rule_error(rule.name, f"a form without {missing[0]!r}", "forms that all have that value")
        found |= names
    return found


def _check_pattern(rule: Rule, node: NodePattern) -> None:
    if node.domain:
        return  # as of targets
    most = _most_operands(node.op_type)
    if most is None:
        raise rule_error(rule.name, f"the operator {node.op_type!r}", "operators of ONNX")
    if len(node.operands) > most:
        given = f"{node.op_type} with {counted(len(node.operands), 'operand')}"
        raise rule_error(rule.name, given, f"at most {most}")
    for name in node.attributes:
        _check_attribute(rule, node.op_type, name)


def _check_target(rule: Rule, names: set[str]) -> None:
    bound = names.union(rule.derive)
    for template in _templates(rule.target):
        if not template.domain:  # schemas of other domains are onnxruntime's, which takes long to load
            _check_standard(rule, template)
        used = [one for one in template.operands if isinstance(one, str)]
        used += template.attribute_names
        unknown = [name for name in used if name not in bound]
        if unknown:
            raise rule_error(rule.name, f"the name {unknown[0]!r} in {rule.to!r}", _listed(bound))


def _check_standard(rule: Rule, template: NodeTemplate) -> None:
    schema = onnx_schema(template.op_type, "", rule.opset)
    if schema is None:
        given = f"the operator {template.op_type!r}"
        raise rule_error(rule.name, given, f"operators of operator set {rule.opset}")
    if not schema.min_input <= len(template.operands) <= schema.max_input:
        given = f"{template.op_type} with {counted(len(template.operands), 'operand')}"
        raise rule_error(rule.name, given, f"{schema.min_input} to {schema.max_input}")
    for name in template.attributes:
        _check_attribute(rule, template.op_type, name)


def _check_attribute(rule: Rule, op_type: str, name: str) -> None:
    known = onnx_attributes(op_type)
    if name not in known:
        raise rule_error(rule.name, f"attribute {name!r} of {op_type}", _listed(known) or "no attributes")


def _listed(names: object) -> str:
    return ", ".join(sorted(names))  # type: ignore[call-overload]


@cache
def _most_operands(op_type: str) -> int | None:
    """Returns how many inputs an operator of ONNX has at most, None if ONNX has no such operator."""
    schema = onnx_schema(op_type, "", NEWEST)
    return None if schema is None else int(schema.max_input)


def _nodes(pattern: Pattern) -> Iterator[NodePattern]:
    """Yields the node patterns of a pattern, those of every alternative."""
    if isinstance(pattern, NodePattern):
        yield pattern
    for inner in _inner(pattern):
        yield from _nodes(inner)


def _names(pattern: Pattern) -> set[str]:
    """Returns the names of values in a pattern."""
    own = {pattern.name} if isinstance(pattern, NodePattern | ValuePattern) and pattern.name else set()
    return own.union(*map(_names, _inner(pattern)))


def _inner(pattern: Pattern) -> tuple[Pattern, ...]:
    if isinstance(pattern, NodePattern):
        return pattern.operands
    return pattern.choices if isinstance(pattern, AnyOf) else ()


def _templates(template: NodeTemplate) -> Iterator[NodeTemplate]:
    yield template
    for operand in template.operands:
        if isinstance(operand, NodeTemplate):
            yield from _templates(operand)
