# SPDX-License-Identifier: Apache-2.0
"""Operands of quantised operators: which of them say what the integers of a tensor stand for.

One row per operator, of which the rules for bad scales and zero points, and what is known of a graph's
integers, are made. Operands are named in their order, results behind ``->``:

- ``NAME_scale`` and ``NAME_zero`` belong to the tensor ``NAME``, an operand or a result;
- ``[D]``: one for the tensor, or as many as the tensor has members along dimension D: a number, or a
  name in ``_ALONG`` where attributes say it; without it there is one;
- ``?``: may be left out;
- ``*`` in front: it and all behind it repeat;
- ``y:x``: the result ``y`` is of the type of operand ``x``; else of that of its zero point.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from onedispatch.operators.declarations.registry import MICROSOFT

Along = int | str | None
"""a dimension, the name of what says it, or None: one for the whole tensor"""


@dataclass(frozen=True)
class Parameters:
    """Where a tensor, its scale and its zero point are among a node's operands; None: there is none.

    ``made``: the tensor is the node's first result. ``like``: the operand whose type it then has.
    """

    tensor: int
    made: bool
    scale: int | None
    zero: int | None
    along: Along
    like: int | None = None


@dataclass(frozen=True)
class QuantisedOperator:
    """The operands of an operator: ``least`` to ``most`` (None: any number) of them, by name."""

    names: tuple[str, ...]
    needed: tuple[int, ...]
    most: int | None
    said: tuple[Parameters, ...]
    repeated: tuple[Parameters, ...] = ()  # of the first group of those that repeat
    period: int = 0

    def parameters(self, count: int) -> list[Parameters]:
        """Those of a node with ``count`` operands."""
        groups = range((count - len(self.names)) // self.period + 1) if self.period else ()
        return [*self.said, *(_moved(one, group * self.period) for group in groups for one in self.repeated)]


def _moved(one: Parameters, by: int) -> Parameters:
    scale, zero = (None if place is None else place + by for place in (one.scale, one.zero))
    return replace(one, tensor=one.tensor + by, scale=scale, zero=zero)


_ALONG: dict[str, Callable[[Mapping[str, Any]], int]] = {  # several scales lie there; in rows too
    "directions": lambda attributes: 0,
    "axis": lambda attributes: int(attributes.get("axis", 1)),
    "columns": lambda attributes: 0 if attributes.get("transB", 0) else 1,
}


def dimension(along: int | str, attributes: Mapping[str, Any]) -> int:
    """The dimension that several scales of a node with ``attributes`` lie along; negative: from the last."""
    return _ALONG[along](attributes) if isinstance(along, str) else along


_OPERAND = re.compile(r"(?P<name>\w+?)(_(?P<kind>scale|zero))?(\[(?P<along>-?\w+)\])?(?P<optional>\?)?")


def _operator(row: str) -> QuantisedOperator:
    """The operator of a ``row`` in the form that stands at the top of this file."""
    given, _, results = row.partition(" -> ")
    words = given.split()
    first = next((i for i, word in enumerate(words) if word.startswith("*")), len(words))
    found = [_OPERAND.fullmatch(word.removeprefix("*")) for word in words]
    operands = [one for one in found if one is not None]
    at = {(one["name"], one["kind"]): i for i, one in enumerate(operands)}
    result, _, like = results.partition(":")
    said = [
        Parameters(
            at.get((name, None), 0),
            (name, None) not in at,
            at.get((name, "scale")),
            at.get((name, "zero")),
            _along(next(one["along"] for one in operands if one["name"] == name and one["kind"])),
            at[like, None] if name == result and like else None,
        )
        for name in dict.fromkeys(one["name"] for one in operands if one["kind"])
    ]
    repeats = [not one.made and one.tensor >= first for one in said]
    return QuantisedOperator(
        tuple("_".join(part for part in (one["name"], one["kind"]) if part) for one in operands),
        tuple(i for i, one in enumerate(operands) if not one["optional"]),
        None if first < len(words) else len(words),
        tuple(one for one, again in zip(said, repeats, strict=True) if not again),
        tuple(one for one, again in zip(said, repeats, strict=True) if again),
        len(words) - first,
    )


def _along(text: str | None) -> Along:
    if text is None:
        return None
    return text if text in _ALONG else int(text)


_CONVOLVED = "x x_scale x_zero w w_scale[0] w_zero[0] y_scale y_zero B? -> y"
_SUM = "a a_scale a_zero? b b_scale b_zero? c_scale c_zero? -> c:a"
_FUNCTION = "x x_scale x_zero? y_scale y_zero? -> y:x"

OPERATORS: dict[tuple[str, str], QuantisedOperator] = {
    (domain, op_type): _operator(row)
    for domain, rows in {
        "": {
            "QuantizeLinear": "x y_scale[axis] y_zero[axis]? -> y",
            "DequantizeLinear": "x x_scale[axis] x_zero[axis]? -> y",
            "QLinearConv": _CONVOLVED,
            "QLinearMatMul": (
                "a a_scale[-2] a_zero[-2] b b_scale[-1] b_zero[-1] y_scale[-2] y_zero[-2] -> y"
            ),
            "ConvInteger": "x w x_zero? w_zero[0]? -> y",
            "MatMulInteger": "a b a_zero[-2]? b_zero[-1]? -> y",
        },
        MICROSOFT: {
            "QuantizeLinear": "x y_scale[axis] y_zero[axis]? -> y",
            "DequantizeLinear": "x x_scale[axis] x_zero[axis]? -> y",
            "QLinearConv": _CONVOLVED,
            "QLinearAdd": _SUM,
            "QLinearMul": _SUM,
            "QLinearSigmoid": _FUNCTION,
            "QLinearLeakyRelu": _FUNCTION,
            "QLinearAveragePool": _FUNCTION,
            "QLinearGlobalAveragePool": _FUNCTION,
            "QLinearReduceMean": _FUNCTION,
            "QLinearSoftmax": "x x_scale x_zero? y_scale y_zero -> y:x",
            "QLinearConcat": "y_scale y_zero *x x_scale x_zero -> y",
            "QLinearWhere": "condition x x_scale x_zero y y_scale y_zero z_scale z_zero -> z:x",
            "QGemm": "a a_scale a_zero b b_scale[columns] b_zero[columns] c? y_scale? y_zero? -> y",
            "QAttention": (
                "x w bias x_scale w_scale[-1] mask_index? x_zero? w_zero[-1]? past? -> output present"
            ),
            "MatMulIntegerToFloat": "a b a_scale b_scale[-1] a_zero? b_zero[-1]? bias? -> y",
            "DynamicQuantizeLSTM": (
                "x w r bias? lengths? h? c? p? w_scale[directions] w_zero[directions] r_scale[directions] "
                "r_zero[directions] -> y y_h y_c"
            ),
            "DynamicQuantizeMatMul": "a b b_scale[-1] b_zero[-1]? bias? -> y",
        },
    }.items()
    for op_type, row in rows.items()
}
"""By domain and operator."""
