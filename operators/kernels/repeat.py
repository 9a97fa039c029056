# SPDX-License-Identifier: Apache-2.0
"""Repeats every element along an axis: a strided copy."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from onedispatch.operators.declarations.dtypes import DType
from onedispatch.operators.declarations.kernel import MAX_DIMS
from onedispatch.operators.interface.operator import TensorSpec, Unsupported
from onedispatch.operators.kernels.elementwise import Eltwise, Layout
from onedispatch.operators.kernels.movement import carried
from onedispatch.operators.scheduling.index_space import OUTPUT, Access, Dim, Operand
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.transactions import Device
from onedispatch.transactions.base.text import counted

Array = np.ndarray[Any, Any]
ResizeStep = tuple[int, int, int]  # (a, den, start): output j of an axis is element floor(a*j/den) + start


class Repeat(Eltwise):
    """Output coordinate ``j`` of every axis is the input's ``floor(a*j/den) + start``: one copy."""

    kind = "repeat"
    applies_activation = False

    def __init__(
        self, name: str, x: TensorSpec, output: TensorSpec, steps: Sequence[ResizeStep], device: Device
    ) -> None:
        self.steps = tuple(steps)
        super().__init__(name, "copy", [x], output, device, layout=Layout([]))

    def _check(self) -> None:
        dims = len(self._walked())
        if dims > MAX_DIMS:
            raise Unsupported(f"{counted(dims, 'dimension')} that cannot be joined", f"at most {MAX_DIMS}")

    def row_of(self, tensor: TensorSpec) -> DType:
        return carried(tensor)[0]

    def _walked(self) -> list[tuple[int, int, ResizeStep]]:
        """(extent of x, extent of the output, step) per dimension, those joined that stay as they are."""
        x, count = self.inputs[0], carried(self.output)[1]
        walked: list[tuple[int, int, ResizeStep]] = []
        for d, step in enumerate([*self.steps, (1, 1, 0)][: len(self.steps) + (count > 1)]):
            n = count if d == len(self.steps) else x.device_shape[d]
            made = count if d == len(self.steps) else self.output.device_shape[d]
            same = step == (1, 1, 0) and n == made
            if walked and same and walked[-1][2] == (1, 1, 0) and walked[-1][0] == walked[-1][1]:
                walked[-1] = (walked[-1][0] * n, walked[-1][1] * made, step)
            else:
                walked.append((n, made, step))
        return walked

    def nests(self) -> list[Nest]:
        if not self.output.size:
            return []
        row, walked = self.row_of(self.output), self._walked()
        unit = row.per_word
        shape, strides, access = [], [], []
        for d, (n, _, (a, den, start)) in enumerate(walked):
            last = d == len(walked) - 1
            if n > 1 or last:
                shape.append(n)
                strides.append(prod(w[0] for w in walked[d + 1 :]))
                single = last and self.inputs[0].row == 1 and n == unit
                access.append(
                    Access(None) if single else Access(d, a, start, start, unit if last else 1, den)
                )
        sizes = [made for _, made, _ in walked]
        dims = [Dim(f"i{d}", size) for d, size in enumerate(sizes)]
        padding = self.output.row_pitch - self.output.row if unit > 1 else 0
        dims[-1] = Dim(dims[-1].name, sizes[-1], multiple=unit, padding=padding)
        x = Operand("x0", 0, row, tuple(shape), tuple(strides), tuple(access))
        made_strides = tuple(prod(sizes[d + 1 :]) for d in range(len(sizes)))
        whole = tuple(Access(d) for d in range(len(sizes)))
        out = Operand("out", OUTPUT, row, tuple(sizes), made_strides, whole)
        return [Nest(self.kernel, tuple(dims), (x,), (out,), scalars=self.scalars)]

    def reference(self, *arrays: Array) -> Array:
        x = arrays[0].reshape(self.inputs[0].shape)
        for d, (a, den, start) in enumerate(self.steps):
            x = x.take(np.arange(self.output.shape[d]) * a // den + start, axis=d)
        return x.reshape(self.output.shape)
