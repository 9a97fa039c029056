# SPDX-License-Identifier: Apache-2.0
"""Before any shape is known: nodes that nobody knows; in strict mode, those that no shape could make map."""

from __future__ import annotations

import difflib
from collections.abc import Collection

from onedispatch.dispatch.compiler.compiler import refused_model
from onedispatch.dispatch.compiler.custom import missing_nodes
from onedispatch.dispatch.compiler.fold import may_fold
from onedispatch.dispatch.frontend.graph import Graph, Node
from onedispatch.dispatch.plugins import discovery
from onedispatch.operators.declarations import registry
from onedispatch.transactions.base.errors import UnknownOperatorError
from onedispatch.transactions.base.phrases import counted


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


def refuse_missing(graph: Graph) -> None:
    """Raises ``UnknownOperatorError`` with every node of a domain that neither onnx, onnxruntime nor a
    plug-in knows: no device and no host could compute it."""
    missing = missing_nodes(graph)
    if not missing:
        return
    operators = {f"{node.domain}.{node.op_type}" for node in missing}
    raise UnknownOperatorError(
        f"model {graph.name}",
        f"{counted(len(missing), 'node')} of {counted(len(operators), 'operator')} that nobody knows",
        f"operators of onnx, of onnxruntime and of plug-ins ({discovery.searched()})",
        "name the plug-in that maps them: plugins=[...], --plugin FILE or ONEDISPATCH_PLUGIN_PATH, "
        "or map them with od.maps before the model is compiled",
        nodes=[_missing_line(node) for node in missing],
    )


def _missing_line(node: Node) -> str:
    """A node with the mapped operators that are spelled almost alike."""
    known = [f"{row.domain}.{row.op_type}" for row in registry.all_mappings() if row.domain]
    close = difflib.get_close_matches(f"{node.domain}.{node.op_type}", known, 3)
    line = f"{node.name}: {node.domain}.{node.op_type}"
    return f"{line} (nearest: {', '.join(close)})" if close else line
