# SPDX-License-Identifier: Apache-2.0
"""The report of AMD's Vitis AI execution provider, ``vitisai_ep_report.json``: nodes by device.

From AMD's public pages: ``deviceStat`` with ``name``, ``nodeNum`` and ``supportedOpType`` of "all", "NPU" and
"CPU", operators with their domain in front ("::Conv"). Assumed, since no page says it: the keys of
``nodeStat`` (``device``, ``input``, ``output``, ``opType``), and that nodes that were computed when the model
was compiled are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onedispatch.dispatch.export.nodes import ModelFacts, NodeFacts
from onedispatch.dispatch.frontend.schemas import domain_of

FILE = "vitisai_ep_report.json"
_NAMES = {"npu": "NPU", "cpu": "CPU"}


def vitis_report(facts: ModelFacts) -> dict[str, Any]:
    placed = [node for node in facts.nodes if node.device in _NAMES]
    devices = {name: [node for node in placed if node.device == device] for device, name in _NAMES.items()}
    stats = [_device("all", placed), *(_device(name, nodes) for name, nodes in devices.items() if nodes)]
    return {"deviceStat": stats, "nodeStat": [_node(node) for node in placed]}


def _device(name: str, nodes: Sequence[NodeFacts]) -> dict[str, Any]:
    return {"name": name, "nodeNum": len(nodes), "supportedOpType": sorted({_type(node) for node in nodes})}


def _node(node: NodeFacts) -> dict[str, Any]:
    tensors = {"input": list(node.inputs), "output": list(node.outputs)}
    return {"device": _NAMES[node.device], **tensors, "opType": _type(node)}


def _type(node: NodeFacts) -> str:
    return f"{domain_of(node.domain)}::{node.op_type}"
