# SPDX-License-Identifier: Apache-2.0
"""Graph to executable: absorb, select, emit, place, fuse. A list of steps, no policy of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from onedispatch.dispatch.base.precisions import EXACT
from onedispatch.dispatch.compiler.copies import Copies
from onedispatch.dispatch.compiler.custom import CastPolicy, CustomNodes, on_host
from onedispatch.dispatch.compiler.executable import Executable
from onedispatch.dispatch.compiler.expand import expand_bodies
from onedispatch.dispatch.compiler.fold import specialise
from onedispatch.dispatch.compiler.integers import in_integers
from onedispatch.dispatch.compiler.mapping import Unit
from onedispatch.dispatch.compiler.passthrough import hand_on
from onedispatch.dispatch.compiler.phases import absorb, emit, fuse, in_narrow_sums, place, select
from onedispatch.dispatch.compiler.placement import host_reason, placement_of
from onedispatch.dispatch.compiler.precision import in_precision
from onedispatch.dispatch.compiler.quantised import quantisations
from onedispatch.dispatch.compiler.rewrite import rewrite
from onedispatch.dispatch.compiler.used_kernels import used_kernels
from onedispatch.dispatch.frontend.graph import Array, Graph, Value
from onedispatch.dispatch.frontend.validity import check_nodes
from onedispatch.operators.scheduling.select import SEARCH, Selector
from onedispatch.transactions import Device
from onedispatch.transactions.base.errors import UnsupportedModelError
from onedispatch.transactions.base.text import counted

Fallback = Literal["cpu", "error"]
Sums = Literal["exact", "narrow"]


def compile_graph(
    graph: Graph,
    shapes: Mapping[str, tuple[int, ...]],
    values: Mapping[str, Array],
    device: Device,
    fallback: Fallback = "cpu",
    selector: Selector | None = None,
    cast_policy: CastPolicy = "error",
    precision: str = EXACT,
    sums: Sums = "exact",
) -> Executable:
    """The executable of ``graph`` for concrete input shapes; ``selector`` chooses solutions, or the search.

    ``values`` are those of inputs that decide shapes; ``cast_policy`` is what happens where a kernel from
    outside lacks an element type; ``precision`` names the type that float32 tensors are computed in;
    ``sums`` whether those of products keep all their bits between steps. Raises
    ``ModelError`` for nodes that break ONNX's rules, ``UnsupportedModelError`` with every node that does not
    map when ``fallback`` is ``"error"``, ``SolutionError`` for a solution that does not fit its problem,
    ``KernelError`` for a node that its kernel refuses.
    """
    special = prepared(graph, shapes, values, device, cast_policy, precision)
    strict = fallback == "error"
    chooser = SEARCH if selector is None else selector  # an empty catalog is false, and asked all the same
    absorbed = absorb(special, device)
    if sums == "narrow":
        absorbed = in_narrow_sums(absorbed)
    if strict and any(unit.kind == "host" for unit in absorbed.units):
        copies = Copies(device, chooser)
        _insist(special, absorbed.units, hand_on(special, copies, on_device=True).refusals)
    _insist_on_engines(special, absorbed.units)
    placed = place(emit(select(absorbed, chooser)), strict=strict)
    if strict:
        _insist(special, placed.units, placed.refusals)
    steps = fuse(placed)
    return Executable(
        special.inputs,
        tuple(_shaped(special, value) for value in special.outputs),
        placed.sources,
        steps,
        placement_of(special, placed.plain),
        {name: special.constants[name] for name in placed.sources if name in special.constants},
        used_kernels(steps),
        special.evaluated,
    )


def prepared(
    graph: Graph,
    shapes: Mapping[str, tuple[int, ...]],
    values: Mapping[str, Array],
    device: Device,
    cast_policy: CastPolicy = "error",
    precision: str = EXACT,
) -> Graph:
    """The graph whose nodes are mapped: shapes known, constants folded, rules applied, in its precision.

    Arguments and errors as ``compile_graph`` has them.
    """
    custom = CustomNodes(graph, device, cast_policy)
    special = specialise(graph, shapes, values, custom)
    check_nodes(special, special.nodes)
    expanded = expand_bodies(special, device)
    while _learnt(special, expanded):  # what reads the results can be inferred now
        special = specialise(expanded, shapes, values, custom)
        expanded = expand_bodies(special, device)
    rewritten = rewrite(in_integers(special, device), device)  # which bodies may hide from: they come after
    special = custom.inserted(expanded if rewritten is special else expand_bodies(rewritten, device))
    special = replace(special, quantised=quantisations(special))
    check_nodes(special, special.nodes)
    return in_precision(special, precision, device)


def _learnt(before: Graph, after: Graph) -> bool:
    """Whether shapes of ``before`` that were unknown are known now."""
    open_ends = (n for node in before.nodes for n in node.writes if not before.value(n).is_concrete)
    return any(after.value(name).is_concrete for name in open_ends)


def _shaped(graph: Graph, value: Value) -> Value:
    """An output with the shape that it has in this executable; as declared where that is unknown."""
    known = graph.value(value.name)
    return replace(value, shape=known.shape) if known.is_concrete else value


def _insist(graph: Graph, units: Sequence[Unit], refusals: Sequence[str]) -> None:
    """In strict mode: all nodes that do not map, at once."""
    lines = [
        f"{node.name} ({node.op_type}): {host_reason(graph, node, unit)}"
        for unit in units
        if unit.kind == "host"
        for node in unit.nodes
    ]
    if lines or refusals:
        raise refused_model(graph.name, [*lines, *refusals])


def _insist_on_engines(graph: Graph, units: Sequence[Unit]) -> None:
    """Raises ``UnsupportedModelError`` for nodes that the device refuses and no host engine knows: operators
    that a plug-in maps by a function, which says nothing of the host."""
    lines = [
        f"{node.name} ({node.op_type}): {host_reason(graph, node, unit)}; no host engine has "
        f"{node.domain}.{node.op_type}"
        for unit in units
        if unit.kind == "host"
        for node in unit.nodes
        if not on_host(node)
    ]
    if lines:
        raise UnsupportedModelError(
            f"model {graph.name}",
            f"{counted(len(lines), 'node')} that neither the device nor the host takes",
            "nodes that map, operators of onnx or onnxruntime, and kernels (od.kernel), which the host runs",
            "change these nodes, or let their mapping take them",
            nodes=lines,
        )


def refused_model(name: str, lines: list[str]) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"model {name}",
        f"{counted(len(lines), 'node')} that no device operator takes",
        "models whose every node maps, with fallback='error'",
        "run it with fallback='cpu', or change these nodes",
        nodes=lines,
    )


__all__ = ["Fallback", "Sums", "compile_graph", "prepared", "refused_model"]
