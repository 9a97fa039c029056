# SPDX-License-Identifier: Apache-2.0
"""Element-wise operators whose operands or results are no plain numbers of one type.

Comparisons, selections, functions of bits, remainders, and arithmetic of int64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np

from onedispatch.operators.declarations import expressions as e
from onedispatch.operators.declarations.dtypes import DTYPES, EVERY, WIDE, DType
from onedispatch.operators.declarations.formulas import mapped, moves, vectors
from onedispatch.operators.declarations.function_sets import BINARIES, COMPARISONS
from onedispatch.operators.declarations.kernel import FunctionTable, Kernel, Tensor, chooses, declare
from onedispatch.operators.declarations.tensor import TensorSpec, Unsupported
from onedispatch.operators.kernels.elementwise import Array, Eltwise
from onedispatch.transactions import Device


def _cost(inputs: int, operations: Callable[[e.Expr], e.Expr]) -> e.Expr:
    """``operations``: cycles of a row of so many."""
    return mapped((f"x{i}" for i in range(inputs)), lambda rows, run: rows * operations(run))


COMPARE = declare(
    Kernel(
        "od::compare@1",
        inputs=(
            Tensor("x0", "...", f"{EVERY} {WIDE}", walk="affine"),
            Tensor("x1", "...", f"{EVERY} {WIDE}", optional=True, walk="affine", like="x0"),
        ),
        outputs=(Tensor("out", "...", "bool", walk="affine"),),
        scalars=(chooses("func", COMPARISONS, of="x0"),),
        # Masks of the operands' vectors, and a selection of ones and zeros for every vector of results.
        cost=_cost(
            2, lambda run: vectors(run, "x0") * e.work("func", "x0") + vectors(run, "out") * moves("out")
        ),
        joins="tiles",
        # ASSUMPTION: 128 instructions: a loop and its edges, about 4 per function, a packing of masks.
        code_bytes=2048,
        summary="true or false for elements of a box of up to five dimensions; inputs strided or broadcast",
    )
)

SELECT = declare(
    Kernel(
        "od::select@1",
        inputs=(
            Tensor("x0", "...", "bool", walk="affine"),
            *(Tensor(f"x{i}", "...", f"u8 u16 u32 {WIDE}", walk="affine", like="out") for i in (1, 2)),
        ),
        outputs=(Tensor("out", "...", f"u8 u16 u32 {WIDE}", walk="affine"),),
        # Truth values become masks of the results' width, each vector of which selects.
        cost=_cost(
            3, lambda run: vectors(run, "x0") * moves("x0") + vectors(run, "out") * (2 * moves("out"))
        ),
        joins="tiles",
        # ASSUMPTION: 64 instructions: a loop and its edges per width.
        code_bytes=1024,
        summary="elements of x1 where x0 is true, of x2 elsewhere; of any type, by their width",
    )
)

BINARY = declare(
    Kernel(
        "od::binary@1",
        inputs=(
            Tensor("x0", "...", f"{EVERY} {WIDE}", walk="affine", like="out"),
            Tensor("x1", "...", f"{EVERY} {WIDE}", optional=True, walk="affine", like="out"),
        ),
        outputs=(Tensor("out", "...", f"{EVERY} {WIDE}", walk="affine"),),
        scalars=(chooses("func", BINARIES),),
        cost=_cost(2, lambda run: vectors(run, "out") * e.work("func", "out")),
        joins="tiles",
        # ASSUMPTION: 80 instructions: a loop and its edges, about 8 per sealed function.
        code_bytes=1280,
        summary="functions of bits and of integers, remainders; integers of 64 bits too, which wrap",
    )
)


class Chosen(Eltwise):
    """``func(inputs)``, a row of the table of the class; no activation can follow."""

    applies_activation = False

    @property
    def numbers(self) -> tuple[float, ...]:
        return ()

    @property
    def scalars(self) -> dict[str, float | str]:
        return {"func": self.func}


class Compare(Chosen):
    """Truth values of one or two operands of one type."""

    kind = "compare"
    kernel: ClassVar[Kernel] = COMPARE
    functions: ClassVar[FunctionTable] = COMPARISONS


class Binary(Chosen):
    """Functions of bits and of integers, of int64 too."""

    kind = "binary"
    kernel: ClassVar[Kernel] = BINARY
    functions: ClassVar[FunctionTable] = BINARIES


class Select(Chosen):
    """``where(condition, x, y)`` of elements of any width."""

    kind = "select"
    kernel: ClassVar[Kernel] = SELECT

    def __init__(self, name: str, inputs: Sequence[TensorSpec], output: TensorSpec, device: Device) -> None:
        super().__init__(name, "", inputs, output, device)

    @property
    def scalars(self) -> dict[str, float | str]:
        return {}

    def row_of(self, tensor: TensorSpec) -> DType:
        if tensor is self.inputs[0]:
            return tensor.element
        found = {1: "u8", 2: "u16", 4: "u32", 8: WIDE}.get(tensor.dtype.itemsize)
        if found is None or tensor.dtype.kind in "SUMO":
            raise Unsupported(f"Where of {tensor}", "elements of 1, 2, 4 or 8 bytes")
        return DTYPES[found]

    def compute(self, *seen: Array) -> Array:
        return np.where(*seen)
