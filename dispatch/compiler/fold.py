# SPDX-License-Identifier: Apache-2.0
"""Constant folding and shape arithmetic: what is known before an executable runs.

A folded node is a node that the device does not run, so only two kinds may fold:

- nodes whose inputs are all constant; ``Shape`` and ``Size`` of tensors whose shapes follow
  from the shapes of the model's inputs are constants of an executable, which is made for these;
- nodes that depend on values given at run time, where nothing but shape operands reads their
  results, and the rule of ``frontend/decided.py`` lets the host compute them. The executable is
  made for these values too.

A value that depends on run-time values and is also read as data is known all the same (it
decides shapes, see ``Graph.decided``), but its node stays in the graph and runs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cache

from onedispatch.dispatch.base import limits
from onedispatch.dispatch.base.host_work import HostWork, timed
from onedispatch.dispatch.compiler.evaluate import asks_shape, evaluate, may_evaluate
from onedispatch.dispatch.compiler.inline import inline_branches, is_if
from onedispatch.dispatch.compiler.sequences import inline_sequences
from onedispatch.dispatch.compiler.sizes import Sizes
from onedispatch.dispatch.compiler.unroll import unroll_loops
from onedispatch.dispatch.frontend.decided import Budget, decided_cone, deciding_inputs
from onedispatch.dispatch.frontend.exporter import OwnInference
from onedispatch.dispatch.frontend.graph import Array, Folded, Graph, Node, prune
from onedispatch.dispatch.frontend.shape_operands import data_operands, operand_cone

__all__ = ["deciding_inputs", "fold_constants", "may_fold", "specialise"]

_PROPAGATED = 1 << 20  # elements; onnx takes some fifty bytes for each
_CONSTANT, _SHAPES = "all its inputs are constant", "shape arithmetic"


def fold_constants(graph: Graph, *, dequantise: bool = False) -> Graph:
    """The graph with every node computed whose inputs are all constant, and known Ifs inlined.

    Weights stay the integers that they are until ``integers`` has seen them: they become floats only where
    ``dequantise``, or where shapes follow from them, as quantisers leave shape arithmetic of floats.

    Raises:
        ModelError: constants beyond ``limits``.
    """
    while True:
        foldable: list[Node] = []
        known, of_shapes = set(graph.constants), operand_cone(graph)
        for node in graph.nodes:
            may = may_evaluate(node) and (dequantise or _folds(node, of_shapes))
            if may and known.issuperset(node.reads):
                foldable.append(node)
                known.update(node.writes)
        graph, changed = inline_branches(_fold(graph, foldable, _CONSTANT))
        if not changed:
            return prune(graph)


def _folds(node: Node, of_shapes: frozenset[str]) -> bool:
    """Whether it may before the rules of integers were tried. ``of_shapes`` are what shapes follow from."""
    return node.op_type != "DequantizeLinear" or not of_shapes.isdisjoint(node.writes)


def specialise(
    graph: Graph,
    shapes: Mapping[str, tuple[int, ...]],
    values: Mapping[str, Array],
    own: OwnInference | None = None,
) -> Graph:
    """The graph for concrete input shapes and values of shape-deciding inputs.

    Shapes of all edges are inferred as far as they can be; shape arithmetic is folded, Ifs whose condition
    is known by then are inlined, Loops and Scans of a known number of rounds are unrolled, sequences whose
    members are known give way to these. ``decided`` of the result are values that only operands which decide
    shapes may take. ``own`` infers nodes that ONNX has no schema for.

    Raises:
        ModelError: shapes that contradict each other, or beyond ``limits``.
    """
    bound = {v.name: replace(v, shape=shapes[v.name]) if v.name in shapes else v for v in graph.inputs}
    inputs = tuple(bound[v.name] for v in graph.inputs)
    graph = replace(graph, inputs=inputs, decided=dict(values))
    for value in inputs:
        if value.is_concrete and value.dtype is not None:
            limits.check_tensor(f"input {value.name!r}", value.dtype, value.concrete_shape)
    sizes, budget = Sizes(bound, own), Budget()
    propagate, whole = False, True
    while True:
        graph = sizes.inferred(graph, whole, propagate)
        known = _known(graph, values, budget)
        folded = _fold(graph, known.constant, _SHAPES)
        made, folded = _decided(folded, known, {**graph.constants, **folded.constants, **graph.decided})
        changed = bool(made) or len(folded.nodes) < len(graph.nodes)
        graph, inlined = inline_branches(replace(folded, decided={**graph.decided, **made}))
        graph, apart = inline_sequences(graph)
        graph, unrolled = unroll_loops(graph)
        if changed or inlined or apart or unrolled:
            whole = propagate or inlined or apart or unrolled  # of new nodes not even types are known
        elif not whole:
            whole = True  # what lies behind sizes that stay open
        elif propagate or not _may_propagate(graph):
            return prune(_drop_shape_arithmetic(graph))
        else:
            propagate = True  # the last resort: integers that are known in part, which pass through all nodes


def _decided(graph: Graph, known: _Known, values: Mapping[str, Array]) -> tuple[dict[str, Array], Graph]:
    """Values of the nodes that ``known`` says, and ``graph`` with the host's work on those of the run."""
    (made, _), seconds = timed(lambda: evaluate(graph, known.decided, values))
    if not known.of_run:
        return made, graph
    work = HostWork("evaluate", ", ".join(node.name for node in known.of_run), seconds)
    return made, replace(graph, evaluated=(*graph.evaluated, work))


