# SPDX-License-Identifier: Apache-2.0
"""A model in a narrower floating-point type than it says: ``precision`` of ``onedispatch.compile``.

Every float32 tensor between the model's inputs and its outputs becomes one of the narrower type, constants
at compile time, by a pass from graph to graph. It comes after folding and the rules, which see the model as
it is, and before mapping, whose merges see element types as they will be. What stays float32:

- inputs and outputs of the model: casts on the device stand behind and before them;
- operands that decide shapes (``shape_operands``) and what computes them, and attributes: an epsilon is no
  tensor;
- scales, which say what integers stand for, with the nodes that take them; custom kernels, which were
  written for what the model says; bodies of control flow;
- what is counted: from integers through products and sums to a sine or cosine, to an output or to integers
  again, and from inputs of the model so to integers; eight bits tell no place beyond 256 from the next;
- the places that GridSample takes, and sums, transforms and moves that make them: eight bits are less than
  the pixels of most images;
- what only moves elements between values that stay float32, and what makes integers of one tensor of
  integers, but for products: kernels that take a DequantizeLinear and a QuantizeLinear in compute so;
- nodes that do not map in the narrower type, nor by their function bodies in it: they compute in float32
  between casts, and a remark says why.
  Two of them in a row hand on float32, which takes no cast and rounds less.

A tensor has one name in each type, and is cast at most once, before the first node that wants it so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace

import onnx

from onedispatch.dispatch.base.precisions import EXACT, PRECISIONS, narrow_name, rounded
from onedispatch.dispatch.compiler.expand import expand_bodies
from onedispatch.dispatch.compiler.mapping import Refusal, refusals_of
from onedispatch.dispatch.compiler.quantised import has_scales
from onedispatch.dispatch.compiler.rewrite import rewrite
from onedispatch.dispatch.frontend.exporter import cast_node, rewired
from onedispatch.dispatch.frontend.graph import Array, Graph, Node, Value, type_name_of
from onedispatch.dispatch.frontend.shape_operands import compiled_positions, operand_cone
from onedispatch.dispatch.rules.integers import MOVERS
from onedispatch.dispatch.rules.match import Index
from onedispatch.dispatch.rules.table import NARROWED
from onedispatch.operators.declarations.registry import custom_mapping
from onedispatch.transactions import Device

_F32 = PRECISIONS[EXACT]
_CUSTOM = Refusal("custom kernels take what the model says")


def lower_precision(graph: Graph, precision: str, device: Device) -> Graph:
    """``graph``, whose shapes are known, with its float32 tensors in the type of ``precision``.

    ``inserted`` of the result names the casts, ``remarks`` the nodes that compute in float32 for want of a
    kernel.
    """
    if precision == EXACT:
        return graph
    return _Narrowing(rewrite(graph, device, NARROWED), precision, device).result()


_STEPS = frozenset(
    "Abs Add Ceil Clip Cos CumSum Div Floor Max Min Mod Mul Neg Range ReduceSum Round Sin Sub Sum Tan "
    "Where".split()
)
_PRODUCTS = frozenset(("Einsum", "Gemm", "MatMul"))  # of counted values; those of data are what networks are
# With more work in them than casts around them take.
_HEAVY = _PRODUCTS | frozenset("Attention Conv ConvTranspose GRU LSTM MultiHeadAttention RNN".split())
_PLACES = {"GridSample": (1,)}  # op_type -> operands that are places
_PERIODIC = frozenset(("Cos", "Sin", "Tan"))


def counted_values(graph: Graph) -> frozenset[str]:
    """Names of values that count: those on ways from integers to sines, cosines and outputs of the model, and
    on ways from integers or inputs of the model to integers that are cast from them, with their ends.

    A way has products, sums and moves only; what else a step reads is a constant, or of such a way as well.
    """
    counted = _ways(graph, frozenset(), _STEPS | _PRODUCTS)
    angles = [name for name, node in counted.items() if node.op_type in _PERIODIC]
    inputs = frozenset(value.name for value in graph.inputs)
    fed = _ways(graph, inputs, _STEPS)
    casts = [
        node for node in graph.nodes if _to_integers(graph, node) and {*fed, *inputs}.issuperset(node.reads)
    ]
    whole = [name for node in casts for name in node.reads]
    made = {name for node in casts for name in node.writes}
    shown = _back(list(graph.output_names), _ways(graph, frozenset(), _STEPS))
    return _back(angles, counted) | _back(whole, fed) | made | shown


def sampled_places(graph: Graph) -> frozenset[str]:
    """Names of values that say where GridSample samples, and of those that sums, transforms and moves make
    them of."""
    sampling = [node for node in graph.nodes if node.op_type in _PLACES and not node.domain]
    makers = {
        name: node
        for node in (graph.nodes if sampling else ())
        if not node.domain and (node.op_type in _STEPS or _moves(node) or _transforms(graph, node))
        for name in node.writes
    }
    places = [node.inputs[at] for node in sampling for at in _PLACES[node.op_type]]
    return _back([*places], makers) | frozenset(places)


def _transforms(graph: Graph, node: Node) -> bool:
    """Whether it is a product of places, which have two or three coordinates, and one for what is added."""
    if node.op_type != "MatMul":
        return node.op_type == "AffineGrid"
    *_, size = graph.value(node.inputs[0]).concrete_shape
    return size <= 4


def _ways(graph: Graph, inputs: Set[str], steps: Set[str]) -> dict[str, Node]:
    """float32 value -> what makes it of integers, constants and ``inputs``, by operators ``steps``."""
    counted: dict[str, Node] = {}
    for node in graph.nodes:
        if node.domain or not (node.op_type in steps or node.op_type == "Cast" or _moves(node)):
            continue
        floats = [name for name in node.reads if graph.value(name).dtype == _F32]
        given = [name for name in floats if name not in graph.constants]
        whole = any(_is_whole(graph, name) for name in node.reads)
        if (node.op_type == "Cast" and whole) or (given and all(n in counted or n in inputs for n in given)):
            counted.update((name, node) for name in node.writes if graph.value(name).dtype == _F32)
    return counted


def _to_integers(graph: Graph, node: Node) -> bool:
    if node.op_type != "Cast" or node.domain or graph.value(node.inputs[0]).dtype != _F32:
        return False
    return _is_whole(graph, node.outputs[0])


def _is_whole(graph: Graph, name: str) -> bool:
    dtype = graph.value(name).dtype
    return dtype is not None and dtype.kind in "biu"


def _back(ends: list[str], makers: Mapping[str, Node]) -> frozenset[str]:
    """Those of ``ends`` that a node makes, and all values that they are computed from."""
    found: set[str] = set()
    while ends:
        name = ends.pop()
        if name in makers and name not in found:
            found.add(name)
            ends += makers[name].reads
    return frozenset(found)


def _moves(node: Node) -> bool:
    mover = MOVERS.get(node.op_type) if not node.domain else None
    return mover is not None and mover.where is None and not mover.orders


def _float32_makers(index: Index, node: Node) -> list[Node]:
    """The nodes that make the float32 values that ``node`` reads, value by value."""
    read = (name for name in node.reads if index.graph.value(name).dtype == _F32)
    return [index.makers[name] for name in read if name in index.makers]


def _between_integers(index: Index, node: Node) -> bool:
    """Whether its one float32 tensor is dequantised, and the one that it makes is quantised alone."""
    given = _float32_makers(index, node)
    if node.op_type in _HEAVY or len(given) != 1 or len(node.writes) != 1:
        return False
    (made,) = node.writes
    readers = index.readers.get(made, ())
    inside = bool(readers) and made not in index.graph.output_names
    return inside and all(has_scales(one) for one in (*given, *readers))


@dataclass
class _Narrowing:
    """The graph that is made, node by node: a float32 tensor goes on under its own name."""

    graph: Graph
    precision: str
    device: Device
    values: dict[str, Value] = field(init=False)
    constants: dict[str, Array] = field(init=False)
    inserted: dict[str, str] = field(init=False)
    remarks: dict[str, str] = field(init=False)
    nodes: list[Node] = field(default_factory=list)
    order: dict[str, list[str]] = field(default_factory=dict)  # node -> casts before it; "": at the end
    _made: set[str] = field(default_factory=set)  # names that something makes by now

    def __post_init__(self) -> None:
        graph = self.graph
        self.dtype = PRECISIONS[self.precision]
        self.values, self.constants = dict(graph.values), dict(graph.constants)
        self.inserted, self.remarks = dict(graph.inserted), dict(graph.remarks)
        self._made = {value.name for value in graph.inputs} | set(graph.constants)

    def result(self) -> Graph:
        graph = self.graph
        narrow = self._narrow_nodes()
        for node in graph.nodes:
            chosen = narrow.get(node.name, node)
            for name in chosen.reads:
                self._provide(name, node)
            self.nodes.append(chosen)
            self._made.update(chosen.writes)
        for value in graph.outputs:
            self._provide(value.name, None)
        opsets = {"": onnx.defs.onnx_opset_version(), **graph.opsets}
        changed = replace(
            graph, values=self.values, inserted=self.inserted, remarks=self.remarks, opsets=opsets
        )
        changed = changed.with_nodes(self.nodes, constants=self.constants, order=self._ordered())
        return expand_bodies(changed, self.device)  # nodes that map so by their bodies alone

    # -- which nodes -----------------------------------------------------------------------------

    def _narrow_nodes(self) -> dict[str, Node]:
        """By name: the nodes that compute in the narrower type, between tensors of it."""
        cone = operand_cone(self.graph) | counted_values(self.graph) | sampled_places(self.graph)
        wanted = {node.name: self._narrow(node) for node in self.graph.nodes if self._may(node, cone)}
        refused = self._refused(wanted.values())
        left = [node for node in self.graph.nodes if node.name in refused]
        hosts = refusals_of(self.graph, left, self.device)  # these do not map in float32 either
        for node in left:
            if node.name not in hosts:
                self._remark(node, refused[node.name])
        for node in self.graph.nodes:
            if custom_mapping(node) is not None and self._has_float32(node):
                self._remark(node, _CUSTOM)
        narrow = wanted.keys() - refused.keys()
        narrow -= self._between_wide(narrow)
        return {name: node for name, node in wanted.items() if name in narrow}

    def _between_wide(self, narrow: Set[str]) -> set[str]:
        """Those that only move elements between values that stay float32, or make integers of integers: no
        cast would pay."""
        edges: dict[str, set[str]] = {}  # node -> those that give it float32, or take that
        index = Index.of(self.graph)
        for node in self.graph.nodes:
            for maker in _float32_makers(index, node):
                edges.setdefault(node.name, set()).add(maker.name)
                edges.setdefault(maker.name, set()).add(node.name)
        moving = {node.name for node in self.graph.nodes if node.name in narrow and _moves(node)}
        waiting = [name for name in moving if edges.get(name, set()) & (narrow - moving)]
        while waiting:  # what is beside narrow ones is narrow
            name = waiting.pop()
            if name in moving:
                moving.remove(name)
                waiting += edges[name] & moving
        return moving | {node.name for node in self.graph.nodes if _between_integers(index, node)}

    def _may(self, node: Node, cone: frozenset[str]) -> bool:
        """Whether the node has float32 data, and nothing says that it must stay so."""
        if node.has_subgraph or custom_mapping(node) is not None or has_scales(node):
            return False
        values = [self.graph.value(name) for name in (*node.reads, *node.writes)]
        if any(value.type and value.dtype is None for value in values):  # sequences and the like hold tensors
            return False
        return cone.isdisjoint(node.writes) and self._has_float32(node)

    def _has_float32(self, node: Node) -> bool:
        return any(self.graph.value(name).dtype == _F32 for name in (*node.reads, *node.writes))

    def _narrow(self, node: Node) -> Node:
        """The node between tensors of the narrower type."""
        wide = (*compiled_positions(node), *(_PLACES.get(node.op_type, ()) if not node.domain else ()))
        inputs = [n if i in wide else self._narrow_name(n) for i, n in enumerate(node.inputs)]
        outputs = [self._narrow_name(name) for name in node.outputs]
        if node.op_type == "Cast" and not node.domain and outputs[0] != node.outputs[0]:
            return replace(cast_node(node.name, inputs[0], outputs[0], self.dtype), opset=node.opset)
        return rewired(node, inputs, outputs)

    def _refused(self, nodes: Iterable[Node]) -> dict[str, Refusal]:
        """Those that do not map so, by name, each with the reason."""
        nodes = tuple(nodes)
        read = dict.fromkeys(name for node in self.graph.nodes for name in node.reads)
        read.update(dict.fromkeys(value.name for value in self.graph.outputs))
        outputs = tuple(Value(self._names.get(name, name)) for name in read)  # the others are absent
        trial = replace(
            self.graph, nodes=nodes, values=self.values, constants=self.constants, outputs=outputs
        )
        refused = refusals_of(trial, trial.nodes, self.device)
        left = tuple(node for node in nodes if node.name in refused)
        made = {name for node in left for name in node.writes}.union(self.constants)
        given = dict.fromkeys(name for node in left for name in node.reads if name not in made)
        inputs = tuple(trial.value(name) for name in given)
        expanded = expand_bodies(replace(trial, nodes=left, inputs=inputs), self.device)
        return {node.name: refused[node.name] for node in expanded.nodes if node.name in refused}

    def _remark(self, node: Node, refusal: Refusal) -> None:
        """Also where the row of the node of the model is that the node stands for."""
        origin = self.graph.origins.get(node.name)
        text = f"precision={self.precision!r}: {node.op_type} computes in float32: {refusal}"
        for name in dict.fromkeys((node.name, *(one.name for one in (origin.nodes if origin else ())))):
            known = self.remarks.get(name, "")
            if text not in known:
                self.remarks[name] = f"{known}; {text}" if known else text

    # -- tensors -----------------------------------------------------------------------------------

    _names: dict[str, str] = field(default_factory=dict)  # of float32 tensors -> in the narrower type
    _wide: dict[str, str] = field(default_factory=dict)  # the other way

    def _narrow_name(self, name: str) -> str:
        """A tensor's name in the narrower type; its own where it is no float32 one."""
        value = self.graph.value(name)
        if value.dtype != _F32:
            return name
        if name not in self._names:
            own = narrow_name(name, self.precision)
            self._names[name], self._wide[own] = own, name
            self.values[own] = Value(own, type_name_of(self.dtype), value.shape)
            constant = self.graph.constants.get(name)
            if constant is not None:
                self.constants[own] = rounded(constant, self.dtype)
                self._made.add(own)
        return self._names[name]

    def _provide(self, name: str, reader: Node | None) -> None:
        """Casts a tensor to the type that ``reader`` wants it in, where nothing has made it so."""
        if name in self._made:
            return
        source = self._wide.get(name) or self._names.get(name, "")
        if source not in self._made:
            return  # of a body: nothing of this graph makes it
        given, wanted = self.values[source].type, self.values[name].type
        cast = cast_node(f"{source}//Cast to {wanted}", source, name, self.values[name].dtype or _F32)
        self.inserted[cast.name] = f"inserted by precision={self.precision!r}: {given} to {wanted}"
        self.nodes.append(cast)
        self._made.add(name)
        self.order.setdefault(reader.name if reader is not None else "", []).append(cast.name)

    def _ordered(self) -> tuple[str, ...]:
        """The model's nodes as it lists them, casts before those that wanted them first."""
        listed = set(self.graph.order)
        before: dict[str, list[str]] = {}
        for node in self.graph.nodes:
            origin = self.graph.origins.get(node.name)
            place = node.name if node.name in listed or origin is None else origin.nodes[-1].name
            before.setdefault(place, []).extend(self.order.get(node.name, ()))
        ordered = [one for name in self.graph.order for one in (*before.get(name, ()), name)]
        return (*ordered, *self.order.get("", ()))
