# SPDX-License-Identifier: Apache-2.0
"""Formulas that Python and C++ evaluate alike: the cost of a kernel call.

A formula is a tree of sums, products and the like over named quantities of one call (``Quantity``)
and constants of the device. Python evaluates it over arrays of candidate tilings at once, C++ the
same instructions in the same order for one call, both in IEEE double, so that they agree to the bit.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

import numpy as np

from onedispatch.transactions.base.cached import cached_property


class ExprOp(IntEnum):
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


_UNARY = (ExprOp.CEIL, ExprOp.HALVINGS, ExprOp.KEEP)


def _halvings(value: Any) -> Any:
    return np.frexp(np.maximum(value, 1) - 1)[1].astype(np.float64)


_FUNCTIONS: dict[ExprOp, Callable[..., Any]] = {
    ExprOp.ADD: operator.add,  # of arrays and of NumPy's numbers, which NumPy's functions take longer for
    ExprOp.SUB: operator.sub,
    ExprOp.MUL: operator.mul,
    ExprOp.DIV: operator.truediv,
    ExprOp.MAX: np.maximum,
    ExprOp.MIN: np.minimum,
    ExprOp.CEIL: np.ceil,
    ExprOp.DIFFERS: lambda x, y: np.not_equal(x, y).astype(np.float64),
    ExprOp.HALVINGS: _halvings,
}
_NEUTRAL = {ExprOp.ADD: 0, ExprOp.SUB: 0, ExprOp.MUL: 1, ExprOp.DIV: 1}  # second values that change nothing
_SIGNS = {ExprOp.ADD: "+", ExprOp.SUB: "-", ExprOp.MUL: "*", ExprOp.DIV: "/", ExprOp.DIFFERS: "!="}
_STRICT = (ExprOp.SUB, ExprOp.DIV, ExprOp.DIFFERS)  # signs that bind to the left alone
_RANK = {
    ExprOp.DIFFERS: 0,
    ExprOp.ADD: 1,
    ExprOp.SUB: 1,
    ExprOp.MUL: 2,
    ExprOp.DIV: 2,
}  # how closely signs bind


def _is(value: Any, number: int | None) -> bool:
    """Whether a value is this number for all candidates, without a look at arrays."""
    return value.__class__ is np.float64 and value == number


def taken_by(op: ExprOp) -> int:
    """Values that an instruction takes from the stack; each leaves one."""
    return 1 if op in _UNARY else 2 * (op in _FUNCTIONS)


@dataclass(frozen=True, eq=False)
class Expr:
    """A formula. ``name``, ``part`` and ``other`` tell which quantity a leaf stands for.

    A formula with a ``label`` is printed by it, and explained beside.
    """

    op: ExprOp
    args: tuple[Expr, ...] = ()
    value: float = 0.0
    name: str = ""
    part: str = ""
    other: str = ""
    label: str = ""

    def __add__(self, other: Expr | float) -> Expr:
        return Expr(ExprOp.ADD, (self, as_expr(other)))

    def __radd__(self, other: float) -> Expr:
        return Expr(ExprOp.ADD, (as_expr(other), self))

    def __sub__(self, other: Expr | float) -> Expr:
        return Expr(ExprOp.SUB, (self, as_expr(other)))

    def __rsub__(self, other: float) -> Expr:
        return Expr(ExprOp.SUB, (as_expr(other), self))

    def __mul__(self, other: Expr | float) -> Expr:
        return Expr(ExprOp.MUL, (self, as_expr(other)))

    def __rmul__(self, other: float) -> Expr:
        return Expr(ExprOp.MUL, (as_expr(other), self))

    def __truediv__(self, other: Expr | float) -> Expr:
        return Expr(ExprOp.DIV, (self, as_expr(other)))

    def __rtruediv__(self, other: float) -> Expr:
        return Expr(ExprOp.DIV, (as_expr(other), self))

    def leaves(self) -> Iterator[Expr]:
        """All quantities and numbers, left to right."""
        waiting = [self]
        while waiting:
            node = waiting.pop()
            if not node.args:
                yield node
            waiting += reversed(node.args)

    @cached_property
    def names(self) -> frozenset[str]:
        """What its leaves name: dimensions, scalars, operands, device constants."""
        return frozenset(leaf.name for leaf in self.leaves() if leaf.name)

    @cached_property
    def key(self) -> tuple[Any, ...]:
        """Equal for formulas that compute the same by the same operations, whatever their labels."""
        return self.op, self.value, self.name, self.part, self.other, *(arg.key for arg in self.args)

    @cached_property
    def depth(self) -> int:
        """Values that the stack machine holds at once."""
        return max([1, *(i + arg.depth for i, arg in enumerate(self.args))])

    @cached_property
    def varies(self) -> bool:
        """Whether the value may change from one step of a reduction to the next."""
        own = self.op in (ExprOp.K, ExprOp.LAST, ExprOp.RUN, ExprOp.STEP)
        return own or any(arg.varies for arg in self.args)

    @cached_property
    def unchanging(self) -> tuple[Expr, ...]:
        """The largest parts whose value no step of a reduction changes."""
        return tuple(part for arg in self.args for part in arg.unchanging) if self.varies else (self,)

    @cached_property
    def divisors(self) -> tuple[Expr, ...]:
        """All that it divides by: where none of them is zero, its value is finite."""
        own = (self.args[1],) if self.op is ExprOp.DIV else ()
        return tuple(dict.fromkeys((*own, *(found for arg in self.args for found in arg.divisors))))

    def evaluate(self, lookup: Callable[[Expr], Any], found: dict[int, Any] | None = None) -> Any:
        """The value, where ``lookup`` gives numbers or arrays for the quantities.

        ``found`` collects the values of parts, so that what stands twice is computed once.
        """
        found = {} if found is None else found
        value = found.get(id(self))
        if value is not None:
            return value
        if self._function is not None:
            value = self._applied(self._function, lookup, found)
        elif self.op is ExprOp.NUMBER:
            value = np.float64(self.value)
        else:
            value = lookup(self)
            value = value.astype(np.float64) if isinstance(value, np.ndarray) else np.float64(value)
        found[id(self)] = value
        return value

    def _applied(
        self, function: Callable[..., Any], lookup: Callable[[Expr], Any], found: dict[int, Any]
    ) -> Any:
        op, neutral = self.op, self._neutral
        first = self.args[0].evaluate(lookup, found)
        if op is ExprOp.MUL and _is(first, 0) and self.args[1]._is_finite(lookup, found):
            return first  # most terms of a formula are of operands that a nest does not have
        if len(self.args) == 1:
            return function(first)
        second = self.args[1].evaluate(lookup, found)
        if neutral is not None and _is(second, neutral):
            return first
        if (op is ExprOp.ADD or op is ExprOp.MUL) and _is(first, neutral):
            return second
        return function(first, second)

    @cached_property
    def _function(self) -> Callable[..., Any] | None:
        return _FUNCTIONS.get(self.op)

    @cached_property
    def _neutral(self) -> int | None:
        return _NEUTRAL.get(self.op)

    def _is_finite(self, lookup: Callable[[Expr], Any], found: dict[int, Any]) -> bool:
        return all(np.all(divisor.evaluate(lookup, found)) for divisor in self.divisors)

    # -- printing --------------------------------------------------------------------------

    def __str__(self) -> str:
        return self.label or self.text

    @property
    def text(self) -> str:
        """The formula itself, its labelled parts by their labels."""
        if self.op is ExprOp.NUMBER:
            return f"{self.value:g}"
        sign = _SIGNS.get(self.op)
        if sign is not None:
            left, right = self.args
            return f"{self._bound(left, False)} {sign} {self._bound(right, self.op in _STRICT)}"
        inner = [str(arg) for arg in self.args]
        if self.op is ExprOp.DEVICE_BY_DTYPE:
            types = " and ".join(f"{operand}'s" for operand in (self.part, self.other) if operand)
            return f"{types} {self.name}"
        if self.op is ExprOp.DEVICE_BY_SUMS:
            return f"{self.part}'s and its sums' {self.name}"
        if self.op in (ExprOp.DEVICE, ExprOp.SCALAR):
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
    return value if isinstance(value, Expr) else Expr(ExprOp.NUMBER, value=float(value))


def named(label: str, formula: Expr) -> Expr:
    """``formula``, which is printed as ``label`` and explained beside."""
    return replace(formula, label=label)


def largest(first: Expr | float, second: Expr | float) -> Expr:
    return Expr(ExprOp.MAX, (as_expr(first), as_expr(second)))


def smallest(first: Expr | float, second: Expr | float) -> Expr:
    return Expr(ExprOp.MIN, (as_expr(first), as_expr(second)))


def ceiling(value: Expr) -> Expr:
    return Expr(ExprOp.CEIL, (value,))


def differs(first: Expr, second: Expr | float) -> Expr:
    """1 where the values differ, else 0."""
    return Expr(ExprOp.DIFFERS, (first, as_expr(second)))


def halvings(value: Expr) -> Expr:
    """The steps in which ``value`` lanes become one: the logarithm to base 2, rounded up."""
    return Expr(ExprOp.HALVINGS, (value,))


def multiple(value: Expr, of: Expr | float) -> Expr:
    """``value`` rounded up to a multiple of ``of``."""
    return ceiling(value / of) * of


# -- quantities of a call ------------------------------------------------------------------------

NOTHING = as_expr(0)
ELEMENTS = Expr(ExprOp.ELEMENTS)
K_COUNT = Expr(ExprOp.K)
LAST = Expr(ExprOp.LAST)
STEPS = Expr(ExprOp.STEPS)
K_TILE = Expr(ExprOp.K_TILE)


def tile(dim: str) -> Expr:
    """Members of the kernel's dimension ``dim`` in one tile."""
    return Expr(ExprOp.TILE, name=dim)


