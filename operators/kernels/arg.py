# SPDX-License-Identifier: Apache-2.0
"""ArgMax and ArgMin: places of the largest and smallest values; Hardmax, which is one at the first."""

from __future__ import annotations

import numpy as np

from onedispatch.operators.declarations import expressions as e
from onedispatch.operators.declarations.dtypes import NUMBERS, WIDE
from onedispatch.operators.declarations.formulas import (
    ENTRY,
    ROW,
    WORD_BYTES,
    accesses,
    busiest,
    combined,
    comparisons,
    either,
    moves,
    read,
    vectors,
    words,
)
from onedispatch.operators.declarations.kernel import Kernel, Scalar, Tensor, declare
from onedispatch.operators.interface.operator import TensorSpec
from onedispatch.operators.kernels.elementwise import Array
from onedispatch.operators.kernels.reduce import Reduce, word_of
from onedispatch.operators.scheduling.index_space import Dim, K, Operand
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.transactions import Device


def _cost() -> e.Expr:
    """As a reduction; beside the comparison, value and place are selected, and the place counts on."""
    r, i, k = e.tile("r"), e.tile("i"), e.K_COUNT
    several = e.named("several", e.differs(i, 1))
    lines = e.named("lines", r * either(several, vectors(i, "x"), 1))
    line = e.named("line", either(several, k, vectors(k, "x")))
    places = r * either(several, k * words(i), words(k))  # vectors of places: words, whatever x is
    loads = read(r * i * k / e.run("x"), e.run("x"), "x")
    best = lines * line * (comparisons("x") + moves("x")) + places * (
        e.device("i32_move_cycles") + e.device("i32_op_cycles")
    )
    across = (
        (1 - several) * lines * combined(k, "x", comparisons("x") + moves("x") + e.device("i32_move_cycles"))
    )
    kept = 4 * r * e.ceiling(WORD_BYTES * i / e.device("vector_bytes"))  # both are loaded and stored
    return (
        ENTRY
        + lines * ROW
        + busiest(loads, e.as_expr(0), best)
        + across
        + kept
        + e.LAST * r * accesses(i, "out")
    )


ARG = declare(
    Kernel(
        "od::arg@1",
        dims=("r", "i"),
        reduces=True,
        inputs=(Tensor("x", "r k i", NUMBERS),),
        outputs=(Tensor("out", "r i", WIDE),),
        scalars=(
            Scalar("least", high=1, default=0),
            Scalar("last", high=1, default=0),  # of equal values the last one; 0: the first
        ),
        cost=_cost(),
        # The best value so far and its place, a word each.
        scratch=e.tile("r") * e.tile("i") * (2 * WORD_BYTES),
        keeps_scratch=True,
        # ASSUMPTION: 96 instructions: a loop along and one across rows, and the places across lanes.
        code_bytes=1536,
        summary="out[r][i] = the k of the largest, or least, x[r][k][i]; a NaN only where it is the first",
    )
)


class Arg(Reduce):
    """Places along ``axis``: int64. A NaN is larger and smaller than nothing, as in onnxruntime: it is found
    where it comes first, and nowhere else."""

    kind = "arg"
    applies_activation = False

    def __init__(
        self, name: str, x: TensorSpec, output: TensorSpec, axis: int, device: Device, **flags: int
    ) -> None:
        super().__init__(name, "arg", x, output, (axis, axis + 1), device)
        self.flags = flags

    def _nest(self, x: Operand, out: Operand, dims: tuple[Dim, Dim]) -> Nest:
        unit = x.dtype.per_word if any(a.dim == K and a.align > 1 for a in x.access) else 1
        _, given, _ = self.sizes
        return Nest(ARG, dims, (x,), (out,), {"r": 0, "i": 1}, self.flags, k_extent=given, k_multiple=unit)

    def reference(self, *arrays: Array) -> Array:
        x: Array = arrays[0].astype(word_of(self.inputs[0].element)).reshape(self.sizes)
        length, first = self.sizes[1], x[:, :1]
        if self.flags.get("last"):
            x = x[:, ::-1]
        if x.dtype.kind == "f":
            x = np.where(np.isnan(x), np.inf if self.flags.get("least") else -np.inf, x)
        found = np.argmin(x, axis=1) if self.flags.get("least") else np.argmax(x, axis=1)
        if self.flags.get("last"):
            found = length - 1 - found
        found = np.where(np.isnan(first[:, 0].astype(np.float32)), 0, found)
        return found.astype(np.int64).reshape(self.output.shape)
