# SPDX-License-Identifier: Apache-2.0
"""Pieces of a ``Graph`` back to ONNX: sub-models for the host, skeletons for shape inference.

Together with ``importer`` the only place that builds or reads protobuf.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TypeProto, helper, numpy_helper

from onedispatch.dispatch.frontend.external_data import refuse_external
from onedispatch.dispatch.frontend.facts import Facts
from onedispatch.dispatch.frontend.graph import Array, Dimension, Graph, Node, Value, dtype_of, type_name_of
from onedispatch.dispatch.frontend.importer import value_of
from onedispatch.dispatch.frontend.runtime_shapes import INFERRED_AS_NEWER, infer_as_computed, mend_resized
from onedispatch.dispatch.frontend.shape_operands import shape_operands
from onedispatch.dispatch.frontend.shared_checks import types_of_version
from onedispatch.dispatch.frontend.validity import check_nodes
from onedispatch.transactions.base.errors import ModelError
from onedispatch.transactions.base.handlers import reraise_from_handler

# Of the frame that is written here, not of the nodes in it: from 4 on initializers need not be
# inputs, and onnxruntime refuses versions that are newer than itself.
_IR_VERSION = 8
# By the version of onnx, and for what protobuf cannot hold.
_INFERENCE_ERRORS = (onnx.shape_inference.InferenceError, RuntimeError, ValueError, TypeError)
# Operators whose sizes inference computes as differences, or takes as given, without a look at their sign.
_MAY_SHRINK = frozenset(
    "AveragePool CenterCropPad Col2Im Conv ConvInteger ConvTranspose Expand LpPool MaxPool MaxUnpool Pad "
    "QLinearConv Resize Split TopK Upsample".split()
)
_SMALL = 4096  # elements up to which a constant goes along into shape inference


class OwnInference(Protocol):
    """Shapes and types of nodes that ONNX has no schema for."""

    def takes(self, node: Node) -> bool: ...

    def infer(
        self, node: Node, known: Callable[[str], Value], constants: Mapping[str, Array]
    ) -> Iterable[Value]:
        """What is known of the node's outputs, given what is known of its inputs."""
        ...


def type_proto(type_name: str, shape: Sequence[Dimension] | None) -> TypeProto:
    """The protobuf of a type in ONNX Runtime's spelling."""
    outer, _, inner = type_name.partition("(")
    inner = inner[:-1]
    match outer:
        case "tensor" | "sparse_tensor":
            dtype = dtype_of(f"tensor({inner})")
            if dtype is None:
                raise ModelError("a value", f"type {type_name!r}", "a known element type")
            element = helper.np_dtype_to_tensor_dtype(dtype)
            if outer == "sparse_tensor":
                return helper.make_sparse_tensor_type_proto(element, shape)
            return helper.make_tensor_type_proto(element, shape)
        case "seq":
            return helper.make_sequence_type_proto(type_proto(inner, None))
        case "optional":
            return helper.make_optional_type_proto(type_proto(inner, None))
        case "map":
            key, _, value = inner.partition(",")
            proto = TypeProto()
            proto.map_type.key_type = helper.np_dtype_to_tensor_dtype(dtype_of(f"tensor({key})") or 0)
            proto.map_type.value_type.CopyFrom(type_proto(value, None))
            return proto
    raise ModelError("a value", f"type {type_name!r}", "tensor, seq, optional, map")


def rewired(node: Node, inputs: Sequence[str], outputs: Sequence[str]) -> Node:
    """``node`` with other names on its edges."""
    proto = node_proto(node)
    del proto.input[:], proto.output[:]
    proto.input.extend(inputs)
    proto.output.extend(outputs)
    return replace(node, inputs=tuple(inputs), outputs=tuple(outputs), proto=proto.SerializeToString())


def renamed(node: Node, name: str, names: Mapping[str, str]) -> Node:
    """``node`` under another name, with the names of its edges as ``names`` says. It has no subgraph."""
    inputs = [names.get(one, one) for one in node.inputs]
    outputs = [names.get(one, one) for one in node.outputs]
    proto = node_proto(node)
    proto.name = name
    changed = replace(node, name=name, proto=proto.SerializeToString())
    return rewired(changed, inputs, outputs)


def cast_node(name: str, source: str, target: str, dtype: np.dtype[Any]) -> Node:
    """A node Cast from ``source`` to ``target``, which is of ``dtype``."""
    to = int(helper.np_dtype_to_tensor_dtype(dtype))
    proto = helper.make_node("Cast", [source], [target], name=name, to=to)
    return Node(name, "Cast", "", (source,), (target,), {"to": to}, proto=proto.SerializeToString())


def node_proto(node: Node) -> NodeProto:
    proto = NodeProto()
    proto.ParseFromString(node.proto)
    return proto


