# SPDX-License-Identifier: Apache-2.0
"""What a fusion is written with: patterns of one or several roots, and conditions.

    @od.fusion("DecodeBbox", general=False)
    def decode(p):
        p.find("Add(Mul(code, size), center)", "Mul(Exp(scale), size)")
        return lambda g, m: (g.Add(g.Mul(m["code"], m["size"]), m["center"]), ...)

Patterns have the syntax of ``dispatch/rules/pattern.py``: nodes are calls, names in lower case values, the
same one wherever a name is repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from onedispatch.dispatch.frontend.graph import Node
from onedispatch.dispatch.rules import pattern as syntax
from onedispatch.dispatch.rules.match import Index
from onedispatch.dispatch.sources.node import Known, Operand, SourceNode
from onedispatch.dispatch.sources.rule import Fusion
from onedispatch.transactions.base.errors import InternalError, RuleError
from onedispatch.transactions.base.signature import bounded_repr


class FusionPattern:
    """Collects what a fusion finds."""

    def __init__(self, made: Fusion) -> None:
        self._made = made

    def find(self, *roots: str, **parts: str) -> None:
        """Says the pattern: one text for each value that is replaced; ``parts`` are patterns by name.

        Raises ``RuleError`` for bad syntax, or a second call.
        """
        if self._made.roots:
            raise RuleError(self._where, "a second find", "one, with all roots: p.find(root, root)")
        known: dict[str, syntax.Pattern] = {}
        for name, text in parts.items():
            found = self._parsed(text, known)
            known[name] = syntax.AnyOf(found) if len(found) > 1 else found[0]
        self._made.roots = tuple(self._root(text, known) for text in roots)

    def where(self, name: str, holds: Callable[[Any], bool]) -> None:
        """Adds a condition; ``name`` says in words what it requires of a match."""
        if not callable(holds):
            raise RuleError(self._where, bounded_repr(holds), "a function of the match")
        self._made.conditions = (*self._made.conditions, syntax.Condition(name, holds))

    def finish(self, build: object) -> None:
        """Takes what writes the replacement. Raises ``RuleError`` where that or the pattern lacks."""
        made = self._made
        at = {"file": made.place.file, "line": made.place.line}
        if not made.roots:
            raise RuleError(self._where, "no pattern", 'p.find("Mul(x, Sigmoid(x))")', **at)  # type: ignore[arg-type]
        if not callable(build):
            accepted = "a function (g, m) that writes what is in place of a match, returned"
            raise RuleError(self._where, bounded_repr(build), accepted, **at)  # type: ignore[arg-type]
        made.build = build

    @property
    def _where(self) -> str:
        return f"fusion {self._made.name}"

    def _root(self, text: str, known: Mapping[str, syntax.Pattern]) -> tuple[syntax.NodePattern, ...]:
        found = self._parsed(text, known)
        nodes = tuple(one for one in found if isinstance(one, syntax.NodePattern))
        if len(nodes) != len(found):
            raise RuleError(self._where, f"the root {text!r}", "a node: Mul(x, y)")
        return nodes

    def _parsed(self, text: object, known: Mapping[str, syntax.Pattern]) -> tuple[syntax.Pattern, ...]:
        if not isinstance(text, str):
            raise RuleError(self._where, bounded_repr(text), "text of a pattern")
        try:
            return syntax.parsed(self._made.name, text, known)
        except InternalError as error:
            raise RuleError(self._where, error.given, error.accepted) from error


class FusionMatch:
    """A match: ``m["x"]`` is the value of a name, ``m.node("y")`` the node that makes one."""

    def __init__(self, values: Mapping[str, str], nodes: Sequence[Node], index: Index, known: Known) -> None:
        self._values, self._index, self._known = values, index, known
        self.nodes = tuple(nodes)

    def __getitem__(self, name: str) -> Operand:
        if name not in self._values:
            raise RuleError("a match", f"the name {name!r}", ", ".join(sorted(self._values)))
        return Operand(self._values[name], self._known)

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def node(self, name: str) -> SourceNode:
        """Returns the node that makes a value of the pattern."""
        node = self._index.makers.get(self[name])
        if node is None:
            raise RuleError(
                "a match", f"{name!r}, which no node makes", "the name of a node: (y := Add(...))"
            )
        return SourceNode(node, self._index.graph.opset_of(node), self._known)


def alternatives(roots: Sequence[Sequence[syntax.NodePattern]], domain: str) -> Iterator[tuple[Any, ...]]:
    """Yields the patterns of all roots, one alternative of each; nodes without domain are of ``domain``."""
    for chosen in product(*roots):
        yield tuple(_in_domain(one, domain) for one in chosen)


def _in_domain(pattern: syntax.Pattern, domain: str) -> syntax.Pattern:
    if isinstance(pattern, syntax.AnyOf):
        return syntax.AnyOf(tuple(_in_domain(one, domain) for one in pattern.choices))
    if not isinstance(pattern, syntax.NodePattern):
        return pattern
    operands = tuple(_in_domain(one, domain) for one in pattern.operands)
    return replace(pattern, operands=operands, domain=pattern.domain or domain)
