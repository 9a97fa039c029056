# SPDX-License-Identifier: Apache-2.0
"""The largest or smallest elements along an axis, and their indices."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from onedispatch.operators.declarations import expressions as e
from onedispatch.operators.declarations.dtypes import DTYPES, WIDE
from onedispatch.operators.declarations.formulas import (
    ENTRY,
    ROW,
    accesses,
    combined,
    comparisons,
    moves,
    read,
    vectors,
)
from onedispatch.operators.declarations.kernel import Kernel, Scalar, Tensor, declare
from onedispatch.operators.interface.operator import Operator, TensorSpec
from onedispatch.operators.scheduling.index_space import OUTPUT, Access, Dim, K, Operand, strided_operand
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.transactions import Device

Array = np.ndarray[Any, Any]

_WORDS = "f32 i32 u32"


def _cost() -> e.Expr:
    """What a part of the axis has of the best is found in the cheaper of two ways, and merged.

    n passes that take out the best of all, each with its place; or a bitonic sort, whose stages compare and
    exchange every vector of values with its vector of places. The merge is the last stages of such a sort.
    """
    lines, k, n = e.tile("o") * e.tile("i"), e.K_COUNT, e.tile("n")
    exchange = e.named("exchange", comparisons("x") + 4 * moves("x"))  # two of values, two of places
    passes = n * (ROW + vectors(k, "x") * (comparisons("x") + moves("x")) + combined(k, "x", exchange))
    depth = e.halvings(k)
    sort = depth * (depth + 1) / 2 * (ROW + vectors(k, "x") * exchange)
    merge = (e.halvings(n) + 1) * (ROW + 2 * vectors(n, "x") * exchange)
    loads = read(lines, k, "x", e.stride("x", "k"))
    results = accesses(e.ELEMENTS, "values") + 2 * accesses(e.ELEMENTS, "places")  # loaded and stored
    return (
        ENTRY
        + loads
        + results
        + lines * (e.named("found", e.smallest(passes, sort)) + e.named("merge", merge))
    )


TOP_K = declare(
    Kernel(
        "od::top_k@1",
        dims=("o", "n", "i"),
        reduces=True,
        inputs=(Tensor("x", "o k i", _WORDS, like="values"),),
        outputs=(Tensor("values", "o n i", _WORDS), Tensor("places", "o n i", WIDE)),
        scalars=(Scalar("largest", high=1, default=1),),
        cost=_cost(),
        joins="steps",
        # ASSUMPTION: 192 instructions: passes, a sort and a merge of values with their places.
        code_bytes=3072,
        summary="the n largest (or smallest) of x[o][k][i] over k, best first; a NaN is the largest",
    )
)


class TopK(Operator):
    """The ``k`` best of words along an axis and their places (int64), best first; equals in their order.

    Of several NaN the first counts as the largest, as elsewhere: what onnxruntime makes of one depends on
    where its heap meets it.
    """

    kind = "top_k"
    applies_activation = False

    def __init__(
        self,
        name: str,
        x: TensorSpec,
        values: TensorSpec,
        places: TensorSpec,
        axis: int,
        largest: bool,
        device: Device,
    ) -> None:
        super().__init__(name, [x], values, device, further_outputs=[places])
        self.axis, self.largest = axis, largest

    def nests(self) -> list[Nest]:
        x, axis = self.inputs[0], self.axis
        if not self.output.size:
            return []
        outer, inner = prod(x.shape[:axis]), prod(x.shape[axis + 1 :])
        length, n = x.shape[axis], self.output.shape[axis]
        row = x.element
        walked = [(outer, length * inner, Access(0)), (length, inner, Access(K)), (inner, 1, Access(2))]
        operand = strided_operand("x", 0, row, walked[: 2 + (inner > 1)])
        access = Access(0), Access(1), Access(2)
        values, places = (
            Operand(name, number, made, (outer, n, inner), (n * inner, inner, 1), access)
            for name, number, made in (("values", OUTPUT, row), ("places", OUTPUT - 1, DTYPES[WIDE]))
        )
        dims = Dim("o", outer), Dim("n", n, whole=True), Dim("i", inner)
        roles, scalars = {"o": 0, "n": 1, "i": 2}, {"largest": int(self.largest)}
        return [Nest(TOP_K, dims, (operand,), (values, places), roles, scalars, k_extent=length)]

    def order(self, x: Array) -> Array:
        """Places along the axis, best first."""
        if x.dtype.kind == "f":
            keys = np.where(np.isnan(x), np.inf, x).astype(np.float64)
            keys = np.stack([np.isnan(x), keys])
        else:
            keys = np.stack([np.zeros(x.shape), x.astype(np.float64)])
        keys = -keys if self.largest else keys
        return np.lexsort((keys[1], keys[0]), axis=self.axis)

    def reference(self, *arrays: Array) -> Array:
        return self.references(*arrays)[0]

    def references(self, *arrays: Array) -> list[Array]:
        at = np.take(self.order(arrays[0]), range(self.output.shape[self.axis]), axis=self.axis)
        return [np.take_along_axis(arrays[0], at, axis=self.axis), at.astype(np.int64)]