def sub_model(
    graph: Graph,
    nodes: Iterable[Node],
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    initializers: Mapping[str, Array],
) -> ModelProto:
    """A model of ``nodes`` with the given border; types may be unknown."""
    model = ModelProto()
    model.ir_version = _IR_VERSION
    for domain, version in graph.opsets.items():
        model.opset_import.append(helper.make_opsetid(domain, version))
    model.graph.name = graph.name
    for value in inputs:
        info = model.graph.input.add()
        info.name = value.name
        if value.type:
            info.type.CopyFrom(type_proto(value.type, value.shape))
    for value in outputs:
        info = model.graph.output.add()
        info.name = value.name
        if value.type:
            info.type.CopyFrom(type_proto(value.type, value.shape))
    for name, array in initializers.items():
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    for node in nodes:
        model.graph.node.append(node_proto(node))
    refuse_external(model)  # onnx and onnxruntime would read whatever file it names
    return model


def infer_values(
    graph: Graph,
    bound: Mapping[str, Value],
    hints: Mapping[str, Array],
    *,
    propagate: bool = False,
    own: OwnInference | None = None,
    settled: Collection[str] = (),
) -> dict[str, Value]:
    """Types and shapes of all edges, with graph inputs as ``bound`` says.

    ``hints`` are values known beyond the graph's constants, of inputs or of what nodes make.
    Large weights take part by their shape only. Where inference knows nothing, declared types
    survive without their shapes, since shapes declared for another batch would mislead.
    ``propagate`` lets inference follow partly known integers; it then takes memory for every
    element of every tensor with one dimension. Nodes that ``own`` takes are inferred there, the others in
    as many runs as there are such nodes on a path, each node in one of them. Nodes that make nothing but
    ``settled`` are left out: what ``graph.values`` says of these stays.
    """
    if settled:
        rest = [node for node in graph.nodes if not all(name in settled for name in node.writes)]
        if not rest:
            return dict(graph.values)
        near = _of(hints, rest)
        piece = _piece(graph, rest, graph.value, hints)
        found = infer_values(piece, {}, near, propagate=propagate, own=own)
        made = {name for node in rest for name in node.writes}.union(near)
        return {**graph.values, **{name: value for name, value in found.items() if name in made}}
    waves = _waves(graph.nodes, own)
    if len(waves) == 1 and not waves[0][1]:
        return _infer_onnx(graph, bound, hints, propagate)
    found = {name: Value(name, value.type) for name, value in graph.values.items() if value.type}
    found.update({name: Value(name, type_name_of(a.dtype), a.shape) for name, a in hints.items()})
    found.update({v.name: bound.get(v.name, v) for v in graph.inputs})

    def known(name: str) -> Value:
        constant = graph.constants.get(name)
        return graph.value(name) if constant is not None else found.get(name, Value(name))

    for wave, others in _waves(graph.nodes, own):
        plain = _typed(wave, {*graph.constants, *hints}, known)
        if plain:
            piece = _piece(graph, plain, known, hints)
            inferred = _infer_onnx(piece, {}, _of(hints, plain), propagate)
            found.update({n: inferred[n] for node in plain for n in node.writes if n in inferred})
        for node in others:
            assert own is not None  # which takes them
            deciding = {name: hints[name] for name in shape_operands(node) if name in hints}
            constants = {**graph.constants, **deciding} if deciding else graph.constants
            found.update({value.name: value for value in own.infer(node, known, constants)})
    return found


def _waves(nodes: Iterable[Node], own: OwnInference | None) -> list[tuple[list[Node], list[Node]]]:
    """The nodes by how many that ``own`` takes lie before them; those themselves come second.

    Slices come in the next wave where what they read may have negative sizes: onnx's inference of Slice ends
    the process at these, and what is known of a wave by the next has none.
    """
    waves: list[tuple[list[Node], list[Node]]] = [([], [])]
    behind: dict[str, int] = {}
    doubtful: dict[str, int] = {}  # the last wave in which something before a value may have negative sizes
    for node in nodes:
        at = max((behind.get(name, 0) for name in node.reads), default=0)
        doubt = max((doubtful.get(name, -1) for name in node.reads), default=-1)
        at += node.op_type == "Slice" and doubt == at
        taken = own is not None and own.takes(node)
        waves += [([], []) for _ in range(at + 1 - len(waves))]
        waves[at][taken].append(node)
        behind.update(dict.fromkeys(node.writes, at + taken))
        if node.op_type not in ("Shape", "Size"):  # of lists of sizes the length is known
            doubtful.update(dict.fromkeys(node.writes, at if node.op_type in _MAY_SHRINK else doubt))
    return waves


