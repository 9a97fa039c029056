# SPDX-License-Identifier: Apache-2.0
"""Rules that quantise on the side of a Transpose where rows are long.

Models from TensorFlow quantise a picture whose channels are last, and transpose the integers after that. A
row of three bytes is padded to a word, so that a kernel makes a vector for every pixel; the Transpose moves
words as easily as bytes. Both nodes work element by element: their order changes no result.
"""

from __future__ import annotations

from math import prod

import numpy as np

from onedispatch.dispatch.rules.match import Match, attribute
from onedispatch.dispatch.rules.pattern import Condition, Rule

_WORD_BYTES = 4
_VECTOR_WORDS = 16  # lanes of a vector of float32
# Attributes that say nothing where one scale is for all elements and a zero point gives the type.
_SILENT = frozenset({"axis", "saturate", "block_size"})


def _vectors(match: Match, name: str, bytes_each: int) -> int:
    """Returns the vectors of float32 that a kernel makes of a tensor whose elements get ``bytes_each``."""
    shape = match.shape(name)
    if not shape or shape[-1] * bytes_each % _WORD_BYTES == 0:
        return -(-prod(shape) // _VECTOR_WORDS)  # one row: nothing is padded
    return prod(shape[:-1]) * -(-shape[-1] // _VECTOR_WORDS)


def _fewer(made: str, instead: str) -> Condition:
    """Requires that quantising ``instead`` takes less than half the vectors that quantising ``made`` does."""

    def holds(match: Match) -> bool:
        each = np.dtype(match.graph.value(match.root.outputs[0]).dtype).itemsize
        return 2 * _vectors(match, instead, each) < _vectors(match, made, each)

    return Condition("longer rows on the other side of the Transpose", holds)


def _plain(match: Match) -> bool:
    node = match.maker("quantised")
    return match.shape("scale") in ((), (1,)) and set(node.attributes) <= _SILENT


def _perm(match: Match) -> list[int]:
    rank = len(match.shape("x"))
    return list(attribute(match.graph, match.maker("turned"), "perm") or reversed(range(rank)))


def _rule(name: str, form: str, to: str, *sides: str) -> Rule:
    return Rule(
        name,
        "QuantizeLinear",
        (form,),
        to,
        10,
        where=(Condition("one scale for all elements, and a zero point", _plain), _fewer(*sides)),
        derive={"perm": _perm},
        near=False,
    )


LAYOUTS = (
    _rule(
        "quantise_after_transpose",
        "(turned := Transpose((quantised := QuantizeLinear(x, scale, zero))))",
        "QuantizeLinear(Transpose(x, perm=perm), scale, zero)",
        "x",
        "turned",
    ),
    _rule(
        "quantise_before_transpose",
        "(quantised := QuantizeLinear((turned := Transpose(x)), scale, zero))",
        "Transpose(QuantizeLinear(x, scale, zero), perm=perm)",
        "quantised",
        "x",
    ),
)
