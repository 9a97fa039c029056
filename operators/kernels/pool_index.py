# SPDX-License-Identifier: Apache-2.0
"""MaxPool with its second output: the largest value of every window, and where it lies."""

from __future__ import annotations

from typing import Any

import numpy as np

from onedispatch.operators.declarations import expressions as e
from onedispatch.operators.declarations.formulas import ENTRY, ROW, comparisons, moves, operations, vectors
from onedispatch.operators.declarations.kernel import Kernel, Scalar, Tensor, declare
from onedispatch.operators.interface.operator import Operator, TensorSpec
from onedispatch.operators.kernels.window import (
    TAPS,
    WINDOW_SCALARS,
    Window,
    copied_planes,
    row_dim,
    rows_view,
    spatial,
    windows,
)
from onedispatch.operators.scheduling.index_space import OUTPUT, Access, Dim
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.transactions import Device

Array = np.ndarray[Any, Any]


def _cost() -> e.Expr:
    """Per tap and vector of outputs: a load that is no vector's beginning, shifted, and compared; the value
    and its position are selected by the mask, and the position of the next tap is one addition."""
    rows = e.tile("c") * e.tile("oh")
    values = vectors(e.tile("ow"), "out") * (moves("x") + comparisons("x") + moves("x"))
    places = vectors(e.tile("ow"), "index") * (moves("index") + operations("index"))
    first = vectors(e.tile("ow"), "index") * (2 * moves("index") + operations("index"))
    taps = rows * (TAPS * (values + places + ROW) + first + ROW)
    return ENTRY + copied_planes(e.tile("c")) + e.named("taps", taps)


POOL_INDEX = declare(
    Kernel(
        "od::pool_index@1",
        dims=("c", "oh", "ow"),
        inputs=(Tensor("x", "c oh ow", "f32 i32", walk="interval", like="out"),),
        outputs=(Tensor("out", "c oh ow", "f32 i32"), Tensor("index", "c oh ow", "i32")),
        scalars=(
            *WINDOW_SCALARS,
            *(Scalar(name, high=(1 << 31) - 1, default=0) for name in ("plane", "row_step", "column_step")),
        ),
        cost=_cost(),
        positions=("c", "oh", "ow"),
        # ASSUMPTION: 80 instructions: a loop of windows, its first taps, edges.
        code_bytes=1280,
        summary="largest value of the window of every output element, and the position of the first that is "
        "as large: c * plane + h * row_step + w * column_step",
    )
)


class PoolIndex(Operator):
    """The largest value of every window of [N, C, (H,) W] (float32 or int32), and its position (int32).

    Positions count elements of x, whose columns follow each other along w, or along h (``by_columns``).
    """

    kind = "pool_index"
    applies_activation = False

    def __init__(
        self,
        name: str,
        x: TensorSpec,
        output: TensorSpec,
        index: TensorSpec,
        window: Window,
        device: Device,
        by_columns: bool = False,
    ) -> None:
        super().__init__(name, [x], output, device, further_outputs=[index])
        self.window, self.by_columns = window, by_columns

    @property
    def steps(self) -> tuple[int, int, int]:
        """Positions from a channel, a row and a column to the next."""
        h, w = spatial(self.inputs[0].shape)
        return (h * w, 1, h) if self.by_columns else (h * w, w, 1)

    def nests(self) -> list[Nest]:
        x, index = self.inputs[0], self.further_outputs[0]
        channels = x.shape[0] * x.shape[1]
        (h, _), (oh, ow) = spatial(x.shape), spatial(self.output.shape)
        if channels * oh * ow == 0:
            return []
        accesses = (Access(0), self.window.access(1, 0), self.window.access(2, 1))
        inside = rows_view("x", 0, x, (channels, h), accesses)
        plain = [Access(d) for d in range(3)]
        outputs = (
            rows_view("out", OUTPUT, self.output, (channels, oh), plain),
            rows_view("index", OUTPUT - 1, index, (channels, oh), plain),
        )
        dims = (Dim("c", channels), Dim("oh", oh), row_dim("ow", self.output))
        names = ("plane", "row_step", "column_step")
        scalars = {**self.window.scalars_for(x), **dict(zip(names, self.steps, strict=True))}
        return [Nest(POOL_INDEX, dims, (inside,), outputs, {"c": 0, "oh": 1, "ow": 2}, scalars)]

    def reference(self, *arrays: Array) -> Array:
        return self.references(*arrays)[0]

    def references(self, *arrays: Array) -> list[Array]:
        """Both results."""
        x = arrays[0].reshape(-1, *spatial(self.inputs[0].shape))[None]
        out, taps = spatial(self.output.shape), self.window.taps
        least = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
        plane, row, column = self.steps
        channel, h, w = np.indices(x.shape[1:])
        places = (channel * plane + h * row + w * column)[None]
        seen, there, inside = (
            windows(array, self.window, out, pad).reshape(*x.shape[:2], *out, taps)
            for array, pad in ((x, least), (places, 0), (np.ones_like(x, dtype=bool), False))
        )
        best = inside.argmax(axis=-1)[..., None]
        for tap in range(taps):
            largest = np.take_along_axis(seen, best, -1)[..., 0]
            best[..., 0] = np.where(inside[..., tap] & (seen[..., tap] > largest), tap, best[..., 0])
        value, place = (np.take_along_axis(array, best, -1) for array in (seen, there))
        made = (value.astype(self.output.dtype), place.astype(np.int32))
        return [array.reshape(t.shape) for array, t in zip(made, self.outputs, strict=True)]
