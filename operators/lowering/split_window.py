# SPDX-License-Identifier: Apache-2.0
"""Windows whose taps do not fit a core together: one axis of a window as channels and a shorter window.

Taps t = q * B + b along an axis are B taps of Q channels: channel q is the data from place q * B * dilation
on. The data is copied Q times, or once where the windows along the axis do not overlap.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from onedispatch.operators.declarations.tensor import TensorSpec
from onedispatch.operators.interface.operator import Lowering
from onedispatch.operators.kernels.elementwise import View
from onedispatch.operators.kernels.movement import Move, StridedCopy
from onedispatch.operators.kernels.window import WindowAxis
from onedispatch.operators.lowering.movement import emit_narrow, emit_wide


@dataclass(frozen=True)
class Split:
    """The window ``whole`` along dimension ``axis`` of x [N, C, ...] as ``parts`` channels for each of x's,
    for ``made`` results along the axis."""

    axis: int
    whole: WindowAxis
    parts: int
    made: int

    @property
    def taps(self) -> int:
        return self.whole.kernel // self.parts

    @property
    def reach(self) -> int:
        """Members of the axis that a shorter window spans."""
        return (self.taps - 1) * self.whole.dilation + 1

    def along(self, x: TensorSpec) -> WindowAxis:
        """The shorter window over what ``emit`` makes: padding is part of that."""
        return WindowAxis(self.taps, self.reach if self.apart(x) else self.whole.stride, self.whole.dilation)

    def shape(self, x: TensorSpec) -> tuple[int, ...]:
        """[N, C * parts, ...] with the members of the axis that the shorter windows read."""
        step = self.along(x).stride
        length = (self.made - 1) * step + self.reach
        return (
            x.shape[0],
            x.shape[1] * self.parts,
            *x.shape[2 : self.axis],
            length,
            *x.shape[self.axis + 1 :],
        )

    def apart(self, x: TensorSpec) -> bool:
        """True if shorter windows leave out members of the axis, and none reaches beyond it."""
        whole, last = self.whole, (self.made - 1) * self.whole.stride
        inside = not whole.begin and last + (whole.kernel - 1) * whole.dilation < x.shape[self.axis]
        return inside and whole.stride > self.reach

    def emit(self, name: str, x: TensorSpec, outside: TensorSpec, lowering: Lowering) -> TensorSpec:
        """The data of all parts; ``outside`` is the one element that lies around x."""
        made = lowering.temp(x.dtype, self.shape(x))
        words = self.axis == len(x.shape) - 1 and x.element.per_word > 1  # rows begin inside a word
        if words:
            x, outside = (emit_wide(name, tensor, lowering) for tensor in (x, outside))
        parts = lowering.temp(x.dtype, made.shape) if words else made
        padded = self._padded(name, x, outside, lowering)
        lowering.emit(Move(name, [padded], parts, lowering.device, [self._part(x, padded, parts)]))
        if words:
            emit_narrow(name, parts, made, lowering)
        return made

    def _lines(self, tensor: TensorSpec) -> tuple[int, int, int]:
        """Lines along the axis in a channel; elements from a line to the next, and from a member to one."""
        inner = prod(tensor.device_shape[self.axis + 1 :])
        return prod(tensor.shape[2 : self.axis]), tensor.device_shape[self.axis] * inner, inner

    def _padded(self, name: str, x: TensorSpec, outside: TensorSpec, lowering: Lowering) -> TensorSpec:
        """x with what lies around it along the axis; x itself where no window reaches beyond it."""
        whole, size = self.whole, x.shape[self.axis]
        most = (self.made - 1) * whole.stride + (whole.kernel - 1) * whole.dilation + 1
        if not whole.begin and most <= size:
            return x
        length = max(most, whole.begin + size)
        shape = (*x.shape[: self.axis], length, *x.shape[self.axis + 1 :])
        padded = lowering.temp(x.dtype, shape)
        lines, of_x, inner = self._lines(x)
        _, step, _ = self._lines(padded)
        outer = prod(x.shape[:2]) * lines
        edges = (0, whole.begin), (whole.begin + size, length)
        parts = [
            StridedCopy(1, (outer, (high - low) * inner), View((0, 0)), View((step, 1), low * inner))
            for low, high in edges
        ]
        inside = View((of_x, 1)), View((step, 1), whole.begin * inner)
        parts.append(StridedCopy(0, (outer, size * inner), *inside))
        lowering.emit(Move(name, [x, outside], padded, lowering.device, parts))
        return padded

    def _part(self, x: TensorSpec, padded: TensorSpec, made: TensorSpec) -> StridedCopy:
        """All parts at once: channel c * parts + q begins q short windows behind channel c."""
        lines, of_x, inner = self._lines(padded)
        _, to, _ = self._lines(made)
        runs, run, step = 1, made.shape[self.axis], 0
        if self.apart(x):
            runs, run, step = self.made, self.reach, self.whole.stride
        shape = (prod(x.shape[:2]), self.parts, lines, runs, run * inner)
        behind = self.taps * self.whole.dilation * inner
        view = View((lines * of_x, behind, of_x, step * inner, 1))
        return StridedCopy(0, shape, view, View((self.parts * lines * to, lines * to, to, run * inner, 1)))


def splits(axis: int, whole: WindowAxis, made: int) -> Iterator[Split]:
    """The ways to split a window along an axis, fewest parts first."""
    for parts in range(2, whole.kernel + 1):
        if whole.kernel % parts == 0:
            yield Split(axis, whole, parts, made)
