# SPDX-License-Identifier: Apache-2.0
"""What is said of a node, as names and texts; and the same in a model's ``metadata_props``."""

from __future__ import annotations

from typing import Any

from onedispatch.dispatch.export.nodes import ModelFacts, NodeFacts, named_nodes
from onedispatch.transactions.base.text import encodable

PREFIX = "onedispatch."


def properties_of(node: NodeFacts) -> dict[str, str]:
    """Where it runs and why, as part of what; empty texts are left out."""
    said = {
        "device": node.device,
        "reason": node.reason,
        "engine": node.engine,
        "operators": ", ".join(node.operators),
        "together with": ", ".join(node.beside),
        "dispatch": "" if node.dispatch is None else str(node.dispatch),
        "bound by": node.bound,
    }
    return {name: text for name, text in said.items() if text}


def annotate(model: Any, facts: ModelFacts) -> None:
    """Writes what is known into the ``metadata_props`` of an onnx.ModelProto and of its nodes, in place of
    what an earlier call wrote.

    ONNX has those of nodes since IR version 10; the model keeps its version, and readers of older ones pass
    over them.
    """
    said = {"device": facts.device, "cycles": str(facts.cycles)}
    _write(model.metadata_props, said | {"microseconds": f"{facts.microseconds(facts.cycles):.3f}"})
    protos = named_nodes(model)
    for node in facts.nodes:
        if node.name in protos:
            timed = {"cycles": f"{node.cycles:.3f}"} if node.operators else {}
            _write(protos[node.name].metadata_props, properties_of(node) | timed)


def _write(entries: Any, said: dict[str, str]) -> None:
    kept = [(entry.key, entry.value) for entry in entries if not entry.key.startswith(PREFIX)]
    del entries[:]
    for key, value in (*kept, *((PREFIX + name.replace(" ", "_"), text) for name, text in said.items())):
        entries.add(key=key, value=encodable(value))
