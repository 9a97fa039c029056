# SPDX-License-Identifier: Apache-2.0
"""What the integers of a graph stand for, where its nodes or its annotations say it with constants."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from onedispatch.dispatch.frontend.graph import Array, Graph, Value
from onedispatch.operators.declarations.tensor import Quantisation

# Operator -> (position of the tensor, of its scale, of its zero point); the tensor is an output where True.
_SAID = {
    "DequantizeLinear": (0, 1, 2, False),
    "QuantizeLinear": (0, 1, 2, True),
    "QLinearConv": (0, 6, 7, True),
    "QLinearMatMul": (0, 6, 7, True),
}


Source = tuple[str, str, int]
"""names of scale and zero point ("": none), and the axis that several of them lie along"""


def sources(graph: Graph) -> dict[str, Source]:
    """By tensor: of annotations, of what QuantizeLinear and quantised operators make, and of what
    DequantizeLinear reads; who makes a tensor decides."""
    found: dict[str, Source] = {}
    for node in reversed(graph.nodes):
        if (
            node.op_type in _SAID
            and node.domain in ("", "com.microsoft")
            and "block_size" not in node.attributes
        ):
            tensor, scale, zero, made = _SAID[node.op_type]
            names = [*node.inputs, "", ""]
            edge = (node.outputs if made else node.inputs)[tensor]
            found[edge] = (names[scale], names[zero], node.attributes.get("axis", 1))
    return found | {name: (scale, zero, 0) for name, (scale, zero) in graph.annotations.items()}


def quantisations(graph: Graph) -> dict[str, Quantisation]:
    """What tensors of ``graph`` stand for, by name, where constants and shapes say it."""
    told = {
        name: quantisation(graph.value(name), graph.constants, *said) for name, said in sources(graph).items()
    }
    return {name: one for name, one in told.items() if one is not None}


def quantisation(
    value: Value, constants: Mapping[str, Array], scale: str, zero: str, axis: int
) -> Quantisation | None:
    """None where the tensor's type and shape, or a constant, are unknown or do not fit each other: what is
    computed at run time is not known."""
    dtype, scales = value.dtype, constants.get(scale)
    if scales is None or dtype is None or dtype.kind not in "iu" or not value.is_concrete:
        return None
    zeros = constants.get(zero) if zero else np.zeros(scales.shape, dtype)
    if zeros is None or zeros.shape != scales.shape or scales.ndim > 1 or not np.all(np.isfinite(scales)):
        return None
    if not np.all(scales > 0):
        return None
    shape = value.concrete_shape
    along = None if scales.size == 1 else axis + len(shape) if axis < 0 else axis
    if along is not None and not (0 <= along < len(shape) and shape[along] == scales.size):
        return None
    flat = [float(one) for one in scales.reshape(-1)]
    return Quantisation(tuple(flat), tuple(int(one) for one in zeros.reshape(-1)), along)
