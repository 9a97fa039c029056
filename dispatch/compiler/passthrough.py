# SPDX-License-Identifier: Apache-2.0
"""Values that leave the device without an operator that makes them: they are copied there.

An output that is an input of the model, a constant, another name for another output: each
needs bytes of its own in the output buffer, and only the device may write them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from onedispatch.dispatch.compiler.mapping import Refusal, Specs, Unit
from onedispatch.dispatch.frontend.graph import Graph
from onedispatch.operators.declarations.tensor import TensorSpec, Unsupported
from onedispatch.operators.interface.operator import Operator
from onedispatch.transactions import Device


@dataclass(frozen=True)
class Outputs:
    """The model's outputs: ``sources`` names the value behind each, ``units`` make the extra ones.

    ``refusals`` are outputs that the device cannot hand on; the session does it, if it may.
    """

    sources: tuple[str, ...]
    units: tuple[Unit, ...] = ()
    refusals: tuple[str, ...] = ()


def device_copy(source: TensorSpec, output: TensorSpec, device: Device) -> Operator:
    """An operator that copies ``source`` (same bytes, perhaps another shape) to ``output``.

    Raises ``Unsupported`` where the device cannot copy such a tensor.
    """
    try:
        from onedispatch.operators.families.movement import Copy
    except ImportError as error:
        raise Unsupported("there is no device copy operator", "outputs that a node computes") from error
    value = None if source.value is None else source.value.reshape(output.shape)
    same = replace(source, shape=output.shape, value=value)
    return Copy(f"copy of {source.name}", inputs=[same], output=output, device=device)


def hand_on(graph: Graph, device: Device, *, on_device: bool) -> Outputs:
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
            device_copy(spec, output, device)
        except Unsupported as error:
            refusals.append(f"output {value.name}: {Refusal(error.reason, error.nearest)}")
            sources.append(value.name)
            continue
        reads = () if spec.is_const else (spec.name,)
        units.append(Unit("alias", (), reads, (output.name,), alias=(output, spec)))
        sources.append(output.name)
    return Outputs(tuple(sources), tuple(units), tuple(refusals))
