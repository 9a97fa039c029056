# SPDX-License-Identifier: Apache-2.0
"""Rotary embedding that exporters write as halves that are turned, and tables of cosines and sines.

Halves are the first and the second one of a row, cut out by Slice or by Split, or every second element of it:
of a Slice, or of pairs that Reshape makes. They are turned as one whole or each for itself, and joined in the
way in which they were cut. Heads lie before places or behind them. Tables are constants, or computed from the
positions: angles, or rows of a table that is known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from onedispatch.dispatch.frontend.graph import Array, Node
from onedispatch.dispatch.rules.match import Match, attribute, is_single
from onedispatch.dispatch.rules.pattern import Condition, Rule

# What keeps two halves that are alike as they are, along other axes than the last one or element by element.
_KEEPS = frozenset("Cast Cos Identity Sin Squeeze Unsqueeze".split())
_SCALES = frozenset("Add Div Mul Sub".split())  # by one number
_MOST_STEPS = 16  # from a table back to where its halves are joined


# -- how x and the tables lie ------------------------------------------------------------------------


def _heads_behind(match: Match) -> bool:
    """Whether the rule is about x [batch, places, heads, size]: else heads come first, or are not there."""
    return "heads_behind" in match.rule.name


def _laid(match: Match) -> tuple[int, int, int] | None:
    """(batch, places, size) of x; None where it is not as the rule has it."""
    x = match.shape("x")
    if len(x) not in ((4,) if _heads_behind(match) else (3, 4)) or x[-1] % 2:
        return None
    return x[0], x[1 if _heads_behind(match) else -2], x[-1]


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
    heads, places = (2, 1) if _heads_behind(match) else (1, -2)
    if len(x) == 4 and whole[heads] != 1:
        return None
    return whole[0], whole[places], whole[-1]


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
            return _same_halves(match, constant)
        node = match.index.makers.get(name)
        if node is None or node.domain:
            return False
        given = node.inputs
        if node.op_type == "Reshape" and _pairs(match):
            return _same_pairs(match, name, given[0])
        if node.op_type == "Concat":
            return not _pairs(match) and _twice(match, node)
        if node.op_type == "Gather":
            table = match.graph.constants.get(given[0])
            rows = table is not None and table.ndim > 1 and not attribute(match.graph, node, "axis")
            return rows and _same_halves(match, table)
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


def _twice(match: Match, node: Node) -> bool:
    """Whether a Concat has one value twice, along the last axis."""
    rank, given = len(match.graph.value(node.outputs[0]).concrete_shape), node.inputs
    last = attribute(match.graph, node, "axis") in (-1, rank - 1)
    return last and len(given) == 2 and given[0] == given[1]


def _same_pairs(match: Match, name: str, source: str) -> bool:
    """``name`` has, row after row, the pairs of ``source``, each of one element twice."""
    shapes = [match.graph.value(one).concrete_shape for one in (name, source)]
    node = match.index.makers.get(source)
    if node is None or node.domain or not all(shapes):
        return False
    if shapes[1][-2:] != (shapes[0][-1] // 2, 2):
        return False
    before = match.graph.value(node.inputs[0]).concrete_shape
    if node.op_type in ("Expand", "Tile"):
        return before[-1:] == (1,)
    return node.op_type == "Concat" and _twice(match, node)


def _same_halves(match: Match, table: Array | None) -> bool:
    if table is None or not table.ndim or table.shape[-1] % 2:
        return False
    first, second = _cut_out(match, table)
    return np.array_equal(first, second)


def _cut_out(match: Match, table: Array) -> tuple[Array, Array]:
    """Both halves of a table's rows, as those of x are cut."""
    if _pairs(match):
        return table[..., ::2], table[..., 1::2]
    first, second = np.split(table, 2, axis=-1)
    return first, second


def _both_alike(match: Match) -> bool:
    return _width(match) != match.shape("x")[-1] or all(
        _alike(match, match.values[name]) for name in ("c", "s")
    )


def _constant(match: Match) -> bool:
    return all(match.constant(name) is not None for name in ("c", "s"))


