# SPDX-License-Identifier: Apache-2.0
"""What the values between the phases keep to: each ``verify`` of ``phases`` asks here.

A fault is a mistake of OneDispatch, or of the code that made the value: an ``InternalError`` that names the
phase and the field, with what was given and what is accepted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from onedispatch.dispatch.compiler.arg_maps import checked_arg_map, parameters_of
from onedispatch.dispatch.compiler.device_region import DeviceRegion
from onedispatch.dispatch.compiler.mapping import Refusal, Unit, roots_of
from onedispatch.dispatch.compiler.partition import Region, place_of
from onedispatch.dispatch.frontend.graph import Graph
from onedispatch.operators.interface.operator import Operator
from onedispatch.operators.scheduling.buffer import Buffer
from onedispatch.operators.scheduling.index_space import OUTPUT
from onedispatch.operators.scheduling.schedule import Schedule
from onedispatch.operators.scheduling.solution_rules import check_solution
from onedispatch.transactions import Device
from onedispatch.transactions.base.errors import InternalError
from onedispatch.transactions.base.signature import bounded_repr
from onedispatch.transactions.base.text import counted

_REMEDY = "Please report this mistake of OneDispatch"
_KINDS = ("op", "alias", "host")


def fault(phase: str, field: str, given: str, accepted: str) -> InternalError:
    return InternalError(f"{phase}, {field}", given, accepted, _REMEDY)


def check_kind(phase: str, field: str, value: Any, kind: type) -> None:
    if not isinstance(value, kind):
        raise fault(phase, field, bounded_repr(value), f"a {kind.__name__}")


def check_items(phase: str, field: str, values: Any, *kinds: type) -> None:
    """A tuple of ``kinds``."""
    names = " or ".join(kind.__name__ for kind in kinds)
    if not isinstance(values, tuple):
        raise fault(phase, field, bounded_repr(values), f"a tuple of {names}")
    for i, value in enumerate(values):
        if not isinstance(value, kinds):
            raise fault(phase, f"{field}[{i}]", bounded_repr(value), f"a {names}")


# -- units -------------------------------------------------------------------------------------------


def check_units(phase: str, graph: Graph, device: Device, units: Any) -> None:
    """Units of ``graph`` for ``device``: each whole, every node there, every value made once and in time."""
    check_kind(phase, "graph", graph, Graph)
    check_kind(phase, "device", device, Device)
    check_items(phase, "units", units, Unit)
    for i, unit in enumerate(units):
        _check_unit(phase, f"units[{i}]", unit, device)
    known = {node.name for node in graph.nodes}
    stand = {node.name for unit in units for node in unit.nodes}
    if stand != known:
        given = f"nothing that stands for {sorted(known - stand)}"
        if stand - known:
            given = f"nodes that the model has not: {sorted(stand - known)}"
        raise fault(phase, "units", given, "units for every node of the model, and no others")
    there = _check_order(phase, "units", units, given_values(graph))
    missing = sorted(graph.output_names - there)
    if missing:
        raise fault(phase, "units", f"none that makes the outputs {missing}", "units that make all outputs")


def given_values(graph: Graph) -> set[str]:
    """What is there before anything runs."""
    return {value.name for value in graph.inputs} | set(graph.constants)


def _check_unit(phase: str, field: str, unit: Unit, device: Device) -> None:
    """The unit has what its kind needs, and nothing of another kind."""
    if unit.kind not in _KINDS:
        raise fault(phase, f"{field}.kind", bounded_repr(unit.kind), ", ".join(_KINDS))
    for name, kind, of in (
        ("operator", "op", Operator), ("alias", "alias", tuple), ("refusal", "host", Refusal)
    ):  # fmt: skip
        value = getattr(unit, name)
        if unit.kind == kind:
            check_kind(phase, f"{field}.{name}", value, of)
        elif value is not None:
            given = f"{bounded_repr(value)} in a unit of kind {unit.kind!r}"
            raise fault(phase, f"{field}.{name}", given, f"None, or kind {kind!r}")
    if not unit.nodes or (unit.kind == "host" and len(unit.nodes) != 1):
        accepted = "the one node that runs on the host" if unit.kind == "host" else "the nodes it stands for"
        raise fault(phase, f"{field}.nodes", bounded_repr([n.name for n in unit.nodes]), accepted)
    if unit.operator is not None and unit.operator.device != device:
        given = f"an operator for {unit.operator.device.name}"
        raise fault(phase, f"{field}.operator.device", given, f"{device.name}, the device of the phase")
    for name, value, wanted in zip(("reads", "writes"), (unit.reads, unit.writes), _edges(unit), strict=True):
        if set(value) != set(wanted):
            raise fault(
                phase, f"{field}.{name}", bounded_repr(value), f"what it does read and write: {wanted}"
            )


def _edges(unit: Unit) -> tuple[Collection[str], Collection[str]]:
    """Names that a unit reads and writes, by what it is."""
    if unit.operator is not None:
        reads = [t.name for t in unit.operator.inputs if not t.is_const]
        return reads, [t.name for t in unit.operator.outputs]
    if unit.alias is not None:
        output, source, _ = unit.alias
        return [] if source.is_const else [source.name], [output.name]
    (node,) = unit.nodes
    return node.reads, node.writes


def _check_order(phase: str, field: str, parts: Iterable[Any], known: set[str]) -> set[str]:
    """Each of ``parts`` reads what is there by then, and makes what nothing has made; all that is there."""
    known, seen = set(known), set[int]()
    for i, part in enumerate(parts):
        if id(part) in seen:
            raise fault(phase, f"{field}[{i}]", "one that is there already", "each once")
        seen.add(id(part))
        reads, writes = (part.reads, part.writes) if isinstance(part, Unit) else (part.inputs, part.outputs)
        early, again = sorted(set(reads) - known), sorted(known.intersection(writes))
        if early:
            raise fault(
                phase, f"{field}[{i}]", f"reads {early} before anything makes them", "values in order"
            )
        if again:
            raise fault(phase, f"{field}[{i}]", f"makes {again} again", "every value made once")
        known.update(writes)
    return known


# -- operators ---------------------------------------------------------------------------------------


def check_schedules(phase: str, device: Device, units: Sequence[Unit]) -> None:
    """Every nest has a schedule of this device whose solution fits.

    Raises ``SolutionError`` where one does not fit.
    """
    for i, unit in enumerate(units):
        if unit.operator is None:
            continue
        field, nests = f"units[{i}].operator.schedules", unit.operator._nests
        schedules = vars(unit.operator).get("schedules", ())
        if [id(s.nest) for s in schedules if isinstance(s, Schedule)] != [id(nest) for nest in nests]:
            given = counted(len(schedules), "schedule") if schedules else "none"
            raise fault(phase, field, given, f"one for each of {counted(len(nests), 'nest')}, in their order")
        for schedule in schedules:
            if schedule.device != device:
                raise fault(phase, field, f"one for {schedule.device.name}", f"{device.name} alone")
            check_solution(schedule)
        _check_read(phase, field, unit)


def _check_read(phase: str, field: str, unit: Unit) -> None:
    """Every input is read by a nest: one bound to a wrong number would give wrong results in silence."""
    assert unit.operator is not None
    operator, nests = unit.operator, unit.operator._nests
    read = {getattr(operand, "tensor", None) for nest in nests for operand in nest.inputs}
    read |= {copy.number for copy in operator.elided}
    wanted = [i for i, one in enumerate(operator.inputs) if not one.is_const and 0 not in one.shape]
    unread = [operator.inputs[i].name for i in wanted if i not in read]
    if nests and unread:
        given = f"inputs {unread} of {operator.name} ({type(operator).__name__}) that no nest reads"
        raise fault(phase, field, given, "an operand for every input of an operator")


def check_kept(phase: str, units: Sequence[Unit]) -> None:
    """Readers look for a tensor where its maker leaves it: device memory has nothing of one that stays."""
    places: dict[str, Buffer] = {}
    roots = roots_of(units)
    for i, unit in enumerate(units):
        if unit.operator is None:
            continue
        operator, buffers = unit.operator, unit.operator.kept_buffers
        for n, tensor in enumerate(operator.inputs):
            given, wanted = buffers.get(n), places.get(roots.get(tensor.name, tensor.name))
            if given != wanted:
                field = f"units[{i}].operator.kept_buffers of {operator.name}"
                raise fault(phase, field, f"{given} for {tensor.name}", f"{wanted}, as its maker has it")
        made = {tensor.name: buffers.get(OUTPUT - n) for n, tensor in enumerate(operator.outputs)}
        places |= {name: buffer for name, buffer in made.items() if buffer is not None}


def check_arguments(phase: str, units: Sequence[Unit]) -> None:
    """Arg maps describe the parameters that are handed over."""
    for unit in units:
        if unit.operator is not None:
            about = f"nodes {', '.join(node.name for node in unit.nodes)}"
            parameters_of(unit.operator, about, checked_arg_map(unit.operator, about))


# -- regions -----------------------------------------------------------------------------------------


def check_regions(phase: str, graph: Graph, device: Device, units: Sequence[Unit], regions: Any) -> set[str]:
    """Every node runs in one place, in an order that works; the values that are there in the end."""
    check_items(phase, "regions", regions, Region, DeviceRegion)
    for i, region in enumerate(regions):
        _check_region(phase, f"regions[{i}]", region, device)
    there = _check_order(phase, "regions", regions, given_values(graph))
    plain = [r.region if isinstance(r, DeviceRegion) else r for r in regions]
    stand = {node.name for region in plain for unit in region.units for node in unit.nodes}
    lost = sorted({node.name for unit in units for node in unit.nodes} ^ stand)
    if lost:
        raise fault(phase, "regions", f"not the nodes of the units: {lost}", "regions that run every unit")
    return there


def _check_region(phase: str, field: str, region: Region | DeviceRegion, device: Device) -> None:
    plain = region.region if isinstance(region, DeviceRegion) else region
    place = "npu" if isinstance(region, DeviceRegion) else "cpu"
    if plain.place != place or any(place_of(unit) != place for unit in plain.units):
        raise fault(
            phase, f"{field}.place", f"{plain.place!r}, a {type(region).__name__}", f"units for {place}"
        )
    if not isinstance(region, DeviceRegion):
        return
    for placed in region.operators:
        if placed.operator.device != device:
            given = f"{placed.operator.name} for {placed.operator.device.name}"
            raise fault(phase, f"{field}.operators", given, f"operators for {device.name}")
    region.verify()


def check_sources(phase: str, graph: Graph, sources: Any, there: Collection[str]) -> None:
    """A value for every output of the model."""
    check_items(phase, "sources", sources, str)
    unknown = sorted(set(sources) - set(there))
    if unknown or len(sources) != len(graph.outputs):
        given = f"{unknown}, which nothing makes" if unknown else counted(len(sources), "name")
        raise fault(phase, "sources", given, f"a value for each of {counted(len(graph.outputs), 'output')}")
