# SPDX-License-Identifier: Apache-2.0
"""What is known of a node when its rules are asked, and how one refuses it."""

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
    """A node, the operator set that it is of, and what is known of its inputs."""

    node: Node
    opset: int
    shapes: tuple[Shape | None, ...]
    values: tuple[Array | None, ...]
    dtypes: tuple[np.dtype[Any] | None, ...]
    result_shape: Shape | None = None  # of the first output
    places: tuple[int, ...] = ()  # of the inputs among those of the whole node, where they are a part of them

    @classmethod
    def of(cls, graph: Graph, node: Node) -> Facts:
        result = graph.value(node.outputs[0]) if node.outputs else Value("")
        known = [graph.value(name) if name else None for name in node.inputs]
        steering = shape_operands(node)
        decided = {name: array for name, array in graph.decided.items() if name in steering}
        return cls(
            node,
            graph.opset_of(node),
            tuple(v.concrete_shape if v is not None and v.is_concrete else None for v in known),
            tuple(graph.constants.get(name, decided.get(name)) for name in node.inputs),
            tuple(v.dtype if v is not None else None for v in known),
            result.concrete_shape if result.is_concrete else None,
        )

    def picked(self, *indices: int) -> Facts:
        """Of the inputs ``indices`` alone, in this order, for a rule of an operator that has no others.

        The operator set is the newest of ONNX, whatever that of the node's own domain is.
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
        place = self.places[index] if self.places else index
        return f"input {place} ({self.node.inputs[index]!r})"


Rule = Callable[[Facts], None]
