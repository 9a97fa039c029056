# SPDX-License-Identifier: Apache-2.0
"""How function bodies are written, and which operators have one of ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onedispatch.dispatch.frontend.graph import Array, Graph, Node, Value
from onedispatch.dispatch.frontend.importer import read_node
from onedispatch.transactions.base.errors import ModelError


class Body:
    """What a function writes in place of ``node``: ``op`` writes a node and returns the name of its result.

    ``node`` has all of its attributes, those too that the model leaves to their defaults.
    """

    def __init__(self, graph: Graph, node: Node) -> None:
        self._graph, self._node, self.attributes = graph, node, node.attributes
        self.opset = graph.opset_of(node)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, Array] = {}
        self._count = 0

    def input(self, index: int) -> str:
        """The name of an input; "" if it is left out."""
        inputs = self._node.inputs
        return inputs[index] if index < len(inputs) else ""

    def value(self, index: int) -> Value:
        return self._graph.value(self.input(index))

    def shape(self, index: int, rank: int = 0) -> tuple[int, ...]:
        """The sizes of an input, none of them 0; refuses where one is unknown, or the rank is another."""
        value = self.value(index)
        if not value.is_concrete or 0 in value.concrete_shape:
            raise self.refusal(str(value), "sizes that are known, and not 0")
        if rank and len(value.concrete_shape) != rank:
            raise self.refusal(str(value), f"a tensor of rank {rank}")
        return value.concrete_shape

    def constant_of(self, index: int) -> Array | None:
        """The values of an input that is constant, or that the executable is compiled for."""
        name = self.input(index)
        return self._graph.constants.get(name, self._graph.decided.get(name))

    def number(self, index: int, default: int) -> int:
        """The value of a constant scalar; ``default`` where it is left out."""
        if not self.input(index):
            return default
        found = self.constant_of(index)
        if found is None or found.size != 1:
            raise self.refusal(f"{self.input(index)!r}, which is computed", "a constant number")
        return int(found.reshape(-1)[0])

    def refusal(self, given: str, accepted: str) -> ModelError:
        """What a writer raises where the node is none that it can write."""
        return ModelError(self._node.op_type, given, accepted)

    def op(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        return self.last_of(op_type, 1, *inputs, **attributes)

    def last_of(self, op_type: str, count: int, *inputs: str, **attributes: Any) -> str:
        """The last of ``count`` results of a node."""
        made = [self._name(op_type) for _ in range(count)]
        self.nodes.append(helper.make_node(op_type, inputs, made, name=made[-1], **attributes))
        return made[-1]

    def constant(self, array: Any, dtype: Any = None) -> str:
        name = self._name("constant")
        self.constants[name] = np.asarray(array, dtype)
        return name

    def floats(self, array: Any) -> str:
        """A constant in the type of the node's first input."""
        return self.constant(array, self.value(0).dtype)

    def widened(self, index: int) -> str:
        """An input in float32, in which places have to be computed."""
        if self.value(index).dtype == np.float32:
            return self.input(index)
        return self.op("Cast", self.input(index), to=TensorProto.FLOAT)

    def like(self, x: str, index: int) -> str:
        """A float32 result in the type of an input."""
        dtype = self.value(index).dtype
        if dtype is None or dtype == np.float32:
            return x
        return self.op("Cast", x, to=helper.np_dtype_to_tensor_dtype(dtype))

    def reshaped(self, x: str, *sizes: int) -> str:
        return self.op("Reshape", x, self.constant(sizes, np.int64))

    def _name(self, stem: str) -> str:
        self._count += 1
        name = f"{stem}_{self._count}"
        return self._name(stem) if name in (*self._node.reads, *self._node.writes) else name


Writer = Callable[[Body], tuple[str, ...]]
"""Writes a body and returns the names of its results. Raises ``ModelError`` for a node that it cannot."""

_WRITERS: dict[str, tuple[Writer, int]] = {}


def body(op_type: str, since: int) -> Callable[[Writer], Writer]:
    """Registers the decorated function for an operator of ONNX, from an operator set on."""

    def register(writer: Writer) -> Writer:
        _WRITERS[op_type] = writer, since
        return writer

    return register


def has_written_body(op_type: str, domain: str, opset: int) -> bool:
    """True if there is a body of ours for an operator of a domain ("": ONNX's own)."""
    return not domain and op_type in _WRITERS and opset >= _WRITERS[op_type][1]


def write_body(graph: Graph, model: onnx.ModelProto) -> None:
    """Puts our body in place of the one node of ``model``, a node of ``graph`` with all of its attributes.

    Raises ``ModelError`` where there is none for it.
    """
    node = read_node(model.graph.node[0], graph.opsets, graph.ir_version)
    assert isinstance(node, Node)  # no Constant
    written = Body(graph, node)
    results = dict(zip(node.outputs, _WRITERS[node.op_type][0](written), strict=False))
    del model.graph.node[:]
    model.graph.node.extend(written.nodes)
    for output in model.graph.output:
        name = output.name
        model.graph.node.append(helper.make_node("Identity", [results[name]], [name], name=f"result_{name}"))
    used = {name for one in model.graph.node for name in one.input}
    arrays = (
        numpy_helper.from_array(array, name) for name, array in written.constants.items() if name in used
    )
    model.graph.initializer.extend(arrays)
