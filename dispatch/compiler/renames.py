# SPDX-License-Identifier: Apache-2.0
"""Nodes that only rename a value go: rules and merges see its maker and its readers side by side."""

from __future__ import annotations

from dataclasses import replace

from onedispatch.dispatch.frontend.exporter import rewired
from onedispatch.dispatch.frontend.graph import Folded, Graph, Node

# Operators whose result has the elements of their first operand in the same order.
_SAME_ORDER = frozenset("Cast Expand Flatten Identity Reshape Squeeze Unsqueeze".split())


def drop_renames(graph: Graph) -> Graph:
    """Returns the graph without nodes whose result is their operand, in type and shape, under another name.

    Those that make outputs of the graph stay, and those that bodies of other nodes read.
    """
    kept = graph.output_names.union(*(node.captured for node in graph.nodes if node.has_subgraph))
    names: dict[str, str] = {}
    nodes: list[Node] = []
    folded: list[Folded] = []
    for node in graph.nodes:
        inputs = tuple(names.get(name, name) for name in node.inputs)
        if inputs != node.inputs:
            node = rewired(node, inputs, node.outputs)
        if kept.isdisjoint(node.writes) and _renames(graph, node):
            names[node.outputs[0]] = inputs[0]
            folded.append(Folded(node.name, node.op_type, f"another name for {inputs[0]}"))
        else:
            nodes.append(node)
    if not folded:
        return graph
    aliases = {**graph.aliases, **{name: (source, ()) for name, source in names.items()}}
    return replace(graph.with_nodes(nodes, folded=(*graph.folded, *folded)), aliases=aliases)


def _renames(graph: Graph, node: Node) -> bool:
    if node.domain or node.op_type not in _SAME_ORDER:
        return False
    source, made = graph.value(node.inputs[0]), graph.value(node.outputs[0])
    if node.op_type == "Identity":
        return True
    return source.is_concrete and source.type == made.type and source.shape == made.shape
