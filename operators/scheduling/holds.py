# SPDX-License-Identifier: Apache-2.0
"""What a memory tile keeps of a port's chunks, and which channels of a shim bring them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onedispatch.operators.scheduling.index_space import IntArray
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.operators.scheduling.resources import Resources
from onedispatch.operators.scheduling.solution import Mapping
from onedispatch.transactions import Device


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


SECOND_TASK_CYCLES = 400  # that a column's second channel asks of the controller; fitted to measured products
STREAM = Hold((1,), 1, 2)  # nothing is kept: chunks pass through two slots


def takes_both_channels(nest: Nest, mapping: Mapping, limits: Resources) -> bool:
    """Whether both channels of a shim may bring in0: of several operands that pass through, as published
    element-wise kernels have one for each, and of a product whose in1 comes first (``Schedule.in1_first``).
    Rows of one lane take turns; and one operand alone that passes through follows itself chunk by chunk, in
    fewer tasks."""
    passing = not nest.resident_operands if nest.reduces else len(nest.inputs) > 1 and not mapping.in1
    return passing and not mapping.rowcast and mapping.row_dim is not None and limits.sharers == 1


def in1_first_pays(
    device: Device, columns: int, in1_words: IntArray, in0_words: IntArray, work: IntArray
) -> IntArray:
    """Whether a product ends sooner where all of in1 comes first and then in0 by both channels of a shim.

    The words are those that one column takes; ``work``, in cycles, is that of a core. Device memory serves
    the columns together, and cores work while in0 comes, not before.
    """
    channel = 1 / device.constant("dma.shim_words_per_cycle")
    memory = columns * read_cycles(device)
    others = np.maximum(in0_words * memory, work)
    first = in1_words * max(channel, memory) + SECOND_TASK_CYCLES * columns
    return first + np.maximum(in0_words * channel / 2, others) < np.maximum(in0_words * channel, others)


def memory_cycles(device: Device) -> float:
    """Cycles that a word takes of device memory."""
    return 4 * device.constant("clock.array_mhz") / (device.constant("ddr.gigabytes_per_second") * 1e3)


def read_cycles(device: Device) -> float:
    """The same of reads alone."""
    return memory_cycles(device) / device.constant("ddr.read_share")
