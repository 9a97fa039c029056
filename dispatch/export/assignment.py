# SPDX-License-Identifier: Apache-2.0
"""Which nodes run where, in the form of ONNX Runtime's ``get_provider_graph_assignment_info``: subgraphs with
the name of their execution provider, and name, domain and operator of their nodes."""

from __future__ import annotations

from typing import Any

from onedispatch.dispatch.export.nodes import ModelFacts, NodeFacts
from onedispatch.dispatch.ort.providers import HOST, PROVIDER


def assignment(facts: ModelFacts) -> list[dict[str, Any]]:
    """Returns the subgraphs: one for each dispatch, one for each row of nodes on the host. Nodes that were
    computed at compile time are in none, as in ONNX Runtime."""
    subgraphs: list[dict[str, Any]] = []
    of_dispatch: dict[int, list[dict[str, str]]] = {}
    on_host: list[dict[str, str]] | None = None
    for node in facts.nodes:
        if node.device == "folded":
            continue
        if node.dispatch is None:
            if on_host is None:
                subgraphs.append({"ep_name": HOST, "nodes": (on_host := [])})
            on_host.append(_node(node))
            continue
        on_host = None
        if node.dispatch not in of_dispatch:
            subgraphs.append({"ep_name": PROVIDER, "nodes": of_dispatch.setdefault(node.dispatch, [])})
        of_dispatch[node.dispatch].append(_node(node))
    return subgraphs


def _node(node: NodeFacts) -> dict[str, str]:
    return {"name": node.name, "domain": node.domain, "op_type": node.op_type}
