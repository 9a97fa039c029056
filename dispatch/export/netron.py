# SPDX-License-Identifier: Apache-2.0
"""Netron's attachment: what it shows beside the properties of a model's nodes.

Open the model in Netron, then the attachment, as a file too: nodes get a section of metadata and one of
metrics. An entry names its node; nodes without a name of their own have none that Netron would find.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from onedispatch.dispatch.export.nodes import ModelFacts, NodeFacts
from onedispatch.dispatch.export.properties import properties_of

SIGNATURE = "netron:attachment"


def attachment(facts: ModelFacts) -> dict[str, Any]:
    metadata = [_entry("model", "", "device", facts.device)]
    metrics = [
        _entry("model", "", "cycles", facts.cycles),
        _entry("model", "", "microseconds", facts.microseconds(facts.cycles)),
    ]
    for node in facts.nodes:
        said = properties_of(node).items()
        metadata += [_entry("node", node.name, name, value) for name, value in said]
        metrics += _metrics(facts, node)
    return {"signature": SIGNATURE, "metadata": metadata, "metrics": metrics}


def _metrics(facts: ModelFacts, node: NodeFacts) -> Iterator[dict[str, Any]]:
    if not node.operators:
        return
    share = node.cycles / facts.cycles if facts.cycles else 0.0
    yield _entry("node", node.name, "cycles", round(node.cycles, 3))
    yield _entry("node", node.name, "microseconds", round(facts.microseconds(node.cycles), 6))
    yield _entry("node", node.name, "share of the run", round(share, 6))


def _entry(kind: str, target: str, name: str, value: Any) -> dict[str, Any]:
    """Netron compares first lines of names."""
    return {"kind": kind, "target": target.split("\n")[0], "name": name, "value": value}
