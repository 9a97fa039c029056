# SPDX-License-Identifier: Apache-2.0
"""Nodes that give way to others: how every pass that rewrites a graph chooses and writes its replacements.

A pass proposes replacements for the nodes that it looks at, in order of preference, each of which maps. The
first one whose nodes are still there is taken. ``rewrite`` proposes what rules find, ``integers`` what the
tables of quantised operators say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from onedispatch.dispatch.compiler.mapping import refusals_of
from onedispatch.dispatch.compiler.splice import Splice
from onedispatch.dispatch.frontend.graph import Graph, Node
from onedispatch.dispatch.rules.match import Index
from onedispatch.transactions import Device


@dataclass(frozen=True)
class Replacement:
    """``new`` in place of the nodes ``old``, the last of which is where it goes; ``how`` names the rule.

    ``beside`` are nodes that were matched too: one goes if nothing but replaced nodes reads it.
    """

    old: Sequence[Node]
    new: Graph
    how: str
    beside: Sequence[Node] = ()


def unmapped(piece: Graph, device: Device) -> str:
    """Returns which node of ``piece`` does not map first, and why; "" if all map."""
    refused = refusals_of(piece, piece.nodes, device)
    first = next((node for node in piece.nodes if node.name in refused), None)
    return f"{first.op_type} does not map: {refused[first.name]}" if first is not None else ""


def choose(nodes: Iterable[Node], proposals: Callable[[Node], Iterator[Replacement]]) -> list[Replacement]:
    """Returns the first replacement of each node whose nodes no other one has taken."""
    chosen, taken = list[Replacement](), set[str]()
    for node in nodes:
        if node.name in taken:
            continue
        for one in proposals(node):
            if taken.isdisjoint(each.name for each in one.old):
                taken.update(each.name for each in one.old)
                chosen.append(one)
                break
    return chosen


def put(splice: Splice, index: Index, chosen: Sequence[Replacement]) -> None:
    """Puts ``chosen`` into the graph; nodes beside them that nothing reads any more go."""
    for one in _with_unread(index, chosen):
        splice.put(one.old, one.new, one.how)


def _with_unread(index: Index, chosen: Sequence[Replacement]) -> list[Replacement]:
    taken = {node.name: at for at, one in enumerate(chosen) for node in one.old}
    still = index.graph.output_names.union(value.name for one in chosen for value in one.new.inputs)
    unread: dict[int, list[Node]] = {}
    for node in {node.name: node for one in chosen for node in one.beside}.values():
        readers = [reader.name for name in node.writes for reader in index.readers.get(name, ())]
        last = node.name not in taken and still.isdisjoint(node.writes)
        if last and readers and all(name in taken for name in readers):
            unread.setdefault(taken[readers[0]], []).append(node)
    return [replace(one, old=[*unread.get(at, ()), *one.old]) for at, one in enumerate(chosen)]
