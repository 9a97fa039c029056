# SPDX-License-Identifier: Apache-2.0
"""Samples an image at coordinates that are computed at run time."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

import numpy as np

from onedispatch.operators.declarations import expressions as e
from onedispatch.operators.declarations.formulas import ENTRY, ROW, comparisons, many, operations, vectors
from onedispatch.operators.declarations.kernel import Kernel, Scalar, Tensor, declare
from onedispatch.operators.interface.operator import Operator, TensorSpec
from onedispatch.operators.scheduling.index_space import F32, OUTPUT, Access, Dim, K, Operand
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.transactions import Device

Array = np.ndarray[Any, Any]

TAPS = {"nearest": 1, "linear": 2, "cubic": 4}  # per dimension
PADDINGS = ("zeros", "border", "reflection")  # the kernel's codes are their positions
MOST_DIMENSIONS = 3


def _cost() -> e.Expr:
    """Places and weights for every vector of p, then all taps of every channel.

    What a tap reads lies anywhere: a load and a shuffle for each. Which rows a chunk holds is known, which
    taps fall into it is not: every step of the rows is charged for all taps.
    """
    p, spatial, taps = e.tile("p"), e.count("grid", "*coordinates"), e.scalar("taps")
    op, mul = operations("out"), e.device("mul_cycles", "out")
    lines = e.named("lines", vectors(p, "out"))
    place = 2 * mul + 4 * op + 4 * comparisons("out")  # scaled, split, and brought inside
    weights = many(taps) * op + e.differs(e.largest(taps, 2), 2) * 12 * (mul + op)
    points = e.named("points", e.scalar("points"))
    places = spatial * (place + weights) + points * (spatial * mul + 2 * op)
    gathered = p * e.device("gather_cycles") + lines * (many(taps) * mul + op)
    return ENTRY + e.tile("n") * (ROW + lines * places + e.tile("c") * (ROW + points * gathered))


GRID_SAMPLE = declare(
    Kernel(
        "od::grid_sample@1",
        dims=("n", "c", "p"),
        reduces=True,
        inputs=(Tensor("x", "n c k *row"), Tensor("grid", "n p *coordinates")),
        outputs=(Tensor("out", "n c p"),),
        scalars=(
            Scalar("taps", low=1, high=4),  # per dimension: 1 nearest, 2 linear, 4 cubic
            Scalar("points", low=1, high=4**MOST_DIMENSIONS),  # of a place: taps to the power of dimensions
            Scalar("padding", high=len(PADDINGS) - 1),
            Scalar("corners", high=1),
            Scalar("height", low=1),  # of the last dimension but one; 1 where there is none
        ),
        cost=_cost(),
        joins="steps",
        # ASSUMPTION: 160 instructions: places, weights of three kinds, a gather.
        code_bytes=2560,
        summary="out[n][c][p]: x[n][c] at the place grid[n][p], from rows k of the image, a chunk at a time",
    )
)


class GridSample(Operator):
    """``x`` [N, C, ...] at the places of ``grid`` [N, ..., dimensions], -1 to 1, the last dimension first."""

    kind = "grid_sample"
    applies_activation = False

    def __init__(
        self,
        name: str,
        x: TensorSpec,
        grid: TensorSpec,
        output: TensorSpec,
        device: Device,
        mode: str,
        padding: str,
        corners: bool,
    ) -> None:
        super().__init__(name, [x, grid], output, device)
        self.mode, self.padding, self.corners = mode, padding, corners

    def nests(self) -> list[Nest]:
        if not self.output.size:
            return []
        n, c, *sizes = self.inputs[0].shape
        rows, width, spatial = prod(sizes[:-1]), sizes[-1], len(sizes)
        places = prod(self.output.shape[2:])
        x = Operand(
            "x", 0, F32, (n, c, rows, width), (c * rows * width, rows * width, width, 1),
            (Access(0), Access(1), Access(K), Access(None)),
        )  # fmt: skip
        grid = Operand(
            "grid", 1, F32, (n, places, spatial), (places * spatial, spatial, 1),
            (Access(0), Access(2), Access(None)),
        )  # fmt: skip
        whole = tuple(Access(d) for d in range(3))
        out = Operand("out", OUTPUT, F32, (n, c, places), (c * places, places, 1), whole)
        taps = TAPS[self.mode]
        scalars = {
            "taps": taps,
            "points": taps**spatial,
            "padding": PADDINGS.index(self.padding),
            "corners": int(self.corners),
            "height": sizes[-2] if spatial > 1 else 1,
        }
        dims = Dim("n", n), Dim("c", c), Dim("p", places)
        return [Nest(GRID_SAMPLE, dims, (x, grid), (out,), {"n": 0, "c": 1, "p": 2}, scalars, rows)]

    # -- reference -----------------------------------------------------------------------------

    def reference(self, *arrays: Array) -> Array:
        x, grid = arrays
        sizes = x.shape[2:]
        found = [self._along(grid[..., -1 - d], size) for d, size in enumerate(sizes)]
        total = np.zeros(self.output.shape, np.float32)
        batch = np.arange(x.shape[0]).reshape(-1, *[1] * len(sizes))
        for taps in product(range(TAPS[self.mode]), repeat=len(sizes)):
            at = [found[d][0][t] for d, t in enumerate(taps)]
            weight = np.prod([found[d][1][t] for d, t in enumerate(taps)], axis=0)
            inside = np.all([place >= 0 for place in at], axis=0)
            places: tuple[Any, ...] = tuple(np.maximum(place, 0) for place in at)
            values = np.moveaxis(x[(batch, slice(None)) + places], -1, 1)
            total += np.where(inside[:, None], values * weight[:, None], 0)
        return total.reshape(self.output.shape)

    def _ends(self, size: int) -> tuple[float, float]:
        return (0.0, size - 1.0) if self.corners else (-0.5, size - 0.5)

    def _along(self, grid: Array, size: int) -> tuple[list[Array], list[Array]]:
        """Places (-1: outside, zeros) and weights of the taps along a dimension."""
        at = (grid + 1) / 2 * (size - 1) if self.corners else ((grid + 1) * size - 1) / 2
        at = np.clip(np.rint(at) if self.mode == "nearest" else at, -(2.0**24), 2.0**24)
        low, high = self._ends(size)
        if self.padding == "reflection":
            at = _reflected(at, low, high)
        base = np.floor(at)
        part = at - base
        if self.mode == "nearest":
            offsets, weights = [0], [np.ones_like(part)]
        elif self.mode == "linear":
            offsets, weights = [0, 1], [1 - part, part]
        else:
            offsets, weights = [-1, 0, 1, 2], [_cubic(np.abs(part - t)) for t in (-1, 0, 1, 2)]
        return [self._placed(base.astype(np.int64) + t, size, low, high) for t in offsets], weights

    def _placed(self, at: Array, size: int, low: float, high: float) -> Array:
        if self.padding == "zeros":
            return np.where((at < 0) | (at >= size), -1, at)
        if self.padding == "reflection":
            at = _reflected(at.astype(np.float64), low, high).astype(np.int64)
        return np.clip(at, 0, size - 1)


def _reflected(at: Array, low: float, high: float) -> Array:
    """Folded back at both borders, as often as it takes."""
    span = high - low
    if span == 0:
        return np.where((at < low) | (at > high), low, at)
    beyond = np.where(at < low, low - at, at - high)
    turns = np.floor(beyond / span)
    rest = beyond - turns * span
    even = turns % 2 == 0
    folded = np.where((at < low) == even, low + rest, high - rest)
    return np.where((at < low) | (at > high), folded, at)


def _cubic(distance: Array) -> Array:
    d, a = distance, -0.75
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, far)
