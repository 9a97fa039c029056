# SPDX-License-Identifier: Apache-2.0
"""Pieces of a graph that passes write in place of others, onnxruntime's operators among them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from onnx import helper

from onedispatch.dispatch.frontend.exporter import node_proto
from onedispatch.dispatch.frontend.graph import Array, Graph, Node, Value, runtime_opsets, type_name_of
from onedispatch.dispatch.frontend.importer import read_node


@dataclass
class Piece:
    """Nodes that are to take the place of others, and the constants and values between them."""

    graph: Graph
    nodes: list[Node] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)
    values: dict[str, Value] = field(default_factory=dict)

    def _own(self, name: str) -> str:
        """Returns an unused name: values of the graph keep theirs."""
        while any(
            name in names for names in (self.graph.values, self.graph.constants, self.values, self.constants)
        ):
            name += "'"
        return name

    def constant(self, name: str, array: Array) -> str:
        own = self._own(name)
        self.constants[own] = np.array(array, order="C")
        self.constants[own].flags.writeable = False
        return own

    def value(self, name: str, dtype: np.dtype[Any], shape: tuple[Any, ...] | None) -> str:
        own = self._own(name)
        self.values[own] = Value(own, type_name_of(dtype), shape)
        return own

    def write(
        self,
        op_type: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        like: Node | None = None,
        domain: str = "",
        drops: Sequence[str] = (),
        adds: Mapping[str, Any] | None = None,
    ) -> None:
        """A node with the attributes of ``like`` but for ``drops``, and those of ``adds``."""
        given = list(inputs)
        while given and not given[-1]:
            given.pop()
        proto = helper.make_node(op_type, given, outputs, op_type, domain=domain, **(adds or {}))
        if like is not None:
            gone = {*drops, *(adds or {})}
            proto.attribute.extend(one for one in node_proto(like).attribute if one.name not in gone)
        node = read_node(proto, runtime_opsets(self.graph), self.graph.ir_version)
        assert isinstance(node, Node)
        self.nodes.append(replace(node, opset=like.opset if like is not None and not domain else 0))

    def result(self) -> Graph:
        graph, made = self.graph, {name for node in self.nodes for name in node.writes}
        reads = dict.fromkeys(name for node in self.nodes for name in node.reads if name not in made)
        outer = [name for name in reads if name not in self.constants]
        known = {name: graph.constants[name] for name in outer if name in graph.constants}
        return replace(
            graph,
            nodes=tuple(self.nodes),
            inputs=tuple(graph.value(name) for name in outer),
            outputs=tuple(graph.value(name) for name in made if name not in self.values),
            constants={**known, **self.constants},
            values={**{name: graph.value(name) for name in (*outer, *made)}, **self.values},
            decided={name: graph.decided[name] for name in outer if name in graph.decided},
            opsets=runtime_opsets(graph),
        )
