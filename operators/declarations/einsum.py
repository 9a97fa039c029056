# SPDX-License-Identifier: Apache-2.0
"""Equations of Einsum: the labels of every operand and of the result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_DOTS = "..."


class EquationError(ValueError):
    """What is wrong with an equation: ``given``, and what is ``accepted``."""

    def __init__(self, given: str, accepted: str) -> None:
        super().__init__(f"given {given}; accepted: {accepted}")
        self.given, self.accepted = given, accepted


@dataclass(frozen=True)
class Equation:
    """Labels per dimension. Dimensions behind an ellipsis are numbered from the last, "0": they broadcast."""

    operands: tuple[tuple[str, ...], ...]
    result: tuple[str, ...]


def parse(equation: str, ranks: Sequence[int]) -> Equation:
    """The equation for operands of such ``ranks``. Raises ``EquationError`` for what is none."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise EquationError(f"{equation!r}, {len(terms)} terms", f"{len(ranks)}, one per operand")
    operands = tuple(_labels(term, rank) for term, rank in zip(terms, ranks, strict=True))
    hidden = sorted({x for labels in operands for x in labels if x.isdigit()}, key=int, reverse=True)
    if arrow:
        before, dots, behind = right.partition(_DOTS)
        _check_letters(before + behind, right)
        result = (*before, *(hidden if dots else ()), *behind)
        letters = {x for labels in operands for x in labels}
        unknown = [x for x in result if x not in letters]
        if unknown or len(set(result)) < len(result):
            raise EquationError(repr(right), "labels of the operands, each once")
        return Equation(operands, result)
    every = "".join(x for labels in operands for x in labels if not x.isdigit())
    once = sorted(x for x in set(every) if every.count(x) == 1)
    return Equation(operands, (*hidden, *once))


def check_sizes(equation: Equation, shapes: Sequence[Sequence[int]]) -> dict[str, int]:
    """The size of every label. Raises ``EquationError`` where one has two; numbered ones broadcast."""
    sizes: dict[str, int] = {}
    for labels, shape in zip(equation.operands, shapes, strict=True):
        for label, size in zip(labels, shape, strict=True):
            known = sizes.get(label, 1 if label.isdigit() else size)
            if size != known and not (label.isdigit() and 1 in (size, known)):
                raise EquationError(f"{size} for label {label!r}", f"{known}, as elsewhere")
            sizes[label] = size if known == 1 else known
    return sizes


def _labels(term: str, rank: int) -> tuple[str, ...]:
    before, dots, behind = term.partition(_DOTS)
    _check_letters(before + behind, term)
    hidden = rank - len(before) - len(behind)
    if hidden < 0 or (hidden and not dots):
        raise EquationError(
            f"{term!r} for an operand of rank {rank}", "a label for each dimension, or an ellipsis"
        )
    return (*before, *(str(i) for i in reversed(range(hidden))), *behind)


def _check_letters(letters: str, term: str) -> None:
    if not all(x.isascii() and x.isalpha() for x in letters):
        raise EquationError(repr(term), "letters, and one ellipsis")
