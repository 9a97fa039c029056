# SPDX-License-Identifier: Apache-2.0
"""Trilu: a triangle of every matrix stays, the rest becomes zeros."""

from __future__ import annotations

import numpy as np

from onedispatch.operators.declarations.registry import maps
from onedispatch.operators.declarations.tensor import NodeSpec, Unsupported
from onedispatch.operators.families.logic import Select
from onedispatch.operators.families.movement import MOVED
from onedispatch.operators.families.steering import listed
from onedispatch.operators.interface.operator import Lowering


@maps("Trilu", dtypes=MOVED, notes="upper and lower, any diagonal")
def map_trilu(node: NodeSpec, lowering: Lowering) -> None:
    """Which elements stay follows from shape and diagonal: a constant that selects."""
    x, output = node.input(0), node.outputs[0]
    if x is None or output is None:
        raise Unsupported("Trilu without its data or its result", "both")
    (k,) = listed(node, "k", 1) or [0]
    row, column = np.ogrid[: x.shape[-2], : x.shape[-1]]
    stays = column - row >= k if node.attr("upper", 1) else column - row <= k
    zero = lowering.const(np.zeros((), x.dtype))
    lowering.emit(Select(node.name, [lowering.const(stays), x, zero], output, lowering.device))
