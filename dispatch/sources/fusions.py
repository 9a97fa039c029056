# SPDX-License-Identifier: Apache-2.0
"""Finds the matches of fusions in a graph: in the order of the fusions, each node in one match."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from onedispatch.dispatch.frontend.graph import Graph, Node, Step, sort_nodes
from onedispatch.dispatch.rules.diagnostics import an_output, read_elsewhere
from onedispatch.dispatch.rules.match import Fit, Index, fits
from onedispatch.dispatch.sources import registry
from onedispatch.dispatch.sources.node import Known
from onedispatch.dispatch.sources.patterns import FusionMatch, alternatives
from onedispatch.dispatch.sources.rule import Fusion
from onedispatch.transactions.base.boundary import error_line
from onedispatch.transactions.base.errors import InputError, ModelError, RuleError
from onedispatch.transactions.base.handlers import reraise_from_handler
from onedispatch.transactions.base.text import did_you_mean

FUSED = "onedispatch.fusion"  # the domain of nodes that stand for a match until they are written


@dataclass(frozen=True)
class Group:
    """A match that is replaced: ``roots`` are the values that the fusion's function writes."""

    fusion: Fusion
    match: FusionMatch
    roots: tuple[str, ...]


def enabled(named: Sequence[str]) -> list[Fusion]:
    """Returns the fusions that are on: general ones, and those named; ``-NAME`` switches one off.

    Raises ``InputError`` for names that no fusion has.
    """
    known = {one.name: one for one in registry.fusions()}
    off = {name[1:] for name in named if name.startswith("-")}
    on = {name for name in named if not name.startswith("-")}
    for name in (*on, *off):
        if name not in known:
            accepted = ", ".join(known) or "none, since no plug-in brought any"
            raise InputError("fusions", repr(name), accepted, did_you_mean(name, known))
    return [one for one in known.values() if one.name not in off and (one.general or one.name in on)]


def grouped(
    graph: Graph, chosen: Sequence[Fusion], domain: str, known: Known
) -> tuple[Graph, dict[str, Group], list[Step]]:
    """Returns ``graph`` with one node for each match, the matches by that node, and what was tried."""
    groups: dict[str, Group] = {}
    steps: list[Step] = []
    for one in chosen:
        index = Index.of(graph)
        for group in _matches(index, one, domain, known, steps):
            replaced = _replaced(graph, group)
            if isinstance(replaced, str):
                steps.append(_refused(one, group.match.nodes, replaced))
                continue
            graph, name = replaced
            groups[name] = group
    return graph, groups, steps


def _matches(index: Index, fusion: Fusion, domain: str, known: Known, steps: list[Step]) -> Iterator[Group]:
    taken: dict[str, str] = {}  # node -> the last node of the match that has it
    for fit, roots in _fits(index, fusion, domain):
        match = FusionMatch(fit.values, fit.nodes, index, known)
        reason = _fails(index, fusion, match, roots)
        lost = next((node for node in fit.nodes if node.name in taken), None)
        if not reason and lost is not None:
            if all(taken.get(node.name) == taken[lost.name] for node in fit.nodes):
                continue  # the same nodes, in another order of operands
            reason = f"{lost.name} is in its match at {taken[lost.name]} already"
        if reason:
            steps.append(_refused(fusion, fit.nodes, reason))
            continue
        taken.update((node.name, fit.nodes[-1].name) for node in fit.nodes)
        yield Group(fusion, match, roots)


def _fits(index: Index, fusion: Fusion, domain: str) -> Iterator[tuple[Fit, tuple[str, ...]]]:
    """Yields every match, in the order of the first root's nodes."""
    seen: set[tuple[str, ...]] = set()
    for patterns in alternatives(fusion.roots, domain):
        ends = [
            [name for node in index.graph.nodes if node.op_type == one.op_type for name in node.writes]
            for one in patterns
        ]
        for fit, roots in fits(index, patterns, ends):
            key = (*roots, *(node.name for node in fit.nodes))
            if key not in seen:
                seen.add(key)
                yield fit, roots


def _fails(index: Index, fusion: Fusion, match: FusionMatch, roots: Sequence[str]) -> str:
    """Returns the first condition that a match does not meet, "" if it meets all."""
    inside, outputs = {id(node) for node in match.nodes}, index.graph.output_names
    for node in match.nodes:
        for name in node.writes:
            if name in roots:
                continue
            if name in outputs:
                return an_output(name, node.name)
            others = [one.name for one in index.readers.get(name, ()) if id(one) not in inside]
            if others:
                return read_elsewhere(name, node.name, others[0])
    for condition in fusion.conditions:
        try:
            holds = bool(condition.holds(match))
        except (Exception, SystemExit) as error:  # code of others
            reraise_from_handler(error)
            place = fusion.place
            where = f"fusion {fusion.name}: condition {condition.name!r}, node {match.nodes[-1].name}"
            raise RuleError(
                where, error_line(error), "True or False", file=place.file, line=place.line
            ) from error
        if not holds:
            return str(condition.name)
    return ""


def _replaced(graph: Graph, group: Group) -> tuple[Graph, str] | str:
    """Returns ``graph`` with one node in place of a match, and its name; why not where that is a circle."""
    old = {id(node) for node in group.match.nodes}
    made = {name for node in group.match.nodes for name in node.writes}
    reads = dict.fromkeys(name for node in group.match.nodes for name in node.reads if name not in made)
    name = group.match.nodes[-1].name
    new = Node(name, group.fusion.name, FUSED, tuple(reads), group.roots)
    nodes = [one for one in graph.nodes if id(one) not in old]
    last = next(i for i, one in enumerate(graph.nodes) if one is group.match.nodes[-1])
    nodes.insert(sum(1 for one in graph.nodes[:last] if id(one) not in old), new)
    try:
        ordered = sort_nodes(nodes, [*(value.name for value in graph.inputs), *graph.constants])
    except ModelError:
        return "other nodes lie on a path from one of its results to one of its nodes"
    return graph.with_nodes(ordered, constants=graph.constants), name


def _refused(fusion: Fusion, nodes: Sequence[Node], reason: str) -> Step:
    last = nodes[-1]
    return Step(last.name, last.op_type, f"{fusion}", refused=reason)
