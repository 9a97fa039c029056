# SPDX-License-Identifier: Apache-2.0
"""Elements by index along an axis: what every operator uses whose data decides addresses when it reads.

A core holds its indices and the part of the axis that is in its chunk. An axis that a core does not hold is
the reduction dimension: its parts stream by, and what an index finds in one of them is copied. So every
element of the axis is read from device memory once for the columns that need it, however large it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onedispatch.operators.declarations import expressions as e
from onedispatch.operators.declarations.dtypes import EVERY, WIDE, DType
from onedispatch.operators.declarations.formulas import (
    ENTRY,
    ROW,
    accesses,
    chunk,
    either,
    vectors,
    words,
)
from onedispatch.operators.declarations.kernel import Kernel, Scalar, Tensor, declare
from onedispatch.operators.interface.operator import Operator, TensorSpec
from onedispatch.operators.kernels.elementwise import View
from onedispatch.operators.kernels.movement import carried
from onedispatch.operators.scheduling.index_space import OUTPUT, Access, Dim, K, Operand, strided_operand
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.transactions import Device

Array = np.ndarray[Any, Any]
INDICES = f"i32 {WIDE}"  # element types of indices


def turned(members: e.Expr) -> e.Expr:
    """Cycles of making 32-bit indices of ``members`` that lie as they come, from the end on where below zero.

    Those of 64 bits are narrowed first: what is lost must be the sign (ASSUMPTION: part of the conversion).
    """
    compare, op = e.device("i32_compare_cycles"), e.device("i32_op_cycles")
    return vectors(members, "index") * e.device("convert_cycles", "index") + words(members) * (compare + op)


def scanned(*axes: str) -> e.Expr:
    """Cycles of looking at the indices of a tile: each is turned, and compared with what is there."""
    members = chunk("index", axes)
    return e.named("scanned", turned(members) + words(members) * e.device("i32_compare_cycles"))


def moved_by_index(operand: str) -> e.Expr:
    """Cycles of moving a tile's elements between ``operand`` and the output, addressed by indices.

    Rows that one index names are copied as vectors. Of elements with indices of their own each takes an
    address from a vector and a load or store with a shuffle: ASSUMPTION: a cycle for either.
    """
    w, gather = e.tile("w"), e.device("gather_cycles")
    apart = e.named("apart", e.differs(e.stride("index", "w"), 0))  # every element has an index of its own
    row = either(e.differs(e.stride(operand, "w"), 1), w * gather, accesses(w, "out"))
    return e.named("moved", either(apart, e.ELEMENTS * 2 * gather, e.ELEMENTS / w * (ROW + row)))


TAKE = declare(
    Kernel(
        "od::take@1",
        dims=("o", "j", "i", "w"),
        reduces=True,
        inputs=(Tensor("x", "o k i w", EVERY, like="out"), Tensor("index", "o j i w", INDICES)),
        outputs=(Tensor("out", "o j i w", EVERY),),
        scalars=(
            Scalar("filled", high=1, default=0),  # an index of the extent is no mistake but this element:
            Scalar("fill_low", default=0),
            Scalar("fill_high", default=0),
        ),
        # Each index finds its element in one of the steps. ASSUMPTION: as many in every step.
        cost=ENTRY + ROW + scanned("o", "j", "i", "w") + moved_by_index("x") / e.STEPS,
        joins="steps",
        # ASSUMPTION: 96 instructions: a filter of indices, loops over rows and over elements for each width.
        code_bytes=1536,
        summary="out[o][j][i][w] = x[o][index[o][j][i][w]][i][w]; other indices than x has end the run",
    )
)


@dataclass(frozen=True)
class IndexedLayout:
    """How indexed operators see their tensors: extents by dimension, and strides of each tensor.

    Strides and ``offsets`` count elements of the row that carries a tensor; a dimension that it lacks is left
    out; ``k`` is the reduction. ``units``: what tiles of a dimension are multiples of. The last ``padding``
    members of ``w`` are row padding of the result. ``extent``: of the axis that indices count along.
    """

    sizes: Mapping[str, int]
    strides: Mapping[str, Mapping[str, int]]
    units: Mapping[str, int] = field(default_factory=dict)
    padding: int = 0
    extent: int = 0
    offsets: Mapping[str, int] = field(default_factory=dict)

    def dims(self, *names: str) -> tuple[Dim, ...]:
        padding = {"w": self.padding}
        return tuple(
            Dim(n, self.sizes[n], multiple=self.units.get(n, 1), padding=padding.get(n, 0)) for n in names
        )

    def operand(self, name: str, tensor: int, row: DType, along: Mapping[str, int]) -> Operand:
        """``name``'s view; ``along`` says which index dimension each name is."""
        dims, inside = [], row.per_word
        for dim, stride in self.strides[name].items():
            extent, access = self.sizes[dim], Access(K if dim == "k" else along[dim])
            if dim == "w" and (name == "index" or stride != 1):  # has no row padding there
                extent -= self.padding
            if dim == "k" and stride == 1 and inside > 1:
                extent, access = -(-extent // inside) * inside, Access(K, align=inside)
            dims.append((extent, stride, access))
        offset = self.offsets.get(name, 0)
        if not dims:  # one element for all: the word around it
            return Operand(name, tensor, row, (inside,), (1,), (Access(None),), offset)
        return strided_operand(name, tensor, row, dims, offset)

    def seen(self, name: str, image: Array, names: str) -> Array:
        """The elements of a tensor's image over the dimensions ``names``, not copied."""
        sizes = [self.sizes[n] - (self.padding if n == "w" else 0) for n in names]
        view = View([self.strides[name].get(n, 0) for n in names], self.offsets.get(name, 0))
        return view.of(image, sizes)


def inside_words(operand: Operand) -> int:
    """Of what steps of the reduction are multiples: elements of a word where they lie inside of one."""
    return operand.dtype.per_word if any(a.dim == K and a.align > 1 for a in operand.access) else 1


class Take(Operator):
    """``out[o][j][i][w] = x[o][index[o][j][i][w]][i][w]``, as a ``IndexedLayout`` says.

    An index below zero counts from the end of the axis. One outside of it ends the run
    (``KernelIndexError``) unless it is the extent and there is a ``fill``.
    """

    kind = "take"
    applies_activation = False

    def __init__(
        self,
        name: str,
        inputs: tuple[TensorSpec, TensorSpec],
        output: TensorSpec,
        walk: IndexedLayout,
        device: Device,
        fill: Array | None = None,
    ) -> None:
        super().__init__(name, inputs, output, device)
        self.walk, self.fill = walk, fill

    def nests(self) -> list[Nest]:
        names = ("o", "j", "i", "w")
        dims, along = self.walk.dims(*names), {name: d for d, name in enumerate(names)}
        if 0 in (dim.extent for dim in dims):
            return []
        row = carried(self.output)[0]
        x = self.walk.operand("x", 0, row, along)
        index = self.walk.operand("index", 1, self.inputs[1].element, along)
        out = self.walk.operand("out", OUTPUT, row, along)
        return [
            Nest(
                TAKE, dims, (x, index), (out,), along, self._scalars,
                k_extent=self.walk.extent, k_multiple=inside_words(x),
            )
        ]  # fmt: skip

    @property
    def _scalars(self) -> dict[str, float | str]:
        if self.fill is None:
            return {}
        low, high = (int(word) for word in np.resize(self.fill.reshape(1).view(f"u{_width(self.fill)}"), 2))
        if self.fill.itemsize < 4:
            low = high = int(np.resize(self.fill.reshape(1), 4 // self.fill.itemsize).view(np.uint32)[0])
        return {"filled": 1, "fill_low": low, "fill_high": high}

    def reference(self, *arrays: Array) -> Array:
        row, names = carried(self.output)[0].numpy, "ojiw"
        x = self.walk.seen("x", self.inputs[0].laid(arrays[0]).view(row), "okiw")
        index = self.walk.seen("index", arrays[1].reshape(-1), names)
        out = np.zeros(self.output.device_bytes // row.itemsize, row)
        extent = self.walk.extent
        at = np.where(index < 0, index + extent, index)
        o, _, i, w = np.ogrid[tuple(slice(n) for n in at.shape)]
        found = x[o, np.minimum(at, extent - 1), i, w]
        if self.fill is not None:
            own = np.resize(self.fill.reshape(1).view(row), found.shape[-1])
            found = np.where(at == extent, own, found)
        self.walk.seen("out", out, names)[...] = found
        return self.output.gathered(out.view(self.output.dtype))


def _width(value: Array) -> int:
    return min(value.itemsize, 4)