def scalar(name: str) -> Expr:
    return Expr(ExprOp.SCALAR, name=name)


def work(function: str, operand: str) -> Expr:
    """Cycles per vector of the function that scalar ``function`` names, for ``operand``'s element type."""
    return Expr(ExprOp.WORK, name=function, part=operand)


def finish(function: str, operand: str) -> Expr:
    """The same for a vector of results, in the end."""
    return Expr(ExprOp.FINISH, name=function, part=operand)


def count(operand: str, axis: str) -> Expr:
    """Extent of the operand's chunk along one of its axes."""
    return Expr(ExprOp.COUNT, name=operand, part=axis)


def stride(operand: str, axis: str) -> Expr:
    return Expr(ExprOp.STRIDE, name=operand, part=axis)


def run(operand: str) -> Expr:
    """Members that a walk of ``operand``, its innermost axis first, reaches with one step."""
    return Expr(ExprOp.RUN, name=operand)


def step(operand: str) -> Expr:
    """That step in elements: 1 along neighbours, 0 where all members are one element.

    Members at exact fractions of an axis have the step of their average: 0.5 where each element is met twice.
    """
    return Expr(ExprOp.STEP, name=operand)


def item_bytes(operand: str) -> Expr:
    """Size of one element of ``operand``."""
    return Expr(ExprOp.BYTES, name=operand)


def present(operand: str) -> Expr:
    return Expr(ExprOp.PRESENT, name=operand)


def filled(operand: str) -> Expr:
    """1 where the super kernel fills ``operand``'s chunk before a call: it has a fill, or padded rows."""
    return Expr(ExprOp.FILLED, name=operand)


def device(constant: str, by_dtype_of: str = "", and_of: str = "") -> Expr:
    """``kernel.<constant>`` of the device file; ``kernel.<dtype>_<constant>`` for an operand's type, or
    ``kernel.<dtype>_<dtype>_<constant>`` for the types of two."""
    op = ExprOp.DEVICE_BY_DTYPE if by_dtype_of else ExprOp.DEVICE
    return Expr(op, name=constant, part=by_dtype_of, other=and_of)


def device_of_sums(constant: str, operand: str) -> Expr:
    """``kernel.<dtype>_<word>_<constant>`` for an operand's type and the one that its sums are in."""
    return Expr(ExprOp.DEVICE_BY_SUMS, name=constant, part=operand)
