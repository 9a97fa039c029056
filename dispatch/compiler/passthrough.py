# SPDX-License-Identifier: Apache-2.0
"""Values that leave the device without an operator that makes them: they are copied there.

An output that is an input of the model, a constant, another name for another output: each
needs bytes of its own in the output buffer, and only the device may write them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from onedispatch.dispatch.compiler.copies import Copies
from onedispatch.dispatch.compiler.mapping import Refusal, Specs, Unit, alias_unit, to_host
from onedispatch.dispatch.frontend.graph import Graph
from onedispatch.operators.declarations.tensor import TensorSpec, Unsupported
from onedispatch.operators.interface.operator import Alias


@dataclass(frozen=True)
class Outputs:
    """The model's outputs: ``sources`` names the value behind each, ``units`` make the extra ones.

    ``refusals`` are outputs that the device cannot hand on; the session does it, if it may.
    """

    sources: tuple[str, ...]
    units: tuple[Unit, ...] = ()
    refusals: tuple[str, ...] = ()


def route_passthrough_outputs(graph: Graph, copies: Copies, *, on_device: bool) -> Outputs:
    """Outputs that no node makes, as aliases on the device where that is possible."""
    made = {name for node in graph.nodes for name in node.writes}
    specs = Specs(graph)
    sources, units, refusals = [], [], []
    for value in graph.outputs:
        if value.name in made:
            sources.append(value.name)
            continue
        try:
            if not on_device:
                raise Unsupported("the host hands it on")
            spec = specs.of(value.name)
            output = TensorSpec(f"{value.name}//output", spec.dtype, spec.shape)
            if spec.size:
                copies.of(output)
        except Unsupported as error:
            refusals.append(f"output {value.name}: {error}")
            sources.append(value.name)
            continue
        units.append(alias_unit((), Alias(output, spec)))
        sources.append(output.name)
    return Outputs(tuple(sources), tuple(units), tuple(refusals))


def settle_copies(units: Sequence[Unit], outputs: frozenset[str], copies: Copies) -> list[Unit]:
    """Moves aliases to the host whose bytes would have to be copied, where the device cannot.

    An alias that leaves the device needs bytes of its own, unless an operator has just written them.
    """
    settled = list(units)
    written = {t.name for unit in units if unit.operator is not None for t in unit.operator.outputs}
    renames = {unit.alias.output.name: unit.alias.source for unit in units if unit.alias is not None}
    parts = Counter(node for unit in units for node in unit.nodes)
    leaving = set(outputs)  # what the host reads, or the caller
    for index in range(len(settled) - 1, -1, -1):
        unit = settled[index]
        alone = [parts[node] for node in unit.nodes] == [1]  # another node's parts were asked when mapped
        if unit.alias is not None and alone and unit.alias.output.name in leaving:
            output, origin, _ = unit.alias
            while origin.name in renames:
                origin = renames[origin.name]
            whole = origin.device_bytes == output.device_bytes
            stays = (origin.name in written and whole) or not output.size
            refusal = None if stays else _refusal(output, copies)
            if refusal is not None:
                settled[index] = unit = to_host(unit, refusal)
        if unit.kind == "host":
            leaving.update(unit.reads)
    return settled


def _refusal(output: TensorSpec, copies: Copies) -> Refusal | None:
    try:
        copies.of(output)
    except Unsupported as error:
        return Refusal.of(error)
    return None
