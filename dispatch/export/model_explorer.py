# SPDX-License-Identifier: Apache-2.0
"""Model Explorer's node data: modelled time per node, coloured from the least to the most.

Nodes have the ids of its adapter for ONNX (package ``model-explorer-onnx``): their names; and where there is
the model's file, its first results' names, which other adapters match.
"""

from __future__ import annotations

from typing import Any

from onedispatch.dispatch.export.nodes import ModelFacts

_GRADIENT = ({"stop": 0, "bgColor": "#ffffff"}, {"stop": 1, "bgColor": "#f4511e"})
_COLOURS = {"npu": "#c8e6c9", "cpu": "#ffcdd2", "folded": "#e0e0e0"}


def node_data(facts: ModelFacts) -> dict[str, Any]:
    """Returns the file of the time, by graph: microseconds of nodes that are part of device operators."""
    times = {
        node.name: {"value": round(facts.microseconds(node.cycles), 6)}
        for node in facts.nodes
        if node.operators
    }
    return {
        _graph(facts): {
            "name": f"microseconds on {facts.device}",
            "results": times,
            "gradient": list(_GRADIENT),
        }
    }


def placement_data(facts: ModelFacts) -> dict[str, Any]:
    """Returns the file of the placement, by graph: npu, cpu or folded."""
    places = {node.name: {"value": node.device, "bgColor": _COLOURS[node.device]} for node in facts.nodes}
    return {_graph(facts): {"name": f"placement on {facts.device}", "results": places}}


def _graph(facts: ModelFacts) -> str:
    return facts.graph or "model"
