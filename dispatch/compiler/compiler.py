# SPDX-License-Identifier: Apache-2.0
"""Graph to program: map, partition, plan, emit, fuse. A list of steps, no policy of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from onedispatch.dispatch.compiler.emit import BuildRefused, emit_region
from onedispatch.dispatch.compiler.fold import specialise
from onedispatch.dispatch.compiler.mapping import Refusal, Specs, Unit, map_graph
from onedispatch.dispatch.compiler.partition import Region, partition
from onedispatch.dispatch.compiler.passthrough import hand_on
from onedispatch.dispatch.compiler.plan import HostStep, NodePlacement, Program, Step
from onedispatch.dispatch.frontend.graph import Array, Graph, Node, Value
from onedispatch.dispatch.frontend.validity import check_nodes
from onedispatch.transactions import Device
from onedispatch.transactions.base.errors import UnsupportedModelError
from onedispatch.transactions.base.phrases import counted

Fallback = Literal["cpu", "error"]


def compile_graph(
    graph: Graph,
    shapes: Mapping[str, tuple[int, ...]],
    values: Mapping[str, Array],
    device: Device,
    fallback: Fallback = "cpu",
) -> Program:
    """The program of ``graph`` for concrete input shapes.

    ``values`` are those of inputs that decide shapes. Raises ``ModelError`` for nodes that break
    ONNX's rules, ``UnsupportedModelError`` with every node that does not map when ``fallback`` is
    ``"error"``.
    """
    special = specialise(graph, shapes, values)
    check_nodes(special, special.nodes)
    refused: dict[str, Refusal] = {}
    whole: set[str] = set()  # nodes that must not be merged with others
    copies = True  # the device may copy outputs that no node makes
    while True:
        units = map_graph(special, device, refused, whole)
        strict = fallback == "error"
        on_device = strict or (copies and all(u.kind != "host" for u in units))
        ends = hand_on(special, device, on_device=on_device)
        if strict:
            _insist(special, units, ends.refusals)
        regions = partition([*units, *ends.units], ends.sources)
        try:
            steps = [_step(special, region, device) for region in regions]
        except BuildRefused as refusal:
            if not refusal.nodes:  # a copy of an output
                if not on_device or strict:
                    raise refused_model(special.name, [str(refusal.refusal)]) from refusal
                copies = False
                continue
            # A merged operator that cannot be built: its nodes one by one, before giving up.
            if len(refusal.nodes) > 1 and not whole.issuperset(refusal.nodes):
                whole.update(refusal.nodes)
            else:
                refused.update(dict.fromkeys(refusal.nodes, refusal.refusal))
            continue
        break
    return Program(
        special.inputs,
        tuple(_shaped(special, value) for value in special.outputs),
        ends.sources,
        tuple(steps),
        _placement(special, regions),
        {name: special.constants[name] for name in ends.sources if name in special.constants},
    )


def _step(graph: Graph, region: Region, device: Device) -> Step:
    if region.place == "npu":
        return emit_region(region, Specs(graph), device)
    nodes = tuple(dict.fromkeys(node for unit in region.units for node in unit.nodes))
    reads = {name for node in nodes for name in node.reads}
    edges = reads.union(*(node.writes for node in nodes))
    piece = replace(
        graph,
        nodes=nodes,
        inputs=tuple(graph.value(name) for name in region.inputs),
        outputs=tuple(graph.value(name) for name in region.outputs),
        constants={name: array for name, array in graph.constants.items() if name in reads},
        values={name: graph.value(name) for name in edges},
        folded=(),
        decided={},
    )
    inputs = tuple(name for name in region.inputs if name not in graph.constants)
    return HostStep(piece, inputs, region.outputs)


def _shaped(graph: Graph, value: Value) -> Value:
    """An output with the shape that it has in this program; as declared where that is unknown."""
    known = graph.value(value.name)
    return replace(value, shape=known.shape) if known.is_concrete else value


def _insist(graph: Graph, units: Sequence[Unit], refusals: Sequence[str]) -> None:
    """In strict mode: all nodes that do not map, at once."""
    lines = [
        f"{node.name} ({node.op_type}): {unit.refusal}"
        for unit in units
        if unit.kind == "host"
        for node in unit.nodes
    ]
    if lines or refusals:
        raise refused_model(graph.name, [*lines, *refusals])


def refused_model(name: str, lines: list[str]) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"model {name}",
        f"{counted(len(lines), 'node')} that no device operator takes",
        "models whose every node maps, with fallback='error'",
        "run it with fallback='cpu', or change these nodes",
        nodes=lines,
    )


def _placement(graph: Graph, regions: Sequence[Region]) -> tuple[NodePlacement, ...]:
    """One row per node of the model, in the model's order."""
    rows: dict[str, NodePlacement] = {
        f.node: NodePlacement(f.node, f.op_type, "folded", f.reason) for f in graph.folded
    }
    for region in regions:
        for unit in region.units:
            for node in unit.nodes:
                row = _row(node, unit)
                known = rows.get(node.name)
                if known is None or known.reason.startswith("no data"):
                    rows[node.name] = row
    order = {name: index for index, name in enumerate(graph.order)}
    return tuple(sorted(rows.values(), key=lambda row: order.get(row.node, len(order))))


def _row(node: Node, unit: Unit) -> NodePlacement:
    if unit.kind == "host":
        return NodePlacement(node.name, node.op_type, "cpu", str(unit.refusal))
    if unit.operator is None:
        return NodePlacement(node.name, node.op_type, "npu", "no data moves: another name for the same bytes")
    reason = f"as {unit.operator.kind or type(unit.operator).__name__}"
    if len(unit.nodes) > 1:
        reason += " together with " + ", ".join(n.name for n in unit.nodes if n is not node)
    return NodePlacement(node.name, node.op_type, "npu", reason)


__all__ = ["Fallback", "compile_graph", "refused_model"]