def _may_propagate(graph: Graph) -> bool:
    """Whether shapes are still unknown, and following integers through the graph takes little memory."""
    made = [graph.value(name) for node in graph.nodes for name in node.writes]
    read = [graph.value(name) for name in (*graph.constants, *(v.name for v in graph.inputs))]
    lines = sum(value.concrete_shape[0] for value in (*made, *read) if len(value.concrete_shape) == 1)
    return lines <= _PROPAGATED and not all(value.is_concrete for value in made)


@dataclass(frozen=True)
class _Known:
    """Nodes that can be computed now."""

    constant: list[Node]  # from constants and shapes alone; they may fold
    decided: list[Node]  # the others, where their values lead to shape operands
    of_run: list[Node]  # of these, the nodes that read values of the run


def _known(graph: Graph, values: Collection[str], budget: Budget) -> _Known:
    inputs = {v.name for v in graph.inputs}
    of_shapes = operand_cone(graph)
    of_values = cache(lambda: decided_cone(graph))  # few graphs ask for it
    constant, decided = set(graph.constants), set(graph.decided)
    depends = set(values)  # on values that are given at run time
    result = _Known([], [], [])
    for node in graph.nodes:
        # The shape of an input is given by itself; that of other values may follow from values.
        of_input = asks_shape(node) and node.inputs[0] in inputs
        tainted = not of_input and not depends.isdisjoint(node.reads)
        if tainted:
            depends.update(node.writes)
        if not (may_evaluate(node) and _folds(node, of_shapes)) or decided.issuperset(node.writes):
            continue
        concrete = asks_shape(node) and graph.value(node.inputs[0]).is_concrete
        shown = not graph.output_names.isdisjoint(node.writes)  # an output is for the device to make
        if not tainted and not shown and (concrete or constant.issuperset(node.reads)):
            result.constant.append(node)
            constant.update(node.writes)
            continue
        if (of_values() if tainted else of_shapes).isdisjoint(node.writes):
            continue
        computable = (constant | decided).issuperset(node.reads)
        if concrete or (computable and (not tainted or budget.admits(graph, node))):
            result.decided.append(node)
            decided.update(node.writes)
            if tainted and not concrete:
                result.of_run.append(node)
    return result


def _drop_shape_arithmetic(graph: Graph) -> Graph:
    """Without the nodes whose values are decided and read by nothing but what decides shapes."""
    data = set(graph.output_names)
    dropped: list[Node] = []
    for node in reversed(graph.nodes):
        decided = may_evaluate(node) and all(name in graph.decided for name in node.writes)
        if decided and data.isdisjoint(node.writes):
            dropped.append(node)  # what it reads leads to shapes only, on this way
        else:
            data.update(data_operands(node))
    gone = {name for node in dropped for name in node.writes}
    names = {id(node) for node in dropped}
    return graph.with_nodes(
        [node for node in graph.nodes if id(node) not in names],
        constants={**graph.constants, **{name: graph.decided[name] for name in gone}},
        decided={name: array for name, array in graph.decided.items() if name not in gone},
        folded=graph.folded + tuple(Folded(n.name, n.op_type, _SHAPES) for n in reversed(dropped)),
    )


def _fold(graph: Graph, nodes: list[Node], reason: str) -> Graph:
    """The graph with those of ``nodes`` replaced by their values that can be computed."""
    if not nodes:
        return graph
    chosen = {id(node) for node in nodes}
    needed = {name for node in graph.nodes if id(node) not in chosen for name in node.reads}
    made, done = evaluate(graph, nodes, graph.constants, frozenset(needed | graph.output_names))
    gone = {id(node) for node in done}
    graph = graph.with_nodes(
        [node for node in graph.nodes if id(node) not in gone],
        constants={**graph.constants, **made},
        folded=graph.folded + tuple(Folded(n.name, n.op_type, reason) for n in done),
    )
    limits.WEIGHT_BYTES.check("the model's constants", sum(a.nbytes for a in graph.constants.values()))
    return graph


def may_fold(graph: Graph, deciding: Collection[str]) -> frozenset[str]:
    """Names of nodes that could fold, or be inlined, once shapes are known."""
    constant, decided = set(graph.constants), set(deciding)
    found = set()
    candidates = set()
    for node in graph.nodes:
        known = asks_shape(node) or constant.issuperset(node.reads)
        if is_if(node):
            known = node.inputs[:1] != () and node.inputs[0] in constant | decided
        elif not may_evaluate(node):
            continue
        if known and (is_if(node) or graph.output_names.isdisjoint(node.writes)):
            found.add(node.name)
            constant.update(node.writes)
        elif known or (constant | decided).issuperset(node.reads):
            candidates.add(node.name)
            decided.update(node.writes)
    data = set(graph.output_names)
    for node in reversed(graph.nodes):
        if node.name in candidates and data.isdisjoint(node.writes):
            found.add(node.name)
        elif node.name not in found:
            data.update(data_operands(node))
    return frozenset(found)
