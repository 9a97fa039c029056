# SPDX-License-Identifier: Apache-2.0
"""Tables of functions that a kernel's scalar chooses from, and what their work is counted in."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from onedispatch.operators.declarations.dtypes import EVERY

INSTRUCTION_BYTES = 16  # of the longest instruction of a core; AM020
MARK_SHIFT = 16  # of a function's mark in its scalar's word


class KernelDeclarationError(ValueError):
    """A declaration that cannot stand: which kernel, which part of it, what would be accepted."""


# What functions are counted in: ``kernel.<dtype>_<term>_cycles`` of a device is the price per vector.
WORK = (
    "op",
    "mul",
    "div",
    "exp",
    "log",
    "tanh",
    "erf",
    "sqrt",
    "move",
    "compare",
    "sum",
    "sin",
    "tan",
    "atan",
)
WORK_TERMS = len(WORK)
Work = tuple[tuple[str, float], ...]


def work(**terms: float) -> Work:
    """How often one vector of a function takes each of ``WORK``: ``work(exp=1, op=4)``."""
    unknown = sorted(set(terms) - set(WORK))
    if unknown:
        raise KernelDeclarationError(f"work counted in {unknown}; accepted: {', '.join(WORK)}")
    uncounted = {
        term: times
        for term, times in terms.items()
        if not (isinstance(times, int | float | np.number) and 0 <= times < math.inf)
    }
    if uncounted:
        raise KernelDeclarationError(f"work of {uncounted}; accepted: finite numbers from 0 on")
    return tuple((term, float(terms[term])) for term in WORK if term in terms)


FREE = work()  # what loads and stores do alone
ONE_OP = work(op=1)


@dataclass(frozen=True)
class Function:
    """One row of a table that a scalar chooses from.

    ``reference`` computes it in NumPy; ``work`` counts what one vector of elements takes, loads and stores
    aside, and ``finish`` what a vector of results takes in the end, where elements are gathered into fewer;
    ``inputs`` is how many operands it reads; ``onnx`` names the operator that is this function;
    ``dtypes`` are the element types that it is defined for; ``ulp``:
    how many units in its last place a result may be off, ``absolute``: or how far, where it is what a sum
    leaves. ``attributes`` of the operator, with their
    defaults, are the function's two parameters. ``code_bytes``: program memory, for each element type, of a
    row that came after its table was sealed; that of others is the kernel's.
    """

    name: str
    reference: Callable[..., Any] | None = None
    work: Work = ONE_OP
    inputs: int = 1
    onnx: str = ""
    dtypes: str = EVERY
    ulp: int = 0
    absolute: float = 0.0
    finish: Work = FREE
    attributes: tuple[tuple[str, float], ...] = ()
    code_bytes: int = 256  # ASSUMPTION: 16 instructions, a loop over vectors included

    def takes(self, dtype: str) -> bool:
        return dtype in self.dtypes.split()


@dataclass(frozen=True)
class FunctionTable:
    """Functions of a kernel; their codes are their positions, so rows are only ever appended.

    Raises ``KernelDeclarationError`` for code that is no whole number of instructions.
    The first ``sealed`` rows (None: all) belong to the digest of every kernel that has the table: where one
    of them is changed or removed it is another kernel, whose code has them all. Rows behind them came later:
    routines of their own, that images carry once for all kernels that call them. A kernel's digest does not
    know them, so that what was compiled before stays good; a parameter block that names one carries the row's
    ``mark`` beside its code, so that a library without that very row refuses it.
    """

    name: str
    rows: tuple[Function, ...]
    sealed: int | None = None

    def __post_init__(self) -> None:
        for row in self.rows:
            if row.code_bytes <= 0 or row.code_bytes % INSTRUCTION_BYTES:
                raise KernelDeclarationError(
                    f"table {self.name}: code_bytes of {row.name}: given {row.code_bytes}; accepted: "
                    f"a multiple of {INSTRUCTION_BYTES} above 0"
                )

    @property
    def by_onnx(self) -> dict[str, str]:
        """ONNX operator -> the row that is it."""
        return {row.onnx: row.name for row in self.rows if row.onnx}

    def __getitem__(self, name: str) -> Function:
        return self.rows[self.code(name)]

    def code(self, name: str) -> int:
        """The number that stands for a function. Raises ``KeyError`` with those that exist."""
        for code, row in enumerate(self.rows):
            if row.name == name:
                return code
        raise KeyError(f"{self.name} has no {name!r}; known: {', '.join(row.name for row in self.rows)}")

    def is_later(self, code: int) -> bool:
        """Whether the row came after the table was sealed."""
        return self.sealed is not None and code >= self.sealed

    @property
    def later(self) -> dict[int, str]:
        """Rows that came after the table was sealed: what images name them by -> ``table.row``."""
        codes = range(len(self.rows) if self.sealed is None else self.sealed, len(self.rows))
        return {self.digest(code): f"{self.name}.{self.rows[code].name}" for code in codes}

    def digest(self, code: int) -> int:
        """32 bits that name a later row in program images; 0 of a sealed one."""
        if not self.is_later(code):
            return 0
        row = self.rows[code]
        text = f"{self.name} {row.name} {row.dtypes} {row.inputs}"
        found = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "little")
        return found if found >> MARK_SHIFT else found | 1 << MARK_SHIFT

    def mark(self, code: int) -> int:
        """16 bits that tell a later row from any other that might stand at its place; 0 of a sealed one."""
        return self.digest(code) >> MARK_SHIFT

    def word(self, name: str) -> int:
        """What names a function in a parameter block: its code, and its mark above."""
        code = self.code(name)
        return code | self.mark(code) << MARK_SHIFT
