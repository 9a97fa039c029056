# SPDX-License-Identifier: Apache-2.0
"""Nodes computed at compile time, on the host, once it is known that their results are small."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from onedispatch.dispatch.base import limits
from onedispatch.dispatch.frontend.exporter import infer_values, rewired
from onedispatch.dispatch.frontend.graph import Array, Graph, Node, Value
from onedispatch.dispatch.frontend.shape_operands import shape_positions
from onedispatch.dispatch.host.regions import HostRegion
from onedispatch.operators.declarations.registry import MICROSOFT, custom_mapping
from onedispatch.transactions.base.errors import InputError, ModelError

_RANDOM = frozenset(
    "Bernoulli Dropout Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike".split()
)
# Operators without an inferred shape whose results are no larger than their inputs make them.
_BOUNDED = frozenset(
    [("", op) for op in ("Compress", "NonMaxSuppression", "NonZero", "Unique")]
    + [(MICROSOFT, op) for op in ("DequantizeLinear", "QLinearConcat", "QuantizeLinear")]
)


def may_evaluate(node: Node) -> bool:
    """True if the node gives the same result for the same inputs every time, without a custom kernel."""
    return node.op_type not in _RANDOM and not node.has_subgraph and custom_mapping(node) is None


def asks_shape(node: Node) -> bool:
    """``Shape`` and ``Size``: they read no value."""
    return node.op_type in ("Shape", "Size") and not node.domain


def evaluate(
    graph: Graph, nodes: Sequence[Node], known: Mapping[str, Array], wanted: frozenset[str] | None = None
) -> tuple[dict[str, Array], list[Node]]:
    """Values of ``nodes`` (topological order) from those in ``known``, and which nodes gave them.

    ``wanted`` are the names to keep; None keeps all. Nodes that give no tensor, cannot be run, or
    have results of unknown size are left out, and so is what reads these. ``Shape`` and
    ``Size`` take shapes from ``graph`` where it knows them, else from what is computed.

    Raises:
        ModelError: the results are beyond ``limits``.
    """
    distinct, same = _distinct(nodes)
    names = None if wanted is None else frozenset(same.get(name, name) for name in wanted)
    made, done = _evaluate(graph, distinct, known, names)
    gave = {name for node in done for name in node.writes}
    gave |= {name for name, first in same.items() if first in gave}
    needed = {name for node in nodes if not gave.issuperset(node.writes) for name in node.reads}
    done = [node for node in nodes if gave.issuperset(node.writes)]
    others = {name: made[first] for name, first in same.items() if first in made}
    kept = {name: array for name, array in others.items() if wanted is None or name in wanted | needed}
    return made | kept, done


def _distinct(nodes: Sequence[Node]) -> tuple[list[Node], dict[str, str]]:
    """``nodes`` without those that compute what an earlier one does, as where exporters convert a weight for
    each of its readers; and what these would make: names, with those of the same values.
    """
    first: dict[tuple[Any, ...], Node] = {}
    same: dict[str, str] = {}
    distinct = []
    for node in nodes:
        reads = tuple(same.get(name, name) for name in node.inputs)
        settings = _settings(node)
        key = (node.domain, node.op_type, node.opset, reads, tuple(map(bool, node.outputs)), settings)
        earlier = node if settings is None else first.setdefault(key, node)
        if earlier is node:
            distinct.append(node if reads == node.inputs else rewired(node, reads, node.outputs))
        else:
            same.update((name, one) for name, one in zip(node.outputs, earlier.outputs, strict=True) if name)
    return distinct, same


def _settings(node: Node) -> tuple[tuple[str, Any], ...] | None:
    """The attributes, as a key; None where one is not of numbers and strings."""
    lists = {name: v if isinstance(v, list) else [v] for name, v in node.attributes.items()}
    if not all(isinstance(part, (int, float, str, bytes)) for values in lists.values() for part in values):
        return None
    return tuple(sorted((name, repr(values)) for name, values in lists.items()))  # 0.0 and -0.0 differ


def _evaluate(
    graph: Graph, nodes: Sequence[Node], known: Mapping[str, Array], wanted: frozenset[str] | None
) -> tuple[dict[str, Array], list[Node]]:
    """``evaluate`` of nodes that are all different."""
    computed = {name for node in nodes for name in node.writes}  # what is declared of these does not count
    done = [
        node
        for node in nodes
        if asks_shape(node) and node.inputs[0] not in computed and graph.value(node.inputs[0]).is_concrete
    ]
    made = {node.outputs[0]: _shape_value(graph, node) for node in done}
    given = {id(node) for node in done}
    pending = [node for node in nodes if id(node) not in given]
    budget = _Budget(graph)
    while pending:
        wave = _bounded(graph, pending, {**known, **made}, budget)
        if not wave:
            break
        chosen = {id(node) for node in wave}
        pending = [node for node in pending if id(node) not in chosen]
        later = {name for node in pending for name in node.reads}
        keep = [n for node in wave for n in node.writes if wanted is None or n in wanted or n in later]
        results, stuck = _run_all(graph, wave, keep, {**known, **made}) if keep else ({}, [])
        made.update({name: results[name] for node in wave for name in node.writes if name in results})
        left = {id(node) for node in stuck}
        done += [node for node in wave if id(node) not in left]
    if wanted is not None:
        finished = {id(node) for node in done}
        needed = {name for node in nodes if id(node) not in finished for name in node.reads}
        made = {name: array for name, array in made.items() if name in wanted or name in needed}
    return made, done


class _Budget:
    """Bytes that may still be computed."""

    def __init__(self, graph: Graph) -> None:
        self._limit = limits.folded_bytes(sum(array.nbytes for array in graph.constants.values()))
        self._spent = 0

    def spend(self, node: Node, values: Sequence[Value]) -> None:
        where = f"node {node.name} ({node.op_type}), computed from constants"
        for value in values:
            if value.dtype is not None:
                self._spent += limits.check_tensor(where, value.dtype, value.concrete_shape)
        self._limit.check(where, self._spent)


def _bounded(graph: Graph, nodes: list[Node], known: Mapping[str, Array], budget: _Budget) -> list[Node]:
    """Those of ``nodes`` whose inputs are known, or made by others of them, and whose sizes are."""
    nodes = _within_reach(nodes, known)
    reads = {name for node in nodes for name in node.reads}
    fed = {name: known[name] for name in reads if name in known}
    piece = replace(graph, nodes=tuple(nodes), inputs=(), outputs=(), constants=fed)
    values = infer_values(piece, {}, {})
    available = set(fed)
    found = []
    for node in nodes:
        if not available.issuperset(node.reads):
            continue
        results = [values.get(name, Value(name)) for name in node.writes]
        if all(value.is_concrete for value in results):
            budget.spend(node, results)
        elif (node.domain, node.op_type) not in _BOUNDED or not known.keys() >= set(node.reads):
            continue
        found.append(node)
        available.update(node.writes)
    return found


def _within_reach(nodes: list[Node], known: Mapping[str, Array]) -> list[Node]:
    """Those of ``nodes`` that read nothing but what is known, or made by others of them, and whose sizes do
    not follow from values that have yet to be computed."""
    reached = set(known)
    found = []
    for node in nodes:
        blocked = any(node.inputs[i] not in known for i in shape_positions(node))
        if not blocked and reached.issuperset(node.reads):
            found.append(node)
            reached.update(node.writes)
    return found


def _run_all(
    graph: Graph, nodes: list[Node], wanted: list[str], known: Mapping[str, Array]
) -> tuple[dict[str, Array], list[Node]]:
    """Values of ``wanted``; nodes that give no tensor, or cannot be run, come back."""
    fed = {name: known[name] for node in nodes for name in node.reads if name in known}
    piece = replace(graph, constants=fed)
    try:
        results = HostRegion(piece, nodes, wanted, threads=1, optimise=False).run({})
    except (ModelError, InputError):
        return _run_each(piece, nodes)
    if all(isinstance(value, np.ndarray) for value in results.values()):
        return results, []
    return _run_each(piece, nodes)


def _run_each(piece: Graph, nodes: list[Node]) -> tuple[dict[str, Array], list[Node]]:
    """Runs node by node. Returns nodes that give no tensor, and those that read their results, as not run."""
    known = dict(piece.constants)
    stuck = []
    for node in nodes:
        ready = all(name in known for name in node.reads)
        results = _run_one(replace(piece, constants=known), node) if ready else None
        if results is None:
            stuck.append(node)
        else:
            known.update(results)
    return known, stuck


def _run_one(piece: Graph, node: Node) -> dict[str, Array] | None:
    try:
        region = HostRegion(piece, [node], node.writes, threads=1, optimise=False)
        results = region.run({})
    except (ModelError, InputError):
        return None
    if all(isinstance(value, np.ndarray) for value in results.values()):
        return results
    return None


def _shape_value(graph: Graph, node: Node) -> Array:
    shape = graph.value(node.inputs[0]).concrete_shape
    if node.op_type == "Size":
        return np.asarray(np.prod(shape, dtype=np.int64), np.int64)
    start, end = node.attributes.get("start", 0), node.attributes.get("end", len(shape))
    return np.asarray(shape[slice(start, end)], np.int64)
