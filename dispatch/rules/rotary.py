# SPDX-License-Identifier: Apache-2.0
"""Rules for rotary embedding that exporters write as rotated halves and tables of cosines and sines.

The halves of a row are its first and second half, cut by Slice or Split, or its even and odd elements, by a
Slice with steps or a Reshape to pairs. They are rotated together or separately, and joined as they were cut.
Heads stand before or after positions. Tables are constants, or computed from the positions: functions of
angles, or rows of a constant table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from onedispatch.dispatch.frontend.graph import Array, Node
from onedispatch.dispatch.rules.match import Match, attribute, is_single
from onedispatch.dispatch.rules.pattern import Condition, Rule

# Operators that keep equal halves equal: element by element, or along other axes than the last.
_KEEPS = frozenset("Cast Cos Identity Sin Squeeze Unsqueeze".split())
_SCALES = frozenset("Add Div Mul Sub".split())  # by one number
_MOST_STEPS = 16  # nodes between a table and the concatenation of its halves


# -- layouts of x and the tables ------------------------------------------------------------------------


def _heads_last(match: Match) -> bool:
    """True for x [batch, positions, heads, size]; else heads come before positions, or are absent."""
    return "heads_behind" in match.rule.name


def _laid(match: Match) -> tuple[int, int, int] | None:
    """Returns (batch, positions, size) of x; None if the rule does not apply to its shape."""
    x = match.shape("x")
    if len(x) not in ((4,) if _heads_last(match) else (3, 4)) or x[-1] % 2:
        return None
    return x[0], x[1 if _heads_last(match) else -2], x[-1]


def _width(match: Match) -> int:
    """Returns the width of a table's row: the size, or half of it if the halves are rotated separately."""
    size = match.shape("x")[-1]
    return size if match.rule.name.startswith("rotary_embedding") else size // 2


def _table_shape(match: Match, name: str) -> tuple[int, ...] | None:
    """Returns a table's shape as [batch, positions, width]; None if it differs by head or in width."""
    x, shape = match.shape("x"), match.shape(name)
    if not shape or len(shape) > len(x) or shape[-1] != _width(match):
        return None
    whole = (1,) * (len(x) - len(shape)) + shape
    heads, positions = (2, 1) if _heads_last(match) else (1, -2)
    if len(x) == 4 and whole[heads] != 1:
        return None
    return whole[0], whole[positions], whole[-1]


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
    """True if computed tables have a row for every position of every batch: they are not broadcast."""
    laid = _laid(match)
    return laid is not None and all((_table_shape(match, name) or ())[:2] == laid[:2] for name in ("c", "s"))


# -- tables whose halves are alike -------------------------------------------------------------------


def _alike(match: Match, name: str) -> bool:
    """True if the nodes that make a value show that both halves of its last axis are equal."""
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
    """True if both have the same last axis."""
    shapes = [match.graph.value(name).concrete_shape for name in (before, after)]
    return all(shapes) and shapes[0][-1] == shapes[1][-1]


def _twice(match: Match, node: Node) -> bool:
    """True if a Concat joins a value with itself along the last axis."""
    rank, given = len(match.graph.value(node.outputs[0]).concrete_shape), node.inputs
    last = attribute(match.graph, node, "axis") in (-1, rank - 1)
    return last and len(given) == 2 and given[0] == given[1]


def _same_pairs(match: Match, name: str, source: str) -> bool:
    """True if each row of ``name`` consists of the pairs of ``source``, each one element twice."""
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
    """Returns both halves of a table's rows, cut as x is."""
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
    """True if the halves are interleaved: a half is every second element."""
    return "pairs" in match.values


def _halves(match: Match) -> bool:
    """True if ``high`` is the second half of the last axis of x, and ``low`` the first."""
    size = match.shape("x")[-1]
    low, high = _range(match, "low"), _range(match, "high")
    if _pairs(match):
        return low == range(0, size, 2) and high == range(1, size, 2)
    return low == range(size // 2) and high == range(size // 2, size)


def _range(match: Match, name: str) -> range | None:
    """Returns the range of the last axis of x that a value has; None for other axes or unknown ranges."""
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
    """Returns that range for a Gather from pairs, or a Squeeze of a Split of them."""
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
    """True if the halves are joined along the last axis as they were cut."""
    x = match.shape("x")
    if not _pairs(match):
        return attribute(match.graph, match.maker("joined"), "axis") in (-1, len(x) - 1)
    single, node = (*x[:-1], x[-1] // 2, 1), match.maker("pairs")
    apart = all(match.graph.value(name).concrete_shape == single for name in node.inputs)
    return apart and attribute(match.graph, node, "axis") in (-1, len(x)) and match.shape("joined") == x


# -- the replacement -----------------------------------------------------------------------------------


def _known(name: str) -> Any:
    """Derives the first half of a constant table as [batch, positions, size / 2]."""

    def of(match: Match) -> Any:
        table, laid, shape = match.constant(name), _laid(match), _table_shape(match, name)
        assert table is not None and laid is not None and shape is not None
        batch, positions, size = laid
        whole = np.broadcast_to(table.reshape(shape), (batch, positions, shape[-1]))
        half = _cut_out(match, whole)[0] if shape[-1] == size else whole
        return np.ascontiguousarray(half)

    return of


def _rows(match: Match) -> Array:
    """Returns the shape of a computed table: [batch, positions, size / 2]."""
    batch, positions, size = _laid(match) or (0, 0, 0)
    return np.array([batch, positions, size // 2])


_CUTS = (("Slice(x)", "Slice(x)"), ("Split(x)[0]", "Split(x)[1]"))
_PAIR_CUTS = (
    ("Slice(x)", "Slice(x)"),
    ("Gather(Reshape(x), const(first_of_pair))", "Gather(Reshape(x), const(second_of_pair))"),
    ("Squeeze(Split(Reshape(x))[0])", "Squeeze(Split(Reshape(x))[1])"),
)
# The halves that are joined, and the expression around the joined value.
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
    True: "4 dimensions, and tables that are the same for each head, with heads after positions",
}
_CUT_SO = (
    Condition("the second half of the last axis, then the first", _halves),
    Condition("halves joined along the last axis", _joined),
)
_COMMON: dict[str, Callable[[Match], Any]] = {
    "heads": lambda match: 1 if len(match.shape("x")) == 3 else 0,
    "interleaved": lambda match: int(_pairs(match)),
}
# Heads after positions are merged into one row, which moves no data.
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
    """Returns the rule for constant tables and the one for computed tables."""
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
    whole = Condition("a row of the tables for every position of every batch", _whole_tables)
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
