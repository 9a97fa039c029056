# SPDX-License-Identifier: Apache-2.0
"""Constant folding and shape arithmetic: what is known before a program runs.

Two kinds, kept apart on purpose, for a folded node is a node that the device does not run:

- constants: nodes whose inputs are all constant, evaluated once at import;
- shape arithmetic: ``Shape`` and ``Size`` of tensors with known shapes, integer inputs that
  decide shapes, and what is computed from them. Such a value may become an operand or a
  shape of another node, never an output of the model.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np

from onedispatch.dispatch.exporter import infer_values
from onedispatch.dispatch.graph import Array, Folded, Graph, Node, prune
from onedispatch.dispatch.host import HostRegion
from onedispatch.transactions.errors import InputError, ModelError

_RANDOM = frozenset(
    "Bernoulli Dropout Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike".split()
)

# Operands whose values decide an output shape: op_type -> input positions.
_SHAPE_OPERANDS: dict[str, tuple[int, ...]] = {
    "AffineGrid": (1,),
    "BlackmanWindow": (0,),
    "CenterCropPad": (1,),
    "ConstantOfShape": (0,),
    "CumSum": (1,),
    "DFT": (1, 2),
    "Expand": (1,),
    "HammingWindow": (0,),
    "HannWindow": (0,),
    "MaxUnpool": (2,),
    "MelWeightMatrix": (0, 1),
    "OneHot": (1,),
    "Pad": (1, 3),
    "Range": (0, 1, 2),
    "ReduceL1": (1,),
    "ReduceL2": (1,),
    "ReduceLogSum": (1,),
    "ReduceLogSumExp": (1,),
    "ReduceMax": (1,),
    "ReduceMean": (1,),
    "ReduceMin": (1,),
    "ReduceProd": (1,),
    "ReduceSum": (1,),
    "ReduceSumSquare": (1,),
    "Reshape": (1,),
    "Resize": (2, 3),
    "STFT": (1, 3),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "SplitToSequence": (1,),
    "Squeeze": (1,),
    "Tile": (1, 2),
    "TopK": (1,),
    "Unsqueeze": (1,),
    "Upsample": (1,),
}
_SHAPE_ARITHMETIC = frozenset(
    "Abs Add Cast Ceil Concat Div Equal Expand Floor Gather Greater Identity Less Max Min Mod "
    "Mul Neg Not Range ReduceProd ReduceSum Reshape Slice Squeeze Sub Unsqueeze Where".split()
)


def shape_operands(node: Node) -> tuple[str, ...]:
    """The inputs of a node whose values decide its output's shape."""
    if node.domain:
        return ()
    if node.op_type in ("Pad",):  # the pad value decides no shape, but the program
        positions: tuple[int, ...] = (1, 2, 3)
    else:
        positions = _SHAPE_OPERANDS.get(node.op_type, ())
    return tuple(node.inputs[i] for i in positions if i < len(node.inputs) and node.inputs[i])


def deciding_inputs(graph: Graph) -> frozenset[str]:
    """Graph inputs whose values decide shapes, straight or through integer arithmetic."""
    names = {name for node in graph.nodes for name in shape_operands(node)}
    producers = {name: node for node in graph.nodes for name in node.writes}
    inputs = {v.name: v for v in graph.inputs}
    found: set[str] = set()
    pending = [(name, True) for name in sorted(names)]
    seen: set[str] = set()
    while pending:
        name, direct = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        if name in inputs:
            dtype = inputs[name].dtype
            if dtype is not None and (direct or dtype.kind in "iub"):
                found.add(name)
        elif name in producers and producers[name].op_type in _SHAPE_ARITHMETIC:
            pending += [(read, False) for read in producers[name].reads]
    return frozenset(found)


def fold_constants(graph: Graph) -> Graph:
    """The graph with every node computed whose inputs are all constant."""
    foldable: list[Node] = []
    known = set(graph.constants)
    for node in graph.nodes:
        if _deterministic(node) and all(name in known for name in node.reads):
            foldable.append(node)
            known.update(node.writes)
    if not foldable:
        return graph
    return _evaluate(graph, foldable, graph.constants, "all its inputs are constant")


def specialise(graph: Graph, shapes: Mapping[str, tuple[int, ...]], values: Mapping[str, Array]) -> Graph:
    """The graph for concrete input shapes and values of shape-deciding inputs.

    Shapes of all edges are inferred as far as they can be; shape arithmetic is folded.
    """
    bound = {v.name: replace(v, shape=shapes[v.name]) if v.name in shapes else v for v in graph.inputs}
    hints: dict[str, Array] = dict(values)
    graph = replace(graph, inputs=tuple(bound[v.name] for v in graph.inputs))
    while True:
        graph = replace(graph, values=infer_values(graph, bound, hints))
        foldable = _shape_arithmetic(graph, hints)
        if not foldable:
            return prune(graph)
        before = set(graph.constants)
        graph = _evaluate(graph, foldable, {**graph.constants, **hints}, "shape arithmetic")
        if set(graph.constants) <= before:
            return prune(graph)


