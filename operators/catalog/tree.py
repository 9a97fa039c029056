# SPDX-License-Identifier: Apache-2.0
"""The hierarchy of a catalog: hardware, operation, problem; at its leaves, tables and methods.

Rows are tried in order: one whose predicate fails, or whose subtree has nothing, gives way to the next. A
map of operations is looked up once. A table lies in the same file, or in a child that is opened then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from onedispatch.operators.catalog.features import Features
from onedispatch.operators.catalog.predicates import Predicate, predicate_of
from onedispatch.transactions.base.errors import CatalogError
from onedispatch.transactions.base.signature import bounded_repr
from onedispatch.transactions.base.text import counted

SEARCH, PLAIN = "search", "plain"
METHODS = (SEARCH, PLAIN)
_DEEPEST = 16


@dataclass(frozen=True)
class TableLeaf:
    """Tuned solutions, by the name of their table."""

    name: str


@dataclass(frozen=True)
class MethodLeaf:
    """How solutions are found where none is tuned: the search, or plain tiles on one core."""

    method: str


@dataclass(frozen=True)
class Branch:
    when: Predicate
    then: Node


@dataclass(frozen=True)
class Rows:
    rows: tuple[Branch, ...]


@dataclass(frozen=True)
class ByOperation:
    operations: dict[str, Node]


Node = TableLeaf | MethodLeaf | Rows | ByOperation
Leaf = TableLeaf | MethodLeaf
Tell = Callable[[int, str, str], None]  # depth, what was asked, what came of it


def leaves(node: Node, seen: Features, tell: Tell | None = None, depth: int = 0) -> Iterator[Leaf]:
    """The leaves for a problem, in the order in which they are asked; ``tell`` hears of every step."""
    if isinstance(node, Rows):
        for row in node.rows:
            failure = row.when.failure(seen)
            if tell is not None:
                tell(depth, str(row.when), failure or "holds")
            if not failure:
                yield from leaves(row.then, seen, tell, depth + 1)
    elif isinstance(node, ByOperation):
        below = node.operations.get(seen.operation)
        if tell is not None:
            known = "" if below is not None else f"not among {counted(len(node.operations), 'operation')}"
            tell(depth, f"operation {seen.operation}", known or "found")
        if below is not None:
            yield from leaves(below, seen, tell, depth + 1)
    else:
        yield node


def nodes_of(node: Node) -> Iterator[Node]:
    """The node and all below it."""
    yield node
    below: Iterable[Node] = ()
    if isinstance(node, Rows):
        below = (row.then for row in node.rows)
    elif isinstance(node, ByOperation):
        below = node.operations.values()
    for one in below:
        yield from nodes_of(one)


def tables_of(node: Node) -> list[str]:
    """The names of all tables, with repetitions."""
    return [one.name for one in nodes_of(node) if isinstance(one, TableLeaf)]


def replaced(node: Node, old: Node, new: Node) -> Node:
    """A tree with ``new`` in place of every ``old`` that rows lead to."""
    if node == old:
        return new
    if not isinstance(node, Rows):
        return node
    return Rows(tuple(Branch(row.when, replaced(row.then, old, new)) for row in node.rows))


def to_data(node: Node) -> dict[str, Any]:
    """The tree as dictionaries and lists."""
    if isinstance(node, Rows):
        return {"rows": [{"when": row.when.to_data(), "then": to_data(row.then)} for row in node.rows]}
    if isinstance(node, ByOperation):
        return {"operations": {name: to_data(below) for name, below in node.operations.items()}}
    return {"table": node.name} if isinstance(node, TableLeaf) else {"method": node.method}


def from_data(data: Any, where: str, depth: int = 0) -> Node:
    """What ``to_data`` wrote. Raises ``CatalogError`` for anything else."""
    kinds = "rows, operations, table, method"
    if not isinstance(data, dict) or len(data) != 1 or depth > _DEEPEST:
        raise CatalogError(where, bounded_repr(data), f"a dictionary of one of {kinds}, 16 deep at most")
    (kind, value), *_ = data.items()
    if kind == "rows" and isinstance(value, list):
        return Rows(tuple(_branch(one, f"{where}.rows[{i}]", depth) for i, one in enumerate(value)))
    if kind == "operations" and isinstance(value, dict) and all(isinstance(k, str) for k in value):
        return ByOperation({k: from_data(v, f"{where}[{k!r}]", depth + 1) for k, v in value.items()})
    if kind == "table" and isinstance(value, str):
        return TableLeaf(value)
    if kind == "method" and value in METHODS:
        return MethodLeaf(value)
    accepted = ", ".join(METHODS) if kind == "method" else kinds
    raise CatalogError(where, f"{kind}: {bounded_repr(value)}", accepted)


def _branch(data: Any, where: str, depth: int) -> Branch:
    if not isinstance(data, dict) or set(data) != {"when", "then"}:
        raise CatalogError(where, bounded_repr(data), "when and then")
    return Branch(predicate_of(data["when"], where), from_data(data["then"], where, depth + 1))