def _typed(nodes: Iterable[Node], given: Collection[str], known: Callable[[str], Value]) -> list[Node]:
    """Those of ``nodes`` that read nothing whose type is unknown, which inference would refuse."""
    made: set[str] = set()
    found = []
    for node in nodes:
        if all(name in made or name in given or known(name).type for name in node.reads):
            found.append(node)
            made.update(node.writes)
    return found


def _piece(
    graph: Graph, nodes: Sequence[Node], known: Callable[[str], Value], hints: Mapping[str, Array]
) -> Graph:
    """``nodes`` as a graph of their own, whose inputs are what is known of them by now."""
    made = {name for node in nodes for name in node.writes}
    reads = dict.fromkeys(name for node in nodes for name in node.reads if name not in made)
    return replace(
        graph,
        nodes=tuple(nodes),
        inputs=tuple(known(name) for name in reads if name not in graph.constants and name not in hints),
        outputs=tuple(value for value in graph.outputs if value.name in made),
        constants={name: graph.constants[name] for name in reads if name in graph.constants},
    )


def _of(hints: Mapping[str, Array], nodes: Iterable[Node]) -> dict[str, Array]:
    names = {name for node in nodes for name in (*node.reads, *node.writes)}
    return {name: array for name, array in hints.items() if name in names}


def _infer_onnx(
    graph: Graph, bound: Mapping[str, Value], hints: Mapping[str, Array], propagate: bool
) -> dict[str, Value]:
    known = {**graph.constants, **hints}
    values = {v.name: bound.get(v.name, v) for v in graph.inputs if v.name not in hints}
    large = [graph.value(n) for n, a in graph.constants.items() if a.size > _SMALL and n not in hints]
    small = {n: a for n, a in known.items() if n in hints or a.size <= _SMALL}
    inputs = [v for v in (*values.values(), *large) if v.type]
    # Of an output inference has what is said there alone: a constant's shape has to be said too.
    values |= {v.name: graph.value(v.name) for v in graph.outputs if v.name in graph.constants}
    outputs = [values.get(v.name, Value(v.name, v.type)) for v in graph.outputs if v.name not in hints]
    nodes = [node for node in graph.nodes if not node.writes or any(n not in hints for n in node.writes)]
    model = sub_model(graph, nodes, inputs, outputs, small)
    infer_as_computed(model)
    inferred = inferred_graph(model, graph, nodes, propagate)
    while mend_resized(model, inferred):
        inferred = inferred_graph(model, graph, nodes, propagate)
    found: dict[str, Value] = {
        name: Value(name, value.type) for name, value in graph.values.items() if value.type
    }
    for info in (*inferred.value_info, *inferred.output):
        value = value_of(info)
        if value.type:
            found[value.name] = value
    found.update({name: Value(name, type_name_of(a.dtype), a.shape) for name, a in hints.items()})
    found.update({v.name: bound.get(v.name, v) for v in graph.inputs})
    _check_types(replace(graph, values={**graph.values, **found}), nodes)
    return found


def _check_types(graph: Graph, nodes: Iterable[Node]) -> None:
    """Checks types where inference was that of a newer version of the operator."""
    for node in nodes:
        if node.op_type in INFERRED_AS_NEWER and not node.domain:
            types_of_version(Facts.of(graph, node))


def inferred_graph(
    model: ModelProto, graph: Graph, nodes: Iterable[Node], propagate: bool = False
) -> onnx.GraphProto:
    """The graph of ``model`` with types and shapes. Raises ``ModelError`` where these contradict each other.

    ``model`` is made of ``nodes`` of ``graph``.
    """
    try:
        return onnx.shape_inference.infer_shapes(
            model, check_type=True, strict_mode=True, data_prop=propagate
        ).graph
    except _INFERENCE_ERRORS as error:
        reraise_from_handler(error)
        strict = error
    if propagate:  # which takes the sum of a column and a row of integers for one of lists
        return inferred_graph(model, graph, nodes)
    try:
        lenient = onnx.shape_inference.infer_shapes(model).graph
    except _INFERENCE_ERRORS as error:
        reraise_from_handler(error)
        lenient = model.graph
    # The rules name the node, what it was given and what is accepted; inference just says no.
    known = {info.name: value_of(info) for info in (*model.graph.input, *lenient.value_info)}
    check_nodes(replace(graph, values={**graph.values, **known}), nodes)
    text = str(strict).strip()
    # Nested errors come from bodies of functions, whose inference has gaps of its own; and Range takes
    # lists of one value everywhere but where inference knows the value.
    known_gap = text.count("Inference error(s)") > 1 or "'Range' op should be scalars" in text
    if known_gap and lenient is not model.graph:
        return lenient
    raise ModelError("shape inference", text, "shapes and types that fit together") from strict