# -- halves of x ---------------------------------------------------------------------------------------


def _pairs(match: Match) -> bool:
    """Whether it is every second element that stands for a half."""
    return "pairs" in match.values


def _halves(match: Match) -> bool:
    """``high`` is the second half of the last axis of x, ``low`` the first one."""
    size = match.shape("x")[-1]
    low, high = _range(match, "low"), _range(match, "high")
    if _pairs(match):
        return low == range(0, size, 2) and high == range(1, size, 2)
    return low == range(size // 2) and high == range(size // 2, size)


def _range(match: Match, name: str) -> range | None:
    """Which elements of the last axis of x a value has; None for other axes, or what is not known."""
    node, rank, size = match.maker(name), len(match.shape("x")), match.shape("x")[-1]
    if node.op_type in ("Gather", "Squeeze"):
        return _of_pairs(match, node)
    if node.op_type == "Split":
        axis, half = attribute(match.graph, node, "axis"), match.shape(name)[-1:]
        last = axis in (-1, rank - 1) and len(node.outputs) == 2 and half == (size // 2,)
        at = size // 2 * node.outputs.index(match.values[name])
        return range(at, at + size // 2) if last else None
    given = [match.graph.constants.get(one) for one in node.inputs[1:]]
    if len(given) < 3 or any(one is None or one.size != 1 for one in given):
        return None
    start, end, axis, step = [int(one.reshape(-1)[0]) for one in (*given, np.ones(1))[:4] if one is not None]
    if axis % rank != rank - 1 or step < 1:
        return None
    return range(*slice(start, end, step).indices(size))


def _of_pairs(match: Match, node: Node) -> range | None:
    """The same of a Gather from pairs, or a Squeeze of what Split makes of them."""
    graph, x = match.graph, match.shape("x")
    wanted, pairs = (*x[:-1], x[-1] // 2), (*x[:-1], x[-1] // 2, 2)
    source = node if node.op_type == "Gather" else match.index.makers[node.inputs[0]]
    last = attribute(graph, source, "axis") in (-1, len(x))
    if not last or graph.value(source.inputs[0]).concrete_shape != pairs:
        return None
    if source is node:
        index = graph.constants[node.inputs[1]]
        at = int(index.reshape(-1)[0]) % 2
    else:
        at = source.outputs.index(node.inputs[0])
    return range(at, x[-1], 2) if graph.value(node.outputs[0]).concrete_shape == wanted else None


def _joined(match: Match) -> bool:
    """The halves lie along the last axis again, as they were cut."""
    x = match.shape("x")
    if not _pairs(match):
        return attribute(match.graph, match.maker("joined"), "axis") in (-1, len(x) - 1)
    single, node = (*x[:-1], x[-1] // 2, 1), match.maker("pairs")
    apart = all(match.graph.value(name).concrete_shape == single for name in node.inputs)
    return apart and attribute(match.graph, node, "axis") in (-1, len(x)) and match.shape("joined") == x


# -- what is written -----------------------------------------------------------------------------------


def _known(name: str) -> Any:
    """The first half of a constant table, for each batch and place: [batch, places, size / 2]."""

    def of(match: Match) -> Any:
        table, laid, shape = match.constant(name), _laid(match), _table_shape(match, name)
        assert table is not None and laid is not None and shape is not None
        batch, places, size = laid
        whole = np.broadcast_to(table.reshape(shape), (batch, places, shape[-1]))
        half = _cut_out(match, whole)[0] if shape[-1] == size else whole
        return np.ascontiguousarray(half)

    return of


def _rows(match: Match) -> Array:
    """The shape of a computed table: [batch, places, size / 2]."""
    batch, places, size = _laid(match) or (0, 0, 0)
    return np.array([batch, places, size // 2])


_CUTS = (("Slice(x)", "Slice(x)"), ("Split(x)[0]", "Split(x)[1]"))
_PAIR_CUTS = (
    ("Slice(x)", "Slice(x)"),
    ("Gather(Reshape(x), const(first_of_pair))", "Gather(Reshape(x), const(second_of_pair))"),
    ("Squeeze(Split(Reshape(x))[0])", "Squeeze(Split(Reshape(x))[1])"),
)
# What is joined again, and what becomes of it.
_TURNED = {
    "rotary_embedding": ("Neg(HIGH)", "LOW"),
    "rotary_halves": ("Sub(Mul(LOW, c), Mul(HIGH, s))", "Add(Mul(HIGH, c), Mul(LOW, s))"),
}
_AROUND = {"rotary_embedding": "Add(Mul(x, c), Mul(JOINED, s))", "rotary_halves": "JOINED"}
_JOINED = (
    ("(joined := Concat({}, {}))", _CUTS),
    ("(joined := Reshape((pairs := Concat(Unsqueeze({}), Unsqueeze({})))))", _PAIR_CUTS),
)
_FITS = {
    False: "3 or 4 dimensions, and tables that are the same for each head",
    True: "4 dimensions, and tables that are the same for each head, which lie behind places",
}
_CUT_SO = (
    Condition("the second half of the last axis, then the first", _halves),
    Condition("halves joined along the last axis", _joined),
)
_COMMON: dict[str, Callable[[Match], Any]] = {
    "heads": lambda match: 1 if len(match.shape("x")) == 3 else 0,
    "interleaved": lambda match: int(_pairs(match)),
}
# Heads behind places are one row of them: seen so, nothing moves.
_HEADS_BEHIND: dict[str, Callable[[Match], Any]] = {
    "heads": lambda match: match.shape("x")[2],
    "rows_of_heads": lambda match: np.array([*match.shape("x")[:2], -1]),
    "whole": lambda match: np.array(match.shape("x")),
}
_CUT: dict[str, Callable[[Match], Any]] = {
    "first": lambda _: np.array([0]),
    "end": lambda match: _rows(match)[2:] * (2 if _pairs(match) else 1),
    "last": lambda _: np.array([-1]),
    "step": lambda match: np.array([2 if _pairs(match) else 1]),
}


def _forms(name: str) -> tuple[str, ...]:
    whole = ((_AROUND[name].replace("JOINED", to.format(*_TURNED[name])), cuts) for to, cuts in _JOINED)
    return tuple(
        form.replace("LOW", f"(low := {low})").replace("HIGH", f"(high := {high})")
        for form, cuts in whole
        for low, high in cuts
    )


def _rules(name: str, heads_behind: bool) -> tuple[Rule, Rule]:
    """With constant tables, and with computed ones."""
    forms, common, to = (
        _forms(name),
        _COMMON,
        "RotaryEmbedding({}, {}, num_heads=heads, interleaved=interleaved)",
    )
    x, cut, tables = "x", {}, ["c", "s"]
    if name == "rotary_embedding":
        cut, tables = _CUT, [f"Slice({one}, first, end, last, step)" for one in tables]
    if heads_behind:
        name, common = f"{name}_heads_behind", _COMMON | _HEADS_BEHIND
        x, to = "Reshape(x, rows_of_heads)", f"Reshape({to}, whole)"
    computed = ", ".join(f"Reshape({one}, rows)" for one in tables)
    where = (
        Condition("computed or constant tables whose halves are the same", _both_alike),
        Condition(_FITS[heads_behind], _tables_fit),
        *_CUT_SO,
    )
    known = Condition("tables that are known", _constant)
    whole = Condition("a row of the tables for every place of every batch", _whole_tables)
    return (
        Rule(
            name,
            "Concat",
            forms,
            to.format(x, "cos, sin"),
            23,
            {},
            (*where, known),
            {"cos": _known("c"), "sin": _known("s"), **common},
        ),
        Rule(
            f"{name}_computed",
            "Concat",
            forms,
            to.format(x, computed),
            23,
            {},
            (*where, whole),
            {"rows": _rows, **cut, **common},
        ),
    )


ROTARY = tuple(
    rule for heads_behind in (False, True) for name in _TURNED for rule in _rules(name, heads_behind)
)
