# SPDX-License-Identifier: Apache-2.0
"""A member kernel on the model: for every member of a tile one element of each operand, one result.

What a parameter block says of members (``operators/declarations/members.py``) is read here anew: where the
chunks of an operand lie along each dimension of its tensor, and which index dimension that follows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from onedispatch.operators.declarations import members, params
from onedispatch.operators.declarations.kernel import Kernel
from tests.array_model.kernels import Call, LocalAxis, as_f32
from tests.array_model.memory import UNMODELLED, ModelFault

Function = Callable[..., Any]


@dataclass(frozen=True)
class MemberAxes:
    """An operand's axes, and the index dimension along each."""

    axes: tuple[LocalAxis, ...]
    along: tuple[int, ...]

    @classmethod
    def at(cls, call: Call, kernel: Kernel, name: str) -> MemberAxes:
        first = kernel.layout[name]
        word = call.words[first + 1]
        rank = word >> 28
        along = tuple(word >> 4 * i & 0xF for i in range(rank))
        axes = []
        for i in range(rank):
            at = first + 2 + members.AXIS_WORDS * i
            span = call.words[at + members.AXIS_WORDS - 1]
            if along[i] == params.ALONG_WHOLE or span != 1:
                raise ModelFault(
                    UNMODELLED, f"{kernel.name}: {name}, axis {i}: members of one element alone are modelled"
                )
            axes.append(LocalAxis.of(call.words[at:]))
        return cls(tuple(axes), along)

    def local(self, call: Call, member: tuple[int, ...]) -> int:
        """Element offset in the chunk of what ``member`` of the index space touches."""
        return sum(
            axis.local(call.origins[dim], axis.first(member[dim]))
            for axis, dim in zip(self.axes, self.along, strict=True)
        )


def element_wise(kernel: Kernel, function: Function) -> Callable[[Call], None]:
    """What a core does for ``kernel``, whose members compute ``function`` of an element of each input."""
    *inputs, out = (tensor.name for tensor in kernel.tensors)

    def run(call: Call) -> None:
        dtypes = {call.dtype(kernel, name) for name in (*inputs, out)}
        if dtypes != {np.dtype(np.float32)}:
            raise ModelFault(UNMODELLED, f"{kernel.name}: {dtypes} are not modelled")
        for scalar in kernel.scalars:
            word = call.word(kernel, scalar.name)
            filled = scalar.name.startswith("fill_") and not np.isnan(as_f32(word))
            # What else is hidden pads coordinates beyond the tensor, which are refused, or makes up a price.
            if filled or not scalar.hidden:
                raise ModelFault(UNMODELLED, f"{kernel.name}: scalar {scalar.name} is not modelled")
        first = kernel.layout["members"]
        if any(call.words[first + 2 * d] for d in range(members.MOST)):
            raise ModelFault("core", f"{kernel.name}: a nest that begins with another member than the first")
        places = {name: MemberAxes.at(call, kernel, name) for name in (*inputs, out)}
        for at in np.ndindex(*(call.tile(d) for d in range(members.MOST))):
            member = tuple(o + i for o, i in zip(call.origins, at, strict=True))
            values = [
                call.load(
                    call.byte(call.word(kernel, name)) + 4 * places[name].local(call, member), np.float32
                )
                for name in inputs
            ]
            byte = call.out + (call.word(kernel, out) & 0xFFFF) + 4 * places[out].local(call, member)
            call.memory.store_block(byte, np.array([function(*values)], np.float32))

    return run
