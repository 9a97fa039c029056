# SPDX-License-Identifier: Apache-2.0
"""Where the elements of small integer tensors come from, and the sizes of all tensors.

An element is ``CONSTANT`` (known before a run, shapes of inputs included), ``GIVEN`` (an element of an input,
at most moved or converted) or ``COMPUTED`` from such elements. Sizes have the provenance of the operands that
they follow from.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from onedispatch.dispatch.base import limits
from onedispatch.dispatch.frontend.graph import Array, Graph, Node
from onedispatch.dispatch.frontend.shape_operands import size_positions

CONSTANT, GIVEN, COMPUTED = 0, 1, 2

_SIZES_OF = ("Shape", "Size")


class Provenance:
    """The provenance of a graph's values, followed through its nodes in order."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._elements: dict[str, Array] = {}
        self._sizes: dict[str, int] = {}
        self._by_sizes: set[str] = set()  # tensors whose sizes are computed of sizes that are given
        for value in graph.inputs:
            self._elements[value.name] = self._filled(value.name, GIVEN)
        for node in graph.nodes:
            sizes = max([self.sizes(name) for name in node.reads], default=CONSTANT)
            for position in size_positions(node):
                sizes = max(sizes, int(self.elements(node.inputs[position]).max(initial=CONSTANT)))
            if sizes == GIVEN and self._computes(node):
                sizes = COMPUTED
                self._by_sizes.update(node.writes)
            elif not self._by_sizes.isdisjoint(node.reads):
                self._by_sizes.update(node.writes)
            if sizes:
                self._sizes.update(dict.fromkeys(node.writes, sizes))
            self._elements.update((name, self._result(node, name)) for name in node.writes)

    def _computes(self, node: Node) -> bool:
        """True if sizes of the node's results are computed of those of its operands."""
        if node.op_type == "Reshape" and not node.domain:  # a size that is given as such stays what it is
            return self.sizes(node.inputs[0]) > CONSTANT
        return bool(node.domain) or node.has_subgraph or node.op_type in _COMPUTES_SIZES

    def sizes(self, name: str) -> int:
        """What the sizes of a tensor follow from; ``CONSTANT``: the shapes of the inputs alone."""
        return self._sizes.get(name, CONSTANT)

    def computes_sizes(self, name: str) -> bool:
        """True if the sizes of a tensor are sums, products or quotients of sizes that are given."""
        return name in self._by_sizes

    def elements(self, name: str) -> Array:
        """int8 of the tensor's shape; a scalar, the most of all elements, where the tensor is large or its
        shape unknown."""
        known = self._elements.get(name)
        return self._filled(name, CONSTANT) if known is None else known

    def _filled(self, name: str, provenance: int) -> Array:
        value = self._graph.value(name)
        small = (
            value.is_concrete and np.prod(value.concrete_shape, dtype=np.int64) <= limits.SHAPE_ELEMENTS.most
        )
        return np.full(value.concrete_shape if small else (), provenance, np.int8)

    def _result(self, node: Node, name: str) -> Array:
        if not node.domain and node.op_type in _SIZES_OF:
            return self._filled(name, self.sizes(node.inputs[0]))
        operands = [self.elements(read) for read in node.inputs]
        most = max((int(one.max(initial=CONSTANT)) for one in operands), default=CONSTANT)
        if most == CONSTANT:
            return self._filled(name, CONSTANT)
        moves = None if node.domain else _MOVES.get(node.op_type)
        shape = self._filled(name, CONSTANT).shape
        if moves is not None:
            moved = moves(self._graph, node, operands)
            if moved is not None and moved.size == np.prod(shape, dtype=np.int64):
                reshaped: Array = moved.reshape(shape)
                return reshaped
            return self._filled(name, most)
        met = _element_wise(operands) if node.op_type in _ELEMENT_WISE and not node.domain else None
        return met if met is not None and met.shape == shape else self._filled(name, COMPUTED)


def _element_wise(operands: list[Array]) -> Array | None:
    """``COMPUTED`` where an operand's element is not constant; None for shapes that do not go together."""
    try:
        met = np.maximum.reduce(np.broadcast_arrays(*operands))
    except ValueError:
        return None
    found: Array = np.where(met, np.int8(COMPUTED), np.int8(CONSTANT))
    return found


def _same(_: Graph, __: Node, operands: list[Array]) -> Array | None:
    return operands[0]


def _concatenated(_: Graph, node: Node, operands: list[Array]) -> Array | None:
    try:
        return np.concatenate(operands, axis=int(node.attributes.get("axis", 0)))
    except ValueError:  # scalars; ranks, sizes or an axis that do not go together
        return None


def _gathered(graph: Graph, node: Node, operands: list[Array]) -> Array | None:
    places = graph.constants.get(node.inputs[1])
    data, axis = operands[0], int(node.attributes.get("axis", 0))
    if places is None or not data.ndim:
        return None
    size = data.shape[axis]
    inside = np.all((places >= -size) & (places < size))
    return np.take(data, places, axis=axis) if inside else None


# Operators whose results have sizes that are sums, products or quotients of others.
_COMPUTES_SIZES = frozenset(
    "AveragePool CenterCropPad Col2Im Concat Conv ConvInteger ConvTranspose DepthToSpace Flatten LpPool "
    "MaxPool MaxUnpool Pad QLinearConv Range Resize SpaceToDepth STFT Tile Upsample".split()
)
# Operators that move or convert elements. None of a function: it does not know where to.
_MOVES: dict[str, Callable[[Graph, Node, list[Array]], Array | None]] = {
    "Cast": _same,
    "CastLike": _same,
    "Concat": _concatenated,
    "Gather": _gathered,
    "Identity": _same,
    "Reshape": _same,
    "Squeeze": _same,
    "Unsqueeze": _same,
}
_ELEMENT_WISE = frozenset("Abs Add Div Equal Greater Less Max Min Mod Mul Neg Not Sub Where".split())
