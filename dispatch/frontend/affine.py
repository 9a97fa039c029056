# SPDX-License-Identifier: Apache-2.0
"""Small integer tensors as affine forms of values that are not known yet: which sums of them are constant.

Elements of inputs, and of results of operators that are not listed here, are unknowns of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onedispatch.dispatch.base import limits
from onedispatch.dispatch.frontend.graph import Array, Graph, Node

Unknown = tuple[str, int]  # the name of a value, and which element of it


@dataclass(frozen=True)
class Affine:
    """``constant + sum(factor * unknown)``; no factor is 0."""

    constant: int
    factors: Mapping[Unknown, int] = field(default_factory=dict)

    @property
    def is_constant(self) -> bool:
        return not self.factors

    def times(self, number: int) -> Affine:
        scaled = {unknown: factor * number for unknown, factor in self.factors.items() if number}
        return Affine(self.constant * number, scaled)

    def __add__(self, other: Affine) -> Affine:
        sums = dict(self.factors)
        for unknown, factor in other.factors.items():
            sums[unknown] = sums.get(unknown, 0) + factor
        return Affine(self.constant + other.constant, {u: f for u, f in sums.items() if f})

    def __sub__(self, other: Affine) -> Affine:
        return self + other.times(-1)


class Forms:
    """The forms of a graph's values, computed for those that are asked for and what these come from."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._makers = {name: node for node in graph.nodes for name in node.writes}
        self._known: dict[str, Any] = {}

    def of(self, name: str) -> Any:
        """A NumPy array of ``Affine``; None where the tensor is large, unknown, or not of integers."""
        pending = [name]
        while pending:
            current = pending[-1]
            maker = self._makers.get(current)
            missing = [] if maker is None else [n for n in self._operands(maker) if n not in self._known]
            if current not in self._known and missing:
                pending += missing
                continue
            pending.pop()
            if current not in self._known:
                self._known[current] = self._form(current, maker)
        return self._known[name]

    def _operands(self, node: Node) -> Iterable[str]:
        """What the form of the node's result is made of."""
        return node.reads if not node.domain and node.op_type in _FORMS else ()

    def _form(self, name: str, maker: Node | None) -> Any:
        value = self._graph.value(name)
        if value.dtype is None or value.dtype.kind not in "iu" or not value.is_concrete:
            return None
        shape = value.concrete_shape
        if np.prod(shape, dtype=np.int64) > limits.SHAPE_ELEMENTS.most:
            return None
        constant = self._graph.constants.get(name)
        if constant is not None:
            return _array([Affine(int(number)) for number in constant.reshape(-1)], shape)
        made = None
        if maker is not None and not maker.domain and maker.op_type in _FORMS:
            operands = [self._known[n] if n else None for n in maker.inputs]
            made = _FORMS[maker.op_type](maker, operands)
        if made is not None and made.size == np.prod(shape, dtype=np.int64):
            return made.reshape(shape)
        return _array([Affine(0, {(name, i): 1}) for i in range(int(np.prod(shape)))], shape)


def _array(forms: list[Affine], shape: tuple[int, ...]) -> Any:
    made: Array = np.empty(len(forms), np.object_)
    made[:] = forms
    return made.reshape(shape)


def _same(_: Node, operands: list[Any]) -> Any:
    return operands[0]


def _sum(_: Node, operands: list[Any]) -> Any:
    first, second = operands
    return None if first is None or second is None else first + second


def _difference(_: Node, operands: list[Any]) -> Any:
    first, second = operands
    return None if first is None or second is None else first - second


def _concatenated(node: Node, operands: list[Any]) -> Any:
    if any(one is None for one in operands):
        return None
    return np.concatenate(operands, axis=int(node.attributes.get("axis", 0)))


def _gathered(node: Node, operands: list[Any]) -> Any:
    data, indices = operands
    if data is None or indices is None or not all(one.is_constant for one in indices.reshape(-1)):
        return None
    places = np.array([one.constant for one in indices.reshape(-1)], np.int64).reshape(indices.shape)
    axis = int(node.attributes.get("axis", 0))
    size = data.shape[axis] if data.ndim else 0
    inside = (places >= -size) & (places < size)
    return np.take(data, places, axis=axis) if inside.all() else None


_FORMS: dict[str, Callable[[Node, list[Any]], Any]] = {
    "Add": _sum,
    "Cast": _same,
    "Concat": _concatenated,
    "Gather": _gathered,
    "Identity": _same,
    "Reshape": _same,
    "Squeeze": _same,
    "Sub": _difference,
    "Unsqueeze": _same,
}
