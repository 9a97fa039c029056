# SPDX-License-Identifier: Apache-2.0
"""Conditions and derived values that several rules share."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from onedispatch.dispatch.frontend.graph import Graph, Node
from onedispatch.dispatch.rules.match import Match, attribute
from onedispatch.dispatch.rules.pattern import Condition


def scalar(name: str) -> Callable[[Match], float]:
    """Derives the number that a constant of one element holds."""
    return lambda match: match.scalar(name)


def axes_of(graph: Graph, node: Node) -> tuple[int, ...] | None:
    """Returns the axes of a reduction, counted from the front; None if they or the rank are unknown."""
    value = graph.value(node.inputs[0])
    if not value.is_concrete:
        return None
    rank = len(value.concrete_shape)
    given = attribute(graph, node, "axes")
    if len(node.inputs) > 1 and node.inputs[1]:
        array = graph.constants.get(node.inputs[1])
        if array is None:
            return None
        given = array.reshape(-1).tolist()
    if not given:
        return None if attribute(graph, node, "noop_with_empty_axes") else tuple(range(rank))
    return tuple(sorted(axis % rank for axis in given))


def _trailing(match: Match, names: tuple[str, ...]) -> bool:
    found = {axes_of(match.graph, match.maker(name)) for name in names if name in match.values}
    rank = len(match.shape("x"))
    axes = found.pop() if len(found) == 1 else None
    return not found and axes is not None and axes == tuple(range(rank - len(axes), rank))


def trailing(*names: str) -> Condition:
    """Requires that the reductions that make these values, as far as present, are over the same last axes."""
    return Condition(
        f"reductions ({', '.join(names)}) over the same last axes", lambda match: _trailing(match, names)
    )


def one_axis(*names: str) -> Condition:
    """Requires that the reductions that make these values are over the same single axis."""

    def holds(match: Match) -> bool:
        found = {axes_of(match.graph, match.maker(name)) or () for name in names}
        return len(found) == 1 and len(found.pop()) == 1

    return Condition(f"reductions ({', '.join(names)}) over the same axis", holds)


def first_axis(name: str) -> Callable[[Match], int]:
    """Derives the first axis of the reduction that makes a value."""

    def of(match: Match) -> int:
        return (axes_of(match.graph, match.maker(name)) or (0,))[0]

    return of


def kept(*names: str) -> Condition:
    """Requires keepdims=1 of the reductions that make these values, as far as present."""
    return Condition(
        f"keepdims=1 of {', '.join(names)}",
        lambda match: all(
            attribute(match.graph, match.maker(name), "keepdims") for name in names if name in match.values
        ),
    )


def normalised(match: Match, reduced: str) -> tuple[int, ...]:
    """Returns the sizes of the reduced axes."""
    return match.shape("x")[first_axis(reduced)(match) :]


def row_shaped(name: str, reduced: str) -> Condition:
    """Requires that a scale or bias has the shape of the reduced axes, leading ones aside."""

    def holds(match: Match) -> bool:
        shape, wanted = match.shape(name), normalised(match, reduced)
        own = shape[len(shape) - len(wanted) :] if len(shape) >= len(wanted) else ()
        return own == wanted and prod(shape) == prod(wanted)

    return Condition(f"{name} of the shape of the normalised axes", holds)


def unpadded(name: str, reduced: str) -> Callable[[Match], Any]:
    """Derives a constant without leading axes of size 1; None if it stays as it is."""

    def of(match: Match) -> Any:
        constant, wanted = match.constant(name), normalised(match, reduced)
        if constant is None or constant.shape == wanted:
            return None
        return np.ascontiguousarray(constant.reshape(wanted))

    return of


def ones(reduced: str) -> Callable[[Match], Any]:
    """Derives a scale of ones."""

    def of(match: Match) -> Any:
        dtype = match.value("x").dtype
        return np.ones(normalised(match, reduced), dtype)

    return of


def positive(name: str) -> Condition:
    """Requires that a constant is 0 or more."""
    return Condition(f"{name} of 0 or more", lambda match: match.scalar(name) >= 0)
