# SPDX-License-Identifier: Apache-2.0
"""Operators that move data and change none: Concat, Transpose, Copy; and those that need no move.

Elements of any width move. Those that no kernel computes on go as unsigned numbers of their width, those
of eight bytes and more as words. Where a result cannot be written in whole words (narrow rows that begin
inside a word, rows with other padding than before), the data takes a detour over a word per element.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, ClassVar

import numpy as np

from onedispatch.operators.declarations import expressions as e
from onedispatch.operators.declarations.dtypes import DTYPES, EVERY, WIDE, DType, carrier
from onedispatch.operators.declarations.formulas import (
    ENTRY,
    ROW,
    accesses,
    busiest,
    read,
    vectors,
)
from onedispatch.operators.declarations.kernel import Kernel, Tensor, declare
from onedispatch.operators.interface.operator import TensorSpec, Unsupported, WholeCopy
from onedispatch.operators.kernels.elementwise import Eltwise, Layout, View, collapse
from onedispatch.operators.scheduling.index_space import contiguous_strides
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.operators.scheduling.reordered import Order
from onedispatch.transactions import Device

Array = np.ndarray[Any, Any]


def _cast_cost() -> e.Expr:
    """A conversion of a vector of each type: one is widened, the other narrowed."""
    run = e.named("run", e.smallest(e.run("x0"), e.run("out")))
    rows = e.named("rows", e.ELEMENTS / run)
    converted = rows * (
        vectors(run, "x0") * e.device("convert_cycles", "x0")
        + vectors(run, "out") * e.device("convert_cycles", "out")
    )
    stores = rows * accesses(run, "out")
    return ENTRY + rows * ROW + busiest(read(rows, run, "x0"), stores, converted)


CAST = declare(
    Kernel(
        "od::cast@1",
        inputs=(Tensor("x0", "...", f"{EVERY} {WIDE}", walk="affine"),),
        outputs=(Tensor("out", "...", f"{EVERY} {WIDE}", walk="affine"),),
        cost=_cast_cost(),
        joins="tiles",
        # ASSUMPTION: 64 instructions: a loop per width of the input.
        code_bytes=1024,
        summary="converts elements; integers wrap, floats are cut towards zero or rounded to nearest even",
    )
)


@dataclass(frozen=True)
class StridedCopy:
    """Input ``tensor`` seen through ``view`` goes to ``out_view``, both over ``shape``.

    Views count elements of device memory. The last ``padding`` members of the last dimension are the
    padding of the output's rows, which the input lacks.
    """

    tensor: int
    shape: tuple[int, ...]
    view: View
    out_view: View
    padding: int = 0


class Move(Eltwise):
    """Copies strided views of its inputs into strided views of its output, one after the other.

    Inputs that no part reads, as the value around a tensor where no window reaches beyond it, are left out.
    """

    kind = "move"
    applies_activation = False

    def __init__(
        self,
        name: str,
        inputs: Sequence[TensorSpec],
        output: TensorSpec,
        device: Device,
        parts: Sequence[StridedCopy],
    ) -> None:
        self.parts = [part for part in parts if prod(part.shape)]
        if self.parts:
            read = sorted({part.tensor for part in self.parts})
            inputs = [inputs[number] for number in read]
            self.parts = [replace(part, tensor=read.index(part.tensor)) for part in self.parts]
        super().__init__(name, "copy", inputs, output, device, layout=Layout([]))

    def _check(self) -> None:
        for tensor in (*self.inputs, self.output):
            self.row_of(tensor)

    def row_of(self, tensor: TensorSpec) -> DType:
        return carried(tensor)[0]

    @property
    def per_element(self) -> int:
        """Elements of ``row_of`` that an element of the output is moved as."""
        return carried(self.output)[1]

    @property
    def whole_copies(self) -> tuple[WholeCopy, ...]:
        whole = type(self) is Move and all(map(self._is_whole, self.parts))
        return tuple(map(self._copy, self.parts)) if whole else ()

    def _copy(self, part: StridedCopy) -> WholeCopy:
        return WholeCopy(part.tensor, part.out_view.offset * self.output.dtype.itemsize)

    def _is_whole(self, part: StridedCopy) -> bool:
        """Whether a part is all bytes of its input, one after the other in the output, too."""
        nbytes = prod(part.shape) * self.output.dtype.itemsize
        _, steps = collapse(part.shape, [part.view, part.out_view])
        plain = steps == [[1], [1]] and not part.view.offset and not part.padding
        return plain and nbytes == self.inputs[part.tensor].device_bytes

    @property
    def transposition(self) -> Order | None:
        if type(self) is not Move or len(self.parts) != 1 or self.orders:
            return None
        part = _in_words(self.parts[0], self.per_element)
        sizes, (lie, counted) = collapse(part.shape, [part.view, part.out_view], part.padding)
        nbytes = self.row_of(self.output).itemsize
        whole = prod(sizes) * nbytes == self.inputs[0].device_bytes == self.output.device_bytes
        begins = part.view.offset == part.out_view.offset == part.padding == 0
        falling = sorted(zip(lie, sizes, strict=True), reverse=True)
        each_once = [step for step, _ in falling] == [*contiguous_strides([size for _, size in falling])]
        plain = whole and begins and each_once and counted == [*contiguous_strides(sizes)]
        return Order(nbytes, tuple(sizes), tuple(counted), tuple(lie)) if plain and lie != counted else None

    def nests(self) -> list[Nest]:
        made = [part for part in self.parts if self._copy(part) not in self.elided]
        return [
            nest
            for p in (_in_words(part, self.per_element) for part in made)
            for nest in self.part_nests(p.shape, [p.view], p.out_view, [p.tensor], p.padding)
        ]

    def bits(self, array: Array) -> Array:
        """The elements as what is copied: themselves."""
        return array

    def reference(self, *arrays: Array) -> Array:
        out = np.zeros(self.output.device_bytes // self.output.dtype.itemsize, self.output.dtype)
        for part in self.parts:
            shape = (*part.shape[:-1], part.shape[-1] - part.padding)
            image = self.bits(self.inputs[part.tensor].laid(arrays[part.tensor]))
            part.out_view.of(self.bits(out), shape)[...] = part.view.of(image, shape)
        return self.output.gathered(out)


class Repack(Move):
    """A ``Move`` of narrow elements to words, one in each (unsigned), or back."""

    kind = "repack"
    kernel: ClassVar[Kernel] = CAST

    @property
    def per_element(self) -> int:
        return 1

    def row_of(self, tensor: TensorSpec) -> DType:
        return DTYPES[f"u{8 * tensor.dtype.itemsize}"]

    def bits(self, array: Array) -> Array:
        return array.view(f"u{array.itemsize}")

    @property
    def scalars(self) -> dict[str, float | str]:
        return {}


class Joined(Repack):
    """Elements that are rows of their own, one after the other as ``output``, whose rows have no padding."""

    def __init__(self, name: str, x: TensorSpec, output: TensorSpec, device: Device) -> None:
        part = StridedCopy(0, x.shape, View(x.strides), View(contiguous_strides(x.shape)))
        super().__init__(name, [x], output, device, [part])


def carried(tensor: TensorSpec) -> tuple[DType, int]:
    """The row that moves a tensor's elements, and how many of it make one.

    Raises ``Unsupported`` for elements that are no bytes of a fixed number.
    """
    found = carrier(tensor.dtype)
    if found is None:
        raise Unsupported(f"{tensor.name} is {tensor.dtype}", "elements of 1, 2, 4, 8 or 16 bytes")
    return found


def _in_words(part: StridedCopy, count: int) -> StridedCopy:
    """The same move of elements that are ``count`` words each."""
    if count == 1:
        return part

    def seen(view: View) -> View:
        return View([*(s * count for s in view.strides), 1], view.offset * count)

    return StridedCopy(part.tensor, (*part.shape, count), seen(part.view), seen(part.out_view))
