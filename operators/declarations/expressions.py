# SPDX-License-Identifier: Apache-2.0
"""Formulas that Python and C++ evaluate alike: the cost of a kernel call.

A formula is a tree of sums, products and the like over named quantities of one call (``Quantity``)
and constants of the device. Python evaluates it over arrays of candidate tilings at once, C++ the
same instructions in the same order for one call, both in IEEE double, so that they agree to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
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
    # Quantities of a call: a and b say which.
    TILE = 8  # tile of the kernel's dimension a
    ELEMENTS = 9  # product of all tiles
    K = 10  # members of the reduction in this call
    LAST = 11  # 1 in the last step of a reduction, else 0
    SCALAR = 12  # scalar a
    WEIGHT = 13  # weight of the function that scalar a names
    COUNT = 14  # chunk extent of operand a along its axis b
    STRIDE = 15  # elements from one to the next of the same
    PRESENT = 16  # 1 where operand a is there, else 0
    DEVICE = 17  # device constant a of the kernel
    DEVICE_BY_DTYPE = 18  # the same for the element type of operand b


_UNARY = (Op.CEIL,)
_BINARY: dict[Op, Callable[[Any, Any], Any]] = {
    Op.ADD: np.add,
    Op.SUB: np.subtract,
    Op.MUL: np.multiply,
    Op.DIV: np.divide,
    Op.MAX: np.maximum,
    Op.MIN: np.minimum,
}


def taken_by(op: Op) -> int:
    """Values that an instruction takes from the stack; each leaves one."""
    return 2 if op in _BINARY else int(op in _UNARY)


@dataclass(frozen=True)
class Expr:
    """A formula. ``name`` and ``part`` tell which quantity a leaf stands for."""

    op: Op
    args: tuple[Expr, ...] = ()
    value: float = 0.0
    name: str = ""
    part: str = ""

    def __add__(self, other: Expr | float) -> Expr:
        return Expr(Op.ADD, (self, as_expr(other)))

    def __radd__(self, other: float) -> Expr:
        return Expr(Op.ADD, (as_expr(other), self))

    def __sub__(self, other: Expr | float) -> Expr:
        return Expr(Op.SUB, (self, as_expr(other)))

    def __mul__(self, other: Expr | float) -> Expr:
        return Expr(Op.MUL, (self, as_expr(other)))

    def __rmul__(self, other: float) -> Expr:
        return Expr(Op.MUL, (as_expr(other), self))

    def __truediv__(self, other: Expr | float) -> Expr:
        return Expr(Op.DIV, (self, as_expr(other)))

    def leaves(self) -> Iterator[Expr]:
        """All quantities and numbers, left to right."""
        if not self.args:
            yield self
        for arg in self.args:
            yield from arg.leaves()

    def postfix(self) -> Iterator[Expr]:
        """Nodes in the order in which a stack machine takes them."""
        for arg in self.args:
            yield from arg.postfix()
        yield self

    @property
    def depth(self) -> int:
        """Values that the stack machine holds at once."""
        return max([1, *(i + arg.depth for i, arg in enumerate(self.args))])

    def evaluate(self, lookup: Callable[[Expr], Any]) -> Any:
        """The value, where ``lookup`` gives numbers or arrays for the quantities."""
        if self.op is Op.NUMBER:
            return np.float64(self.value)
        if self.op is Op.CEIL:
            return np.ceil(self.args[0].evaluate(lookup))
        if self.op in _BINARY:
            left, right = (arg.evaluate(lookup) for arg in self.args)
            return _BINARY[self.op](left, right)
        return np.asarray(lookup(self), np.float64)

    def __str__(self) -> str:
        signs = {Op.ADD: "+", Op.SUB: "-", Op.MUL: "*", Op.DIV: "/"}
        if self.op is Op.NUMBER:
            return f"{self.value:g}"
        inner = [str(arg) for arg in self.args]
        if self.op in signs:
            return f"({inner[0]} {signs[self.op]} {inner[1]})"
        named = [text for text in (self.name, self.part) if text]
        return (
            f"{self.op.name.lower()}({', '.join(inner or named)})" if inner or named else self.op.name.lower()
        )


def as_expr(value: Expr | float) -> Expr:
    return value if isinstance(value, Expr) else Expr(Op.NUMBER, value=float(value))


def largest(first: Expr | float, second: Expr | float) -> Expr:
    return Expr(Op.MAX, (as_expr(first), as_expr(second)))


def smallest(first: Expr | float, second: Expr | float) -> Expr:
    return Expr(Op.MIN, (as_expr(first), as_expr(second)))


def ceiling(value: Expr) -> Expr:
    return Expr(Op.CEIL, (value,))


def multiple(value: Expr, of: int) -> Expr:
    """``value`` rounded up to a multiple of ``of``."""
    return ceiling(value / of) * of


# -- quantities of a call ------------------------------------------------------------------------

NOTHING = as_expr(0)
ELEMENTS = Expr(Op.ELEMENTS)
K_COUNT = Expr(Op.K)
LAST = Expr(Op.LAST)


def tile(dim: str) -> Expr:
    """Members of the kernel's dimension ``dim`` in one tile."""
    return Expr(Op.TILE, name=dim)


def scalar(name: str) -> Expr:
    return Expr(Op.SCALAR, name=name)


def weight(name: str) -> Expr:
    """How many slow functions one element takes of the function that scalar ``name`` chooses."""
    return Expr(Op.WEIGHT, name=name)


def count(operand: str, axis: str) -> Expr:
    """Extent of the operand's chunk along one of its axes."""
    return Expr(Op.COUNT, name=operand, part=axis)


def stride(operand: str, axis: str) -> Expr:
    return Expr(Op.STRIDE, name=operand, part=axis)


def present(operand: str) -> Expr:
    return Expr(Op.PRESENT, name=operand)


def device(constant: str, by_dtype_of: str = "") -> Expr:
    """``kernel.<constant>`` of the device file, or ``kernel.<dtype>_<constant>`` for an operand's type."""
    return Expr(Op.DEVICE_BY_DTYPE if by_dtype_of else Op.DEVICE, name=constant, part=by_dtype_of)
