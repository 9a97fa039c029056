# SPDX-License-Identifier: Apache-2.0
"""The values that a graph is lowered through, and how each is made of the one before.

``MappedGraph``: device operators, merged; ``ScheduledGraph``: with a solution for every loop nest;
``EmittedGraph``: with arg maps, transactions and parameters; ``PartitionedGraph``: regions of device and
host; then the ``Executable``. Nothing goes back: an operator that refuses only when it is asked for its
transaction gives way to its parts, or to the host, then and there. Every value can ``verify`` itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import ClassVar, Protocol, TypeVar

from onedispatch.dispatch.base.mapped import all_owned
from onedispatch.dispatch.base.precisions import wide_name
from onedispatch.dispatch.compiler.const_buffer import ConstBuffer
from onedispatch.dispatch.compiler.copies import Copies, build
from onedispatch.dispatch.compiler.depth_first import group
from onedispatch.dispatch.compiler.device_region import DeviceRegion, device_region
from onedispatch.dispatch.compiler.elide import elide_copies
from onedispatch.dispatch.compiler.emit import Images, emit_region
from onedispatch.dispatch.compiler.executable import DeviceStep, Executable, HostStep, Step
from onedispatch.dispatch.compiler.grouping import Grouping
from onedispatch.dispatch.compiler.mapping import Refusal, Specs, Unit, in_order, map_graph, merged
from onedispatch.dispatch.compiler.origins import Origins
from onedispatch.dispatch.compiler.partition import Region, partition, settle_aliases
from onedispatch.dispatch.compiler.passthrough import route_passthrough_outputs, settle_copies
from onedispatch.dispatch.compiler.phase_checks import (
    check_arguments,
    check_items,
    check_kept,
    check_regions,
    check_schedules,
    check_sources,
    check_units,
    fault,
)
from onedispatch.dispatch.compiler.placement import placement_of
from onedispatch.dispatch.compiler.reorder import reorder
from onedispatch.dispatch.compiler.used_kernels import used_kernels
from onedispatch.dispatch.frontend.graph import Array, Graph, Node, Value
from onedispatch.dispatch.rules.diagnostics import did_not_fire
from onedispatch.operators.declarations.tensor import Unsupported
from onedispatch.operators.emission.image import EMPTY, link
from onedispatch.operators.interface.operator import Operator
from onedispatch.operators.plugin.watchdog import asked_of
from onedispatch.operators.scheduling.select import Selector
from onedispatch.transactions import Device
from onedispatch.transactions.base.boundary import source_of
from onedispatch.transactions.base.errors import OperatorError
from onedispatch.transactions.base.signature import bounded_repr


@dataclass(frozen=True, eq=False)
class MappedGraph:
    """What each node becomes: units in topological order. Operators are merged, and each fits the device."""

    phase: ClassVar[str] = "map"

    graph: Graph
    device: Device
    units: tuple[Unit, ...]

    @property
    def operators(self) -> list[Operator]:
        return [unit.operator for unit in self.units if unit.operator is not None]

    def verify(self) -> None:
        """Raises ``InternalError`` where a unit is not whole, a node is lost, or a value comes too late."""
        check_units(self.phase, self.graph, self.device, self.units)


@dataclass(frozen=True, eq=False)
class ScheduledGraph(MappedGraph):
    """The same with a solution for every nest of every operator.

    ``grouping`` says what stays in memory tiles, where groups were asked for; ``apart`` are the units as
    they were before tensors were put together, there or in device memory.
    """

    phase: ClassVar[str] = "select"

    selector: Selector
    grouping: Grouping | None = None
    apart: tuple[Unit, ...] | None = None

    def verify(self) -> None:
        """Raises ``SolutionError`` where one does not fit, ``InternalError`` as ``MappedGraph`` does."""
        super().verify()
        if not callable(getattr(self.selector, "select", None)):
            raise fault(self.phase, "selector", bounded_repr(self.selector), "a Selector")
        check_schedules(self.phase, self.device, self.units)
        check_kept(self.phase, self.units)


@dataclass(frozen=True, eq=False)
class EmittedGraph(ScheduledGraph):
    """The same after every operator has said what it hands over; it keeps that."""

    phase: ClassVar[str] = "emit"

    def verify(self) -> None:
        """Raises ``InternalError`` where an arg map does not describe what is handed over."""
        super().verify()
        check_arguments(self.phase, self.units)


@dataclass(frozen=True, eq=False)
class PartitionedGraph:
    """What runs where: regions in order. ``sources`` names the value behind each output of the model;
    ``actual`` those with the sizes of some. ``units`` and ``refusals`` say what the host must do, and why."""

    phase: ClassVar[str] = "partition"

    graph: Graph
    device: Device
    units: tuple[Unit, ...]
    refusals: tuple[str, ...]
    regions: tuple[Region | DeviceRegion, ...]
    sources: tuple[str, ...]
    grouping: Grouping | None = None
    actual: Mapping[str, str] = field(default_factory=dict)

    @property
    def plain(self) -> tuple[Region, ...]:
        return tuple(r.region if isinstance(r, DeviceRegion) else r for r in self.regions)

    def verify(self) -> None:
        """Raises ``InternalError`` where a unit runs nowhere or twice, or a value is read too early."""
        check_units(self.phase, self.graph, self.device, self.units)
        check_items(self.phase, "refusals", self.refusals, str)
        there = check_regions(self.phase, self.graph, self.device, self.units, self.regions)
        check_sources(self.phase, self.graph, self.sources, there)


class _Verifiable(Protocol):
    def verify(self) -> None: ...


_V = TypeVar("_V", bound=_Verifiable)


def _verified(value: _V) -> _V:
    value.verify()
    return value


def map_nodes(graph: Graph, device: Device) -> MappedGraph:
    """Returns every node as operators, aliases or a node of the host."""
    return _verified(MappedGraph(graph, device, tuple(map_graph(graph, device))))


def merge_operators(mapped: MappedGraph) -> MappedGraph:
    """Returns ``mapped`` with operators merged as far as they go together."""
    return _verified(replace(mapped, units=tuple(merged(mapped.units, mapped.graph.output_names))))


def narrow_accumulators(mapped: MappedGraph) -> MappedGraph:
    """The same with sums of products in the type of their results, where operators can."""

    def narrowed(unit: Unit) -> Unit:
        operator = None if unit.operator is None else unit.operator.in_narrow_sums()
        return replace(unit, operator=operator, parts=tuple(map(narrowed, unit.parts)))

    return _verified(replace(mapped, units=tuple(map(narrowed, mapped.units))))


def select(mapped: MappedGraph, selector: Selector) -> ScheduledGraph:
    """A solution for every nest; where there is none, the unit gives way to its parts, or to the host.

    Raises ``SolutionError`` where the selector's does not fit.
    """

    def chosen(unit: Unit) -> Unit:
        return _selected(unit, selector)

    units = _prepared(mapped.units, chosen, chosen)
    return _verified(ScheduledGraph(mapped.graph, mapped.device, units, selector))


def elide(scheduled: ScheduledGraph) -> ScheduledGraph:
    """Returns ``scheduled`` without copies and transpositions that makers or readers can do without.

    All are made where nodes run on the host: what lies together may then be parted, and is in ONNX's order.
    """
    if any(unit.kind == "host" for unit in scheduled.units):
        return scheduled
    before, outputs = scheduled.units, scheduled.graph.output_names
    pairs = zip(before, elide_copies(before, outputs), strict=True)
    copied = (new if new is old else _selected(new, scheduled.selector) for old, new in pairs)
    units = reorder(tuple(copied), outputs, scheduled.selector)
    return _verified(replace(scheduled, units=units, apart=None if units == before else before))


def group_operators(scheduled: ScheduledGraph) -> ScheduledGraph:
    """Returns ``scheduled`` with tensors that stay in memory tiles where that costs less."""
    outputs = scheduled.graph.output_names
    units, grouping = group(scheduled.units, outputs, scheduled.device, scheduled.selector)
    return _verified(
        replace(scheduled, units=units, grouping=grouping, apart=scheduled.apart or scheduled.units)
    )


def _selected(unit: Unit, selector: Selector) -> Unit:
    if unit.operator is None:
        return unit
    operator = unit.operator
    about = f"operator {operator.name} of {[n.name for n in unit.nodes]}"
    found = asked_of(operator, about, lambda: operator.selected(selector), Unsupported)
    if not isinstance(found, Operator):
        accepted = "an Operator: itself, where nothing is to be chosen"
        raise OperatorError(f"{about}, {source_of(type(operator))}: selected", bounded_repr(found), accepted)
    return replace(unit, operator=found)


def emit(selected: ScheduledGraph) -> EmittedGraph:
    """Every operator's arg map, transaction and parameters; what refuses now gives way to its parts. Then
    no tensors are together: makers and readers of those that should have been are others now."""

    def built_part(unit: Unit) -> Unit:
        return _built(_selected(unit, selected.selector))

    turned = tuple(_in_turns(selected.units))
    units = _prepared(turned, _built, built_part)
    if selected.apart is not None and units != turned:
        return emit(_taken_apart(selected, "an operator refused only when it was emitted"))
    graph, device, selector = selected.graph, selected.device, selected.selector
    return _verified(EmittedGraph(graph, device, units, selector, selected.grouping, selected.apart))


def _taken_apart(one: ScheduledGraph, reason: str) -> ScheduledGraph:
    """The same before tensors were put together; ``reason`` says why."""
    assert one.apart is not None
    grouping = None if one.grouping is None else Grouping(reason=reason)
    return ScheduledGraph(one.graph, one.device, one.apart, one.selector, grouping)


def _in_turns(units: Sequence[Unit]) -> Iterator[Unit]:
    """Nests turned in turns: descriptors of one can be written while the one before is at work."""
    nests = 0
    for unit in units:
        operator = unit.operator
        yield unit if operator is None else replace(unit, operator=operator.in_turn(bool(nests % 2)))
        nests += 0 if operator is None or operator.owns_transaction else len(operator.plain_nests)


def _built(unit: Unit) -> Unit:
    if unit.operator is not None:
        build(unit.operator, str([n.name for n in unit.nodes]))
    return unit


# What readies a unit for the next phase; raises ``Unsupported`` where that cannot be.
_Prepare = Callable[[Unit], Unit]


def _prepared(units: Sequence[Unit], prepare: _Prepare, prepare_part: _Prepare) -> tuple[Unit, ...]:
    """Every unit as prepared, or what it gives way to: its parts, or its node on the host."""
    found = [ready for unit in units for ready in _or_parts(unit, prepare, prepare_part)]
    if [unit.kind for unit in found] != [unit.kind for unit in units]:
        found = _whole_nodes(found, prepare_part)
    return tuple(found)


def _or_parts(unit: Unit, prepare: _Prepare, prepare_part: _Prepare) -> list[Unit]:
    try:
        return [prepare(unit)]
    except Unsupported as error:
        refusal = Refusal.of(error)
    if unit.parts:
        parts = _apart(unit, refusal)
        return [ready for part in parts for ready in _or_parts(part, prepare_part, prepare_part)]
    (node,) = unit.nodes
    return [Unit("host", unit.nodes, node.reads, node.writes, refusal=refusal)]


def _apart(unit: Unit, refusal: Refusal) -> list[Unit]:
    """What a merged unit falls apart into, all but the first of which say why."""
    said = tuple(did_not_fire(merge, str(refusal)) for merge in dict.fromkeys(unit.merges))
    first, *others = unit.parts
    return [first, *(replace(part, missed=(*part.missed, *said)) for part in others)]


def _whole_nodes(units: Sequence[Unit], prepare_part: _Prepare) -> list[Unit]:
    """Nodes of which a part has gone to the host go there as a whole; what they were merged with stays."""
    settled: list[Unit] = []
    following = list(units)
    while settled != following:
        settled = following
        hosts = {unit.nodes[0]: unit for unit in settled if unit.kind == "host"}
        pieces = [_without(unit, hosts, prepare_part) for unit in settled]
        following = list(dict.fromkeys(piece for some in pieces for piece in some))
    return in_order(settled)


def _without(unit: Unit, hosts: Mapping[Node, Unit], prepare_part: _Prepare) -> list[Unit]:
    if unit.kind == "host":
        return [hosts[unit.nodes[0]]]  # one, however many parts of the node were refused
    if hosts.keys().isdisjoint(unit.nodes):
        return [unit]
    kept = [part for part in unit.parts if part.nodes[0] not in hosts]
    return [ready for part in kept for ready in _or_parts(part, prepare_part, prepare_part)]


def partition_graph(emitted: EmittedGraph, *, strict: bool) -> PartitionedGraph:
    """Regions, as few as the order of the graph allows; outputs leave through copies where they must."""
    graph, specs = emitted.graph, Specs(emitted.graph)
    copies = Copies(emitted.device, emitted.selector)
    # Aliases that the host takes anyway first: no copy is made to ask whether the device could.
    units = settle_copies(settle_aliases(emitted.units), graph.output_names, copies)
    on_device = strict or all(unit.kind != "host" for unit in units)
    ends = route_passthrough_outputs(graph, copies, on_device=on_device)
    actual = _actual_sizes(units, ends.sources)
    regions = partition([*units, *ends.units], (*ends.sources, *actual.values()))
    made = [device_region(r, specs, copies) if r.place == "npu" else r for r in regions]
    if any(isinstance(region, DeviceRegion) and region.parted for region in made):
        apart = _taken_apart(emitted, "a node runs on the host in between")
        return partition_graph(emit(apart), strict=strict)
    found = tuple(units), ends.refusals, tuple(made), ends.sources
    return _verified(PartitionedGraph(graph, emitted.device, *found, emitted.grouping, actual))


def _actual_sizes(units: Sequence[Unit], sources: Sequence[str]) -> dict[str, str]:
    """The values with the actual sizes of those of ``sources`` that a run decides the sizes of."""
    sizes: dict[str, str] = {}
    for unit in units:
        if unit.operator is not None:
            sizes.update(unit.operator.actual_sizes)
        elif unit.alias is not None and unit.alias.source.name in sizes:
            output, source, _ = unit.alias
            if output.shape == source.shape:
                sizes[output.name] = sizes[source.name]
    return {name: sizes[name] for name in sources if name in sizes}


def fuse(
    partitioned: PartitionedGraph, constants: Mapping[str, Array], earlier: Sequence[Executable] = ()
) -> Executable:
    """Returns the executable: one transaction per device region, a graph of its own per host region.

    ``constants`` are those of the imported graph: steps name which of them theirs are copies of. ``earlier``
    are executables of that graph for other shapes: what constants they have in common is in memory once.
    """
    graph = partitioned.graph
    narrow = {name: array for name, array in graph.constants.items() if wide_name(name) in constants}
    steps = _steps(partitioned, Origins({**narrow, **constants}), [one.device_steps for one in earlier])
    return Executable(
        graph.inputs,
        tuple(_shaped(graph, value) for value in graph.outputs),
        partitioned.sources,
        steps,
        placement_of(graph, partitioned.plain),
        all_owned({name: graph.constants[name] for name in partitioned.sources if name in graph.constants}),
        used_kernels(steps),
        graph.evaluated,
        partitioned.grouping,
        partitioned.actual,
    )


def _shaped(graph: Graph, value: Value) -> Value:
    """An output with the shape that it has in this executable; as declared where that is unknown."""
    known = graph.value(value.name)
    return replace(value, shape=known.shape) if known.is_concrete else value


def _steps(
    partitioned: PartitionedGraph, origins: Origins, earlier: Sequence[Sequence[DeviceStep]]
) -> tuple[Step, ...]:
    images, made = _linked(partitioned), list[Step]()
    number = 0  # of the next device region
    for region in partitioned.regions:
        if not isinstance(region, DeviceRegion):
            made.append(_host_step(partitioned.graph, region))
            continue
        constants = ConstBuffer(origins, [steps[number] for steps in earlier if number < len(steps)])
        made.append(emit_region(region, partitioned.device, next(images), constants))
        number += 1
    return tuple(made)


def _linked(partitioned: PartitionedGraph) -> Iterator[Images]:
    """The images of each device region; all begin and end with the one that the overlay brings."""
    regions = [region for region in partitioned.regions if isinstance(region, DeviceRegion)]
    needed = [one.ask(lambda op: op.image) for region in regions for one in region.operators]
    linked = link(needed, partitioned.device.count("core.program_memory_bytes"))
    first, rest = (linked[0] if linked else EMPTY), iter(linked)
    for region in regions:
        yield Images(first, tuple(islice(rest, len(region.operators))))


def _exported(graph: Graph, region: Region) -> tuple[tuple[Node, ...], Mapping[str, Array]]:
    """The nodes of a host region, those of the model where a rule wrote another, and constants for them."""
    nodes: dict[Node, None] = {}
    constants = dict(graph.constants)
    for node in (node for unit in region.units for node in unit.nodes):
        origin = graph.origins.get(node.name) if node.opset else None
        nodes.update(dict.fromkeys((node,) if origin is None else origin.nodes))
        constants.update({} if origin is None else origin.constants)
    return tuple(nodes), constants


def _host_step(graph: Graph, region: Region) -> HostStep:
    nodes, constants = _exported(graph, region)
    reads = {name for node in nodes for name in node.reads}
    # In the order of the nodes, not of a set: the same model is the same file in every process.
    edges = dict.fromkeys(name for node in nodes for name in (*node.reads, *node.writes))
    piece = replace(
        graph,
        nodes=nodes,
        inputs=tuple(graph.value(name) for name in region.inputs),
        outputs=tuple(graph.value(name) for name in region.outputs),
        constants=all_owned({name: array for name, array in constants.items() if name in reads}),
        values={name: graph.value(name) for name in edges},
        folded=(),
        decided={},
        annotations={},
        origins={},
        remarks={},
        quantised={name: graph.quantised[name] for name in edges if name in graph.quantised},
    )
    inputs = tuple(name for name in region.inputs if name not in constants)
    return HostStep(piece, inputs, region.outputs)
