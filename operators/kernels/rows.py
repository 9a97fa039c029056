# SPDX-License-Identifier: Apache-2.0
"""The nest of operators along whole rows of [outer, length, inner]."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from onedispatch.operators.declarations import expressions as e
from onedispatch.operators.declarations.kernel import Kernel
from onedispatch.operators.interface.operator import TensorSpec
from onedispatch.operators.scheduling.index_space import (
    OUTPUT,
    Access,
    Dim,
    Operand,
    contiguous_strides,
)
from onedispatch.operators.scheduling.nest import Nest

LENGTH = "*length"  # the axis that rows run along, whole in a chunk


def middle_axis_nest(
    kernel: Kernel,
    tensor: TensorSpec,
    axes: tuple[int, int],
    scalars: Mapping[str, float | str],
    *held: Operand,
) -> Nest:
    """A nest over [outer, length, inner] whose chunks hold the whole middle axis.

    ``axes``: the first that the middle one joins, and the one behind the last. Row padding of ``tensor``
    is part of the middle axis or of the inner one, whichever has the rows. ``held``: further inputs.
    """
    first, stop = axes
    laid, row = tensor.device_shape, tensor.element
    sizes = prod(laid[:first]), prod(laid[first:stop]), prod(laid[stop:])
    strides, access = contiguous_strides(sizes), (Access(0), Access(None), Access(1))
    inner = Dim("i", sizes[2], multiple=row.per_word if stop < len(laid) else 1)
    shown = 2 if row.per_word > 1 and stop == len(laid) else 3  # a row of words ends with its elements
    x, out = (
        Operand(name, number, row, sizes[:shown], strides[:shown], access[:shown])
        for name, number in (("x", 0), ("out", OUTPUT))
    )
    return Nest(kernel, (Dim("o", sizes[0]), inner), (x, *held), (out,), {"o": 0, "i": 1}, scalars)


ROW_TENSOR = f"o {LENGTH} i"
SIDEWAYS = e.named("sideways", e.differs(e.tile("i"), 1))  # vectors hold neighbours along i
