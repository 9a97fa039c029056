# SPDX-License-Identifier: Apache-2.0
"""Formulas that Python and C++ evaluate alike: the cost of a kernel call.

A formula is a tree of sums, products and the like over named quantities of one call (``Quantity``)
and constants of the device. Python evaluates it over arrays of candidate tilings at once, C++ the
same instructions in the same order for one call, both in IEEE double, so that they agree to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property
from typing import Any

import numpy as np


class Op(IntEnum):
    """Instructions of the stack machine that evaluates a formula in C++."""

    NUMBER = 0  # push value
    ADD = 1
    SUB = 2
    MUL = 3
    DIV = 4
    MAX = 5
    MIN = 6
    CEIL = 7
    DIFFERS = 8  # 1 where two values differ, else 0
    HALVINGS = 9  # how often a whole number is halved, rounded up, until it is 1
    # Quantities of a call: a, b and c say which.
    TILE = 10  # tile of the kernel's dimension a
    ELEMENTS = 11  # product of all tiles
    K = 12  # members of the reduction in this call
    LAST = 13  # 1 in the last step of a reduction, else 0
    SCALAR = 14  # scalar a
    WORK = 15  # cycles per vector of the function that scalar a names, for the element type of operand b
    FINISH = 16  # the same of its results in the end
    COUNT = 17  # chunk extent of operand a along its axis b
    STRIDE = 18  # elements from one to the next of the same
    RUN = 19  # members that a walk of operand a, innermost axis first, reaches with one step
    STEP = 20  # that step in elements, on average; 0 where they all are one element
    BYTES = 21  # size of one element of operand a
    PRESENT = 22  # 1 where operand a is there, else 0
    DEVICE = 23  # device constant a of the kernel
    DEVICE_BY_DTYPE = 24  # the same for the element type of operand b, and of operand c where it is given
    STEPS = 25  # steps of the reduction of a tile
    DEVICE_BY_SUMS = 26  # device constant a for the element type of operand b, and of what its sums are in
    FILLED = (
        27  # 1 where the chunk of operand a, an output of a member kernel, is filled before the call, else 0
    )
    K_TILE = 28  # members of the reduction in every call but perhaps the last
    # Parts that stand in a formula more than once are computed once.
    KEEP = 29  # the value on the stack stays there, and is kept as number a too
    KEPT = 30  # push the value that was kept as number a


_UNARY = (Op.CEIL, Op.HALVINGS, Op.KEEP)


def _halvings(value: Any) -> Any:
    return np.frexp(np.maximum(value, 1) - 1)[1].astype(np.float64)


_FUNCTIONS: dict[Op, Callable[..., Any]] = {
    Op.ADD: np.add,
    Op.SUB: np.subtract,
    Op.MUL: np.multiply,
    Op.DIV: np.divide,
    Op.MAX: np.maximum,
    Op.MIN: np.minimum,
    Op.CEIL: np.ceil,
    Op.DIFFERS: lambda x, y: np.not_equal(x, y).astype(np.float64),
    Op.HALVINGS: _halvings,
}
_SIGNS = {Op.ADD: "+", Op.SUB: "-", Op.MUL: "*", Op.DIV: "/", Op.DIFFERS: "!="}
_STRICT = (Op.SUB, Op.DIV, Op.DIFFERS)  # signs that bind to the left alone
_RANK = {Op.DIFFERS: 0, Op.ADD: 1, Op.SUB: 1, Op.MUL: 2, Op.DIV: 2}  # how closely signs bind


def taken_by(op: Op) -> int:
    """Values that an instruction takes from the stack; each leaves one."""
    return 1 if op in _UNARY else 2 * (op in _FUNCTIONS)


@dataclass(frozen=True, eq=False)
class Expr:
    """A formula. ``name``, ``part`` and ``other`` tell which quantity a leaf stands for.

    A formula with a ``label`` is printed by it, and explained beside.
    """

    op: Op
    args: tuple[Expr, ...] = ()
    value: float = 0.0
    name: str = ""
    part: str = ""
    other: str = ""
    label: str = ""

    def __add__(self, other: Expr | float) -> Expr:
        return Expr(Op.ADD, (self, as_expr(other)))

    def __radd__(self, other: float) -> Expr:
        return Expr(Op.ADD, (as_expr(other), self))

    def __sub__(self, other: Expr | float) -> Expr:
        return Expr(Op.SUB, (self, as_expr(other)))

    def __rsub__(self, other: float) -> Expr:
        return Expr(Op.SUB, (as_expr(other), self))

    def __mul__(self, other: Expr | float) -> Expr:
        return Expr(Op.MUL, (self, as_expr(other)))

    def __rmul__(self, other: float) -> Expr:
        return Expr(Op.MUL, (as_expr(other), self))

    def __truediv__(self, other: Expr | float) -> Expr:
        return Expr(Op.DIV, (self, as_expr(other)))

    def __rtruediv__(self, other: float) -> Expr:
        return Expr(Op.DIV, (as_expr(other), self))

    def leaves(self) -> Iterator[Expr]:
        """All quantities and numbers, left to right."""
        if not self.args:
            yield self
        for arg in self.args:
            yield from arg.leaves()

    @cached_property
    def names(self) -> frozenset[str]:
        """What its leaves name: dimensions, scalars, operands, device constants."""
        return frozenset(leaf.name for leaf in self.leaves() if leaf.name)

    @cached_property
    def key(self) -> tuple[Any, ...]:
        """Equal for formulas that compute the same by the same operations, whatever their labels."""
        return self.op, self.value, self.name, self.part, self.other, *(arg.key for arg in self.args)

    @property
    def depth(self) -> int:
        """Values that the stack machine holds at once."""
        return max([1, *(i + arg.depth for i, arg in enumerate(self.args))])

    @cached_property
    def varies(self) -> bool:
        """Whether the value may change from one step of a reduction to the next."""
        own = self.op in (Op.K, Op.LAST, Op.RUN, Op.STEP)
        return own or any(arg.varies for arg in self.args)

    def evaluate(self, lookup: Callable[[Expr], Any], found: dict[int, Any] | None = None) -> Any:
        """The value, where ``lookup`` gives numbers or arrays for the quantities.

        ``found`` collects the values of parts, so that what stands twice is computed once.
        """
        found = {} if found is None else found
        value = found.get(id(self))
        if value is None:
            value = found[id(self)] = self._compute(lookup, found)
        return value

    def _compute(self, lookup: Callable[[Expr], Any], found: dict[int, Any]) -> Any:
        if self.op is Op.NUMBER:
            return np.float64(self.value)
        function = _FUNCTIONS.get(self.op)
        if function is None:
            return np.asarray(lookup(self), np.float64)
        return function(*(arg.evaluate(lookup, found) for arg in self.args))

    # -- printing --------------------------------------------------------------------------

    def __str__(self) -> str:
        return self.label or self.text

    @property
    def text(self) -> str:
        """The formula itself, its labelled parts by their labels."""
        if self.op is Op.NUMBER:
            return f"{self.value:g}"
        sign = _SIGNS.get(self.op)
        if sign is not None:
            left, right = self.args
            return f"{self._bound(left, False)} {sign} {self._bound(right, self.op in _STRICT)}"
        inner = [str(arg) for arg in self.args]
        if self.op is Op.DEVICE_BY_DTYPE:
            types = " and ".join(f"{operand}'s" for operand in (self.part, self.other) if operand)
            return f"{types} {self.name}"
        if self.op is Op.DEVICE_BY_SUMS:
            return f"{self.part}'s and its sums' {self.name}"
        if self.op in (Op.DEVICE, Op.SCALAR):
            return self.name
        inner = inner or [text for text in (self.name, self.part, self.other) if text]
        word = self.op.name.lower()
        return f"{word}({', '.join(inner)})" if inner else word

    def _bound(self, arg: Expr, strict: bool) -> str:
        """``arg`` in parentheses where this sign would tear it apart otherwise."""
        if arg.label or arg.op not in _RANK:
            return str(arg)
        looser = _RANK[arg.op] < _RANK[self.op] or (strict and _RANK[arg.op] == _RANK[self.op])
        return f"({arg})" if looser else str(arg)

    def definitions(self) -> dict[str, str]:
        """What the labels in the formula stand for, first met first."""
        found: dict[str, str] = {}
        waiting = [self]
        while waiting:
            node = waiting.pop(0)
            if node.label and node is not self and node.label not in found:
                found[node.label] = node.text
            waiting += node.args
        return found


def as_expr(value: Expr | float) -> Expr:
    return value if isinstance(value, Expr) else Expr(Op.NUMBER, value=float(value))


def named(label: str, formula: Expr) -> Expr:
    """``formula``, which is printed as ``label`` and explained beside."""
    return replace(formula, label=label)


def largest(first: Expr | float, second: Expr | float) -> Expr:
    return Expr(Op.MAX, (as_expr(first), as_expr(second)))


def smallest(first: Expr | float, second: Expr | float) -> Expr:
    return Expr(Op.MIN, (as_expr(first), as_expr(second)))


def ceiling(value: Expr) -> Expr:
    return Expr(Op.CEIL, (value,))


def differs(first: Expr, second: Expr | float) -> Expr:
    """1 where the values differ, else 0."""
    return Expr(Op.DIFFERS, (first, as_expr(second)))


def halvings(value: Expr) -> Expr:
    """The steps in which ``value`` lanes become one: the logarithm to base 2, rounded up."""
    return Expr(Op.HALVINGS, (value,))


def multiple(value: Expr, of: Expr | float) -> Expr:
    """``value`` rounded up to a multiple of ``of``."""
    return ceiling(value / of) * of


# -- quantities of a call ------------------------------------------------------------------------

NOTHING = as_expr(0)
ELEMENTS = Expr(Op.ELEMENTS)
K_COUNT = Expr(Op.K)
LAST = Expr(Op.LAST)
STEPS = Expr(Op.STEPS)
K_TILE = Expr(Op.K_TILE)


def tile(dim: str) -> Expr:
    """Members of the kernel's dimension ``dim`` in one tile."""
    return Expr(Op.TILE, name=dim)


