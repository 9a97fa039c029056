# SPDX-License-Identifier: Apache-2.0
"""Elements by index along an axis: what every operator uses whose data decides addresses when it reads.

A core holds its indices and the part of the axis that is in its chunk. An axis that a core does not hold is
the reduction dimension: its parts stream by, and what an index finds in one of them is copied. So every
element of the axis is read from device memory once for the columns that need it, however large it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from onedispatch.operators.declarations import expressions as e
from onedispatch.operators.declarations.dtypes import DTYPES, EVERY, DType
from onedispatch.operators.declarations.formulas import (
    ENTRY,
    ROW,
    accesses,
    chunk,
    comparisons,
    either,
    operations,
    vectors,
)
from onedispatch.operators.declarations.kernel import Kernel, Scalar, Tensor, declare
from onedispatch.operators.families.elementwise import View
from onedispatch.operators.families.movement import Move, Part, carried
from onedispatch.operators.interface.operator import Lowering, Operator, TensorSpec, Unsupported
from onedispatch.operators.scheduling.index_space import OUTPUT, Access, Dim, K, Operand, strided_operand
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.transactions import Device

Array = np.ndarray[Any, Any]
INDICES = "i32"  # element types of indices

INDEX_AXES = ("o", "j", "i", "w")
SCANNED = e.named(  # negative ones count from the end; both bounds of the part that is there
    "scanned", vectors(chunk("index", INDEX_AXES), "index") * (2 * comparisons("index") + operations("index"))
)


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
        cost=ENTRY + ROW + SCANNED + moved_by_index("x") / e.STEPS,
        # ASSUMPTION: 96 instructions: a filter of indices, loops over rows and over elements for each width.
        code_bytes=1536,
        summary="out[o][j][i][w] = x[o][index[o][j][i][w]][i][w]; other indices than x has end the run",
    )
)


@dataclass(frozen=True)
class Walk:
    """How indexed operators see their tensors: extents by dimension, and strides of each tensor.

    Strides count elements of the row that carries them; a dimension that a tensor lacks is left out.
    ``unit``: tiles of ``w`` are multiples of it; its last ``padding`` members are row padding of the result.
    """

    sizes: Mapping[str, int]
    strides: Mapping[str, Mapping[str, int]]
    unit: int = 1
    padding: int = 0

    def dims(self, *names: str) -> tuple[Dim, ...]:
        unit = {"w": self.unit}
        padding = {"w": self.padding}
        return tuple(Dim(n, self.sizes[n], multiple=unit.get(n, 1), padding=padding.get(n, 0)) for n in names)

    def operand(self, name: str, tensor: int, row: DType, along: Mapping[str, int], k: str) -> Operand:
        """``name``'s view: ``along`` says which index dimension each name is; ``k`` is the reduction."""
        dims = []
        for dim, stride in self.strides[name].items():
            extent = self.sizes[dim] - (self.padding if dim == "w" else 0)
            access = Access(K if dim == k else along[dim])
            if stride == 1 and dim == k and row.per_word > 1:  # inside words
                extent, access = -(-extent // row.per_word) * row.per_word, Access(K, align=row.per_word)
            dims.append((extent, stride, access))
        return strided_operand(name, tensor, row, dims)

    def seen(self, name: str, image: Array, names: str) -> Array:
        """The elements of a tensor's image over the dimensions ``names``, not copied."""
        sizes = [self.sizes[n] - (self.padding if n == "w" else 0) for n in names]
        return View([self.strides[name].get(n, 0) for n in names]).of(image, sizes)


def index_view(tensor: TensorSpec, strides: Mapping[str, int]) -> dict[str, int]:
    """``strides`` of indices in elements, as what kernels read them as: of 64 bits the low words."""
    words = tensor.dtype.itemsize // 4
    return {name: stride * words for name, stride in strides.items()}


class Take(Operator):
    """``out[o][j][i][w] = x[o][index[o][j][i][w]][i][w]``, as a ``Walk`` says.

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
        walk: Walk,
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
        x = self.walk.operand("x", 0, row, along, "k")
        index = self.walk.operand("index", 1, DTYPES[INDICES], along, "")
        shape = [dim.extent for dim in dims]
        steps = [self.walk.strides["out"].get(name, 0) or 1 for name in names]
        access = tuple(Access(d) for d in range(4))
        out = Operand("out", OUTPUT, row, tuple(shape), tuple(steps), access)
        return [
            Nest(
                TAKE, dims, (x, index), (out,), along, self._scalars,
                k_extent=self.walk.sizes["k"], k_multiple=_inside(x),
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
        index = self.walk.seen("index", arrays[1].reshape(-1).view(np.int32), names)
        out = np.zeros(self.output.device_bytes // row.itemsize, row)
        extent = self.walk.sizes["k"]
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


def _inside(operand: Operand) -> int:
    """Of what steps of the reduction are multiples: elements of a word where they lie inside of one."""
    return operand.dtype.per_word if any(a.dim == K and a.align > 1 for a in operand.access) else 1


def emit_take(
    name: str,
    x: TensorSpec,
    indices: TensorSpec,
    axis: int,
    output: TensorSpec,
    lowering: Lowering,
    fill: Any = None,
) -> None:
    """``output[..., j..., ...] = x[..., indices[j...], ...]`` along ``axis``; ``indices`` of any rank.

    They are int32 or int64, constant or computed; below zero they count from the end. Constant ones that
    are the extent of the axis stand for ``fill`` (a scalar), where there is one. Others outside are
    ``Unsupported`` where they are constant; computed ones end the run with ``KernelIndexError``.
    """
    extent = x.shape[axis]
    if indices.value is not None:
        at = checked(indices, extent, name, fill is not None)
        if fill is None and _emit_steps(name, x, at, axis, output, lowering):
            return
        indices = lowering.const(at.astype(np.int32))
    elif not extent and output.size:
        raise Unsupported(f"indices of {name} along an axis of no elements", "an axis of 1 element or more")
    value = None if fill is None else np.asarray(fill, x.dtype)
    walk = _walk(x, indices, axis, output)
    lowering.emit(Take(name, (x, indices), output, walk, lowering.device, value))


def checked(indices: TensorSpec, extent: int, name: str, filled: bool = False) -> Array:
    """Constant indices, none below zero. Raises ``Unsupported`` where one is outside of the axis."""
    at = np.asarray(indices.value).astype(np.int64)
    wrong = at[(at < -extent) | (at >= extent + filled)]
    if wrong.size:
        what = f"index {wrong.flat[0]} of {name} along an axis of {extent}"
        raise Unsupported(what, f"{-extent} to {extent - 1}")
    return np.where(at < 0, at + extent, at)


def _emit_steps(
    name: str, x: TensorSpec, at: Array, axis: int, output: TensorSpec, lowering: Lowering
) -> bool:
    """The same as a strided copy, where constant indices are steps forwards: no kernel looks at them."""
    flat = at.reshape(-1)
    step = int(flat[1] - flat[0]) if flat.size > 1 else 1
    rows = axis == len(x.shape) - 1 and carried(x)[0].per_word > 1  # inside words: descriptors do not reach
    if not flat.size or step < 1 or rows or np.any(np.diff(flat) != step):
        return False
    inner = prod(x.device_shape[axis + 1 :])
    outer, pitch = prod(x.shape[:axis]), x.shape[axis] * inner
    view = View((pitch, step * inner, 1), int(flat[0]) * inner)
    part = Part(0, (outer, flat.size, inner), view, View((flat.size * inner, inner, 1)))
    lowering.emit(Move(name, [x], output, lowering.device, [part]))
    return True


def _walk(x: TensorSpec, indices: TensorSpec, axis: int, output: TensorSpec) -> Walk:
    """One index for all that lies behind the axis; where nothing does, one for every element."""
    row, count = carried(x)
    outer, extent = prod(x.shape[:axis]), x.shape[axis]
    sizes = {"o": outer, "k": extent, "j": indices.size, "i": 1, "w": 1}
    inner = prod(x.device_shape[axis + 1 :]) * count
    pitch = x.device_shape[axis] if axis == len(x.shape) - 1 else extent
    if inner > 1 or axis < len(x.shape) - 1:
        strides = {
            "x": {"o": extent * inner, "k": inner, "w": 1},
            "index": index_view(indices, {"j": 1}),
            "out": {"o": indices.size * inner, "j": inner, "w": 1},
        }
        return Walk(sizes | {"w": inner}, strides, max(row.per_word, count))
    last, wide = (output.shape[-1] if output.shape else 1), output.row_pitch
    if indices.shape:
        sizes |= {"j": prod(indices.shape[:-1]), "w": wide}
        steps = {"x": {"o": pitch, "k": 1}, "index": index_view(indices, {"j": last, "w": 1})}
        out = {"o": sizes["j"] * wide, "j": wide, "w": 1}
    else:  # the rows of what lies before the axis are those of the result
        sizes |= {"o": output.rows, "w": wide}
        steps = {"x": {"o": last * pitch, "w": pitch, "k": 1}, "index": {}}
        out = {"o": wide, "w": 1}
    return Walk(sizes, {**steps, "out": out}, row.per_word, wide - last)
