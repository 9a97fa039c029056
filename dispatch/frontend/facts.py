# SPDX-License-Identifier: Apache-2.0
"""The facts that a validity check reads of a node, and the error with which it refuses the node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np
import onnx

from onedispatch.dispatch.frontend.graph import Array, Graph, Node, Value
from onedispatch.dispatch.frontend.shape_operands import shape_operands
from onedispatch.transactions.base.errors import ModelError

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Facts:
    """A node, the version of its operator set, and what is known of its inputs."""

    node: Node
    opset: int
    shapes: tuple[Shape | None, ...]
    values: tuple[Array | None, ...]
    dtypes: tuple[np.dtype[Any] | None, ...]
    result_shape: Shape | None = None  # of the first output
    positions: tuple[int, ...] = ()  # of these inputs in the whole node, where they are only some of them

    @classmethod
    def of(cls, graph: Graph, node: Node) -> Facts:
        result = graph.value(node.outputs[0]) if node.outputs else Value("")
        known = [graph.value(name) if name else None for name in node.inputs]
        operands = shape_operands(node)
        decided = {name: array for name, array in graph.decided.items() if name in operands}
        return cls(
            node,
            graph.opset_of(node),
            tuple(v.concrete_shape if v is not None and v.is_concrete else None for v in known),
            tuple(graph.constants.get(name, decided.get(name)) for name in node.inputs),
            tuple(v.dtype if v is not None else None for v in known),
            result.concrete_shape if result.is_concrete else None,
        )

    def picked(self, *indices: int) -> Facts:
        """Returns the facts of the inputs ``indices``, in this order, for the check of another operator.

        The operator set is ONNX's newest, whatever version of its own domain the node is of.
        """
        names = tuple(self.node.inputs[index] if self.has(index) else "" for index in indices)
        return Facts(
            replace(self.node, inputs=names),
            onnx.defs.onnx_opset_version(),
            tuple(self.shape(index) for index in indices),
            tuple(self.value(index) for index in indices),
            tuple(self.dtype(index) for index in indices),
            self.result_shape,
            indices,
        )

    def shape(self, index: int) -> Shape | None:
        return self.shapes[index] if index < len(self.shapes) else None

    def value(self, index: int) -> Array | None:
        return self.values[index] if index < len(self.values) else None

    def dtype(self, index: int) -> np.dtype[Any] | None:
        return self.dtypes[index] if index < len(self.dtypes) else None

    def has(self, index: int) -> bool:
        return index < len(self.node.inputs) and bool(self.node.inputs[index])

    def attr(self, name: str, default: Any = None) -> Any:
        return self.node.attributes.get(name, default)

    def refuse(self, what: str, given: object, accepted: str) -> NoReturn:
        raise ModelError(f"node {self.node.name} ({self.node.op_type}), {what}", str(given), accepted)

    def input_name(self, index: int) -> str:
        position = self.positions[index] if self.positions else index
        return f"input {position} ({self.node.inputs[index]!r})"


NodeCheck = Callable[[Facts], None]