def scalar(name: str) -> Expr:
    return Expr(Op.SCALAR, name=name)


def work(function: str, operand: str) -> Expr:
    """Cycles per vector of the function that scalar ``function`` names, for ``operand``'s element type."""
    return Expr(Op.WORK, name=function, part=operand)


def finish(function: str, operand: str) -> Expr:
    """The same for a vector of results, in the end."""
    return Expr(Op.FINISH, name=function, part=operand)


def count(operand: str, axis: str) -> Expr:
    """Extent of the operand's chunk along one of its axes."""
    return Expr(Op.COUNT, name=operand, part=axis)


def stride(operand: str, axis: str) -> Expr:
    return Expr(Op.STRIDE, name=operand, part=axis)


def run(operand: str) -> Expr:
    """Members that a walk of ``operand``, its innermost axis first, reaches with one step."""
    return Expr(Op.RUN, name=operand)


def step(operand: str) -> Expr:
    """That step in elements: 1 along neighbours, 0 where all members are one element.

    Members at exact fractions of an axis have the step of their average: 0.5 where each element is met twice.
    """
    return Expr(Op.STEP, name=operand)


def item_bytes(operand: str) -> Expr:
    """Size of one element of ``operand``."""
    return Expr(Op.BYTES, name=operand)


def present(operand: str) -> Expr:
    return Expr(Op.PRESENT, name=operand)


def filled(operand: str) -> Expr:
    """1 where the super kernel fills ``operand``'s chunk before a call: it has a fill, or padded rows."""
    return Expr(Op.FILLED, name=operand)


def device(constant: str, by_dtype_of: str = "", and_of: str = "") -> Expr:
    """``kernel.<constant>`` of the device file; ``kernel.<dtype>_<constant>`` for an operand's type, or
    ``kernel.<dtype>_<dtype>_<constant>`` for the types of two."""
    op = Op.DEVICE_BY_DTYPE if by_dtype_of else Op.DEVICE
    return Expr(op, name=constant, part=by_dtype_of, other=and_of)


def device_of_sums(constant: str, operand: str) -> Expr:
    """``kernel.<dtype>_<word>_<constant>`` for an operand's type and the one that its sums are in."""
    return Expr(Op.DEVICE_BY_SUMS, name=constant, part=operand)
