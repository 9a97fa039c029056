# SPDX-License-Identifier: Apache-2.0
"""The graph of a model: frozen, checked, and free of protobuf.

Nodes are in topological order, every name is defined once, constants are NumPy arrays. ``Node.proto`` is the
serialised ONNX node, from which host regions and shape inference get the node unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np

from onedispatch.dispatch.base import limits
from onedispatch.dispatch.base.host_work import HostWork
from onedispatch.dispatch.base.mapped import all_owned, kept
from onedispatch.operators.declarations.registry import MICROSOFT
from onedispatch.operators.declarations.tensor import Quantisation
from onedispatch.transactions.base.cached import cached_property
from onedispatch.transactions.base.errors import InputError, ModelError
from onedispatch.transactions.base.text import did_you_mean

Array = np.ndarray[Any, Any]
Dimension = int | str | None  # concrete, symbolic, or unknown
NO_VERSION = (1 << 63) - 1  # onnxruntime's, of a model that says none

# ONNX Runtime's names of the element types.
_DTYPES: dict[str, Any] = {
    "float": np.float32,
    "double": np.float64,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "int8": np.int8,
    "int16": np.int16,
    "int32": np.int32,
    "int64": np.int64,
    "uint8": np.uint8,
    "uint16": np.uint16,
    "uint32": np.uint32,
    "uint64": np.uint64,
    "bool": np.bool_,
    "string": np.object_,
    "complex64": np.complex64,
    "complex128": np.complex128,
    "int4": ml_dtypes.int4,
    "uint4": ml_dtypes.uint4,
    "int2": ml_dtypes.int2,
    "uint2": ml_dtypes.uint2,
    "float8e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "float8e5m2": ml_dtypes.float8_e5m2,
    "float8e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    "float8e8m0": ml_dtypes.float8_e8m0fnu,
    "float4e2m1": ml_dtypes.float4_e2m1fn,
}
_TYPE_NAMES = {np.dtype(dtype): name for name, dtype in _DTYPES.items()}


@lru_cache
def dtype_of(type_name: str) -> np.dtype[Any] | None:
    """Returns NumPy's dtype of ``tensor(float)`` and the like; None for other and unknown types."""
    if not (type_name.startswith("tensor(") and type_name.endswith(")")):
        return None
    dtype = _DTYPES.get(type_name[7:-1])
    return None if dtype is None else np.dtype(dtype)


def known_type(type_name: str, depth: int = 0) -> bool:
    """True if ONNX has a type of this name: a tensor, a sequence of tensors, ...; "" is the unknown type."""
    outer, bracket, inner = type_name.partition("(")
    if not type_name:
        return True
    if not bracket or not inner.endswith(")") or depth > limits.TYPE_DEPTH.most:
        return False
    inner = inner[:-1]
    if outer in ("tensor", "sparse_tensor"):
        return inner in _DTYPES or inner == "undefined"
    if outer == "map":
        key, _, value = inner.partition(",")
        return key in _DTYPES and known_type(value, depth + 1)
    return outer in ("seq", "optional") and known_type(inner, depth + 1)


def type_name_of(dtype: np.dtype[Any]) -> str:
    """Returns ONNX Runtime's name of a dtype, ``tensor(float)`` for float32."""
    if dtype.kind in "US":
        return "tensor(string)"
    name = _TYPE_NAMES.get(dtype)
    if name is None:
        raise ModelError("a tensor", f"dtype {dtype}", "a dtype that ONNX has")
    return f"tensor({name})"


