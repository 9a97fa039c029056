# SPDX-License-Identifier: Apache-2.0
"""Host regions: nodes that no device operator takes, in pieces as large as onnxruntime takes.

Only single nodes go to onnx's reference evaluator: those that onnxruntime refuses when the region
is made, and those that it fails on in a run where the reference evaluator then succeeds. Nothing
here is loaded for a model that lives on the device as a whole.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, ClassVar, Literal

import numpy as np

from onedispatch.dispatch.base.levels import levels
from onedispatch.dispatch.frontend.exporter import inferred_graph, sub_model
from onedispatch.dispatch.frontend.graph import Array, Graph, Node, Value, needed
from onedispatch.dispatch.frontend.validity import check_nodes
from onedispatch.dispatch.host.bodies import body_operators
from onedispatch.dispatch.host.engines import (
    PREFERRED,
    REFERENCE,
    RUNTIME,
    Engine,
    EngineRefused,
    Reference,
    Runtime,
    UnsupportedEngine,
)
from onedispatch.dispatch.host.own_kernel import OwnKernel
from onedispatch.dispatch.sources.host import HostEngine, implementation
from onedispatch.operators.declarations.registry import custom_mapping
from onedispatch.transactions import Device
from onedispatch.transactions.base.errors import InputError, ModelError

_INLINE_BYTES = 1 << 29  # larger constants are fed at run time: a protobuf has at most 2 GB


@dataclass(frozen=True)
class _Piece:
    """Nodes that one engine computes, with the names of their inputs and outputs."""

    nodes: tuple[Node, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    engine: Engine
    shapes: Mapping[str, tuple[int, ...]]  # of the outputs whose shapes are known

    def compute(self, known: dict[str, Any]) -> None:
        """Adds the outputs to ``known``.

        Raises ``InputError`` if the engine fails, or gives a shape other than ONNX defines, as onnxruntime
        does when it reduces empty tensors.
        """
        arrays = self.engine.run({name: known[name] for name in self.inputs})
        for name, array in zip(self.outputs, arrays, strict=True):
            wanted = self.shapes.get(name)
            if wanted is not None and isinstance(array, np.ndarray) and array.shape != wanted:
                raise InputError(
                    f"value {name!r}", f"shape {list(array.shape)} by {self.engine.name}", f"{list(wanted)}"
                )
        known.update(zip(self.outputs, arrays, strict=True))


class HostRegion:
    """Nodes of a graph as one callable; inputs and outputs have their names in the graph.

    ``engines`` gives the engine of each node and, if that is not onnxruntime, the reason.
    """

    on_device: ClassVar[Literal[False]] = False

    def __init__(
        self,
        graph: Graph,
        nodes: Sequence[Node],
        outputs: Sequence[str],
        threads: int | None = None,
        *,
        optimise: bool = True,
        device: Device | None = None,
        kernel_seconds: float | None = None,
    ) -> None:
        nodes = needed(nodes, outputs)  # of others the shape alone is read, say, which is known
        made = {name for node in nodes for name in node.writes}
        reads = dict.fromkeys(n for node in nodes for n in node.reads if n not in made)
        self.inputs = tuple(name for name in reads if name not in graph.constants)
        self.outputs = tuple(outputs)
        self._graph, self._nodes = graph, tuple(nodes)
        self._constants = {name: graph.constants[name] for name in reads if name in graph.constants}
        self._threads, self._optimise, self._device = threads, optimise, device
        self._seconds = kernel_seconds
        self._types: dict[str, str] = {}  # of values whose type only onnxruntime infers
        # Node -> why it does not run on onnxruntime; custom kernels never do.
        self._why = {node.name: why for node in nodes if (why := self._apart(node)) is not None}
        self.moved: list[str] = []  # notes for the session: nodes that runs moved to another engine
        self._pieces = self._cut()
        self._process = os.getpid()

    @property
    def where(self) -> str:
        """The names of the region's engines, as text."""
        engines = dict.fromkeys(piece.engine.name for piece in self._pieces)
        return "on " + " and ".join(engines) if engines else "on none: nothing reads its result"

    @property
    def engines(self) -> dict[str, str]:
        """The engine of each node: ``on onnxruntime``, or another engine with the reason."""
        return {
            node.name: f"on {piece.engine.name}" + (f": {why}" if (why := self._why.get(node.name)) else "")
            for piece in self._pieces
            for node in piece.nodes
        }

    def run(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Computes the region's outputs from the values of its inputs.

        Raises ``ModelError`` if no engine has an operator, ``InputError`` if both onnxruntime and the
        reference evaluator fail; the region then stays as it is.
        """
        if self._process != os.getpid():  # a forked child does not have the threads of its parent's engines
            self._pieces, self._process = self._cut(), os.getpid()
        known: dict[str, Any] = {name: values[name] for name in self.inputs}
        known.update(self._constants)
        for piece in self._pieces:
            if isinstance(piece.engine, Reference):
                self._check(piece.nodes[0], known)
            try:
                piece.compute(known)
            except InputError as error:  # kernels of onnxruntime may refuse what ONNX allows
                self._rescue(piece, known, error)
                return self.run(values)
        return {name: known[name] for name in self.outputs}

    def _apart(self, node: Node) -> str | None:
        """Returns why onnxruntime is not tried for the node, "" for custom kernels; None if it is."""
        if custom_mapping(node) is not None or implementation(node.domain, node.op_type) is not None:
            return None if self._device is None else ""
        return None if node.domain or self._is_runtimes_own(node) else PREFERRED.get(node.op_type)

    def _is_runtimes_own(self, node: Node) -> bool:
        """Whether onnxruntime computes it although the reference evaluator is preferred for its operator."""
        if node.op_type == "Dropout":  # without a third input it is in inference mode
            return len(node.inputs) < 3
        # Real samples without a last dimension of 1 are none of ONNX's.
        return node.op_type == "STFT" and len(self._graph.value(node.inputs[0]).shape or ()) == 2

    # -- cutting ---------------------------------------------------------------------------

    def _cut(self) -> list[_Piece]:
        """Returns the pieces in execution order: few for onnxruntime, single nodes for other engines."""
        if self._why:
            return self._regrouped()
        pieces = list(self._cover(self._nodes))
        if len(pieces) < 3:
            return pieces
        return min(pieces, self._regrouped(), key=len)

    def _regrouped(self) -> list[_Piece]:
        """Returns the pieces with nodes of onnxruntime merged as far as nodes of other engines allow."""
        odd = [node.name in self._why for node in self._nodes]
        plans = [levels(self._nodes, odd, first) for first in (False, True)]
        plan = min(plans, key=lambda plan: len(set(plan)))
        pieces: list[_Piece] = []
        for level in sorted(set(plan)):
            group = [node for node, at in zip(self._nodes, plan, strict=True) if at == level]
            if group[0].name in self._why:
                pieces += [self._single(node) for node in group]
            else:
                pieces += self._cover(group)
        return pieces

    def _cover(self, nodes: Sequence[Node]) -> Iterator[_Piece]:
        """Yields the nodes as one piece for onnxruntime; if it refuses them, tries each half."""
        if not nodes:
            return
        try:
            yield self._runtime(nodes)
            return
        except EngineRefused as refusal:
            if len(nodes) == 1:
                self._why[nodes[0].name] = _refused(str(refusal))
                yield self._single(nodes[0])
                return
        half = len(nodes) // 2
        yield from self._cover(nodes[:half])
        yield from self._cover(nodes[half:])

    def _edges(self, nodes: Sequence[Node]) -> tuple[list[str], tuple[str, ...]]:
        """Returns the values that ``nodes`` read from other nodes, and those that other nodes read."""
        inside = {node.name for node in nodes}
        made = {name for node in nodes for name in node.writes}
        reads = dict.fromkeys(n for node in nodes for n in node.reads if n not in made)
        wanted = {n for node in self._nodes if node.name not in inside for n in node.reads}
        wanted.update(self.outputs)
        return list(reads), tuple(n for node in nodes for n in node.writes if n in wanted)

    def _shapes(self, names: Sequence[str]) -> dict[str, tuple[int, ...]]:
        values = [self._graph.value(name) for name in names]
        return {value.name: value.concrete_shape for value in values if value.is_concrete}

    def _value(self, name: str) -> Value:
        value = self._graph.value(name)
        return value if value.type else Value(name, self._types.get(name, ""))

    # -- engines ---------------------------------------------------------------------------

    def _runtime(self, nodes: Sequence[Node]) -> _Piece:
        """Returns the nodes as a piece for onnxruntime; without known shapes if it refuses these.

        Raises ``EngineRefused``.
        """
        reads, outputs = self._edges(nodes)
        values = [self._value(n) for n in reads]
        results = [self._value(n) for n in outputs]
        inline = _inlined({n: self._constants[n] for n in reads if n in self._constants})
        fed = [v for v in values if v.name not in inline]
        _require_native(fed, results)
        touched = self._touched(nodes)
        try:
            engine = self._started(nodes, fed, results, inline, touched)
        except EngineRefused:
            # In a branch that is not taken, this run's shapes may contradict what the nodes need;
            # onnxruntime then refuses the model with shapes and accepts it without.
            fed, results = [_open(v) for v in fed], [_open(v) for v in results]
            engine = self._started(nodes, fed, results, inline, touched)
        self._types.update(engine.types)
        names = tuple(v.name for v in fed)
        return _Piece(tuple(nodes), names, outputs, engine, self._shapes(outputs))

    def _started(
        self,
        nodes: Sequence[Node],
        fed: Sequence[Value],
        results: Sequence[Value],
        inline: Mapping[str, Array],
        touched: int | None,
    ) -> Runtime:
        model = sub_model(self._graph, nodes, fed, results, inline).SerializeToString()
        return Runtime(model, [v.name for v in results], self._threads, touched, self._optimise)

    def _touched(self, nodes: Sequence[Node]) -> int | None:
        """Returns the bytes of all values that the nodes read or write, None if a size is unknown."""
        total = 0
        for name in {n for node in nodes for n in (*node.reads, *node.writes)}:
            value = self._graph.value(name)
            if not value.is_concrete or value.dtype is None:
                return None
            total += prod(value.concrete_shape) * value.dtype.itemsize
        return None if any(node.has_subgraph for node in nodes) else total

    def _single(self, node: Node) -> _Piece:
        """Returns the node on its custom kernel, the reference evaluator, or an ``UnsupportedEngine``."""
        _, outputs = self._edges([node])
        host = implementation(node.domain, node.op_type)
        if self._device is not None and host is not None:
            own = HostEngine(host, self._graph, node, outputs)
            return _Piece((node,), node.reads, outputs, own, self._shapes(outputs))
        if self._device is not None and custom_mapping(node) is not None:
            kernel = OwnKernel(self._graph, node, outputs, self._constants, self._device, self._seconds)
            return _Piece((node,), node.reads, outputs, kernel, self._shapes(outputs))
        values = [self._value(n) for n in node.reads]
        model = sub_model(self._graph, [node], values, [self._value(n) for n in outputs], {})
        try:
            # The evaluator computes results for many invalid nodes too.
            check_nodes(self._graph, [node])
            inferred_graph(model, self._graph, [node])
            inside = body_operators(self._graph, node, self._device, self._seconds)
            engine: Engine = Reference(model, node, outputs, inside)
        except ModelError as error:
            engine = UnsupportedEngine(error)
        return _Piece((node,), node.reads, outputs, engine, self._shapes(outputs))

    # -- failing runs ----------------------------------------------------------------------

    def _rescue(self, piece: _Piece, known: Mapping[str, Any], error: InputError) -> None:
        """Moves nodes on which onnxruntime fails to the reference evaluator, if that computes them.

        Raises ``error`` if the reference evaluator fails too: the input is invalid then, and the region stays
        as it is.
        """
        culprits = self._culprits(piece, dict(known), error)
        self._why.update(dict.fromkeys(culprits, f"onnxruntime failed on it in a run: {error.given}"))
        self._pieces = self._regrouped()
        self.moved.append(
            f"{', '.join(culprits)}: on {REFERENCE} from now on, which is slow, "
            f"since {RUNTIME} failed there: {error.given}"
        )

    def _culprits(self, piece: _Piece, known: dict[str, Any], error: InputError) -> list[str]:
        """Returns the nodes that only the reference evaluator computes, on these values."""
        found = []
        for node in piece.nodes:
            fails = False
            try:
                self._runtime([node]).compute(known)
                continue
            except InputError:
                fails = True
            except EngineRefused:
                pass  # the values of this node cannot leave onnxruntime: it computes only with others
            try:
                self._check(node, known)
                self._single(node).compute(known)
            except ModelError:
                raise error from error.__cause__
            if fails:
                found.append(node.name)
        if not found:  # every node computes alone: a fusion of onnxruntime failed, or a transient error
            raise error
        return found

    def _check(self, node: Node, known: Mapping[str, Any]) -> None:
        """Checks a node's inputs as known in this run; the evaluator does not check them."""
        arrays = {
            name: known[name] for name in node.reads if isinstance(known.get(name), np.ndarray | np.generic)
        }
        shaped = {name: replace(self._graph.value(name), shape=x.shape) for name, x in arrays.items()}
        values, constants = {**self._graph.values, **shaped}, {**self._graph.constants, **arrays}
        check_nodes(replace(self._graph, values=values, constants=constants), [node])


def _refused(said: str) -> str:
    """Why a node is not onnxruntime's, from what that says: "9 : NOT_IMPLEMENTED : Could not find ..."."""
    text = re.sub(r"^\s*:?\s*\d+ : [A-Z_]+ : ", "", said)
    if text.startswith("Could not find an implementation for"):
        return "onnxruntime has no kernel for it"
    return f"onnxruntime refuses it: {text}"


def _require_native(values: Collection[Value], results: Collection[Value]) -> None:
    """Raises ``EngineRefused`` for values that cannot enter or leave onnxruntime."""
    for value in values:
        if not value.type:
            raise EngineRefused(f"the type of {value.name} is known only at run time")
    for value in (*values, *results):
        dtype = value.dtype
        # Sequences and the like have no dtype and pass; types of ml_dtypes are not built into NumPy.
        if dtype is not None and dtype.isbuiltin != 1:
            raise EngineRefused(f"its Python binding takes no {dtype} arrays, which {value.name} is")


def _open(value: Value) -> Value:
    return replace(value, shape=None)


def _inlined(constants: Mapping[str, Array]) -> dict[str, Array]:
    total, inline = 0, {}
    for name, array in sorted(constants.items(), key=lambda item: item[1].nbytes):
        total += array.nbytes
        if total > _INLINE_BYTES:
            break
        inline[name] = array
    return inline
