# SPDX-License-Identifier: Apache-2.0
"""Host regions: nodes that no device operator takes, run on onnxruntime.

Where onnxruntime has no kernel, onnx's reference evaluator takes the node. Nothing here is
loaded for a model that lives on the device as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Protocol

import numpy as np

from onedispatch.dispatch.exporter import sub_model
from onedispatch.dispatch.graph import Array, Graph, Node, Value
from onedispatch.transactions.errors import ModelError

_INLINE_BYTES = 1 << 29  # constants beyond this are fed, since protobuf ends at 2 GB


class Evaluator(Protocol):
    def run(self, feed: Mapping[str, Any]) -> list[Any]: ...


_Piece = tuple[tuple[str, ...], tuple[str, ...], Evaluator]  # names in, names out, who computes


class HostRegion:
    """Some nodes of a graph as one callable; names of inputs and outputs as in the graph.

    Raises ``ModelError`` when neither onnxruntime nor the reference evaluator takes a node.
    """

    def __init__(
        self,
        graph: Graph,
        nodes: Sequence[Node],
        outputs: Sequence[str],
        threads: int | None = None,
        *,
        optimise: bool = True,
    ) -> None:
        made = {name for node in nodes for name in node.writes}
        reads = dict.fromkeys(n for node in nodes for n in node.reads if n not in made)
        self.inputs = tuple(name for name in reads if name not in graph.constants)
        self.outputs = tuple(outputs)
        self._constants = {name: graph.constants[name] for name in reads if name in graph.constants}
        self._source = (graph, tuple(nodes))
        self.where = "on onnxruntime"
        self._evaluators = self._build(graph, nodes, threads, optimise)

    def run(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Computes the region's outputs from the values of its inputs."""
        known: dict[str, Any] = {name: values[name] for name in self.inputs}
        known.update(self._constants)
        try:
            return self._compute(known)
        except ModelError:
            # onnxruntime has kernels that refuse what ONNX allows, which shows only now.
            if not self._refine():
                raise
        return self._compute(known)

    def _compute(self, known: dict[str, Any]) -> dict[str, Any]:
        for names, results, evaluator in self._evaluators:
            arrays = evaluator.run({name: known[name] for name in names})
            known.update(zip(results, arrays, strict=True))
        return {name: known[name] for name in self.outputs}

    def _refine(self) -> bool:
        """Moves the whole region to the reference evaluator; False if that is where it is."""
        if all(isinstance(evaluator, _Reference) for _, _, evaluator in self._evaluators):
            return False
        graph, nodes = self._source
        try:
            self._evaluators = [
                self._reference(graph, node, results) for node, results in self._results(nodes)
            ]
        except ModelError:
            return False
        self.where = "on onnx's reference evaluator"
        return True

    def _results(self, nodes: Sequence[Node]) -> Iterator[tuple[Node, list[str]]]:
        """Each node with those of its outputs that somebody needs."""
        for index, node in enumerate(nodes):
            later = {name for other in nodes[index + 1 :] for name in other.reads}
            yield node, [n for n in node.writes if n in later or n in self.outputs]

    def _build(
        self, graph: Graph, nodes: Sequence[Node], threads: int | None, optimise: bool
    ) -> list[_Piece]:
        whole = self._piece(graph, nodes, self.outputs, threads, optimise)
        if whole is not None:
            return [whole]
        pieces = []
        for node, results in self._results(nodes):
            piece = self._piece(graph, [node], results, threads, optimise)
            if piece is None:
                piece = self._reference(graph, node, results)
                self.where = "on onnx's reference evaluator"
            pieces.append(piece)
        return pieces

    def _piece(
        self,
        graph: Graph,
        nodes: Sequence[Node],
        outputs: Sequence[str],
        threads: int | None,
        optimise: bool,
    ) -> _Piece | None:
        """The nodes on onnxruntime, or None where it has no kernel for one of them."""
        made = {name for node in nodes for name in node.writes}
        reads = list(dict.fromkeys(n for node in nodes for n in node.reads if n not in made))
        values = [graph.value(n) for n in reads]
        if any(_foreign(v) for v in (*values, *(graph.value(n) for n in outputs))):
            return None
        inline = _inlined({n: self._constants[n] for n in reads if n in self._constants})
        fed = [v for v in values if v.name not in inline]
        model = sub_model(graph, nodes, fed, [graph.value(n) for n in outputs], inline)
        evaluator = _runtime(model.SerializeToString(), outputs, threads, optimise)
        if evaluator is None:
            return None
        return tuple(v.name for v in fed), tuple(outputs), evaluator

    def _reference(self, graph: Graph, node: Node, outputs: Sequence[str]) -> _Piece:
        values = [graph.value(n) for n in node.reads]
        model = sub_model(graph, [node], values, [graph.value(n) for n in outputs], {})
        return node.reads, tuple(outputs), _Reference(model, node, outputs)


def _foreign(value: Value) -> bool:
    """A dtype that onnxruntime's Python binding cannot take as a NumPy array."""
    dtype = value.dtype
    if dtype is None:  # sequences and the like pass; so does what onnxruntime has to infer itself
        return value.type.startswith("tensor")
    return dtype.isbuiltin != 1  # those of ml_dtypes


def _inlined(constants: Mapping[str, Array]) -> dict[str, Array]:
    total, inline = 0, {}
    for name, array in sorted(constants.items(), key=lambda item: item[1].nbytes):
        total += array.nbytes
        if total > _INLINE_BYTES:
            break
        inline[name] = array
    return inline


class _Runtime:
    def __init__(self, session: Any, outputs: Sequence[str]) -> None:
        self._session = session
        self._outputs = list(outputs)

    def run(self, feed: Mapping[str, Any]) -> list[Any]:
        try:
            return list(self._session.run(self._outputs, dict(feed)))
        except _runtime_errors() as error:
            raise ModelError("a host region on onnxruntime", str(error).strip()) from error


@cache
def _runtime_errors() -> tuple[type[Exception], ...]:
    """What onnxruntime's binding raises: classes of its own without a common base, and builtins."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    own = [v for v in vars(state).values() if isinstance(v, type) and issubclass(v, Exception)]
    return (*own, RuntimeError, ValueError, TypeError)


def _runtime(model: bytes, outputs: Sequence[str], threads: int | None, optimise: bool) -> Evaluator | None:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.inter_op_num_threads = 1
    if threads is not None:
        options.intra_op_num_threads = threads
    if not optimise:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except _runtime_errors():  # no kernel, say; the reference evaluator comes next
        return None
    return _Runtime(session, outputs)


class _Reference:
    def __init__(self, model: Any, node: Node, outputs: Sequence[str]) -> None:
        from onnx.reference import ReferenceEvaluator

        self._node = node
        self._outputs = list(outputs)
        try:
            self._evaluator = ReferenceEvaluator(model)
        except Exception as error:  # NotImplementedError, RuntimeContextError, TypeError ...
            raise self._failure(error) from error

    def run(self, feed: Mapping[str, Any]) -> list[Any]:
        try:
            results = self._evaluator.run(self._outputs, dict(feed))
        except Exception as error:  # whatever a NumPy implementation raises on odd input
            raise self._failure(error) from error
        return [np.asarray(r) if np.isscalar(r) else r for r in results]

    def _failure(self, error: Exception) -> ModelError:
        return ModelError(
            f"node {self._node.name} ({self._node.op_type})",
            f"an operator that neither onnxruntime nor onnx's reference evaluator runs: {error}",
            "operators of onnx or onnxruntime",
        )