def _deterministic(node: Node) -> bool:
    return node.op_type not in _RANDOM and not node.has_subgraph


def _shape_arithmetic(graph: Graph, hints: Mapping[str, Array]) -> list[Node]:
    """Nodes that shapes alone decide, and that make no output of the model."""
    outputs = graph.output_names
    operand_cone = _operand_cone(graph)
    known = set(graph.constants)
    derived: set[str] = set()
    found = []
    for node in graph.nodes:
        if not outputs.isdisjoint(node.writes) or not _deterministic(node):
            continue
        if node.op_type in ("Shape", "Size") and not node.domain:
            ready = graph.value(node.inputs[0]).is_concrete
        elif operand_cone.isdisjoint(node.writes):
            ready = all(name in known or name in derived for name in node.reads)
        else:
            ready = all(name in known or name in derived or name in hints for name in node.reads)
        if ready:
            found.append(node)
            derived.update(node.writes)
    return found


def _operand_cone(graph: Graph) -> set[str]:
    """Values that reach a shape operand through shape arithmetic."""
    producers = {name: node for node in graph.nodes for name in node.writes}
    pending = [name for node in graph.nodes for name in shape_operands(node)]
    cone: set[str] = set()
    while pending:
        name = pending.pop()
        if name in cone:
            continue
        cone.add(name)
        if name in producers and producers[name].op_type in _SHAPE_ARITHMETIC:
            pending += producers[name].reads
    return cone


def _evaluate(graph: Graph, nodes: list[Node], known: Mapping[str, Array], reason: str) -> Graph:
    """The graph with ``nodes`` replaced by their values."""
    chosen = {id(node) for node in nodes}
    rest = [node for node in graph.nodes if id(node) not in chosen]
    needed = {name for node in rest for name in node.reads} | graph.output_names
    constants = dict(graph.constants)
    plain: list[Node] = []
    feed = dict(known)
    for node in nodes:
        if node.op_type in ("Shape", "Size") and not node.domain:
            constants[node.outputs[0]] = feed[node.outputs[0]] = _shape_value(graph, node)
        else:
            plain.append(node)
    wanted = [name for node in plain for name in node.writes if name in needed]
    stuck: list[Node] = []
    if wanted:
        results, stuck = _run_all(graph, plain, wanted, feed)
        constants.update(results)
    kept_ids = {id(node) for node in stuck}
    done = [node for node in nodes if id(node) not in kept_ids]
    folded = graph.folded + tuple(Folded(n.name, n.op_type, reason) for n in done)
    kept = [node for node in graph.nodes if id(node) not in chosen or id(node) in kept_ids]
    return graph.with_nodes(kept, constants=constants, folded=folded)


def _run_all(
    graph: Graph, nodes: list[Node], wanted: list[str], known: Mapping[str, Array]
) -> tuple[dict[str, Array], list[Node]]:
    """Values of ``wanted``; nodes that give no tensor, or cannot be run, stay in the graph."""
    fed = {name: known[name] for node in nodes for name in node.reads if name in known}
    piece = replace(graph, constants=fed)
    try:
        results = HostRegion(piece, nodes, wanted, threads=1, optimise=False).run({})
    except (ModelError, InputError):
        return _run_each(piece, nodes)
    if all(isinstance(value, np.ndarray) for value in results.values()):
        return results, []
    return _run_each(piece, nodes)


def _run_each(piece: Graph, nodes: list[Node]) -> tuple[dict[str, Array], list[Node]]:
    """Node by node; whoever gives no tensor stays, and so does what reads it."""
    known = dict(piece.constants)
    stuck = []
    for node in nodes:
        ready = all(name in known for name in node.reads)
        results = _run_one(replace(piece, constants=known), node) if ready else None
        if results is None:
            stuck.append(node)
        else:
            known.update(results)
    return known, stuck


def _run_one(piece: Graph, node: Node) -> dict[str, Array] | None:
    try:
        region = HostRegion(piece, [node], node.writes, threads=1, optimise=False)
        results = region.run({})
    except (ModelError, InputError):
        return None
    if all(isinstance(value, np.ndarray) for value in results.values()):
        return results
    return None


def _shape_value(graph: Graph, node: Node) -> Array:
    shape = graph.value(node.inputs[0]).concrete_shape
    if node.op_type == "Size":
        return np.asarray(np.prod(shape, dtype=np.int64), np.int64)
    start, end = node.attributes.get("start", 0), node.attributes.get("end", len(shape))
    return np.asarray(shape[slice(start, end)], np.int64)


def may_fold(graph: Graph, deciding: Collection[str]) -> frozenset[str]:
    """Names of nodes that could fold once shapes are known."""
    known = set(graph.constants) | set(deciding)
    found = set()
    for node in graph.nodes:
        shape_only = node.op_type in ("Shape", "Size") and not node.domain
        if _deterministic(node) and (shape_only or all(name in known for name in node.reads)):
            found.add(node.name)
            known.update(node.writes)
    return frozenset(found)
