# SPDX-License-Identifier: Apache-2.0
"""Which values that are known only at run time may decide shapes: the one rule.

The host computes no data of a run. It may compute sizes, which an executable is compiled for:

- An input of the model that is a shape operand itself decides: its caller says the shape, or the branch
  that an If takes.
- The condition of an If may be computed of such inputs through the operators of ``_CONDITIONS``, where
  every tensor on the way is an integer or boolean of one element that nothing else reads. So a mode, such as
  a sample rate, selects its branch; a counter or a token, which is data as well, does not.
- Integers may reach an operand that sizes follow from through the operators of ``_ARITHMETIC``, of which
  conversions alone make floats. Every tensor on the way, constants included, has at most
  ``limits.SHAPE_ELEMENTS`` elements, and all of them together take at most ``limits.SHAPE_OPERATIONS``
  element operations. Operands that name axes are not computed.
- Operands that choose data are data: where both bounds of a Slice, or of a middle part of a Split, are not
  constant, as in ``Slice(x, i, i + 1)``, or a Slice's start is not and it steps by more than one, or the pads
  before and behind an axis are not, or CenterCropPad counts from the middle, none may be computed in the run.
  Nor may a bound of a Slice from whose result elements are taken by their place (``cuts``).
- Sizes that are computed in the run and then read as data, by Shape or Size of the tensor that has them, are
  data from the beginning.

What the rule does not admit stays unknown until the device has computed it; an operator that needs it at
compile time does not map.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from onedispatch.dispatch.base import limits
from onedispatch.dispatch.frontend.cuts import choosing_slices
from onedispatch.dispatch.frontend.graph import Array, Graph, Node, Value
from onedispatch.dispatch.frontend.provenance import COMPUTED, CONSTANT, GIVEN, Provenance
from onedispatch.dispatch.frontend.shape_operands import (
    branch_positions,
    data_operands,
    named_positions,
    size_positions,
)

_ARITHMETIC = frozenset(
    "Abs Add And Cast CastLike Concat Div Equal Expand Gather Greater Identity Less Max Min Mod Mul Neg Not "
    "Or Range ReduceProd ReduceSum Reshape Slice Split Squeeze Sub Unsqueeze Where Xor".split()
)
_CONDITIONS = frozenset(
    "And Cast CastLike Equal Gather Identity Not Or Reshape Squeeze Unsqueeze Xor".split()
)
_NONE: Array = np.asarray([CONSTANT])  # of an operand that is not there
_CONVERSIONS = frozenset(("Cast", "CastLike", "Identity"))  # which may make floats of integers


def may_compute(graph: Graph, node: Node) -> bool:
    """Whether the host may compute ``node`` from values of a run, on the way to a shape operand."""
    if node.domain or node.op_type not in _ARITHMETIC:
        return False
    kinds = "iubf" if node.op_type in _CONVERSIONS else "iub"
    return all(_is_small(graph.value(name), kinds) for name in (*node.reads, *node.writes))


def _is_small(value: Value, kinds: str, most: int = limits.SHAPE_ELEMENTS.most) -> bool:
    """Whether it is a tensor of few elements of these kinds, as far as its type and its shape are known."""
    if value.dtype is None:
        return not value.type
    shape = value.shape
    unknown = shape is None or not all(isinstance(size, int) for size in shape)
    return value.dtype.kind in kinds and (unknown or _elements(value) <= most)


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
    named = {node.inputs[i] for node in graph.nodes for i in named_positions(node)}
    floats = {v.name for v in graph.inputs if v.dtype is not None and v.dtype.kind not in "iub"}
    pending = list(_sizes(graph))
    cone = {name for name in named if name not in producers}
    cone |= _condition_cones(graph, producers)
    while pending:
        name = pending.pop()
        if name in cone:
            continue
        cone.add(name)
        maker = producers.get(name)
        if maker is not None and may_compute(graph, maker):
            pending += [read for read in maker.reads if read not in graph.constants and read not in floats]
    return frozenset(cone)


def _condition_cones(graph: Graph, producers: Mapping[str, Node]) -> frozenset[str]:
    """Conditions that the host may compute, and the values that they follow from, none of which is data: an
    executable is compiled for these, and data differs from run to run."""
    conditions = {node.inputs[i] for node in graph.nodes for i in branch_positions(node)}
    cones = [_condition_cone(graph, name, producers) for name in conditions if name in producers]
    while cones:
        found = frozenset[str]().union(*cones)
        others = [node for node in graph.nodes if found.isdisjoint(node.writes)]
        data = graph.output_names.union(*map(data_operands, others))
        kept = [cone for cone in cones if cone and cone.isdisjoint(data)]
        if len(kept) == len(cones):
            return found
        cones = kept
    return frozenset()


def _condition_cone(graph: Graph, condition: str, producers: Mapping[str, Node]) -> frozenset[str]:
    """A condition and the values that it follows from; empty where the rule does not admit one of them."""
    found: set[str] = set()
    pending = [condition]
    while pending:
        name = pending.pop()
        if name in found or name in graph.constants:
            continue
        maker, value = producers.get(name), graph.value(name)
        if not _is_small(value, "iub", 1) or (maker is None and not value.is_concrete):
            return frozenset()
        if maker is not None:
            if maker.op_type not in _CONDITIONS or not may_compute(graph, maker):
                return frozenset()
            pending += maker.reads
        found.add(name)
    return frozenset(found)


def _sizes(graph: Graph) -> Iterator[str]:
    """The operands that sizes follow from, where the host may compile an executable for their values."""
    if all(node.inputs[i] in graph.constants for node in graph.nodes for i in size_positions(node)):
        return
    provenance = Provenance(graph)
    limit = _least_refused(graph, provenance)
    choosing = choosing_slices(graph, provenance)
    for node in graph.nodes:
        if node.name not in choosing and not _chooses_data(graph, node, provenance):
            names = (node.inputs[i] for i in size_positions(node))
            yield from (n for n in names if provenance.elements(n).max(initial=CONSTANT) < limit)


def _chooses_data(graph: Graph, node: Node, provenance: Provenance) -> bool:
    """True if operands computed in the run say which elements the node takes, and not only how many."""
    if node.op_type == "Slice" and len(node.inputs) > 2:
        operands = [provenance.elements(name) if name else _NONE for name in node.inputs[1:]]
        step = node.inputs[4] if len(node.inputs) > 4 else ""
        strides = np.abs(graph.constants.get(step, np.asarray([1])))
        first, last, steps, long = _aligned(
            operands[0], operands[1], [*operands, _NONE, _NONE][3], strides != 1
        )
        if np.any(steps == COMPUTED):
            return True
        return _choose(first, np.maximum(last, steps), (last > CONSTANT) | (steps > CONSTANT) | (long > 0))
    if node.op_type == "Pad" and len(node.inputs) > 1:
        pads = provenance.elements(node.inputs[1]).reshape(-1)
        before, after = np.split(pads, 2) if pads.size % 2 == 0 else (pads, pads)
        return _choose(before, after, after > CONSTANT)
    if node.op_type == "Split" and len(node.inputs) > 1 and node.inputs[1]:
        parts = provenance.elements(node.inputs[1]).reshape(-1)
        if parts.size != len(node.outputs):  # the shape of the list is not known yet
            parts = np.full(len(node.outputs), parts.max(initial=CONSTANT))
        # A middle part begins behind those before it, and ends where its own size says.
        return bool(parts.max(initial=CONSTANT) == COMPUTED and np.any(parts[:-2] > CONSTANT))
    if node.op_type == "CenterCropPad":
        return bool(provenance.elements(node.inputs[1]).max(initial=CONSTANT) == COMPUTED)
    return False


def _aligned(*arrays: Array) -> list[Array]:
    """Lists of one length; of arrays that do not go together, their largest elements."""
    lists = [array.reshape(-1) for array in arrays]
    if len({array.size for array in lists if array.size != 1}) > 1:
        lists = [array.max(initial=0, keepdims=True) for array in lists]
    return list(np.broadcast_arrays(*lists))


def _choose(first: Array, second: Array, second_is_open: Array) -> bool:
    """True if, along some axis, neither of two bounds is constant and one of them is computed in the run."""
    computed = np.maximum(first, second) == COMPUTED
    return bool(np.any(computed & (first > CONSTANT) & second_is_open))


def _least_refused(graph: Graph, provenance: Provenance) -> int:
    """The provenance from which on operands do not decide sizes, because ``Shape`` or ``Size`` shows them.

    ``GIVEN`` where sizes that are shown are computed of sizes that are given, as of ``Concat(x[:i], x[:j])``.
    """
    data, limit = set(graph.output_names), COMPUTED + 1
    for node in reversed(graph.nodes):
        asks = node.op_type in ("Shape", "Size") and not node.domain
        if asks and provenance.sizes(node.inputs[0]) == COMPUTED and not data.isdisjoint(node.writes):
            limit = min(limit, GIVEN if provenance.computes_sizes(node.inputs[0]) else COMPUTED)
        if asks or (may_compute(graph, node) and data.isdisjoint(node.writes)):
            continue
        data.update(data_operands(node))
    return limit


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
