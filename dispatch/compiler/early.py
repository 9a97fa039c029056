# SPDX-License-Identifier: Apache-2.0
"""Strict mode before any shape is known: nodes that no shape could make map."""

from __future__ import annotations

from collections.abc import Collection

from onedispatch.dispatch.compiler.compiler import refused_model
from onedispatch.dispatch.compiler.fold import may_fold
from onedispatch.dispatch.frontend.graph import Graph
from onedispatch.operators.declarations import registry


def refuse_early(graph: Graph, deciding: Collection[str]) -> None:
    """Raises ``UnsupportedModelError`` for nodes without any mapping that cannot fold either."""
    foldable = may_fold(graph, deciding)
    lines = [
        f"{node.name} ({node.op_type}): no device operator for {node.domain or 'ai.onnx'}.{node.op_type}"
        for node in graph.nodes
        if node.name not in foldable and registry.mapping_for(node.domain, node.op_type) is None
    ]
    if lines:
        raise refused_model(graph.name, lines)
