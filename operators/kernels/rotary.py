# SPDX-License-Identifier: Apache-2.0
"""RotaryEmbedding of ONNX and of onnxruntime: pairs of elements turned by an angle, row by row."""

from __future__ import annotations

import numpy as np

from onedispatch.operators.declarations import expressions as e
from onedispatch.operators.declarations.formulas import (
    ENTRY,
    ROW,
    accesses,
    busiest,
    many,
    moves,
    operations,
    read,
    vectors,
)
from onedispatch.operators.declarations.kernel import Kernel, Scalar, Tensor, declare
from onedispatch.operators.interface.operator import Operator, TensorSpec
from onedispatch.operators.kernels.elementwise import Array
from onedispatch.operators.scheduling.index_space import F32, OUTPUT, Access, Dim, Operand
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.transactions import Device

_ROWS = "batch head place *size"
_ANGLES = "batch place *half"


def _cost() -> e.Expr:
    """Of every row: both elements of its pairs and their angles loaded, two products and a sum for each of
    the two, what is not turned copied. Pairs of neighbours are taken apart and put together by shuffles."""
    size, half = e.count("x", "*size"), e.count("cos", "*half")
    rows = e.named("rows", e.tile("batch") * e.tile("head") * e.tile("place"))
    step = 1 + e.scalar("interleaved")
    rest = e.named("rest", size - 2 * half)
    loads = read(2 * rows, half, "x", step) + read(rows, half, "cos") + read(rows, half, "sin")
    loads = loads + rows * accesses(rest, "x") / e.device("loads_per_cycle")
    pairs = vectors(half, "x")
    sums = pairs * (4 * e.device("mul_cycles", "x") + 2 * operations("x"))
    shuffles = many(step) * 2 * pairs * moves("x")
    loops = (1 + e.differs(rest, 0)) * ROW
    return ENTRY + rows * loops + busiest(loads, rows * accesses(size, "out"), rows * (sums + shuffles))


ROTATE = declare(
    Kernel(
        "od::rotate@1",
        dims=("batch", "head", "place"),
        inputs=(Tensor("x", _ROWS), Tensor("cos", _ANGLES), Tensor("sin", _ANGLES)),
        outputs=(Tensor("out", _ROWS),),
        scalars=(Scalar("interleaved", high=1, default=0),),  # pairs are neighbours, not a half apart
        cost=_cost(),
        joins="tiles",
        # ASSUMPTION: 64 instructions: a loop over pairs of each kind, and one that copies.
        code_bytes=1024,
        summary="pairs of every row turned: first * cos - second * sin, then second * cos + first * sin",
    )
)


class Rotate(Operator):
    """Pairs of the first elements of rows turned by angles; the rest of each row stays. All float32.

    Inputs are x, seen as [batch, heads, places, size] through element ``strides``, then cosines and sines
    [batch, places, half] of half as many angles as elements are turned. The output lies as x does.
    """

    kind = "rotary"
    applies_activation = False

    def __init__(
        self,
        name: str,
        inputs: list[TensorSpec],
        output: TensorSpec,
        device: Device,
        *,
        sizes: tuple[int, ...],
        strides: tuple[int, ...],
        interleaved: bool,
    ) -> None:
        super().__init__(name, inputs, output, device)
        self.sizes, self.strides, self.interleaved = sizes, strides, interleaved

    def nests(self) -> list[Nest]:
        if not self.output.size:
            return []
        batch, heads, places, _ = self.sizes
        half = self.inputs[1].shape[-1]
        along = (Access(0), Access(1), Access(2), Access(None))
        walked = sorted(zip(self.sizes, self.strides, along, strict=True), key=lambda one: -one[1])
        x = Operand("x", 0, F32, *(tuple(values) for values in zip(*walked, strict=True)))  # type: ignore[arg-type]
        out = Operand("out", OUTPUT, F32, self.sizes, self.strides, along)
        laid = (batch, places, half), (places * half, half, 1), (Access(0), Access(2), Access(None))
        angles = [Operand(name, i, F32, *laid) for i, name in ((1, "cos"), (2, "sin"))]
        dims = Dim("batch", batch), Dim("head", heads), Dim("place", places)
        roles = {dim.name: d for d, dim in enumerate(dims)}
        scalars = {"interleaved": int(self.interleaved)}
        return [Nest(ROTATE, dims, (x, *angles), (out,), roles, scalars)]

    def reference(self, *arrays: Array) -> Array:
        x = np.lib.stride_tricks.as_strided(arrays[0].reshape(-1), self.sizes, [4 * s for s in self.strides])
        cos, sin = (np.expand_dims(table, 1) for table in arrays[1:])
        half = cos.shape[-1]
        first, second = slice(0, half), slice(half, 2 * half)
        if self.interleaved:
            first, second = slice(0, 2 * half, 2), slice(1, 2 * half, 2)
        flat = np.array(arrays[0], np.float32).reshape(-1)
        out = np.lib.stride_tricks.as_strided(flat, x.shape, x.strides)
        out[..., first] = x[..., first] * cos - x[..., second] * sin
        out[..., second] = x[..., second] * cos + x[..., first] * sin
        return flat.reshape(self.output.shape)
