# SPDX-License-Identifier: Apache-2.0
"""Graph to executable: absorb, select, emit, place, fuse. A list of steps, no policy of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from onedispatch.dispatch.compiler.copies import Copies
from onedispatch.dispatch.compiler.custom import CastPolicy, CustomNodes
from onedispatch.dispatch.compiler.executable import Executable, NodePlacement
from onedispatch.dispatch.compiler.fold import specialise
from onedispatch.dispatch.compiler.mapping import Unit
from onedispatch.dispatch.compiler.partition import Region
from onedispatch.dispatch.compiler.passthrough import hand_on
from onedispatch.dispatch.compiler.phases import absorb, emit, fuse, place, select
from onedispatch.dispatch.compiler.quantised import quantisations
from onedispatch.dispatch.compiler.used_kernels import used_kernels
from onedispatch.dispatch.frontend.graph import Array, Graph, Node, Value
from onedispatch.dispatch.frontend.validity import check_nodes
from onedispatch.operators.scheduling.select import SEARCH, Selector
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
    selector: Selector | None = None,
    cast_policy: CastPolicy = "error",
) -> Executable:
    """The executable of ``graph`` for concrete input shapes; ``selector`` chooses solutions, or the search.

    ``values`` are those of inputs that decide shapes; ``cast_policy`` is what happens where a kernel from
    outside lacks an element type. Raises ``ModelError`` for nodes that break ONNX's rules,
    ``UnsupportedModelError`` with every node that does not map when ``fallback`` is ``"error"``,
    ``SolutionError`` for a solution that does not fit its problem, ``KernelError`` for a node that its kernel
    refuses.
    """
    custom = CustomNodes(graph, device, cast_policy)
    special = custom.inserted(specialise(graph, shapes, values, custom))
    special = replace(special, quantised=quantisations(special))
    check_nodes(special, special.nodes)
    strict = fallback == "error"
    chooser = SEARCH if selector is None else selector  # an empty catalog is false, and asked all the same
    absorbed = absorb(special, device)
    if strict and any(unit.kind == "host" for unit in absorbed.units):
        copies = Copies(device, chooser)
        _insist(special, absorbed.units, hand_on(special, copies, on_device=True).refusals)
    placed = place(emit(select(absorbed, chooser)), strict=strict)
    if strict:
        _insist(special, placed.units, placed.refusals)
    steps = fuse(placed)
    return Executable(
        special.inputs,
        tuple(_shaped(special, value) for value in special.outputs),
        placed.sources,
        steps,
        _placement(special, placed.plain),
        {name: special.constants[name] for name in placed.sources if name in special.constants},
        used_kernels(steps),
    )


def _shaped(graph: Graph, value: Value) -> Value:
    """An output with the shape that it has in this executable; as declared where that is unknown."""
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
                row = _row(node, unit, graph.inserted.get(node.name, ""))
                known = rows.get(node.name)
                if known is None or known.reason.startswith("no data"):
                    rows[node.name] = row
    order = {name: index for index, name in enumerate(graph.order)}
    return tuple(sorted(rows.values(), key=lambda row: order.get(row.node, len(order))))


def _row(node: Node, unit: Unit, inserted: str) -> NodePlacement:
    row = _placed(node, unit)
    return replace(row, reason=f"{inserted}; {row.reason}") if inserted else row


def _placed(node: Node, unit: Unit) -> NodePlacement:
    if unit.kind == "host":
        return NodePlacement(node.name, node.op_type, "cpu", str(unit.refusal))
    if unit.operator is None:
        return NodePlacement(node.name, node.op_type, "npu", "no data moves: another name for the same bytes")
    reason = f"as {unit.operator.kind or type(unit.operator).__name__}"
    if len(unit.nodes) > 1:
        reason += " together with " + ", ".join(n.name for n in unit.nodes if n is not node)
    return NodePlacement(node.name, node.op_type, "npu", reason)


__all__ = ["Fallback", "compile_graph", "refused_model"]
