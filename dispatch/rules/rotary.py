# SPDX-License-Identifier: Apache-2.0
"""Rotary embedding that exporters write as halves that are turned, and tables of cosines and sines.

Halves are cut out by Slice or by Split, and turned as one whole or each for itself. Tables are constants, or
computed from the positions: angles, or rows of a table that is known.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from onedispatch.dispatch.frontend.graph import Array
from onedispatch.dispatch.rules.match import Match, attribute, is_single
from onedispatch.dispatch.rules.pattern import Condition, Rule

# What keeps two halves that are alike as they are, along other axes than the last one or element by element.
_KEEPS = frozenset("Cast Cos Identity Sin Squeeze Unsqueeze".split())
_SCALES = frozenset("Add Div Mul Sub".split())  # by one number
_MOST_STEPS = 16  # from a table back to where its halves are joined


# -- how x and the tables lie ------------------------------------------------------------------------


def _laid(match: Match) -> tuple[int, int, int] | None:
    """(batch, places, size) of x, [batch, heads, places, size] or without heads; None where it is neither."""
    x = match.shape("x")
    if len(x) not in (3, 4) or x[-1] % 2:
        return None
    return x[0], x[-2], x[-1]


def _width(match: Match) -> int:
    """What a table has for each place: whole rows, or half of them where halves are turned apart."""
    size = match.shape("x")[-1]
    return size if match.rule.name.startswith("rotary_embedding") else size // 2


def _table_shape(match: Match, name: str) -> tuple[int, ...] | None:
    """A table's as [batch, places, width]; None where it is different for each head, or of another width."""
    x, shape = match.shape("x"), match.shape(name)
    if not shape or len(shape) > len(x) or shape[-1] != _width(match):
        return None
    whole = (1,) * (len(x) - len(shape)) + shape
    if len(x) == 4 and whole[1] != 1:
        return None
    return whole[0], whole[-2], whole[-1]


def _tables_fit(match: Match) -> bool:
    laid = _laid(match)
    if laid is None:
        return False
    for name in ("c", "s"):
        shape = _table_shape(match, name)
        if shape is None or any(n not in (1, m) for n, m in zip(shape[:2], laid[:2], strict=True)):
            return False
    return True


def _whole_tables(match: Match) -> bool:
    """Computed tables have a row for every place of every batch: they are not repeated."""
    laid = _laid(match)
    return laid is not None and all((_table_shape(match, name) or ())[:2] == laid[:2] for name in ("c", "s"))


# -- tables whose halves are alike -------------------------------------------------------------------


def _alike(match: Match, name: str) -> bool:
    """Whether both halves of a value's last axis are the same, as far as its makers tell."""
    for _ in range(_MOST_STEPS):
        constant = match.graph.constants.get(name)
        if constant is not None:
            return _same_halves(constant)
        node = match.index.makers.get(name)
        if node is None or node.domain:
            return False
        rank, given = len(match.graph.value(name).concrete_shape), node.inputs
        if node.op_type == "Concat":
            last = attribute(match.graph, node, "axis") in (-1, rank - 1)
            return last and len(given) == 2 and given[0] == given[1]
        if node.op_type == "Gather":
            return not attribute(match.graph, node, "axis") and _same_halves(
                match.graph.constants.get(given[0])
            )
        if node.op_type in _SCALES:
            scaled = [one for one in given if not is_single(match.graph, one)]
            if len(scaled) != 1:
                return False
            name = scaled[0]
        elif node.op_type in _KEEPS and _keeps_last(match, given[0], name):
            name = given[0]
        else:
            return False
    return False


def _keeps_last(match: Match, before: str, after: str) -> bool:
    """Both have the same last axis."""
    shapes = [match.graph.value(name).concrete_shape for name in (before, after)]
    return all(shapes) and shapes[0][-1] == shapes[1][-1]


def _same_halves(table: Array | None) -> bool:
    if table is None or not table.ndim or table.shape[-1] % 2:
        return False
    first, second = np.split(table, 2, axis=-1)
    return np.array_equal(first, second)


def _both_alike(match: Match) -> bool:
    return _width(match) != match.shape("x")[-1] or all(
        _alike(match, match.values[name]) for name in ("c", "s")
    )


def _constant(match: Match) -> bool:
    return all(match.constant(name) is not None for name in ("c", "s"))


# -- halves of x ---------------------------------------------------------------------------------------


