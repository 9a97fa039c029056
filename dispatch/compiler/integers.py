# SPDX-License-Identifier: Apache-2.0
"""Quantised models in integers: the tables of ``rules/integers.py`` applied to a graph.

Rounds of four steps, until none finds anything. QuantizeLinear of what DequantizeLinear has just made of the
same integers goes; so does the second of two alike, and Identity. A mover goes before the DequantizeLinear
that feeds it, or behind the QuantizeLinear that reads it, so that operators and their integers meet. A bound
that saturation keeps goes. A group becomes its operator on integers, where that maps. None of these changes a
number but the last, which rounds sums of integers once where floats would round every step.

Each DequantizeLinear and QuantizeLinear that is left has a remark that says why.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np
from onnx import TensorProto

from onedispatch.dispatch.compiler.fold import fold_constants
from onedispatch.dispatch.compiler.piece import Piece
from onedispatch.dispatch.compiler.rewriter import Replacement, choose, put, unmapped
from onedispatch.dispatch.compiler.splice import Splice
from onedispatch.dispatch.frontend.exporter import rewired
from onedispatch.dispatch.frontend.graph import Folded, Graph, Node, prune
from onedispatch.dispatch.rules.diagnostics import STAYS, an_output, did_not_fire, read_elsewhere
from onedispatch.dispatch.rules.integers import (
    BOUNDS,
    GROUPS,
    MOVERS,
    Edge,
    Fit,
    Group,
    Mover,
    ends,
)
from onedispatch.dispatch.rules.match import Index
from onedispatch.operators.declarations.registry import MICROSOFT
from onedispatch.transactions import Device

_FLOAT = np.dtype(np.float32)
_FIRST_OPSET = 10  # that has quantised operators
_HOME = {
    op_type: [one for one in GROUPS if one.op_type == op_type] for op_type in {g.op_type for g in GROUPS}
}


def group_integers(graph: Graph, device: Device) -> Graph:
    """Returns ``graph``, whose shapes are known, with quantised operators for floats between integers."""
    if not is_quantised(graph):
        return graph
    work, before = _Pass(device), None
    while graph is not before:
        before, graph = graph, _without_repeats(graph)
        after = work.round(graph)
        graph = fold_constants(after) if after is not graph else graph
    return work.with_remarks(graph)


def dequantise_constants(graph: Graph) -> Graph:
    """Returns ``graph`` with the floats of integers that no operator takes as they are."""
    if not any(_is_quantiser(node) or _is_dequantiser(node) for node in graph.nodes):
        return graph
    return fold_constants(graph, dequantise=True)


def is_quantised(graph: Graph) -> bool:
    """True if its operator set has quantised operators, and it has their scales."""
    return graph.opsets.get("", 1) >= _FIRST_OPSET and any(
        _is_quantiser(node) or _is_dequantiser(node) for node in graph.nodes
    )


def _is_quantiser(node: Node) -> bool:
    return node.op_type == "QuantizeLinear" and node.domain in ("", MICROSOFT)


def _is_dequantiser(node: Node) -> bool:
    return node.op_type == "DequantizeLinear" and node.domain in ("", MICROSOFT)


def _edge(graph: Graph, node: Node, tensor: str) -> Edge:
    dtype = graph.value(tensor).dtype or np.dtype(np.uint8)
    zero = node.inputs[2] if len(node.inputs) > 2 else ""
    axis, block = node.attributes.get("axis", 1), node.attributes.get("block_size", 0)
    return Edge(node, tensor, dtype, node.inputs[1], zero, axis, block)


def _read(index: Index, name: str) -> Edge | None:
    """The integers behind a value, where a DequantizeLinear makes it."""
    node = index.makers.get(name)
    if node is None or not _is_dequantiser(node):
        return None
    return _edge(index.graph, node, node.inputs[0])


def _made(index: Index, node: Node) -> Edge | str:
    """The integers that alone are made of the one result of a node; or what else reads it."""
    graph = index.graph
    if len(node.writes) != 1:
        return f"{node.name} ({node.op_type}) makes several values"
    (name,) = node.writes
    if name in graph.output_names:
        return an_output(name, node.name)
    readers = list(index.readers.get(name, ()))
    found = next((one for one in readers if _is_quantiser(one)), None)
    if found is None or found.inputs[0] != name or name in found.inputs[1:]:
        return f"{name} (of {node.name}) is read by no QuantizeLinear"
    if len(readers) > 1:
        return read_elsewhere(name, node.name, next(one.name for one in readers if one is not found))
    return _edge(graph, found, found.outputs[0])


# -- what repeats ----------------------------------------------------------------------------------------


def _without_repeats(graph: Graph) -> Graph:
    """Without QuantizeLinear of what has just been dequantised from the same integers, or as another one; and
    without Identity, by which exporters share constants."""
    index, instead = Index.of(graph), dict[str, str]()
    seen = graph.output_names | {name for node in graph.nodes for name in node.captured}
    kept: dict[str, list[Edge]] = {}  # by the value that is quantised
    folded, gone = list[Folded](), set[str]()

    def leave_out(node: Node, name: str, why: str) -> None:
        instead[node.outputs[0]] = instead.get(name, name)
        gone.add(node.name)
        origin = graph.origins.get(node.name)
        folded.extend(Folded(one.name, one.op_type, why) for one in (origin.nodes if origin else (node,)))

    for node in graph.nodes:
        if _is_quantiser(node):
            edge, before = _edge(graph, node, node.outputs[0]), _read(index, node.inputs[0])
            twins = [*([before] if before else []), *kept.get(node.inputs[0], ())]
            twin = next((one for one in twins if one.equals(edge, graph)), None)
            if twin is None or edge.tensor in seen:
                kept.setdefault(node.inputs[0], []).append(edge)
            else:
                leave_out(node, twin.tensor, f"its integers are those of {twin.tensor}")
        elif node.op_type == "Identity" and not node.domain and seen.isdisjoint(node.writes):
            leave_out(node, node.inputs[0], f"another name of {node.inputs[0]}")
    if not instead:
        return graph
    nodes = [_following(node, instead) for node in graph.nodes if node.name not in gone]
    return prune(graph.with_nodes(nodes, folded=(*graph.folded, *folded)))


def _following(node: Node, instead: Mapping[str, str]) -> Node:
    if instead.keys().isdisjoint(node.inputs):
        return node
    return rewired(node, [instead.get(name, name) for name in node.inputs], node.outputs)


# -- changes --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Miss:
    """A group that did not fit: how far it came, and what failed."""

    stage: int
    group: Group
    reason: str


# -- the pass --------------------------------------------------------------------------------------------


@dataclass
class _Pass:
    """Rounds over a graph; ``misses`` are groups that did not fit, by node."""

    device: Device
    misses: dict[str, _Miss] = field(default_factory=dict)
    _refused: dict[tuple[str, ...], str] = field(default_factory=dict)

    def round(self, graph: Graph) -> Graph:
        """``graph`` after one round; the same where nothing was found."""
        index = Index.of(graph)
        self.misses.clear()
        nodes = [node for node in graph.nodes if not node.domain]
        chosen = choose(nodes, lambda node: self._nearer(index, node))
        if not chosen:  # operators and their integers are as near as they get
            chosen = choose(nodes, lambda node: self._group(index, node))
        if not chosen:
            return graph
        splice = Splice(graph)
        put(splice, index, [replace(one, beside=_dequantisers(index, one.old)) for one in chosen])
        return prune(splice.result())

    def _nearer(self, index: Index, node: Node) -> Iterator[Replacement]:
        if node.op_type in BOUNDS:
            yield from self._mapped(_bounded(index, node))
        if node.op_type == "Where":
            yield from _never_nan(index, node)
        if node.op_type in MOVERS:
            mover = MOVERS[node.op_type]
            if mover.where is None or mover.where(index.graph, node):
                yield from self._mapped(_sunk(index, node, mover))
                yield from self._mapped(_raised(index, node, mover))

    def _mapped(self, changes: Iterator[Replacement]) -> Iterator[Replacement]:
        """Those whose nodes all map."""
        return (one for one in changes if not self._refusal(one))

    def _refusal(self, change: Replacement) -> str:
        key = (change.how, *(name for node in change.old for name in (node.name, *node.inputs)))
        if key not in self._refused:
            self._refused[key] = unmapped(change.new, self.device)
        return self._refused[key]

    # -- groups ------------------------------------------------------------------------------------------

    def _group(self, index: Index, node: Node) -> Iterator[Replacement]:
        for group in _HOME.get(node.op_type, ()):
            fit = _fit(index, group, node)
            if isinstance(fit, Fit):
                failed = next((one.name for one in group.where if not one.holds(fit)), "")
                change = None if failed else _written(fit, group)
                failed = failed or (self._refusal(change) if change else "")
                if change is not None and not failed:
                    yield change
                    return
                fit = _Miss(2, group, failed)
            known = self.misses.get(node.name)
            if fit.stage and (known is None or fit.stage > known.stage):
                self.misses[node.name] = fit

    # -- what stays ----------------------------------------------------------------------------------------

    def with_remarks(self, graph: Graph) -> Graph:
        """``graph`` with a remark on every DequantizeLinear and QuantizeLinear that is left."""
        index, splice = Index.of(graph), Splice(graph)
        for node in graph.nodes:
            if _is_quantiser(node):
                splice.remark(node, self._why(graph, index.makers.get(node.inputs[0]), node.inputs[0]))
            elif _is_dequantiser(node) and node.inputs[0] not in graph.constants:
                for reader in index.readers.get(node.outputs[0], ()):
                    splice.remark(node, self._why(graph, reader, node.outputs[0]))
                if node.outputs[0] in graph.output_names:
                    splice.remark(node, f"{STAYS}{an_output(node.outputs[0], node.name)}")
        return splice.result()

    def _why(self, graph: Graph, node: Node | None, name: str) -> str:
        """Why the node on the other side of a value in floats has not become one of integers."""
        if node is None:
            return f"{STAYS}{name} is an input of the model in floats"
        miss = self.misses.get(node.name)
        if miss is not None:
            return did_not_fire(miss.group.name, f"{miss.reason} ({node.name})")
        if _is_quantiser(node) or _is_dequantiser(node):
            return f"{STAYS}{node.name} has another scale, or another type"
        if node.op_type in _HOME:
            return did_not_fire(_HOME[node.op_type][0].name, f"{node.name} reads floats")
        if node.op_type in MOVERS:
            accepted = MOVERS[node.op_type].accepted
            wanted = f"{accepted}, and " if accepted else ""
            return f"{STAYS}{node.name} ({node.op_type}) moves integers only by {wanted}one scale"
        return f"{STAYS}{node.name} ({node.op_type}) computes in floats"


def _dequantisers(index: Index, nodes: Sequence[Node]) -> list[Node]:
    """The DequantizeLinear nodes that ``nodes`` read."""
    made = (index.makers.get(name) for node in nodes for name in node.reads)
    return [node for node in made if node is not None and _is_dequantiser(node)]


# -- bounds ----------------------------------------------------------------------------------------------


def _bounded(index: Index, node: Node) -> Iterator[Replacement]:
    """Its QuantizeLinear alone, where that saturates at the same values; or integers that are bounded, where
    an operator of a group makes the floats."""
    graph, edge, bounds = index.graph, _made(index, node), BOUNDS[node.op_type](index.graph, node)
    if isinstance(edge, str) or bounds is None:
        return
    found, source = ends(edge, *bounds, graph), node.inputs[0]
    if found is None:
        return
    piece, info = Piece(graph), np.iinfo(edge.dtype)
    if int(found[0]) == info.min and int(found[1]) == info.max:
        _requantise(piece, edge, source, edge.tensor)
        yield Replacement([node, edge.node], piece.result(), "rule saturation")
        return
    maker = index.makers.get(source)
    if maker is None or maker.op_type not in _HOME or not _only_read(index, source):
        return
    own = piece.value(f"{source}_integers", edge.dtype, graph.value(source).shape)
    _requantise(piece, edge, source, own)
    low, high = (piece.constant(name, one) for name, one in zip(("low", "high"), found, strict=True))
    piece.write("Clip", [own, low, high], [edge.tensor])
    yield Replacement([node, edge.node], piece.result(), "rule bounds")


def _only_read(index: Index, name: str) -> bool:
    return len(index.readers.get(name, ())) == 1 and name not in index.graph.output_names


def _never_nan(index: Index, node: Node) -> Iterator[Replacement]:
    """Without the question whether floats that stand for integers are numbers: what Softmax is guarded by."""
    graph, asks = index.graph, index.makers.get(node.inputs[0])
    if asks is None or asks.op_type != "IsNaN" or _read(index, asks.inputs[0]) is None:
        return
    if graph.value(node.inputs[2]).shape != graph.value(node.outputs[0]).shape:
        return
    piece = Piece(graph)
    piece.write("Identity", [node.inputs[2]], [node.outputs[0]])
    old = [asks, node] if _only_read(index, asks.outputs[0]) else [node]
    yield Replacement(old, piece.result(), "rule never_nan")


def _requantise(piece: Piece, edge: Edge, source: str, target: str) -> None:
    node = edge.node
    piece.write(node.op_type, [source, *node.inputs[1:]], [target], node, node.domain)


# -- movers ----------------------------------------------------------------------------------------------


def _sunk(index: Index, node: Node, mover: Mover) -> Iterator[Replacement]:
    """The mover on integers, and a DequantizeLinear behind each of its results."""
    graph = index.graph
    data = [name for name in (node.inputs if mover.data < 0 else node.inputs[: mover.data]) if name]
    edges = [_read(index, name) for name in data]
    first = edges[0] if edges else None
    if first is None or not all(one is not None and one.equals(first, graph) for one in edges):
        return
    if mover.orders and not first.orders(graph):
        return
    floats = [name for name in node.writes if graph.value(name).dtype == graph.value(data[0]).dtype]
    piece = Piece(graph)
    instead = {name: edge.tensor for name, edge in zip(data, edges, strict=True) if edge is not None}
    inputs = _filled(piece, node, mover, first, [instead.get(name, name) for name in node.inputs])
    made = {name: piece.value(f"{name}_integers", first.dtype, graph.value(name).shape) for name in floats}
    if inputs is None:
        return
    piece.write(node.op_type, inputs, [made.get(name, name) for name in node.outputs], node)
    for name, own in made.items():
        rest = first.node.inputs[1:]
        piece.write("DequantizeLinear", [own, *rest], [name], first.node, first.node.domain, ["axis"])
    yield Replacement([node], piece.result(), f"rule {node.op_type}")


def _raised(index: Index, node: Node, mover: Mover) -> Iterator[Replacement]:
    """QuantizeLinear of what an operator makes, which may take it in, and the mover on integers."""
    graph, edge = index.graph, _made(index, node)
    maker = index.makers.get(node.inputs[0]) if node.inputs else None
    if isinstance(edge, str) or maker is None or mover.data != 1 or mover.orders:
        return
    if _is_dequantiser(maker) or not _only_read(index, node.inputs[0]):
        return
    larger = prod(graph.value(node.inputs[0]).concrete_shape) > prod(
        graph.value(node.outputs[0]).concrete_shape
    )
    if larger or edge.several(graph) or edge.block:
        return
    piece = Piece(graph)
    own = piece.value(f"{node.inputs[0]}_integers", edge.dtype, graph.value(node.inputs[0]).shape)
    inputs = _filled(piece, node, mover, edge, [own, *node.inputs[1:]])
    if inputs is None:
        return
    _requantise(piece, edge, node.inputs[0], own)
    piece.write(node.op_type, inputs, [edge.tensor], node)
    yield Replacement([node, edge.node], piece.result(), f"rule {node.op_type}")


def _filled(piece: Piece, node: Node, mover: Mover, edge: Edge, inputs: list[str]) -> list[str] | None:
    """``inputs`` with the zero point for what is put between elements; None where it is not known."""
    if mover.fills < 0 or node.attributes.get("mode", "constant") != "constant":
        return inputs
    known = edge.numbers(piece.graph)
    if known is None:
        return None
    inputs += [""] * (mover.fills + 1 - len(inputs))
    inputs[mover.fills] = piece.constant("filling", known[1].reshape(-1)[0].astype(edge.dtype))
    return inputs


# -- groups ----------------------------------------------------------------------------------------------


def _fit(index: Index, group: Group, node: Node) -> Fit | _Miss:
    """The node with the integers around it, as the group wants them."""
    graph, edges, plain = index.graph, dict[str, Edge](), dict[str, str]()
    found = _operands(index, group, node, edges, plain)
    if found:
        return _Miss(1 if edges else 0, group, found)
    made = _made(index, node)
    if group.sums or group.floats:
        if not isinstance(made, str):
            return _Miss(0, group, "its result is quantised")
    elif isinstance(made, str):
        return _Miss(1, group, made)
    else:
        edges[group.result] = made
    if any(edge.block for edge in edges.values()):
        return _Miss(2, group, "scales per tensor or axis, not of blocks")
    if any(graph.value(edge.scale).dtype != _FLOAT for edge in edges.values()):
        return _Miss(2, group, "scales that are float32")
    if not all(graph.value(name).is_concrete for name in (*node.reads, *node.writes)):
        return _Miss(2, group, "shapes that are known")
    return Fit(graph, node, edges, plain)


def _operands(index: Index, group: Group, node: Node, edges: dict[str, Edge], plain: dict[str, str]) -> str:
    """Fills ``edges`` and ``plain`` by names of operands; which one no DequantizeLinear makes, or ""."""
    names = group.operands.split()
    if names == ["*x"]:
        names = [f"x{number}" for number in range(len(node.inputs))]
    failed = ""
    for position, wanted in enumerate(names):
        name = wanted.lstrip("?=")
        given = node.inputs[position] if position < len(node.inputs) else ""
        edge = _read(index, given) if given else None
        if wanted.startswith("=") or (wanted.startswith("?") and edge is None):
            plain[name] = given
        elif edge is None:
            failed = failed or f"{given} (of {node.name}) is made by no DequantizeLinear"
        else:
            edges[name] = edge
    return failed


def _written(fit: Fit, group: Group) -> Replacement:
    """The operator of integers in place of a fit."""
    graph, node = fit.graph, fit.node
    piece = Piece(graph)
    derived = {name: derive(fit) for name, derive in group.derive.items()}
    inputs = []
    for name in _names(group, len(node.inputs)):
        made = derived.get(name)
        if made is None:
            inputs.append(_operand(piece, fit, name))
        else:
            inputs.append(made if isinstance(made, str) else piece.constant(name, made))
    adds = {name: add(fit) for name, add in group.adds.items()}
    if group.floats:
        piece.write(group.target, inputs, [node.outputs[0]], node, group.domain, group.drops, adds)
        return Replacement([node], piece.result(), group.name)
    if not group.sums:
        result = fit.edges[group.result]
        piece.write(group.target, inputs, [result.tensor], node, group.domain, group.drops, adds)
        return Replacement([node, result.node], piece.result(), group.name)
    shape = graph.value(node.outputs[0]).shape
    sums = piece.value("sums", np.dtype(np.int32), shape)
    piece.write(group.target, inputs, [sums], node, group.domain, group.drops, adds)
    one, other = ((fit.edges[name].numbers(graph) or (np.ones(1), 0))[0].reshape(-1) for name in "ab")
    scale = np.asarray(one.astype(np.float32) * other.astype(np.float32))
    own = piece.constant("sums_scale", scale.reshape(()) if scale.size == 1 else scale)
    floats = piece.value("sums_floats", _FLOAT, shape)
    piece.write("Cast", [sums], [floats], adds={"to": TensorProto.FLOAT})
    piece.write("Mul", [floats, own], [node.outputs[0]])
    return Replacement([node], piece.result(), group.name)


def _names(group: Group, count: int) -> list[str]:
    """The operands of the operator of a group by name, those that repeat with their numbers."""
    names = list(group.form.names)
    if group.floats:
        return [name for name in names if name not in (f"{group.made}_scale", f"{group.made}_zero")]
    if not group.form.period:
        return names
    each = [_numbered(name, at) for at in range(count) for name in names[-group.form.period :]]
    return names[: -group.form.period] + each


def _numbered(name: str, at: int) -> str:
    """``x0_scale`` of ``x_scale``."""
    stem, _, part = name.partition("_")
    return f"{stem}{at}_{part}" if part else f"{stem}{at}"


def _operand(piece: Piece, fit: Fit, name: str) -> str:
    """An operand by its name: integers, their scale, their zero point; zeros where they have none."""
    stem, _, part = name.rpartition("_")
    if stem not in fit.edges:
        return fit.edges[name].tensor if name in fit.edges else fit.plain[name]
    edge = fit.edges[stem]
    if part == "scale":
        return edge.scale
    if edge.zero:
        return edge.zero
    return piece.constant(name, np.zeros(piece.graph.value(edge.scale).concrete_shape, edge.dtype))
