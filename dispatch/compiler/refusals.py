# SPDX-License-Identifier: Apache-2.0
"""Models that cannot be compiled as asked: all nodes at once, each with its reason."""

from __future__ import annotations

from collections.abc import Iterable

from onedispatch.dispatch.compiler.copies import Copies
from onedispatch.dispatch.compiler.custom import is_unmapped, on_host
from onedispatch.dispatch.compiler.mapping import Unit
from onedispatch.dispatch.compiler.passes import Context
from onedispatch.dispatch.compiler.passthrough import route_passthrough_outputs
from onedispatch.dispatch.compiler.phases import MappedGraph, PartitionedGraph
from onedispatch.dispatch.compiler.placement import host_reason
from onedispatch.dispatch.frontend.graph import Graph
from onedispatch.dispatch.host.bodies import RUN_HERE
from onedispatch.transactions.base.errors import UnsupportedModelError
from onedispatch.transactions.base.text import counted


def refuse_unmapped(mapped: MappedGraph, context: Context) -> MappedGraph:
    """Returns ``mapped``.

    Raises ``UnsupportedModelError``: in strict mode with all nodes that do not map, else with those that no
    host engine knows either.
    """
    graph, lines = mapped.graph, _host_lines(mapped.graph, mapped.units)
    if context.options.strict and lines:
        copies = Copies(context.options.device, context.options.chooser)
        raise refused_model(
            graph.name, [*lines, *route_passthrough_outputs(graph, copies, on_device=True).refusals]
        )
    _refuse_bodies(graph, mapped.units)
    # Operators that a plug-in maps by a function, which says nothing of the host.
    unknown = [unit for unit in mapped.units if unit.kind == "host" and not on_host(unit.nodes[0])]
    if unknown:
        raise UnsupportedModelError(
            f"model {graph.name}",
            f"{counted(len(unknown), 'node')} that neither the device nor the host takes",
            "nodes that map, operators of onnx or onnxruntime, and kernels (od.kernel), which the host runs",
            "change these nodes, or let their mapping take them",
            nodes=[
                f"{line}; no host engine has {unit.nodes[0].domain}.{unit.nodes[0].op_type}"
                for unit, line in zip(unknown, _host_lines(graph, unknown), strict=True)
            ],
        )
    return mapped


def _refuse_bodies(graph: Graph, units: Iterable[Unit]) -> None:
    """Raises ``UnsupportedModelError`` for custom kernels in bodies that no engine runs with them."""
    lines = [
        f"{node.name} ({node.op_type}): its body has {', '.join(f'{d}.{op}' for d, op in own)}"
        for node in (unit.nodes[0] for unit in units if unit.kind == "host")
        if node.op_type not in RUN_HERE and (own := [one for one in node.inner if not is_unmapped(*one)])
    ]
    if lines:
        raise UnsupportedModelError(
            f"model {graph.name}",
            f"custom kernels in bodies that onnxruntime alone runs, of {counted(len(lines), 'node')}",
            f"such kernels in the graph, in functions, and in bodies of {' and '.join(RUN_HERE)}",
            "give a Scan fewer rounds, or write it as a Loop",
            nodes=lines,
        )


def refuse_unplaced(partitioned: PartitionedGraph, _: Context) -> PartitionedGraph:
    """Returns ``partitioned``. Raises ``UnsupportedModelError`` with what the host would have to do."""
    lines = [*_host_lines(partitioned.graph, partitioned.units), *partitioned.refusals]
    if lines:
        raise refused_model(partitioned.graph.name, lines)
    return partitioned


def _host_lines(graph: Graph, units: Iterable[Unit]) -> list[str]:
    return [
        f"{node.name} ({node.op_type}): {host_reason(graph, node, unit)}"
        for unit in units
        if unit.kind == "host"
        for node in unit.nodes
    ]


def refused_model(name: str, lines: list[str]) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"model {name}",
        f"{counted(len(lines), 'node')} that no device operator takes",
        "models whose every node maps, with fallback='error'",
        "run it with fallback='cpu', or change these nodes",
        nodes=lines,
    )
