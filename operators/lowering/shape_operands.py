# SPDX-License-Identifier: Apache-2.0
"""Operands that steer a program: lists of integers that it is made for, from an input or an attribute."""

from __future__ import annotations

import numpy as np

from onedispatch.operators.declarations.tensor import NodeSpec, Unsupported


def listed(node: NodeSpec, name: str, index: int) -> list[int] | None:
    """The integers of input ``index``, or of attribute ``name`` in operator sets where it was one.

    None where neither is there. Raises ``Unsupported`` where the device computes them.
    """
    given = node.input(index)
    if given is None:
        values = node.attr(name)
        return None if values is None else [int(v) for v in np.atleast_1d(values)]
    if given.value is None:
        raise Unsupported(
            f"the {name} of {node.op_type} ({given.name}) are computed when the model runs",
            "constants, inputs of the model, and few integers that sizes follow from, computed of these",
        )
    return [int(v) for v in given.value.reshape(-1)]


def axes_of(node: NodeSpec, index: int, rank: int, most: int | None = None) -> list[int]:
    """The axes that input ``index`` or attribute ``axes`` names, counted from the first dimension.

    The first ``most`` (all) where none are named.
    """
    axes = listed(node, "axes", index)
    if axes is None:
        return list(range(rank if most is None else most))
    return [axis % rank for axis in axes]