@dataclass(frozen=True)
class Value:
    """An edge: its name, type (``tensor(float)``, ``seq(tensor(int64))``) and shape."""

    name: str
    type: str = ""
    shape: tuple[Dimension, ...] | None = None

    @property
    def dtype(self) -> np.dtype[Any] | None:
        """The NumPy dtype of a tensor, None for other and unknown types."""
        return dtype_of(self.type)

    @property
    def is_concrete(self) -> bool:
        """True for a tensor whose every dimension is known."""
        return (
            self.dtype is not None and self.shape is not None and all(isinstance(d, int) for d in self.shape)
        )

    @property
    def concrete_shape(self) -> tuple[int, ...]:
        """The shape, of a value that ``is_concrete``."""
        return tuple(d for d in self.shape or () if isinstance(d, int))

    def __str__(self) -> str:
        return f"{self.name}: {self.type or 'unknown'}{describe_shape(self.shape)}"


def sizes_of_names(declared: Iterable[Value], actual: Iterable[Value]) -> dict[str, list[int]]:
    """Returns the named dimensions of ``declared`` that have several sizes in ``actual``, with these."""
    found: dict[str, set[int]] = {}
    for names, sizes in zip(declared, actual, strict=True):
        for name, size in zip(names.shape or (), sizes.shape or (), strict=False):
            if isinstance(name, str) and isinstance(size, int):
                found.setdefault(name, set()).add(size)
    return {name: sorted(sizes) for name, sizes in found.items() if len(sizes) > 1}


def describe_shape(shape: tuple[Dimension, ...] | None) -> str:
    """Returns a shape as text, ? for unknown dimensions."""
    if shape is None:
        return "[...]"
    return "[" + ", ".join("?" if d is None else str(d) for d in shape) + "]"


@dataclass(frozen=True, eq=False)
class Node:
    """One ONNX node. Absent optional inputs and outputs are ``""``.

    ``captured`` lists outer values that its subgraphs read, ``inner`` the operators in these, at any depth,
    of domains other than ONNX's own. ``opset`` is the version of ONNX's operator set of the node, 0 for the
    graph's: rules write nodes of newer versions. Such a node is never exported: the host computes the nodes
    that it replaced.
    """

    name: str
    op_type: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    captured: tuple[str, ...] = ()
    has_subgraph: bool = False
    inner: tuple[tuple[str, str], ...] = ()  # (domain, op_type)
    proto: bytes = field(default=b"", repr=False)
    opset: int = 0

    @cached_property
    def reads(self) -> tuple[str, ...]:
        """Every value that the node reads, each once."""
        return tuple(dict.fromkeys(n for n in (*self.inputs, *self.captured) if n))

    @cached_property
    def writes(self) -> tuple[str, ...]:
        """The values that the node makes."""
        return tuple(n for n in self.outputs if n)


@dataclass(frozen=True)
class Folded:
    """A node that was folded or dropped at compile time, with the reason."""

    node: str
    op_type: str
    reason: str


@dataclass(frozen=True)
class Step:
    """What a mapping rule or fusion did to a node of a source framework.

    ``made`` are the nodes that it wrote, as (name, operator); ``took`` are the nodes that a fusion replaced;
    ``refused`` says why it did not take the node.
    """

    node: str
    op_type: str
    rule: str
    made: tuple[tuple[str, str], ...] = ()
    took: tuple[str, ...] = ()
    refused: str = ""


@dataclass(frozen=True)
class Origin:
    """The nodes of the model that a new node replaced, and by which rule or pass."""

    nodes: tuple[Node, ...]
    how: str
    constants: Mapping[str, Array] = field(
        default_factory=dict, repr=False
    )  # constants that these nodes read


