# SPDX-License-Identifier: Apache-2.0
"""Applies the rules to a graph: a match becomes its standard node, where that maps.

Every rule that took nodes is in ``origins`` of the result, every one that nearly did in ``remarks``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onedispatch.dispatch.compiler.rewriter import Replacement, choose, put, unmapped
from onedispatch.dispatch.compiler.splice import Splice
from onedispatch.dispatch.frontend.graph import Graph, Node
from onedispatch.dispatch.rules.diagnostics import did_not_fire
from onedispatch.dispatch.rules.match import Index, Match, Miss, matches, nearest
from onedispatch.dispatch.rules.pattern import NodePattern, Pattern, Rule
from onedispatch.dispatch.rules.replacement import failed, replacement
from onedispatch.dispatch.rules.table import RULES
from onedispatch.operators.declarations import registry
from onedispatch.transactions import Device

_ROUNDS = 4  # a rule may make what another one takes


def rewrite(graph: Graph, device: Device, rules: Sequence[Rule] = RULES) -> Graph:
    """``graph`` with the standard nodes that rules find in it, each of which maps."""
    failures: dict[tuple[str, str], str] = {}  # (rule, anchor node) -> the condition that failed
    for _ in range(_ROUNDS):
        before = graph
        for rule in rules:
            graph = _apply(graph, rule, device, failures)
        if graph is before:
            break
    return _told(graph, rules, failures)


def _apply(graph: Graph, rule: Rule, device: Device, failures: dict[tuple[str, str], str]) -> Graph:
    """``graph`` after one rule."""
    roots = {one.op_type for one in rule.patterns}
    there = {node.op_type for node in graph.nodes}
    if not any(needed <= there for needed in rule.needed):
        return graph
    index, splice = Index.of(graph), Splice(graph)

    def proposals(root: Node) -> Iterator[Replacement]:
        if root.domain or root.op_type not in roots:
            return
        for match in matches(index, rule, root):
            piece = _checked(match, device)
            if isinstance(piece, Graph):
                yield Replacement(match.nodes, piece, f"rule {rule.name}", match.beside)
                continue
            for node in match.nodes:
                if node.op_type == rule.anchor:
                    failures.setdefault((rule.name, node.name), piece)

    put(splice, index, choose(graph.nodes, proposals))
    return splice.result()


def _checked(match: Match, device: Device) -> Graph | str:
    """What a match becomes, or the first condition that fails."""
    piece: Graph | str = failed(match) or replacement(match)
    return piece if isinstance(piece, str) else unmapped(piece, device) or piece


# -- the tracer ------------------------------------------------------------------------------------------


def _told(graph: Graph, rules: Sequence[Rule], failures: dict[tuple[str, str], str]) -> Graph:
    """``graph`` with a remark on every anchor that its rules left: why they did."""
    anchors = {rule.anchor for rule in rules}
    left = [node for node in graph.nodes if node.op_type in anchors and not node.domain]
    if not left:
        return graph
    index, splice = Index.of(graph), Splice(graph)
    for rule in rules:
        misses: dict[str, Miss] | None = None
        for node in (node for node in left if node.op_type == rule.anchor):
            reason = failures.get((rule.name, node.name), "")
            if not reason:
                misses = _misses(index, rule) if misses is None and rule.near else misses or {}
                miss = misses.get(node.name)
                reason = miss.reason if miss is not None and miss.score * 2 >= _size(rule) else ""
            if reason:
                splice.remark(node, did_not_fire(f"rule {rule.name}", reason))
    return splice.result()


def _misses(index: Index, rule: Rule) -> dict[str, Miss]:
    """By anchor node: the attempt that came closest, of those that reach it."""
    best: dict[str, Miss] = {}
    roots = {one.op_type for one in rule.patterns}
    for root in index.graph.nodes:
        if root.op_type not in roots:
            continue
        miss = nearest(index, rule, root)
        for node in miss.nodes if miss.reason else ():
            known = best.get(node.name)
            if node.op_type == rule.anchor and (known is None or miss.score > known.score):
                best[node.name] = miss
    return best


def _size(rule: Rule) -> int:
    """Nodes of the smallest form of a rule."""

    def count(pattern: object) -> int:
        if isinstance(pattern, NodePattern):
            return 1 + sum(count(one) for one in pattern.operands)
        choices = getattr(pattern, "choices", ())
        return min((count(one) for one in choices), default=0)

    return min(count(one) for one in rule.patterns)


def anchored(node: Node) -> bool:
    """Whether a rule may take a node of this operator away: it need not have a mapping of its own."""
    return not node.domain and node.op_type in _TAKEN


def _all_operators(pattern: Pattern) -> frozenset[str]:
    """Operators that any fit of it may have."""
    inner = getattr(pattern, "operands", ()) or getattr(pattern, "choices", ())
    own = {pattern.op_type} if isinstance(pattern, NodePattern) else set()
    return frozenset(own).union(*(_all_operators(one) for one in inner))


_TAKEN = frozenset(op for rule in RULES for one in rule.patterns for op in _all_operators(one))


def unmapped_rules(rules: Sequence[Rule] = RULES) -> list[str]:
    """Rules whose operator nothing maps: they never fire."""
    return [rule.name for rule in rules if registry.mapping_for("", rule.target.op_type) is None]
