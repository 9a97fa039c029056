# SPDX-License-Identifier: Apache-2.0
"""Refusals before any shape is known: unknown operators; in strict mode, nodes that map for no shape."""

from __future__ import annotations

import difflib
from collections.abc import Collection

from onedispatch.dispatch.compiler.custom import missing_operators
from onedispatch.dispatch.compiler.fold import may_fold
from onedispatch.dispatch.compiler.refusals import refused_model
from onedispatch.dispatch.compiler.unroll import has_operator
from onedispatch.dispatch.frontend.graph import Graph, refused_by_rules
from onedispatch.dispatch.plugins import discovery
from onedispatch.dispatch.sources.registry import Rules
from onedispatch.operators.declarations import registry
from onedispatch.transactions.base.errors import UnknownOperatorError
from onedispatch.transactions.base.text import counted


def refuse_early(graph: Graph, deciding: Collection[str]) -> None:
    """Raises ``UnsupportedModelError`` for nodes without any mapping that cannot fold either."""
    foldable = may_fold(graph, deciding)
    lines = [
        f"{node.name} ({node.op_type}): no device operator for {node.domain or 'ai.onnx'}.{node.op_type}"
        + refused_by_rules(graph, node.name, node.op_type)
        for node in graph.nodes
        if node.name not in foldable and not has_operator(node, graph.opset_of(node))
    ]
    if lines:
        raise refused_model(graph.name, lines)


def refuse_missing(graph: Graph) -> None:
    """Raises ``UnknownOperatorError`` with every node of a domain that neither onnx, onnxruntime nor a
    plug-in knows: no device and no host could compute it."""
    missing = missing_operators(graph)
    if not missing:
        return
    operators = {(domain, op_type) for _, domain, op_type in missing}
    raise UnknownOperatorError(
        f"model {graph.name}",
        f"{counted(len(missing), 'node')} of {counted(len(operators), 'unknown operator')}",
        f"operators of onnx, of onnxruntime and of plug-ins ({discovery.searched()})",
        "name the plug-in that maps them: plugins=[...], --plugin FILE or ONEDISPATCH_PLUGIN_PATH, "
        "or map them with od.maps before the model is compiled",
        nodes=[_missing_line(*row) + refused_by_rules(graph, row[0], row[2]) for row in missing],
    )


def _missing_line(node: str, domain: str, op_type: str) -> str:
    """A node with what is mapped instead."""
    close, line = nearest_to(domain, op_type), f"{node}: {domain}.{op_type}"
    return f"{line} (nearest: {', '.join(close)})" if close else line


def nearest_to(domain: str, op_type: str) -> list[str]:
    """Returns mapped operators that are spelled almost alike, and rules for those or other versions."""
    known = [f"{row.domain}.{row.op_type}" for row in registry.all_mappings() if row.domain]
    close = difflib.get_close_matches(f"{domain}.{op_type}", known, 3)
    return [*close, *(f"a rule for {one}" for one in Rules().nearest("onnx", domain, op_type)[:3])]
