# SPDX-License-Identifier: Apache-2.0
"""The smallest cut of a hypergraph: each vertex on one of two sides, so that the fewest edges have both."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from itertools import pairwise
from typing import TypeVar

V = TypeVar("V", bound=Hashable)
_MANY = 1 << 30


def smallest_cut(edges: Iterable[tuple[frozenset[V], bool, bool]]) -> set[V]:
    """Returns the vertices on the first side; all others are on the second.

    An edge is its vertices, whether the first side itself takes part in it, and whether the second does. The
    number of edges with vertices on both sides is the least possible: each edge becomes two nodes with an arc
    of capacity 1 between, and the greatest flow is found along shortest paths (Edmonds and Karp). Of several
    smallest cuts the one with most vertices on the first side is taken.
    """
    arcs: dict[Hashable, dict[Hashable, int]] = {}

    def arc(start: Hashable, end: Hashable, capacity: int) -> None:
        arcs.setdefault(start, {})[end] = capacity
        arcs.setdefault(end, {}).setdefault(start, 0)

    for number, (vertices, first, second) in enumerate(edges):
        enter, leave = ("enter", number), ("leave", number)
        arc(enter, leave, 1)
        ends: list[Hashable] = [("vertex", one) for one in vertices]
        ends += ["first"] * first + ["second"] * second
        for end in ends:
            arc(end, enter, _MANY)
            arc(leave, end, _MANY)
    while (path := _path(arcs)) is not None:
        for start, end in pairwise(path):  # every path crosses an arc of capacity 1
            arcs[start][end] -= 1
            arcs[end][start] += 1
    behind = _reaching(arcs)
    return {one[1] for one in arcs if isinstance(one, tuple) and one[0] == "vertex" and one not in behind}


def _path(arcs: dict[Hashable, dict[Hashable, int]]) -> list[Hashable] | None:
    before = _reached(arcs)
    if "second" not in before:
        return None
    path: list[Hashable] = ["second"]
    while path[-1] != "first":
        path.append(before[path[-1]])
    return path[::-1]


def _reaching(arcs: dict[Hashable, dict[Hashable, int]]) -> set[Hashable]:
    """Whatever flow could still leave for the second side."""
    found: set[Hashable] = {"second"}
    waiting: deque[Hashable] = deque(found)
    while waiting:
        end = waiting.popleft()
        for start in arcs.get(end, ()):  # each arc has one back
            if arcs[start][end] > 0 and start not in found:
                found.add(start)
                waiting.append(start)
    return found


def _reached(arcs: dict[Hashable, dict[Hashable, int]]) -> dict[Hashable, Hashable]:
    """What flow can still reach from the first side, each with what it is reached from."""
    before: dict[Hashable, Hashable] = {"first": "first"}
    waiting: deque[Hashable] = deque(["first"])
    while waiting:
        start = waiting.popleft()
        for end, capacity in arcs.get(start, {}).items():
            if capacity > 0 and end not in before:
                before[end] = start
                waiting.append(end)
    return before
