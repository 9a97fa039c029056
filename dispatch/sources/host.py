# SPDX-License-Identifier: Apache-2.0
"""Host implementations: NumPy functions for operators that no device operator computes, or not always.

    @od.host("acme::Bucketize", like=0)
    def bucketize(n, x, edges): return np.digitize(x, edges).astype(x.dtype)

With ``fallback="cpu"`` they compute the nodes that their kernel or mapping refuses, or that have none. Strict
mode refuses such nodes, as all that do not run on the device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onedispatch.dispatch.frontend.graph import Array, Graph, Node, Value, type_name_of
from onedispatch.dispatch.sources.node import Known, SourceNode
from onedispatch.dispatch.sources.rule import Place
from onedispatch.operators.plugin import registrations
from onedispatch.transactions.base.boundary import error_line
from onedispatch.transactions.base.errors import InputError, OneDispatchError, RuleError
from onedispatch.transactions.base.handlers import reraise_from_handler
from onedispatch.transactions.base.text import counted


@dataclass(eq=False)
class HostImplementation:
    """What computes the nodes of an operator on the host.

    ``like`` is the input that the outputs are as; ``infer`` gives type and shape of each output of a node.
    """

    domain: str
    op_type: str
    function: Callable[..., Any]
    place: Place
    origin: str
    like: int | None = None
    infer: Callable[[SourceNode], Any] | None = None

    @property
    def name(self) -> str:
        return f"host implementation of {self.domain}::{self.op_type}"

    def clashes(self, other: object) -> bool:
        """Whether both compute one operator."""
        same = isinstance(other, HostImplementation) and other.domain == self.domain
        return same and other.op_type == self.op_type  # type: ignore[attr-defined]

    def outputs(self, node: Node, graph: Graph, known: Callable[[str], Value]) -> list[Value]:
        """Returns types and shapes of a node's results, [] where only the model says them."""
        if self.like is not None:
            value = known(node.inputs[self.like]) if self.like < len(node.inputs) else Value("")
            return [Value(name, value.type, value.shape) for name in node.writes] if value.type else []
        if self.infer is None:
            return []
        inputs = [known(name) for name in node.inputs if name]
        if not all(value.is_concrete for value in inputs):
            return []
        made = self._called(self.infer, node, SourceNode(node, 1, _OfGraph(graph, known)))
        try:
            return [
                Value(name, type_name_of(np.dtype(dtype)), tuple(int(size) for size in shape))
                for name, (dtype, shape) in zip(node.writes, made, strict=True)
            ]
        except (TypeError, ValueError) as error:
            accepted = f"[(dtype, shape), ...] for {counted(len(node.writes), 'output')}"
            raise self._wrong(node, f"infer gave {made!r}", accepted) from error

    def compute(self, node: Node, graph: Graph, inputs: Sequence[Array | None]) -> list[Array]:
        """Returns the outputs. Raises ``RuleError`` for a function that fails, or gives something else."""
        source = SourceNode(node, 1, _OfGraph(graph, graph.value))
        made = self._called(self.function, node, source, *map(_unwritable, inputs))
        results = list(made) if isinstance(made, tuple | list) else [made]
        arrays = all(isinstance(one, np.ndarray | np.generic) for one in results)
        if len(results) != len(node.outputs) or not arrays:
            kinds = ", ".join(type(one).__name__ for one in results)
            raise self._wrong(node, kinds, f"arrays for {counted(len(node.outputs), 'output')}")
        found = []
        for name, result in zip(node.outputs, results, strict=True):
            # The function may keep what it gives, or give what it got: neither may change with the result.
            value, array = graph.value(name), np.array(result, order="C")
            if value.dtype is not None and array.dtype != value.dtype:
                raise self._wrong(node, f"{array.dtype} as output {name}", str(value.dtype))
            found.append(array)
        return found

    def _called(self, function: Callable[..., Any], node: Node, *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except OneDispatchError:
            raise
        except (Exception, SystemExit) as error:  # code of others
            reraise_from_handler(error)
            raise self._wrong(node, error_line(error), "a function that computes the node") from error

    def _wrong(self, node: Node, given: str, accepted: str) -> RuleError:
        where = f"node {node.name} ({node.op_type}), {self.name}"
        return RuleError(where, given, accepted, file=self.place.file, line=self.place.line)


def _unwritable(array: Any) -> Any:
    """An array that others read too: writing to it is refused."""
    if not isinstance(array, np.ndarray):  # None, or a list of a sequence
        return array
    view = array.view()
    view.flags.writeable = False
    return view


@dataclass(frozen=True)
class _OfGraph(Known):
    """What callbacks may ask of the tensors of a graph."""

    graph: Graph
    values: Callable[[str], Value]

    def value(self, name: str) -> Value:
        return self.values(name)

    def constant(self, name: str) -> Array | None:
        return self.graph.constants.get(name)

    def elements(self, name: str) -> Array | None:
        return self.constant(name)


def implementation(domain: str, op_type: str) -> HostImplementation | None:
    """Returns the host implementation of an operator, None if there is none."""
    for one in registrations.extras():
        if isinstance(one, HostImplementation) and (one.domain, one.op_type) == (domain, op_type):
            return one
    return None


class HostEngine:
    """The host implementation of a node as an engine of host regions."""

    name = "its host implementation"

    def __init__(self, found: HostImplementation, graph: Graph, node: Node, outputs: Sequence[str]) -> None:
        self._found, self._graph, self._node, self._outputs = found, graph, node, tuple(outputs)

    def run(self, feed: Mapping[str, Any]) -> list[Any]:
        """Returns the outputs of the node that are asked for."""
        constants = self._graph.constants
        arrays = [feed.get(name, constants.get(name)) if name else None for name in self._node.inputs]
        made = self._found.compute(self._node, self._graph, arrays)
        known = dict(zip(self._node.outputs, made, strict=True))
        return [known[name] for name in self._outputs]


def check_like(like: object) -> None:
    """Raises ``InputError`` for what is no position of an input."""
    if like is not None and (isinstance(like, bool) or not isinstance(like, int) or like < 0):
        raise InputError("host", f"like={like!r}", "the position of an input, or None")
