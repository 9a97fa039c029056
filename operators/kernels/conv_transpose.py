# SPDX-License-Identifier: Apache-2.0
"""Convolutions whose outputs lie between inputs: by the phase of the stride, each a plain convolution.

Along one dimension an output o = i * stride + p takes the taps k with p + begin - k * dilation = r * stride,
from the inputs i + r. Outputs of one phase p are therefore a convolution of stride 1 with those taps, whose
distance in r is the dilation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from onedispatch.operators.interface.operator import Operator, TensorSpec
from onedispatch.operators.kernels.conv import Conv
from onedispatch.operators.kernels.window import WindowAxis
from onedispatch.operators.scheduling.index_space import Operand, Packed
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.transactions import Device

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Phase:
    """The taps that one phase of the stride has along one dimension, by rising input, from input ``first``
    on in steps of ``step``. Where there is none, a tap of zeros stands for them."""

    taps: tuple[int, ...]
    first: int = 0
    step: int = 1

    @property
    def last(self) -> int:
        """The input of the last tap."""
        return self.first + (self.along.kernel - 1) * self.step

    @property
    def along(self) -> WindowAxis:
        """The plain window over the taps. It may begin behind the first input: ``begin`` is below zero."""
        return WindowAxis(max(len(self.taps), 1), 1, self.step, -self.first)


def phases(along: WindowAxis) -> list[Phase]:
    """One for each output between two inputs; ``begin`` is what is cut off before the first output."""
    found = []
    for p in range(along.stride):
        reach = [(p + along.begin - k * along.dilation, k) for k in range(along.kernel)]
        taps = sorted((r // along.stride, k) for r, k in reach if r % along.stride == 0)
        if not taps:
            found.append(Phase(()))
            continue
        step = taps[1][0] - taps[0][0] if len(taps) > 1 else 1
        found.append(Phase(tuple(k for _, k in taps), taps[0][0], step))
    return found


class PhaseConvs(Operator):
    """Convolutions of one x, one for each phase: the output is [phases, N, M, ...], theirs side by side.

    ``parts`` have outputs of one shape. Their weights are constant, or all of them in ``weights`` [elements],
    one after the other.
    """

    kind = "phase_convs"
    applies_activation = False

    def __init__(
        self,
        name: str,
        parts: Sequence[Conv],
        output: TensorSpec,
        device: Device,
        weights: TensorSpec | None = None,
    ) -> None:
        first = parts[0]
        if weights is None:
            constants = [part.weights for part in parts]
            inputs = [first.x, *constants]
        else:
            inputs = [first.x, weights]
        if first.bias is not None:
            inputs.append(first.bias)
        super().__init__(name, inputs, output, device)
        self.parts, self.shared = list(parts), weights

    def nests(self) -> list[Nest]:
        found, weights = [], 0
        for i, part in enumerate(self.parts):
            size = part.output.device_bytes // part.output.dtype.itemsize
            for nest in part.nests():
                (out,) = nest.outputs
                inputs = tuple(self._placed(x, i, weights) for x in nest.inputs)
                moved = replace(out, offset=out.offset + i * size)
                found.append(replace(nest, inputs=inputs, outputs=(moved,)))
            weights += part.weights.size
        return found

    def count_macs(self) -> int:
        return sum(part.count_macs() for part in self.parts)

    def _placed(self, x: Operand | Packed, number: int, weights: int) -> Operand | Packed:
        """The operand of a part as one of all: packed weights by its number, others at their place."""
        if isinstance(x, Packed):
            return replace(x, name=f"w{number}")
        return replace(x, offset=x.offset + weights) if x.name == "w" else x

    def packed_parts(self, operand: str) -> list[Array]:
        return self.parts[int(operand[1:])].packed_parts(operand)

    def reference(self, *arrays: Array) -> Array:
        x, *rest = arrays
        bias = rest[-1:] if self.parts[0].bias is not None else []
        made, at = [], 0
        for i, part in enumerate(self.parts):
            size = part.weights.size
            given = rest[i] if self.shared is None else rest[0].reshape(-1)[at : at + size]
            made.append(part.reference(x, given.reshape(part.weights.shape), *bias))
            at += size
        return np.stack(made).reshape(self.output.shape)


def selected_taps(weights: Array, groups: int, taps: Sequence[Sequence[int]]) -> Array:
    """Weights [C, M/groups, *kernel] of a transposed convolution as those [M, C/groups, *taps] of a plain
    one; where there are no taps along a dimension, one of zeros."""
    c, m = weights.shape[:2]
    if not all(taps):
        return np.zeros((m * groups, c // groups, *(max(len(t), 1) for t in taps)), weights.dtype)
    chosen = weights.reshape(groups, c // groups, m, *weights.shape[2:]).swapaxes(1, 2)
    for axis, listed in enumerate(taps):
        chosen = np.take(chosen, list(listed), axis=3 + axis)
    return np.ascontiguousarray(chosen).reshape(groups * m, c // groups, *chosen.shape[3:])


def union(found: Sequence[Phase]) -> tuple[int, int]:
    """(first input, number of inputs) that the taps of all phases lie in."""
    first, last = min(p.first for p in found), max(p.last for p in found)
    return first, last - first + 1


def joined_weights(weights: Array, groups: int, found: Sequence[Sequence[Phase]]) -> Array:
    """All phases as output channels of one convolution: [M * phases, C/groups, *inputs of any phase]."""
    reach = [union(some) for some in found]
    counts = [len(some) for some in found]
    m, inside = weights.shape[1] * groups, weights.shape[0] // groups
    joined = np.zeros((m, *counts, inside, *(size for _, size in reach)), weights.dtype)
    for at in np.ndindex(*counts):
        chosen = [some[i] for some, i in zip(found, at, strict=True)]
        places = [
            slice(p.first - lo, p.last - lo + 1, p.step) for p, (lo, _) in zip(chosen, reach, strict=True)
        ]
        place = (slice(None), *at, slice(None), *places)
        joined[place] = selected_taps(weights, groups, [p.taps for p in chosen])
    joined = joined.reshape(m * prod(counts), inside, *(size for _, size in reach))
    # With a tap for each phase, these are the weights in another order: a view names what it is made of.
    if groups == 1 and joined.size == weights.size:
        turned = np.moveaxis(weights, 0, -1).reshape(joined.shape)
        joined = turned if np.array_equal(turned, joined) else joined
    return joined