@dataclass(frozen=True)
class ModelMetadata:
    """What a model says of itself, under onnxruntime's names."""

    producer_name: str = ""
    graph_name: str = ""
    domain: str = ""
    description: str = ""
    graph_description: str = ""
    version: int = NO_VERSION
    custom_metadata_map: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Graph:
    """A model: nodes in topological order between inputs and outputs."""

    name: str
    nodes: tuple[Node, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    constants: Mapping[str, Array] = field(repr=False)
    values: Mapping[str, Value] = field(repr=False)  # type and shape of edges, as known
    opsets: Mapping[str, int]
    ir_version: int
    folded: tuple[Folded, ...] = ()
    order: tuple[str, ...] = ()  # names of all nodes of the model, in its order
    # Inputs of the model that the caller of ``compile`` made constants.
    frozen: Mapping[str, Array] = field(default_factory=dict, repr=False)
    # Run-time values that the executable is compiled for; only shape operands may use them.
    decided: Mapping[str, Array] = field(default_factory=dict, repr=False)
    # Tensor -> names of its scale and zero point ("": none), from the model's quantisation annotations.
    annotations: Mapping[str, tuple[str, str]] = field(default_factory=dict, repr=False)
    quantised: Mapping[str, Quantisation] = field(
        default_factory=dict, repr=False
    )  # tensor -> scale and zero point
    inserted: Mapping[str, str] = field(default_factory=dict, repr=False)  # inserted node -> reason
    origins: Mapping[str, Origin] = field(
        default_factory=dict, repr=False
    )  # new node -> the nodes that it replaced
    remarks: Mapping[str, str] = field(default_factory=dict, repr=False)  # node -> rules that nearly took it
    evaluated: tuple[HostWork, ...] = field(default=(), repr=False)  # sizes computed from run-time values
    steps: tuple[Step, ...] = field(default=(), repr=False)  # of the translation from a source framework
    # Transposes between the formats of a source framework and ONNX's: node -> (from, to).
    layouts: Mapping[str, tuple[str, str]] = field(default_factory=dict, repr=False)
    # Values of the source framework that no node makes any more: name -> the value that it is, and the
    # permutation that makes it of that one, () for none.
    aliases: Mapping[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict, repr=False)
    metadata: ModelMetadata = field(default_factory=ModelMetadata, repr=False)

    def value(self, name: str) -> Value:
        """Returns what is known of an edge, constants included."""
        constant = self.constants.get(name)
        if constant is not None:
            return Value(name, type_name_of(constant.dtype), constant.shape)
        return self.values.get(name, Value(name))

    def unaliased(self, name: str) -> tuple[str, tuple[int, ...]]:
        """Returns the value that a name of the source framework stands for, and its permutation of that."""
        perm: tuple[int, ...] = ()
        seen = {name}
        while name in self.aliases:
            name, more = self.aliases[name]
            perm = tuple(more[axis] for axis in perm) if perm and more else perm or more
            if name in seen:
                break
            seen.add(name)
        return name, perm

    def opset_of(self, node: Node) -> int:
        """Returns the version of a node's operator set: its own, or the graph's for its domain."""
        return node.opset or self.opsets.get(node.domain, self.opsets.get("", 1))

    @property
    def output_names(self) -> frozenset[str]:
        """The names of the outputs."""
        return frozenset(v.name for v in self.outputs)

    def owned(self) -> Graph:
        """The graph, none of whose constants lies in a mapped file."""
        return replace(self._with_own_origins(), constants=all_owned(self.constants))

    def kept(self) -> Graph:
        """The graph for other shapes: large constants stay in mapped files, others are ``owned``."""
        return replace(self._with_own_origins(), constants=kept(self.constants))

    def _with_own_origins(self) -> Graph:
        origins = {
            name: replace(one, constants=all_owned(one.constants)) for name, one in self.origins.items()
        }
        return replace(self, origins=origins)

    def with_nodes(self, nodes: Iterable[Node], **changes: Any) -> Graph:
        """Returns the graph with other nodes, without constants that no node reads any more."""
        kept = tuple(nodes)
        needed = {name for node in kept for name in node.reads} | self.output_names
        needed.update(name for names in self.annotations.values() for name in names)
        constants = changes.pop("constants", self.constants)
        constants = {name: array for name, array in constants.items() if name in needed}
        return replace(self, nodes=kept, constants=constants, **changes)


def refused_by_rules(graph: Graph, node: str, op_type: str) -> str:
    """Which rules for a node did not take it, and why; of one in a body, by its operator."""
    outer = {one.name for one in graph.nodes}
    steps = [
        step
        for step in graph.steps
        if step.refused and (step.node == node or (step.op_type == op_type and not {node, step.node} & outer))
    ]
    return "".join(f"; {step.rule} refused it: {step.refused}" for step in steps)


def runtime_opsets(graph: Graph) -> dict[str, int]:
    """Returns the operator sets of ``graph``, with that of onnxruntime's own operators."""
    return {**graph.opsets, MICROSOFT: graph.opsets.get(MICROSOFT, 1)}


def sort_nodes(nodes: Iterable[Node], defined: Iterable[str]) -> tuple[Node, ...]:
    """Returns the nodes in topological order, which keeps the given order where it can.

    Raises ``ModelError`` on values that are defined twice, never, or in a cycle.
    """
    pending = list(nodes)
    known = set(defined)
    producer: dict[str, Node] = {}
    for node in pending:
        for name in node.writes:
            if name in producer or name in known:
                raise ModelError(
                    f"node {node.name} ({node.op_type})",
                    f"output {name!r}, which is defined elsewhere too",
                    "every value to be defined once",
                )
            producer[name] = node
    readers: dict[str, list[int]] = {}
    missing = [0] * len(pending)
    for index, node in enumerate(pending):
        for name in node.reads:
            if name in known:
                continue
            if name not in producer:
                raise ModelError(
                    f"node {node.name} ({node.op_type})",
                    f"input {name!r}, which nothing defines",
                    "inputs, initializers or outputs of other nodes",
                )
            missing[index] += 1
            readers.setdefault(name, []).append(index)
    return _kahn(pending, missing, readers)


def _kahn(pending: list[Node], missing: list[int], readers: dict[str, list[int]]) -> tuple[Node, ...]:
    import heapq

    ready = [index for index, count in enumerate(missing) if count == 0]
    heapq.heapify(ready)
    order: list[Node] = []
    while ready:
        node = pending[heapq.heappop(ready)]
        order.append(node)
        for name in node.writes:
            for index in readers.get(name, ()):
                missing[index] -= 1
                if missing[index] == 0:
                    heapq.heappush(ready, index)
    if len(order) < len(pending):
        stuck = [node.name for index, node in enumerate(pending) if missing[index] > 0]
        shown = ", ".join(stuck[:5]) + (" ..." if len(stuck) > 5 else "")
        raise ModelError("the graph", f"a cycle through {shown}", "a graph without cycles")
    return tuple(order)


def with_outputs(graph: Graph, names: Sequence[str]) -> Graph:
    """Returns the graph that computes these values alone.

    Raises ``InputError`` for names that it does not have.
    """
    made = {name for node in graph.nodes for name in node.writes}
    known = made.union(graph.constants, (value.name for value in graph.inputs))
    for name in names:
        if name not in known:
            raise InputError("outputs", repr(name), "values of the graph", did_you_mean(name, known))
    return prune(replace(graph, outputs=tuple(graph.value(name) for name in dict.fromkeys(names))))


def needed(nodes: Sequence[Node], outputs: Iterable[str]) -> list[Node]:
    """Returns those of ``nodes`` that ``outputs`` depend on."""
    wanted = set(outputs)
    found: list[Node] = []
    for node in reversed(nodes):
        if not wanted.isdisjoint(node.writes):
            found.append(node)
            wanted.update(node.reads)
    return found[::-1]


def prune(graph: Graph) -> Graph:
    """Returns the graph without nodes that no output depends on."""
    kept = needed(graph.nodes, graph.output_names)
    if len(kept) == len(graph.nodes):
        return graph
    left = set(kept)
    dropped = (node for node in graph.nodes if node not in left)
    reasons = tuple(Folded(node.name, node.op_type, "nothing reads its result") for node in dropped)
    return graph.with_nodes(kept, folded=graph.folded + reasons)
