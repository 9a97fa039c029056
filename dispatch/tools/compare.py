# SPDX-License-Identifier: Apache-2.0
"""A run beside the same model on the host, as it says, value by value: where does it go astray?

Compared are the values that the device, or a host region, really makes: what lies inside an operator that
several nodes became is never rounded, and has no row of its own. So the model that is looked at is the one
that runs, merges and all; the values only leave it too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from onedispatch.dispatch.artifact.model import CompiledModel, bind_shapes
from onedispatch.dispatch.compiler.compiler import prepared
from onedispatch.dispatch.compiler.custom import CustomNodes
from onedispatch.dispatch.compiler.fold import deciding_inputs, specialise
from onedispatch.dispatch.compiler.mapping import map_graph
from onedispatch.dispatch.compiler.precision import narrow_name
from onedispatch.dispatch.frontend.graph import Array, Graph, Node
from onedispatch.dispatch.host.regions import HostRegion
from onedispatch.dispatch.runtime.session import InferenceSession
from onedispatch.transactions.base.errors import InputError


@dataclass(frozen=True)
class Difference:
    """A value beside the host's: ``error`` is the largest difference, ``relative`` that over ``largest``.

    ``nodes`` became one operator: ``node`` made the value, of those before it nothing is left. Where one side
    has a number and the other has none, both errors are infinite.
    """

    node: str
    op_type: str
    nodes: tuple[str, ...]
    value: str
    dtype: str
    shape: tuple[int, ...]
    error: float
    relative: float
    largest: float
    diverges: bool


@dataclass(frozen=True)
class Comparison:
    """Every value, in the order in which nodes run; those beyond ``threshold`` diverge."""

    precision: str
    threshold: float
    rows: tuple[Difference, ...]

    @property
    def first(self) -> Difference | None:
        return next((row for row in self.rows if row.diverges), None)

    def as_dict(self) -> dict[str, Any]:
        first = self.first
        return {
            "precision": self.precision,
            "threshold": self.threshold,
            "first": None if first is None else first.node,
            "rows": [asdict(row) for row in self.rows],
        }


def compare(
    graph: Graph,
    feed: Mapping[str, Array],
    like: CompiledModel,
    *,
    threshold: float,
    threads: int | None = None,
    kernel_seconds: float | None = None,
) -> Comparison:
    """``graph`` on ``feed``, compiled as ``like`` is, beside itself on the host, which computes what it says.

    ``threshold`` is a share of a value's largest number there. Raises ``InputError`` for one that is not
    above 0, and what compiling and running raise.
    """
    if not 0 < threshold < np.inf:
        raise InputError("threshold", f"{threshold:g}", "a number above 0")
    graph = _with_types(graph, feed, like)
    named = _compared(graph, feed, like)
    made = {name: node for node in graph.nodes for name in node.writes}
    results = tuple(graph.value(name) for name in named)
    probe = CompiledModel(
        like.target,
        like.precision,
        like.fallback,
        graph.inputs,
        results,
        deciding_inputs(graph),
        replace(graph, outputs=results),
        like.cache_size,
        cast_policy=like.cast_policy,
        sums=like.sums,
    )
    session = InferenceSession(probe, threads=threads, kernel_seconds=kernel_seconds)
    ours = session.run(None, feed)
    host = HostRegion(
        graph, graph.nodes, named, threads, optimise=False, device=like.target, kernel_seconds=kernel_seconds
    )
    theirs = host.run(feed)
    inside = _inside(graph, set(named))
    rows = (
        _difference(made[name], inside[name], name, np.asarray(mine), np.asarray(theirs[name]), threshold)
        for name, mine in zip(named, ours, strict=True)
    )
    return Comparison(like.precision, threshold, tuple(rows))


Known = tuple[dict[str, tuple[int, ...]], dict[str, Array]]


def _known(graph: Graph, feed: Mapping[str, Array]) -> Known:
    """Shapes of the inputs, and those of their values that decide shapes."""
    shapes = bind_shapes(graph.inputs, {name: array.shape for name, array in feed.items()}) or {}
    return shapes, {name: feed[name] for name in deciding_inputs(graph)}


def _with_types(graph: Graph, feed: Mapping[str, Array], like: CompiledModel) -> Graph:
    """The host, too, reads what kernels from outside make: their types only they infer."""
    custom = CustomNodes(graph, like.target, like.cast_policy)
    special = specialise(graph, *_known(graph, feed), custom)
    names = (name for node in graph.nodes for name in node.writes if not graph.value(name).type)
    return replace(graph, values={**graph.values, **{name: special.value(name) for name in names}})


def _compared(graph: Graph, feed: Mapping[str, Array], like: CompiledModel) -> list[str]:
    """Names of values of ``graph`` that operators, or host regions, write: numbers that both sides have."""
    special = prepared(graph, *_known(graph, feed), like.target, like.cast_policy, like.precision)
    written = {name for unit in map_graph(special, like.target) for name in unit.writes}
    named = (name for node in graph.nodes for name in node.writes)
    return [
        name
        for name in named
        if (name in written or narrow_name(name, like.precision) in written)
        and (dtype := special.value(name).dtype) is not None
        and not dtype.hasobject
        and special.value(name).type == (graph.value(name).type or special.value(name).type)
    ]


def _inside(graph: Graph, named: set[str]) -> dict[str, tuple[str, ...]]:
    """By value: the node that makes it, and those before it that became one with that."""
    made = {name: node for node in graph.nodes for name in node.writes}
    taken: set[str] = set()
    found: dict[str, tuple[str, ...]] = {}
    for name, node in made.items():
        if name not in named:
            continue
        group, waiting = [], [node]
        while waiting:
            group.append(waiting.pop())
            for before in (made[one] for one in group[-1].reads if one in made):
                if before.name not in taken and named.isdisjoint(before.writes):
                    taken.add(before.name)
                    waiting.append(before)
        found[name] = tuple(one.name for one in group)
    return found


def _difference(
    node: Node, nodes: tuple[str, ...], name: str, mine: Array, theirs: Array, bound: float
) -> Difference:
    a, b = mine.astype(np.float64), theirs.astype(np.float64)
    known = np.isfinite(b)
    largest = float(np.abs(b[known]).max(initial=0.0))
    alike = a.shape == b.shape and bool(
        np.array_equal(a[~known], b[~known], equal_nan=True) and np.isfinite(a[known]).all()
    )
    error = float(np.abs(a[known] - b[known]).max(initial=0.0)) if alike else np.inf
    relative = error / largest if largest else (0.0 if error == 0 else np.inf)
    shape = tuple(int(size) for size in mine.shape)
    ends = node.name, node.op_type, nodes, name, str(theirs.dtype), shape
    return Difference(*ends, error, relative, largest, relative > bound)
