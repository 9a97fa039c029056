# SPDX-License-Identifier: Apache-2.0
"""Updates that indices place: ScatterElements, ScatterND and TensorScatter, and OneHot, which is one of them.

An output tile stays in its core with its part of the result, while indices and updates stream by: each that
falls into the tile is applied, in their order, so that of several for one element the last one stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onedispatch.operators.declarations import expressions as e
from onedispatch.operators.declarations.dtypes import EVERY, DType
from onedispatch.operators.declarations.formulas import ENTRY, ROW, accesses, either, vectors
from onedispatch.operators.declarations.functions import SCATTERS
from onedispatch.operators.declarations.kernel import Kernel, Scalar, Tensor, chooses, declare
from onedispatch.operators.interface.operator import Operator, TensorSpec
from onedispatch.operators.kernels.movement import carried
from onedispatch.operators.kernels.take import INDICES, IndexedLayout, inside_words, scanned
from onedispatch.operators.scheduling.index_space import OUTPUT
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.transactions import Device

Array = np.ndarray[Any, Any]


def _cost() -> e.Expr:
    """The tile is copied in (or filled with zeros) once; all indices are looked at; some updates are applied.

    ASSUMPTION: updates fall evenly over the axis and over the steps: over all tiles the sum is exact.
    """
    w, gather, work = e.tile("w"), e.device("gather_cycles"), e.work("mode", "out")
    rows_in = e.ELEMENTS / w * (ROW / e.tile("a") + accesses(w, "out"))
    zeros = ROW + accesses(e.ELEMENTS, "out")
    copied = e.named("copied", either(e.present("x"), rows_in, zeros) / e.STEPS)
    share = e.named("share", e.tile("a") / e.scalar("extent"))
    rows = e.named("rows", share * e.K_COUNT * e.tile("o") * e.tile("i"))
    apart = e.named("apart", e.differs(e.stride("index", "w"), 0) * e.differs(w, 1))
    row = ROW + 2 * accesses(w, "out") + vectors(w, "out") * work
    alone = w * (3 * gather + work)  # an address from a vector, the old element and the new one
    return (
        ENTRY
        + ROW
        + copied
        + scanned("o", "k", "i", "w")
        + e.named("applied", rows * either(apart, alone, row))
    )


SCATTER = declare(
    Kernel(
        "od::scatter@1",
        dims=("o", "a", "i", "w"),
        reduces=True,
        inputs=(
            Tensor("x", "o a i w", EVERY, optional=True, like="out"),  # zeros where there is none
            Tensor("index", "o k i w", INDICES),
            Tensor("updates", "o k i w", EVERY, like="out"),
        ),
        outputs=(Tensor("out", "o a i w", EVERY),),
        scalars=(
            chooses("mode", SCATTERS),
            Scalar("extent", low=1),  # of the axis that indices count along
            Scalar("lenient", high=1, default=0),  # an index outside places nothing, and is no mistake
        ),
        cost=_cost(),
        joins="steps",
        positions=("a",),
        # ASSUMPTION: 128 instructions: a filter of indices, loops over rows and elements for each function.
        code_bytes=2048,
        summary="out = x, then out[o][index[o][k][i][w]][i][w] = mode(it, updates[o][k][i][w]), k by k",
    )
)


class Scatter(Operator):
    """``x`` with ``updates`` placed or combined where ``index`` says, as a ``IndexedLayout`` says.

    ``inputs``: x, index and updates, or the latter two alone: x is zeros then.
    An index below zero counts from the end of the axis. One outside of it ends the run
    (``KernelIndexError``), or where ``lenient`` places nothing.
    """

    kind = "scatter"
    applies_activation = False

    def __init__(
        self,
        name: str,
        inputs: Sequence[TensorSpec],
        output: TensorSpec,
        walk: IndexedLayout,
        mode: str,
        device: Device,
        lenient: bool = False,
    ) -> None:
        super().__init__(name, inputs, output, device)
        self.walk, self.mode, self.lenient = walk, mode, lenient

    @property
    def row(self) -> DType:
        """The element type: bits alone where nothing is computed."""
        return carried(self.output)[0] if self.mode == "none" else self.output.element

    def nests(self) -> list[Nest]:
        names = ("o", "a", "i", "w")
        dims, along = self.walk.dims(*names), {name: d for d, name in enumerate(names)}
        if 0 in (dim.extent for dim in dims):
            return []
        types = {"x": self.row, "index": self.inputs[-2].element, "updates": self.row}
        names_in = tuple(types)[-len(self.inputs) :]
        inputs = tuple(self.walk.operand(name, n, types[name], along) for n, name in enumerate(names_in))
        out = self.walk.operand("out", OUTPUT, self.row, along)
        scalars: dict[str, float | str] = {
            "mode": self.mode,
            "extent": self.walk.extent,
            "lenient": int(self.lenient),
        }
        return [
            Nest(
                SCATTER, dims, inputs, (out,), along, scalars,
                k_extent=self.walk.sizes["k"], k_multiple=inside_words(inputs[-1]),
            )
        ]  # fmt: skip

    def reference(self, *arrays: Array) -> Array:
        row = self.row.numpy
        images = [t.laid(a) for t, a in zip(self.inputs, arrays, strict=True)]
        updates = self.walk.seen("updates", images[-1].view(row), "okiw")
        index = self.walk.seen("index", images[-2], "okiw")
        out = np.zeros(self.output.device_bytes // row.itemsize, row)
        whole = self.walk.seen("out", out, "oaiw")
        if len(images) == 3:
            whole[...] = self.walk.seen("x", images[0].view(row), "oaiw")
        held = updates.shape[-1]
        o, i, w = np.ogrid[: updates.shape[0], : updates.shape[2], :held]
        function = SCATTERS[self.mode].reference
        assert function is not None
        for k in range(updates.shape[1]):
            at = np.where(index[:, k] < 0, index[:, k] + self.walk.extent, index[:, k])
            there = (at >= 0) & (at < self.walk.extent)
            at = np.where(there, at, 0)
            old = whole[o, at, i, w]
            half = row.itemsize == 2 and self.row.is_float
            pair = (v.astype(np.float32) if half else v for v in (old, updates[:, k]))
            whole[o, at, i, w] = np.where(there, np.asarray(function(*pair)).astype(row), old)
        return self.output.gathered(out.view(self.output.dtype))
