# SPDX-License-Identifier: Apache-2.0
"""Where every node of a model runs, and why: one row per node that the model has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from onedispatch.dispatch.compiler.executable import NodePlacement
from onedispatch.dispatch.compiler.mapping import Unit
from onedispatch.dispatch.compiler.partition import Region
from onedispatch.dispatch.frontend.graph import Graph, Node
from onedispatch.dispatch.rules.diagnostics import STAYS, took
from onedispatch.transactions.base.text import counted


def placement_of(graph: Graph, regions: Sequence[Region]) -> tuple[NodePlacement, ...]:
    """One row per node of the model, in the model's order."""
    rows: dict[str, NodePlacement] = {
        f.node: NodePlacement(f.node, f.op_type, "folded", f.reason)
        for f in graph.folded
        if f.node not in graph.origins
    }
    pieces: dict[str, list[tuple[Node, Unit]]] = {}  # by node of the model that gave way to them
    models: dict[str, Node] = {}
    moved: set[str] = set()
    operators: dict[str, dict[str, None]] = {}
    for unit in (unit for region in regions for unit in region.units):
        for node in unit.nodes:
            origin = graph.origins.get(node.name)
            if unit.operator is not None:
                for model in origin.nodes if origin else (node,):
                    operators.setdefault(model.name, {})[unit.operator.name] = None
            for model in origin.nodes if origin else ():
                models[model.name] = model
                pieces.setdefault(model.name, []).append((node, unit))
            if origin is not None:
                continue
            if node.name not in moved:  # what moves data says more than what renames it
                rows[node.name] = _row(graph, node, unit)
            if unit.kind != "alias":
                moved.add(node.name)
    for name, given in pieces.items():
        rows[name] = _joined(graph, models[name], given)
    order = {name: index for index, name in enumerate(graph.order)}
    return tuple(
        replace(row, operators=tuple(operators.get(row.node, ())))
        for row in sorted(rows.values(), key=lambda row: order.get(row.node, len(order)))
    )


def host_reason(graph: Graph, node: Node, unit: Unit) -> str:
    """Why a node runs on the host: the refusal of its mapping, and what else was tried."""
    remark = graph.remarks.get(node.name)
    return f"{unit.refusal}; {remark}" if remark else str(unit.refusal)


def _row(graph: Graph, node: Node, unit: Unit) -> NodePlacement:
    row = replace(_placed(graph, node, unit), remark=_remark(graph, node, unit))
    inserted = graph.inserted.get(node.name)
    return replace(row, reason=f"{inserted}; {row.reason}") if inserted else row


def _placed(graph: Graph, node: Node, unit: Unit) -> NodePlacement:
    if unit.kind == "host":
        nearest = unit.refusal.nearest if unit.refusal is not None else ""
        return NodePlacement(node.name, node.op_type, "cpu", host_reason(graph, node, unit), nearest)
    if unit.operator is None:
        return NodePlacement(node.name, node.op_type, "npu", "no data moves: another name for the same bytes")
    others = [one.name for one in unit.nodes if one is not node]
    return NodePlacement(node.name, node.op_type, "npu", f"as {_kind(unit)}{_together(unit, others)}")


def _together(unit: Unit, others: Sequence[str]) -> str:
    """The other nodes that a unit stands for, and the merges that took them."""
    if not others:
        return ""
    merges = ", then ".join(dict.fromkeys(unit.merges))
    return f" together with {', '.join(others)}: {merges}"


def _remark(graph: Graph, node: Node, unit: Unit) -> str:
    """What was tried beside: rules that nearly took the node; merges that nearly took the unit it begins."""
    missed = unit.missed if node is unit.nodes[0] else ()
    remark = graph.remarks.get(node.name, "")
    if unit.merges and remark.startswith(STAYS) and _kind(unit) not in ("dequantise", "quantise"):
        remark = ""  # it did not: another kernel reads or makes integers itself
    return "; ".join(filter(None, (remark, *missed)))


def _joined(graph: Graph, model: Node, pieces: Sequence[tuple[Node, Unit]]) -> NodePlacement:
    """The row of a node of the model by those that stand for it."""
    origin = graph.origins[pieces[0][0].name]
    others = [node.name for node in origin.nodes if node is not model]
    how = took(origin.how, others)
    hosts = [(node, unit) for node, unit in pieces if unit.kind == "host"]
    if hosts:
        said = "; ".join(f"{node.op_type}: {host_reason(graph, node, unit)}" for node, unit in hosts)
        return NodePlacement(model.name, model.op_type, "cpu", f"{how}, of which not all maps: {said}")
    nodes = list(dict.fromkeys(node for node, _ in pieces))
    kinds = dict.fromkeys(_kind(unit) for _, unit in pieces if unit.operator is not None)
    what = nodes[0].op_type if len(nodes) == 1 else counted(len(nodes), "node")
    reason, remarks = f"{how}: {what} as {_listed(kinds)}", [graph.remarks.get(model.name, "")]
    if len(pieces) == 1:  # the standard node of a rule: merges took it as they take any other
        ((node, unit),) = pieces
        reason += _together(unit, [one.name for one in unit.nodes if one is not node])
        remarks.append(_remark(graph, node, unit))
    said = "; ".join(filter(None, remarks))
    return NodePlacement(model.name, model.op_type, "npu", reason, remark=said)


def _listed(kinds: Iterable[str]) -> str:
    return ", ".join(kinds) or "other names for the same bytes"


def _kind(unit: Unit) -> str:
    return unit.operator.kind or type(unit.operator).__name__ if unit.operator is not None else ""