def _halves(match: Match) -> bool:
    """``high`` is the second half of the last axis of x, ``low`` the first one."""
    size = match.shape("x")[-1]
    return _range(match, "high") == (size // 2, size) and _range(match, "low") == (0, size // 2)


def _range(match: Match, name: str) -> tuple[int, int] | None:
    node, rank, size = match.maker(name), len(match.shape("x")), match.shape("x")[-1]
    if node.op_type == "Split":
        axis, half = attribute(match.graph, node, "axis"), match.shape(name)[-1:]
        last = axis in (-1, rank - 1) and len(node.outputs) == 2 and half == (size // 2,)
        at = size // 2 * node.outputs.index(match.values[name])
        return (at, at + size // 2) if last else None
    given = [match.graph.constants.get(one) for one in node.inputs[1:]]
    if len(given) < 3 or any(one is None or one.size != 1 for one in given):
        return None
    start, end, axis, step = [int(one.reshape(-1)[0]) for one in (*given, np.ones(1))[:4] if one is not None]
    if axis % rank != rank - 1 or step != 1:
        return None
    low, high, _ = slice(start, end).indices(size)
    return low, high


# -- what is written -----------------------------------------------------------------------------------


def _known(name: str) -> Any:
    """The first half of a constant table, for each batch and place: [batch, places, size / 2]."""

    def of(match: Match) -> Any:
        table, laid, shape = match.constant(name), _laid(match), _table_shape(match, name)
        assert table is not None and laid is not None and shape is not None
        batch, places, size = laid
        whole = np.broadcast_to(table.reshape(shape), (batch, places, shape[-1]))
        return np.ascontiguousarray(whole[..., : size // 2])

    return of


def _rows(match: Match) -> Array:
    """The shape of a computed table: [batch, places, size / 2]."""
    batch, places, size = _laid(match) or (0, 0, 0)
    return np.array([batch, places, size // 2])


_CUTS = (("Slice(x)", "Slice(x)"), ("Split(x)[0]", "Split(x)[1]"))
_FORMS = {
    "rotary_embedding": "Add(Mul(x, c), Mul((joined := Concat(Neg(HIGH), LOW)), s))",
    "rotary_halves": "(joined := Concat(Sub(Mul(LOW, c), Mul(HIGH, s)), Add(Mul(HIGH, c), Mul(LOW, s))))",
}
_WHERE = (
    Condition("computed or constant tables whose halves are the same", _both_alike),
    Condition("3 or 4 dimensions, and tables that are the same for each head", _tables_fit),
    Condition("the second half of the last axis, then the first", _halves),
    Condition(
        "halves joined along the last axis",
        lambda match: (
            attribute(match.graph, match.maker("joined"), "axis") in (-1, len(match.shape("x")) - 1)
        ),
    ),
)
_HEADS = {"heads": lambda match: 1 if len(match.shape("x")) == 3 else 0}
_CUT = {
    "first": lambda _: np.array([0]),
    "half": lambda match: _rows(match)[2:],
    "last": lambda _: np.array([-1]),
}


def _rules(name: str) -> tuple[Rule, Rule]:
    """With constant tables, and with computed ones."""
    forms = tuple(
        _FORMS[name].replace("LOW", f"(low := {low})").replace("HIGH", f"(high := {high})")
        for low, high in _CUTS
    )
    tables = [f"Slice({one}, first, half, last)" if name == "rotary_embedding" else one for one in ("c", "s")]
    computed = ", ".join(f"Reshape({one}, rows)" for one in tables)
    known = Condition("tables that are known", _constant)
    whole = Condition("a row of the tables for every place of every batch", _whole_tables)
    cut = _CUT if name == "rotary_embedding" else {}
    return (
        Rule(
            name,
            "Concat",
            forms,
            "RotaryEmbedding(x, cos, sin, num_heads=heads)",
            23,
            {},
            (*_WHERE, known),
            {"cos": _known("c"), "sin": _known("s"), **_HEADS},
        ),
        Rule(
            f"{name}_computed",
            "Concat",
            forms,
            f"RotaryEmbedding(x, {computed}, num_heads=heads)",
            23,
            {},
            (*_WHERE, whole),
            {"rows": _rows, **cut, **_HEADS},
        ),
    )


ROTARY = (*_rules("rotary_embedding"), *_rules("rotary_halves"))
