# SPDX-License-Identifier: Apache-2.0
"""Rules for attention that exporters write as matrix products, a scale, a mask and Softmax.

Keys and values may be concatenated with past ones before; the patterns end at the concatenated values. A mask
is added to the scores, or selects between them and a large negative number that hides a key.
For a row whose mask hides every key the separate nodes give NaN, or zeros if they guard against NaN;
Attention gives zeros.
"""

from __future__ import annotations

from math import nan, prod

import numpy as np

from onedispatch.dispatch.frontend.graph import Array
from onedispatch.dispatch.rules.match import Match, attribute
from onedispatch.dispatch.rules.pattern import Condition, Rule

_PARTS = {
    # Scores: the product of queries and transposed keys, scaled after or before the product.
    "P": (
        "Div(MatMul(q, T), const(divisor)) | Mul(MatMul(q, T), const(factor))"
        " | MatMul(Mul(q, const(of_q)), Mul(T, const(of_k))) | MatMul(q, T)"
    ),
    "S": "Add(P, mask) | Where(shown, P, const(low)) | Where(hidden, const(low), P) | P",
    "W": "Where(IsNaN((w := Softmax(S))), 0, w) | (w := Softmax(S))",
}
_LOW = -1e30  # a mask value that hides a key: scores are far above it
_FEWEST = 1 << 16  # scores; measured: from 52,000 on Attention takes fewer cycles than separate nodes


def _scale(match: Match) -> float:
    scale = 1.0
    for name in ("factor", "of_q", "of_k"):
        scale *= match.scalar(name) if name in match.values else 1.0
    if "divisor" in match.values:
        divisor = match.scalar("divisor")
        scale = scale / divisor if divisor else nan
    return scale


def _scales(match: Match) -> bool:
    """True if the scale is finite and not 0, which would mean the default in Attention."""
    with np.errstate(over="ignore", under="ignore"):
        scale = np.float32(_scale(match))
    return bool(np.isfinite(scale) and scale != 0)


def _keys(match: Match) -> tuple[int, ...]:
    """Returns the keys' shape as [batch, heads, keys, size]; () if they are transposed otherwise."""
    x = match.shape("x")
    if len(x) != 4:
        return ()
    if match.rule.name == "attention_by_row":
        return x[0], x[2], x[1], x[3]
    rows, turned = (match.shape(n) if n in match.values else None for n in ("rows", "turned"))
    heads = x[1]
    if match.rule.name == "attention_grouped":
        for name, shape in (("more_k", x), ("more_v", match.shape("v"))):
            given = match.shape(name)
            if len(given) != 5 or given != (*shape[:2], given[2], *shape[2:]):
                return ()
            if match.shape(f"{name}_one") != (*shape[:2], 1, *shape[2:]):
                return ()
        heads = x[1] * match.shape("more_k")[2]
        v, wide = match.shape("v"), match.shape("wide")
        if wide != (v[0], heads, *v[2:]):
            return ()
    if rows is not None and rows != (x[0] * heads, *x[2:]):
        return ()
    if turned is not None and turned != (x[0], heads, x[3], x[2]):
        return ()
    return x


def _heads(match: Match) -> bool:
    q, keys, v = match.shape("q"), _keys(match), match.shape("v")
    if not len(q) == len(keys) == len(v) == 4:
        return False
    groups = match.shape("more_k")[2] if "more_k" in match.values else 1
    return q[:2] == (keys[0], keys[1] * groups) and v[:3] == keys[:3]


def _mask_fits(match: Match) -> bool:
    name = next((name for name in ("mask", "shown", "hidden") if name in match.values), "")
    if not name:
        return True
    mask, keys = match.shape(name), match.shape("w")[-1]
    return len(mask) >= 2 and mask[-1] == keys


def _chosen(match: Match) -> Array | None:
    """Returns the constant boolean mask of the keys that each query attends to, None if there is none."""
    shown, hidden = match.constant("shown"), match.constant("hidden")
    return shown if hidden is None else ~hidden


def _hides(match: Match) -> bool:
    if "low" not in match.values:
        return True
    chosen = _chosen(match)
    return chosen is not None and match.scalar("low") <= _LOW and bool(chosen.any(axis=-1).all())


def _worth_it(match: Match) -> bool:
    """False for few scores with a computed mask, for which Attention needs six small operators more."""
    known = "mask" not in match.values or match.constant("mask") is not None
    return known or prod(match.shape("w")) >= _FEWEST


_WHERE = (
    Condition("a scale that is a number other than 0", _scales),
    Condition("queries, keys and values of 4 dimensions, one batch and heads that go together", _heads),
    Condition(
        "Softmax over the last axis",
        lambda match: attribute(match.graph, match.maker("w"), "axis") in (-1, 3),
    ),
    Condition("a mask with one value for each key", _mask_fits),
    Condition(
        f"keys hidden by {_LOW:g} or less, through a constant mask that leaves every row a key", _hides
    ),
    Condition(f"a constant mask, or at least {_FEWEST:,} scores: fewer would take more cycles", _worth_it),
)


def _rule(name: str, turned: str, keys: str = "x", values: str = "v") -> Rule:
    """Returns the rule for one form: ``turned`` transposes the keys; ``keys`` is Attention's operand."""
    return Rule(
        name,
        "Softmax",
        (f"MatMul(W, {values})",),
        f"Attention(q, {keys}, v, mask, scale=scale)",
        23,
        {"T": turned, **_PARTS},
        _WHERE,
        {"scale": _scale, "mask": _chosen},
    )


ATTENTION = (
    _rule(
        "attention_grouped",
        "(turned := Reshape(Transpose((rows := Reshape((more_k := Expand((more_k_one := Unsqueeze(x)))))),"
        " perm=[0, 2, 1])))",
        values="(wide := Reshape((more_v := Expand((more_v_one := Unsqueeze(v))))))",
    ),
    _rule(
        "attention",
        "Transpose(x, perm=[0, 1, 3, 2])"
        " | (turned := Reshape(Transpose((rows := Reshape(x)), perm=[0, 2, 1])))",
    ),
    # Keys [batch, keys, heads, size]: one Transpose, as before, gives Attention's operand.
    _rule("attention_by_row", "Transpose(x, perm=[0, 2, 3, 1])", "Transpose(x, perm=[0, 2, 1, 3])"),
)
