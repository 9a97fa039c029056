# SPDX-License-Identifier: Apache-2.0
"""Gather and its kin: results that are elements of an input, named by indices."""

from __future__ import annotations

from onedispatch.operators.declarations.registry import maps
from onedispatch.operators.families.movement import MOVED, carried
from onedispatch.operators.families.take import emit_take
from onedispatch.operators.interface.operator import Lowering, NodeSpec, TensorSpec, Unsupported


def indexed(node: NodeSpec) -> tuple[TensorSpec, TensorSpec, TensorSpec]:
    """Data, indices and the result of a node. Raises ``Unsupported`` for other types than move or count."""
    x, indices, output = node.input(0), node.input(1), node.outputs[0]
    if x is None or indices is None or output is None:
        raise Unsupported(f"{node.op_type} without data, indices or result", "all of them")
    if str(x.dtype) not in MOVED:
        raise Unsupported(f"{node.op_type} of {x.dtype} ", ", ".join(MOVED))
    if str(indices.dtype) not in ("int32", "int64"):
        raise Unsupported(f"indices of {indices.dtype}", "int32, int64")
    carried(x)
    return x, indices, output


@maps("Gather", dtypes=MOVED, notes="any axis; indices of any rank, constant or computed")
def map_gather(node: NodeSpec, lowering: Lowering) -> None:
    x, indices, output = indexed(node)
    axis = int(node.attr("axis", 0)) % max(len(x.shape), 1)
    emit_take(node.name, x, indices, axis, output, lowering)
