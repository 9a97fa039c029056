# SPDX-License-Identifier: Apache-2.0
"""What a memory tile keeps of a port's chunks, and which channels of a shim bring them."""

from __future__ import annotations

from dataclasses import dataclass

from onedispatch.operators.scheduling.nest import Nest
from onedispatch.operators.scheduling.resources import Resources
from onedispatch.operators.scheduling.solution import Mapping


@dataclass(frozen=True)
class Hold:
    """What a memory tile keeps of a port: panels of chunks, each sent ``repeat`` times.

    ``parts`` are the chunks of a panel's pieces that have locks of their own. A panel of
    several chunks that is sent once is a deep buffer: it rides out the times when device
    memory serves others.
    """

    parts: tuple[int, ...]
    repeat: int
    slots: int

    @property
    def chunks(self) -> int:
        return sum(self.parts)


STREAM = Hold((1,), 1, 2)  # nothing is kept: chunks pass through two slots


def takes_both_channels(nest: Nest, mapping: Mapping, limits: Resources) -> bool:
    """Whether both channels of a shim may bring in0: of several operands that pass through, as published
    element-wise kernels have one for each, and of a product whose in1 comes first (``Schedule.in1_first``).
    Rows of one lane take turns; and one operand alone that passes through follows itself chunk by chunk, in
    fewer tasks."""
    passing = not nest.resident_operands if nest.reduces else len(nest.inputs) > 1 and not mapping.in1
    return passing and not mapping.rowcast and mapping.row_dim is not None and limits.sharers == 1
