# SPDX-License-Identifier: Apache-2.0
"""Multiply-accumulates of a model's products, from shapes: what it asks for, however a device computes it.

Counted are convolutions, matrix products and recurrent layers, of all element types. What is no product
(functions, sums, windows that are averaged) has none; of operators that make products inside, such as
Attention, nothing is counted, and they are named.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

from onedispatch.dispatch.compiler.passes import Pass
from onedispatch.dispatch.frontend.graph import Graph, Node
from onedispatch.operators.declarations.registry import MICROSOFT

Shape = tuple[int, ...]
Shapes = Callable[[str], Shape]
"""The shape of a value. Raises ``_Unknown`` for one that is not known."""


class _Unknown(Exception):
    """A shape that is not known before a run."""


@dataclass(frozen=True)
class Macs:
    """Of each node that makes products how many; ``uncounted`` are operators of which it is not known."""

    by_node: Mapping[str, int] = field(default_factory=dict)
    uncounted: Mapping[str, str] = field(default_factory=dict)  # node -> operator

    def of(self, nodes: Collection[str]) -> tuple[int, tuple[str, ...]]:
        """The sum over these nodes, and those of their operators that are not in it."""
        missing = dict.fromkeys(op for node, op in self.uncounted.items() if node in nodes)
        return sum(count for node, count in self.by_node.items() if node in nodes), tuple(missing)


def macs_of(graph: Graph) -> Macs:
    """Returns the multiply-accumulates of a graph's nodes, by name."""
    by_node, uncounted = dict[str, int](), dict[str, str]()

    def shape(name: str) -> Shape:
        value = graph.value(name)
        if not value.is_concrete:
            raise _Unknown
        return value.concrete_shape

    for node in graph.nodes:
        count = _COUNTS.get(node.op_type)
        if node.domain not in _DOMAINS:
            continue
        try:
            if count is not None:
                by_node[node.name] = count(node, shape)
            elif node.op_type in _INSIDE:
                uncounted[node.name] = node.op_type
        except _Unknown:
            uncounted[node.name] = node.op_type
    return Macs(by_node, uncounted)


@dataclass
class MacCounter:
    """An observer of passes: counts where all shapes are known and nodes are still those of the model."""

    macs: Macs = field(default_factory=Macs)

    def after(self, ran: Pass, before: Any, result: Any, seconds: float) -> None:
        if ran.name == _SPECIALISED:
            self.macs = macs_of(result)


_SPECIALISED = "infer-through-bodies"


def _convolution(weights: int) -> Callable[[Node, Shapes], int]:
    """Each output sums over the channels of its group and the window: weights [M, C / group, window...]."""
    return lambda node, shape: prod(shape(node.outputs[0])) * prod(shape(node.inputs[weights])[1:])


def _transposed_convolution(node: Node, shape: Shapes) -> int:
    """Each input goes to the channels of its group and the window: weights [C, M / group, window...]."""
    return prod(shape(node.inputs[0])) * prod(shape(node.inputs[1])[1:])


def _product(node: Node, shape: Shapes) -> int:
    """Each output sums over the length of a row, or of a column of a transposed operand."""
    rows = shape(node.inputs[0])
    transposed = bool(node.attributes.get("transA")) and len(rows) > 1
    return prod(shape(node.outputs[0])) * (rows[-2] if transposed else rows[-1])


def _recurrent(node: Node, shape: Shapes) -> int:
    """Each step of each sequence takes all weights once: of inputs, and of the state."""
    steps, batch, _ = shape(node.inputs[0])
    return steps * batch * sum(prod(shape(name)) for name in node.inputs[1:3])


def _einsum(node: Node, shape: Shapes) -> int:
    """Of two operands: all combinations of their indices."""
    equation = node.attributes.get("equation", "")
    text = equation.decode() if isinstance(equation, bytes) else str(equation)
    terms = text.partition("->")[0].replace(" ", "").split(",")
    if len(terms) != 2 or "." in text or len(node.inputs) != 2:
        raise _Unknown
    sizes: dict[str, int] = {}
    for term, name in zip(terms, node.inputs, strict=True):
        sizes.update(zip(term, shape(name), strict=False))
    return prod(sizes.values())


_COUNTS: Mapping[str, Callable[[Node, Shapes], int]] = {
    "Conv": _convolution(1),
    "FusedConv": _convolution(1),
    "ConvInteger": _convolution(1),
    "DeformConv": _convolution(1),
    "QLinearConv": _convolution(3),
    "ConvTranspose": _transposed_convolution,
    "MatMul": _product,
    "FusedMatMul": _product,
    "MatMulInteger": _product,
    "MatMulNBits": _product,
    "QLinearMatMul": _product,
    "DynamicQuantizeMatMul": _product,
    "MatMulIntegerToFloat": _product,
    "Gemm": _product,
    "QGemm": _product,
    "LSTM": _recurrent,
    "GRU": _recurrent,
    "RNN": _recurrent,
    "DynamicQuantizeLSTM": _recurrent,
    "Einsum": _einsum,
}
_DOMAINS = ("", MICROSOFT)
_INSIDE = frozenset(
    (
        "Attention",
        "QAttention",
        "MultiHeadAttention",
        "GroupQueryAttention",
        "PackedAttention",
        "If",
        "Loop",
        "Scan",
        "SequenceMap",
    )
)
"""Operators that make products inside, or may."""
