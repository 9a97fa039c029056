# SPDX-License-Identifier: Apache-2.0
"""Slices whose bounds are computed in the run, and from whose results an element is then taken by its place.

The first element of ``Slice(x, e, END)`` is element e of x, as ``Slice(x, e, e + 1)`` is: e chooses data.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onedispatch.dispatch.frontend.graph import Graph, Node
from onedispatch.dispatch.frontend.provenance import COMPUTED, Provenance

_KEEP = frozenset("Abs Add Cast Clip Div Exp Identity Mul Neg Relu Sigmoid Softmax Sub Tanh".split())


@dataclass(frozen=True)
class _Cut:
    """Where ``node`` cut its data: the axis, and whether its first elements are gone."""

    node: str
    axis: int
    begin: bool


def choosing_slices(graph: Graph, provenance: Provenance) -> frozenset[str]:
    """Names of the Slice nodes with bounds computed in the run whose results are read by place."""
    cuts: dict[str, tuple[_Cut, ...]] = {}
    found: set[str] = set()
    for node in graph.nodes:
        if node.domain:
            continue
        data = cuts.get(node.inputs[0], ()) if node.inputs else ()  # indices may be cut, they take no part
        found.update(cut.node for cut in data if _reads_by_place(graph, node, cut))
        kept: tuple[_Cut, ...] = ()
        if node.op_type in _KEEP:
            kept = tuple(cut for name in node.reads for cut in cuts.get(name, ()))
        if node.op_type == "Slice" and len(node.inputs) > 2:
            kept = _cut(graph, node, provenance)
        if kept:
            cuts.update(dict.fromkeys(node.writes, kept))
    return frozenset(found)


def _cut(graph: Graph, node: Node, provenance: Provenance) -> tuple[_Cut, ...]:
    starts, ends = (provenance.elements(name).reshape(-1) for name in node.inputs[1:3])
    axes = _axes(graph, node, max(starts.size, ends.size))
    if axes is None or any(one.size not in (1, len(axes)) for one in (starts, ends)):
        return ()  # other numbers of bounds are a defect that the check of the graph names
    starts, ends = (np.broadcast_to(one, len(axes)) for one in (starts, ends))
    return tuple(
        _Cut(node.name, axis, bool(start == COMPUTED))
        for axis, start, end in zip(axes, starts, ends, strict=True)
        if COMPUTED in (start, end)
    )


def _axes(graph: Graph, node: Node, count: int) -> list[int] | None:
    """Returns the axes of a Slice, counted from the front; None if they or the rank are unknown."""
    shape = graph.value(node.inputs[0]).shape
    named = node.inputs[3] if len(node.inputs) > 3 else ""
    axes = graph.constants.get(named) if named else np.arange(count)
    if axes is None or shape is None:
        return None
    return [int(axis) % max(len(shape), 1) for axis in axes.reshape(-1)]


def _reads_by_place(graph: Graph, node: Node, cut: _Cut) -> bool:
    """True if ``node`` takes elements along the axis by places that the cut has moved."""
    if node.op_type == "Slice" and len(node.inputs) > 2:
        bounds = [graph.constants.get(name) for name in node.inputs[1:3]]
        axes = _axes(graph, node, max((one.size for one in bounds if one is not None), default=1))
        if axes is None or cut.axis not in axes:
            return axes is None
        return cut.begin or any(one is None or bool(np.any(one < 0)) for one in bounds)
    shape = graph.value(node.inputs[0]).shape
    axis = int(node.attributes.get("axis", 0)) % max(len(shape or ()), 1)
    if node.op_type == "Split":
        return axis == cut.axis
    if node.op_type == "Gather" and axis == cut.axis:
        places = graph.constants.get(node.inputs[1])
        return cut.begin or places is None or bool(np.any(places < 0))
    return False
