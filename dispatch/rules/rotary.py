# SPDX-License-Identifier: Apache-2.0
"""Rotary embedding that exporters write as halves that are turned, and tables of cosines and sines."""

from __future__ import annotations

from typing import Any

import numpy as np

from onedispatch.dispatch.rules.match import Match, attribute
from onedispatch.dispatch.rules.pattern import Condition, Rule


def _table(name: str) -> Any:
    """The first half of a constant table, for each batch and place: [batch, places, half]."""

    def of(match: Match) -> Any:
        table, (batch, _, places, size) = match.constant(name), match.shape("x")
        assert table is not None
        whole = np.broadcast_to(table, np.broadcast_shapes(table.shape, (batch, 1, places, size)))
        return np.ascontiguousarray(whole[:, 0, :, : size // 2])

    return of


def _same_halves(match: Match) -> bool:
    shape = match.shape("x")
    for name in ("c", "s"):
        table = match.constant(name)
        if table is None or len(shape) != 4 or table.shape[-1:] != shape[3:] or shape[3] % 2:
            return False
        if len(table.shape) > 4 or (len(table.shape) > 2 and table.shape[-3] != 1):
            return False
        first, second = np.split(table, 2, axis=-1)
        if not np.array_equal(first, second):
            return False
    return True


def _halves(match: Match) -> bool:
    """``high`` is the second half of the last axis of x, ``low`` the first one."""
    size = match.shape("x")[-1]
    return _range(match, "high") == (size // 2, size) and _range(match, "low") == (0, size // 2)


def _range(match: Match, name: str) -> tuple[int, int] | None:
    node, rank, size = match.maker(name), len(match.shape("x")), match.shape("x")[-1]
    given = [match.graph.constants.get(one) for one in node.inputs[1:]]
    if len(given) < 3 or any(one is None or one.size != 1 for one in given):
        return None
    start, end, axis, step = [int(one.reshape(-1)[0]) for one in (*given, np.ones(1))[:4] if one is not None]
    if axis % rank != rank - 1 or step != 1:
        return None
    low, high, _ = slice(start, end).indices(size)
    return low, high


ROTARY = (
    Rule(
        "rotary_embedding",
        "Concat",
        ("Add(Mul(x, c), Mul((joined := Concat(Neg((high := Slice(x))), (low := Slice(x)))), s))",),
        "RotaryEmbedding(x, cos, sin)",
        23,
        {},
        (
            Condition("4 dimensions, and constant tables whose halves are the same", _same_halves),
            Condition("the second half of the last axis, then the first", _halves),
            Condition(
                "halves joined along the last axis",
                lambda match: attribute(match.graph, match.maker("joined"), "axis") in (-1, 3),
            ),
        ),
        {"cos": _table("c"), "sin": _table("s")},
    ),
)
