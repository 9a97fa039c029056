# SPDX-License-Identifier: Apache-2.0
"""Which value of a reference model each value of a model stands for: by name, or by the node that makes it.

Quantised models have every value several times: as it was, as integers, and as the floats that these stand
for. All of these stand for the value of the reference that has the name of one of them, and its shape.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from onedispatch.dispatch.frontend.graph import Array, Graph, Node
from onedispatch.operators.declarations.tensor import Quantisation

SAME = frozenset(("QuantizeLinear", "DequantizeLinear", "Identity"))


@dataclass(frozen=True)
class Match:
    """A value, the reference's that it stands for, and what its integers stand for, where it has some."""

    value: str
    theirs: str
    quantised: Quantisation | None = None

    def floats(self, array: Array) -> Array:
        """What the integers of this value stand for; other numbers as they are."""
        if self.quantised is None or array.dtype.kind == "f":
            return array
        scale, zero = self._along(array)
        return np.asarray(scale * (array.astype(np.float64) - zero), np.float32)

    def given(self, array: Array, dtype: np.dtype[Any]) -> Array:
        """The reference's numbers in this value's type, rounded and saturated as QuantizeLinear does."""
        if self.quantised is None or array.dtype.kind != "f":
            return array.astype(dtype, order="C")
        scale, zero = self._along(array)
        bounds = np.iinfo(dtype)
        turned = np.rint(array / scale.astype(np.float32)) + zero
        return np.asarray(np.clip(turned, bounds.min, bounds.max).astype(dtype), order="C")

    def beyond(self, array: Array, dtype: np.dtype[Any]) -> Array:
        """Of each number, whether it lies more than half a step beyond what the integers stand for."""
        if self.quantised is None:
            return np.zeros(0, bool)
        (scale, zero), bounds = self._along(array), np.iinfo(dtype)
        low, high = (scale * (bound - zero) for bound in (bounds.min - 0.5, bounds.max + 0.5))
        return np.asarray((array < low) | (array > high))

    def _along(self, array: Array) -> tuple[Array, Array]:
        assert self.quantised is not None
        shape = [1] * array.ndim
        if self.quantised.axis is not None:
            shape[self.quantised.axis] = -1
        kinds = (self.quantised.scale, self.quantised.zero_point)
        scale, zero = (np.asarray(one, np.float64).reshape(shape if array.ndim else ()) for one in kinds)
        return scale, zero


def matched(
    graph: Graph, names: Iterable[str], reference: Graph, quantised: Mapping[str, Quantisation]
) -> list[Match]:
    """Returns the values of ``names`` that stand for one of the reference, in order."""
    same = _names_of_one(graph)
    makers = {name: node for node in graph.nodes for name in node.writes}
    theirs = {name: node for node in reference.nodes for name in node.writes}
    nodes = {(node.name, node.op_type): node for node in reference.nodes}
    found = []
    for name in names:
        stands = quantised.get(name)
        dtype = graph.value(name).dtype
        if stands is None and (dtype is None or dtype.kind != "f"):
            continue
        group = same.get(name, (name,))
        known = next((one for one in group if one in theirs), "") or _by_node(group, makers, nodes)
        if known and _alike(graph, name, reference, known):
            found.append(Match(name, known, stands))
    return found


def _names_of_one(graph: Graph) -> dict[str, tuple[str, ...]]:
    """By name, all names that a value has: of itself, quantised, dequantised."""
    groups: dict[str, list[str]] = {}
    for node in graph.nodes:
        if node.op_type in SAME and node.inputs[0] not in graph.constants:
            group = groups.setdefault(node.inputs[0], [node.inputs[0]])
            for name in node.writes:
                group.append(name)
                groups[name] = group
    return {name: tuple(group) for name, group in groups.items()}


def _by_node(group: Iterable[str], makers: Mapping[str, Node], nodes: Mapping[tuple[str, str], Node]) -> str:
    """The value that the reference's node of the same name and operator makes."""
    for name in group:
        maker = makers.get(name)
        other = nodes.get((maker.name, maker.op_type)) if maker is not None else None
        if maker is not None and other is not None:
            place = maker.outputs.index(name)
            if place < len(other.outputs):
                return other.outputs[place]
    return ""


def _alike(graph: Graph, name: str, reference: Graph, known: str) -> bool:
    """Whether two shapes may be the same, as far as both are known."""
    one, other = graph.value(name).shape, reference.value(known).shape
    if one is None or other is None:
        return True
    sizes = zip(one, other, strict=False)
    return len(one) == len(other) and all(
        a == b for a, b in sizes if isinstance(a, int) and isinstance(b, int)
    )
