# SPDX-License-Identifier: Apache-2.0
"""Reads TensorFlow GraphDefs as ``Graph``: nodes of TensorFlow's operators, whose edges are tensor names.

Output 0 of the node ``a/b`` is the edge ``a/b``, output 1 is ``a/b:1``. Constants and placeholders are no
nodes but constants and inputs of the graph. Control inputs are dropped: they say when something runs, not
what it computes. Any defect of a GraphDef is a ``ModelError``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from onedispatch.dispatch.base import limits
from onedispatch.dispatch.frontend.graph import Array, Folded, Graph, Node, Value, prune, sort_nodes
from onedispatch.dispatch.sources.targets import OPSET
from onedispatch.dispatch.tensorflow import messages
from onedispatch.dispatch.tensorflow.signatures import signature_of
from onedispatch.dispatch.tensorflow.values import Shape, ValueReader, dtype_of, onnx_type, shape_of
from onedispatch.transactions.base.errors import InputError, ModelError
from onedispatch.transactions.base.files import reading
from onedispatch.transactions.base.handlers import reraise_from_handler
from onedispatch.transactions.base.text import counted, did_you_mean

DOMAIN = "tensorflow"
_IR_VERSION = 10
_INPUTS = ("Placeholder", "PlaceholderV2", "PlaceholderWithDefault")
_UNKNOWN_SHAPES = 24  # producers before this version wrote [] for a placeholder of unknown shape
_ONNX_IR_VERSION = b"\x08"  # the tag of ModelProto's first field
_SHOWN = 8  # names in a message


def is_graphdef(model: object) -> bool:
    """True for a GraphDef message, a path that ends in ``.pbtxt``, and a ``.pb`` that is no ONNX model.

    Never raises; False for what cannot be read.
    """
    if messages.is_message(model):
        return True
    if not isinstance(model, str | os.PathLike):
        return False
    path = os.fsdecode(model)
    if path.endswith(messages.TEXT_SUFFIX) or os.path.basename(path) == messages.SAVED_MODEL:
        return True
    if not path.endswith(".pb") or not os.path.isfile(path):
        return False
    try:
        with reading(path) as file:
            return file.read(1) != _ONNX_IR_VERSION
    except InputError:
        return False  # opening it says why it cannot be read


def read_graphdef(model: Any, outputs: Sequence[str] | None = None) -> Graph:
    """Returns the graph of a GraphDef: a path (``.pbtxt`` for text), its bytes, or a message of any package.

    Args:
        model: the GraphDef; a message is left unchanged.
        outputs: names of the tensors that the graph computes, ``y`` or ``y:1``; nodes that none of them needs
            are dropped. Without: all tensors of nodes that no other node reads.

    Raises:
        ModelError: no such file, not a GraphDef, a broken graph, an output that no node has.
        InputError: tensorboard is not installed, or ``outputs`` is no list of distinct names.
    """
    asked = None if outputs is None else _asked(outputs)
    proto = messages.read_message(model)
    try:
        return _Reader(proto, asked).graph()
    except ModelError:
        raise
    except (ValueError, TypeError, KeyError, RuntimeError, MemoryError, OverflowError) as error:
        reraise_from_handler(error)
        raise ModelError("the model", f"{type(error).__name__}: {error}", "a valid GraphDef") from error


def _asked(outputs: Sequence[str]) -> list[str]:
    names = [] if isinstance(outputs, str | bytes) else list(outputs)
    if not names or not all(isinstance(name, str) and name for name in names):
        raise InputError("outputs", repr(outputs)[:80], "a list of tensor names", 'write ["y"]')
    edges = [edge(*split(name)) for name in names]
    if len(set(edges)) < len(edges):
        raise InputError("outputs", repr(names)[:200], "every tensor once")
    return edges


def split(name: str) -> tuple[str, int]:
    """Returns the node and the number of the output that a tensor name says: ("a", 1) for ``a:1``."""
    node, colon, number = name.rpartition(":")
    if colon and number.isascii() and number.isdigit() and len(number) < 10:
        return node, int(number)
    return name, 0


def edge(node: str, number: int) -> str:
    """Returns the name of an output of a node: ``a`` for the first, ``a:1`` for the second."""
    return f"{node}:{number}" if number else node


class _Reader:
    """One GraphDef while it is read; ``proto`` is not modified."""

    def __init__(self, proto: Any, asked: Sequence[str] | None) -> None:
        self.proto = proto
        self.asked = asked
        self.values = ValueReader(proto.ByteSize())
        self.known: dict[str, Value] = {}
        self.constants: dict[str, Array] = {}
        self.inputs: list[Value] = []
        self.folded: list[Folded] = []

    def graph(self) -> Graph:
        """Converts and checks the whole GraphDef."""
        _check_names(self.proto.node)
        read = {proto.name: [_source(proto, one) for one in _data_inputs(proto)] for proto in self.proto.node}
        highest = _highest([*(one for many in read.values() for one in many), *map(split, self.asked or ())])
        nodes = []
        for proto in self.proto.node:
            if proto.op == "Const":
                self._take_constant(proto)
            elif proto.op in _INPUTS:
                self._take_input(proto)
            else:
                inputs = tuple(edge(*one) for one in read[proto.name])
                nodes.append(self._node(proto, inputs, highest.get(proto.name, 0) + 1))
        nodes_sorted = sort_nodes(nodes, [*(v.name for v in self.inputs), *self.constants])
        return _needed_inputs(prune(self._graph(nodes_sorted)))

    def _graph(self, nodes: tuple[Node, ...]) -> Graph:
        producer = int(self.proto.versions.producer)
        graph = Graph(
            "model",
            nodes,
            tuple(self.inputs),
            (),
            self.constants,
            self.known,
            {DOMAIN: max(producer, 0), "": OPSET},
            _IR_VERSION,
            tuple(self.folded),
            tuple(proto.name for proto in self.proto.node),
        )
        names = self._unread(nodes) if self.asked is None else self._checked(self.asked, nodes)
        outputs = tuple(graph.value(name) for name in names)
        return replace(graph, outputs=outputs).with_nodes(nodes)

    # -- outputs -----------------------------------------------------------------------------

    def _unread(self, nodes: Iterable[Node]) -> list[str]:
        """Returns the tensors of nodes that no node reads."""
        nodes = tuple(nodes)
        read = {name for node in nodes for name in node.reads}
        found = [name for node in nodes if read.isdisjoint(node.writes) for name in node.writes]
        if not found:
            candidates = [name for node in nodes for name in node.writes]
            accepted = (
                f"outputs=[...] with some of: {_listed(candidates)}" if candidates else "nodes to compute"
            )
            raise ModelError("the graph", "no tensor that no node reads", accepted)
        return found

    def _checked(self, asked: Sequence[str], nodes: Iterable[Node]) -> Sequence[str]:
        """Returns the asked tensors. Raises ``ModelError`` for one that the graph does not have."""
        made = [name for node in nodes for name in node.writes]
        known = {*made, *(v.name for v in self.inputs), *self.constants}
        for name in asked:
            if name not in known:
                near = did_you_mean(name, known) or f"names that no node reads: {_listed(self._ends(made))}"
                raise ModelError(f"output {name!r}", "a name that no node has", "a tensor of the graph", near)
        return asked

    def _ends(self, made: Sequence[str]) -> list[str]:
        read = {edge(*_source(proto, one)) for proto in self.proto.node for one in _data_inputs(proto)}
        return [name for name in made if name not in read] or list(made)

    # -- nodes -------------------------------------------------------------------------------

    def _take_constant(self, proto: Any) -> None:
        if "value" not in proto.attr or not proto.attr["value"].HasField("tensor"):
            raise ModelError(_where(proto), "no value", "a tensor in the attribute 'value'")
        self.constants[proto.name] = self.values.tensor(proto.attr["value"].tensor, _where(proto))
        self.folded.append(Folded(proto.name, proto.op, "a constant of the model"))

    def _take_input(self, proto: Any) -> None:
        where = _where(proto)
        if "dtype" not in proto.attr or not proto.attr["dtype"].type:
            raise ModelError(where, "no element type", "one in the attribute 'dtype'")
        dtype = dtype_of(proto.attr["dtype"].type, where)
        shape: Shape = None
        if "shape" in proto.attr:
            shape = shape_of(proto.attr["shape"].shape, where, dtype)
        if shape == () and self.proto.versions.producer < _UNKNOWN_SHAPES:
            shape = None
        value = Value(proto.name, onnx_type(dtype), shape)
        self.inputs.append(value)
        self.known[proto.name] = value

    def _node(self, proto: Any, inputs: tuple[str, ...], read: int) -> Node:
        """Returns a node; of an unknown operator it has as many outputs as are read."""
        where = _where(proto)
        attributes = self.values.attributes(proto.attr, where)
        signature = signature_of(proto.op)
        count = read if signature is None else signature.count(attributes, where)
        limits.NODE_OUTPUTS.check(where, count)
        outputs = tuple(edge(proto.name, number) for number in range(count))
        if signature is not None:
            shapes = attributes.get("_output_shapes")
            shapes = shapes if isinstance(shapes, list) else []
            for number, dtype in enumerate(signature.types(attributes)):
                self._note(outputs[number], onnx_type(dtype), shapes[number : number + 1])
        return Node(proto.name, proto.op, DOMAIN, inputs, outputs, attributes)

    def _note(self, name: str, kind: str, shapes: Sequence[Any]) -> None:
        if kind:
            shape = shapes[0] if shapes and isinstance(shapes[0], tuple) else None
            self.known[name] = Value(name, kind, shape)


def _needed_inputs(graph: Graph) -> Graph:
    """Returns the graph without placeholders that nothing reads: TensorFlow takes no data for them either."""
    needed = {name for node in graph.nodes for name in node.reads} | graph.output_names
    kept = tuple(value for value in graph.inputs if value.name in needed)
    dropped = (
        Folded(v.name, "Placeholder", "nothing reads its result")
        for v in graph.inputs
        if v.name not in needed
    )
    return replace(graph, inputs=kept, folded=(*graph.folded, *dropped))


def _check_names(nodes: Sequence[Any]) -> None:
    """Raises ``ModelError`` for names that are missing, twice there, or mean something else as an input."""
    limits.NODES.check("the model", len(nodes))
    seen: set[str] = set()
    for proto in nodes:
        for text in (proto.name, proto.op, *proto.input):
            limits.NAME_LENGTH.check(f"the name {text[:40]!r}...", len(text))
        if not proto.name or not proto.op or proto.name.startswith("^") or ":" in proto.name:
            given = f"the name {proto.name!r} and the operator {proto.op!r}"
            raise ModelError("a node", given, "a name without ^ and :, and an operator")
        if proto.name in seen:
            raise ModelError(f"node {proto.name}", "a name that another node has", "every name once")
        seen.add(proto.name)


def _data_inputs(proto: Any) -> list[str]:
    return [name for name in proto.input if not name.startswith("^")]


def _source(proto: Any, name: str) -> tuple[str, int]:
    if not name:
        raise ModelError(_where(proto), "an input without a name", "names of tensors")
    return split(name)


def _highest(sources: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Returns the highest number of an output that is read, for each node."""
    found: dict[str, int] = {}
    for name, number in sources:
        found[name] = max(number, found.get(name, 0))
    return found


def _where(proto: Any) -> str:
    return f"node {proto.name} ({proto.op})"


def _listed(names: Sequence[str]) -> str:
    more = f" and {counted(len(names) - _SHOWN, 'other')}" if len(names) > _SHOWN else ""
    return ", ".join(repr(name) for name in names[:_SHOWN]) + more
