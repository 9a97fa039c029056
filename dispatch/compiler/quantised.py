# SPDX-License-Identifier: Apache-2.0
"""What the integers of a graph stand for, where its nodes or its annotations say it with constants."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from onedispatch.dispatch.frontend.graph import Array, Graph, Node, Value
from onedispatch.dispatch.frontend.quantised_operands import OPERATORS, dimension
from onedispatch.dispatch.frontend.schemas import domain_of
from onedispatch.operators.declarations.tensor import Quantisation

# Makes scales. Those of packed weights (MatMulNBits) are of the type of its data.
_OTHERS = {("", "DynamicQuantizeLinear")}


def has_scales(node: Node) -> bool:
    """Whether floats of the node say what integers of it stand for."""
    key = (domain_of(node.domain), node.op_type)
    return key in OPERATORS or key in _OTHERS


Source = tuple[str, str, int]
"""names of scale and zero point ("": none), and the axis that several of them lie along"""


def sources(graph: Graph) -> dict[str, Source]:
    """By tensor: of annotations, of what quantised operators make, and of what they read; who makes a
    tensor decides."""
    read: dict[str, Source] = {}
    made: dict[str, Source] = {}
    for node in reversed(graph.nodes):
        operator = OPERATORS.get((domain_of(node.domain), node.op_type))
        if operator is None or "block_size" in node.attributes:
            continue
        names = node.inputs
        for one in operator.parameters(len(names)):
            tensors = node.outputs if one.made else names
            if one.scale is None or max(one.scale, 0 if one.made else one.tensor) >= len(names):
                continue
            zero = names[one.zero] if one.zero is not None and one.zero < len(names) else ""
            axis = 0 if one.along is None else dimension(one.along, node.attributes)
            (made if one.made else read)[tensors[one.tensor]] = (names[one.scale], zero, axis)
    return read | made | {name: (scale, zero, 0) for name, (scale, zero) in graph.annotations.items()}


def quantisations(graph: Graph) -> dict[str, Quantisation]:
    """Quantisation of the tensors of ``graph``, by name, where constants and shapes say it."""
    found = {
        name: quantisation(graph.value(name), graph.constants, *said) for name, said in sources(graph).items()
    }
    return {name: one for name, one in found.items() if one is not None}


def quantisation(
    value: Value, constants: Mapping[str, Array], scale: str, zero: str, axis: int
) -> Quantisation | None:
    """None where the tensor's type and shape, or a constant, are unknown or do not fit each other: what is
    computed at run time is not known."""
    dtype, scales = value.dtype, constants.get(scale)
    if scales is None or dtype is None or dtype.kind not in "iu" or not value.is_concrete:
        return None
    zeros = constants.get(zero) if zero else np.zeros(scales.shape, dtype)
    if zeros is None or zeros.shape != scales.shape or scales.ndim > 1 or not scales.size:
        return None
    if not np.all(np.isfinite(scales)) or not np.all(scales > 0):
        return None
    shape = value.concrete_shape
    along = None if scales.size == 1 else axis + len(shape) if axis < 0 else axis
    if along is not None and not (0 <= along < len(shape) and shape[along] == scales.size):
        return None
    flat = [float(one) for one in scales.reshape(-1)]
    return Quantisation(tuple(flat), tuple(int(one) for one in zeros.reshape(-1)), along)
