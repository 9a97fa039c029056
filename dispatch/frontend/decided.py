# SPDX-License-Identifier: Apache-2.0
"""Which values that are known only at run time may decide shapes: the one rule.

The host computes no data of a run. It may compute sizes, which an executable is compiled for:

- An input of the model that is a shape operand itself decides: its caller says the shape.
- Integers may reach an operand that sizes follow from through the operators of ``_ARITHMETIC``, of which
  conversions alone make floats. Every tensor on the way, constants included, has at most
  ``limits.SHAPE_ELEMENTS`` elements, and all of them together take at most ``limits.SHAPE_OPERATIONS``
  element operations. Operands that name axes are not computed.
- Bounds that move together are data: no shape follows from the ``i`` of ``Slice(x, i, i + 1)``. The same
  holds for pads before and behind an axis whose sum is constant.

What the rule does not admit stays unknown until the device has computed it; an operator that needs it at
compile time does not map.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onedispatch.dispatch.base import limits
from onedispatch.dispatch.frontend.affine import Affine, Forms
from onedispatch.dispatch.frontend.graph import Graph, Node, Value
from onedispatch.dispatch.frontend.shape_operands import axis_positions, size_positions

_ARITHMETIC = frozenset(
    "Abs Add Cast CastLike Concat Div Equal Expand Gather Greater Identity Less Max Min Mod Mul Neg Not "
    "Range ReduceProd ReduceSum Reshape Slice Split Squeeze Sub Unsqueeze Where".split()
)
_CONVERSIONS = frozenset(("Cast", "CastLike", "Identity"))  # which may make floats of integers


def may_compute(graph: Graph, node: Node) -> bool:
    """Whether the host may compute ``node`` from values of a run, on the way to a shape operand."""
    if node.domain or node.op_type not in _ARITHMETIC:
        return False
    kinds = "iubf" if node.op_type in _CONVERSIONS else "iub"
    return all(_is_small(graph.value(name), kinds) for name in (*node.reads, *node.writes))


def _is_small(value: Value, kinds: str) -> bool:
    """Whether it is a tensor of few elements of these kinds, as far as its type and its shape are known."""
    if value.dtype is None:
        return not value.type
    shape = value.shape
    unknown = shape is None or not all(isinstance(size, int) for size in shape)
    return value.dtype.kind in kinds and (unknown or _elements(value) <= limits.SHAPE_ELEMENTS.most)


def _elements(value: Value) -> int:
    return int(np.prod(value.concrete_shape, dtype=np.int64))


def _operations(graph: Graph, node: Node) -> int:
    """Element operations that computing ``node`` takes: elements of its largest tensor."""
    return max((_elements(graph.value(name)) for name in (*node.reads, *node.writes)), default=0)


def deciding_inputs(graph: Graph) -> frozenset[str]:
    """Inputs of the model whose values may decide shapes."""
    return decided_cone(graph).intersection(value.name for value in graph.inputs)


def decided_cone(graph: Graph) -> frozenset[str]:
    """Values that shape operands take, and what the host may compute them of.

    Those whose shape is not known yet count as small.
    """
    producers = {name: node for node in graph.nodes for name in node.writes}
    named = {node.inputs[i] for node in graph.nodes for i in axis_positions(node)}
    floats = {v.name for v in graph.inputs if v.dtype is not None and v.dtype.kind not in "iub"}
    pending = list(_sizes(graph))
    cone = {name for name in named if name not in producers}
    while pending:
        name = pending.pop()
        if name in cone:
            continue
        cone.add(name)
        maker = producers.get(name)
        if maker is not None and may_compute(graph, maker):
            pending += [read for read in maker.reads if read not in graph.constants and read not in floats]
    return frozenset(cone)


def _sizes(graph: Graph) -> Iterator[str]:
    """The operands that sizes follow from; bounds that move together are none."""
    forms = Forms(graph)
    for node in graph.nodes:
        positions = size_positions(node)
        if not _moves_together(node, forms):
            yield from (node.inputs[i] for i in positions)


def _moves_together(node: Node, forms: Forms) -> bool:
    """Whether values of the run choose what the node takes, and the extent of that is constant."""
    if node.op_type == "Slice" and len(node.inputs) > 2:
        return _same_extent(forms.of(node.inputs[1]), forms.of(node.inputs[2]), -1)
    if node.op_type == "Pad" and len(node.inputs) > 1:
        pads = forms.of(node.inputs[1])
        half = 0 if pads is None else pads.size // 2
        return pads is not None and _same_extent(pads.reshape(-1)[:half], pads.reshape(-1)[half:], 1)
    return False


def _same_extent(first: Any, second: Any, sign: int) -> bool:
    """Whether ``second + sign * first`` is constant where ``first`` is not."""
    if first is None or second is None or first.size != second.size:
        return False
    pairs: Iterable[tuple[Affine, Affine]] = zip(first.reshape(-1), second.reshape(-1), strict=True)
    open_pairs = [(a, b) for a, b in pairs if not a.is_constant]
    return bool(open_pairs) and all((b + a.times(sign)).is_constant for a, b in open_pairs)


@dataclass
class Budget:
    """Element operations that the host may still do for one executable."""

    left: int = field(default_factory=lambda: limits.SHAPE_OPERATIONS.most)

    def admits(self, graph: Graph, node: Node) -> bool:
        """Whether the host may compute ``node`` from values of the run; what it costs is taken."""
        cost = _operations(graph, node)
        if cost > self.left or not may_compute(graph, node):
            return False
        self.left -= cost
        return True
