# SPDX-License-Identifier: Apache-2.0
"""Pools over windows: the largest value, the average, the sum."""

from __future__ import annotations

from typing import Any

import numpy as np

from onedispatch.operators.declarations import expressions as e
from onedispatch.operators.declarations.dtypes import NUMBERS
from onedispatch.operators.declarations.formulas import ENTRY, ROW, moves, vectors
from onedispatch.operators.declarations.functions import POOLINGS, Activation
from onedispatch.operators.declarations.kernel import Kernel, Scalar, Tensor, chooses, declare
from onedispatch.operators.interface.operator import Operator, TensorSpec
from onedispatch.operators.kernels.elementwise import ACTIVATION_SCALARS
from onedispatch.operators.kernels.reduce import word_of
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
    """Per tap and vector of outputs: a load that is no vector's beginning, shifted, and combined."""
    rows = e.tile("c") * e.tile("oh") * vectors(e.tile("ow"), "out")
    per_tap = e.work("mode", "x") + moves("x")
    taps = rows * (TAPS * per_tap + ROW)
    results = rows * (e.finish("mode", "out") + e.work("act", "out"))
    return ENTRY + copied_planes(e.tile("c")) + e.named("taps", taps) + results


POOL = declare(
    Kernel(
        "od::pool@1",
        dims=("c", "oh", "ow"),
        inputs=(Tensor("x", "c oh ow", NUMBERS, walk="interval", like="out"),),
        outputs=(Tensor("out", "c oh ow", NUMBERS),),
        # pads count cells for average_include_pad: a cell counts when inside [-begin, extent + end).
        scalars=(
            chooses("mode", POOLINGS),
            *WINDOW_SCALARS,
            *(Scalar(f"pad_{side}", high=1 << 20, default=0) for side in ("top", "left", "bottom", "right")),
            *ACTIVATION_SCALARS,
        ),
        cost=_cost(),
        joins="tiles",
        # ASSUMPTION: 96 instructions: maximum, averages and their edges.
        code_bytes=1536,
        summary="largest value, average or sum of the window of every output element",
    )
)


class Pool(Operator):
    """Maximum, average or sum of a window of every channel of [N, C, (H,) W].

    ``made`` is the output as the windows see it, where it has another shape.

    Of a maximum, a NaN that leads its window inside of x stays, others are passed over: so does onnxruntime
    where it has plain loops (dilated windows); where it has vectors, what stands depends on their width.
    """

    kind = "pool"
    runs_in_bands = True

    def __init__(
        self,
        name: str,
        mode: str,
        x: TensorSpec,
        output: TensorSpec,
        window: Window,
        device: Device,
        activation: Activation | None = None,
        made: TensorSpec | None = None,
    ) -> None:
        super().__init__(name, [x], output, device, activation)
        self.mode, self.window = mode, window
        self.made = made or output

    def nests(self) -> list[Nest]:
        x = self.inputs[0]
        channels = x.shape[0] * x.shape[1]
        (h, _), (oh, ow) = spatial(x.shape), spatial(self.made.shape)
        if channels * oh * ow == 0:
            return []
        accesses = (Access(0), self.window.access(1, 0), self.window.access(2, 1))
        inside = rows_view("x", 0, x, (channels, h), accesses)
        out = rows_view("out", OUTPUT, self.made, (channels, oh), [Access(d) for d in range(3)])
        dims = (Dim("c", channels), Dim("oh", oh), row_dim("ow", self.made))

        top, left, bottom, right = self.window.pads
        pads = {"pad_top": top, "pad_left": left, "pad_bottom": bottom, "pad_right": right}
        scalars = {"mode": self.mode, **self.window.scalars_for(x), **pads, **self.activation.scalars}
        return [Nest(POOL, dims, (inside,), (out,), {"c": 0, "oh": 1, "ow": 2}, scalars)]

    @property
    def takes_activation(self) -> bool:
        return super().takes_activation and self.output.element.is_float

    def reference(self, *arrays: Array) -> Array:
        wide, shape = word_of(self.inputs[0].element), self.inputs[0].shape
        x = arrays[0].astype(wide).reshape(*shape[:2], *spatial(shape))
        out = spatial(self.made.shape)
        if self.mode == "max":
            y = self._largest(x, out)
        elif self.mode == "sum":
            y = self._summed(x, out)
        else:
            ones = np.ones((1, 1, *x.shape[2:]), np.float32)
            if self.mode == "average_include_pad":
                top, left, bottom, right = self.window.pads
                ones = np.pad(ones, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=1)
                shifted = Window(self.window.kernel, self.window.strides, self.window.dilations, (0, 0, 0, 0))
                count = windows(ones, shifted, out, 0.0).sum(axis=(-1, -2))
            else:
                count = windows(ones, self.window, out, 0.0).sum(axis=(-1, -2))
            y = self._summed(x, out) / count
        result = self.activation.apply(np.asarray(y, wide))
        return result.astype(self.output.dtype).reshape(self.output.shape)

    def _summed(self, x: Array, out: tuple[int, int]) -> Array:
        """One tap after the other, as the kernel does: quantised averages may depend on every rounding."""
        taps = windows(x, self.window, out, 0.0).reshape(*x.shape[:2], *out, self.window.taps)
        total: Array = np.add.accumulate(taps, axis=-1)[..., -1]
        return total

    def _largest(self, x: Array, out: tuple[int, int]) -> Array:
        """A NaN that leads its window stays, others are passed over."""
        least = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
        taps, inside = (
            windows(array, self.window, out, pad).reshape(*array.shape[:2], *out, self.window.taps)
            for array, pad in ((x, least), (np.ones((1, 1, *x.shape[2:]), np.int8), 0))
        )
        leading = np.broadcast_to(inside.argmax(axis=-1)[..., None], (*taps.shape[:-1], 1))
        first = np.take_along_axis(taps, leading, axis=-1)[..., 0]
        largest: Array = np.where(np.isnan(first), first, np.fmax.reduce(taps, axis=-1))
        return largest.astype(x.dtype)
