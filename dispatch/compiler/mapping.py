# SPDX-License-Identifier: Apache-2.0
"""ONNX nodes to device operators: 1:1, 1:N, and N:1 by merging readers into producers.

The result is a list of units in topological order: a device operator, an alias (a node that
only renames bytes), or a node that stays on the host, with its reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from onedispatch.dispatch.base.limits import SHAPE_ELEMENTS
from onedispatch.dispatch.compiler import mapping_functions
from onedispatch.dispatch.compiler.copies import device_copy
from onedispatch.dispatch.frontend.graph import Graph, Node, refused_by_rules
from onedispatch.dispatch.frontend.shape_operands import data_positions, shape_operands, shape_positions
from onedispatch.dispatch.rules.diagnostics import an_output, did_not_fire, read_earlier, read_elsewhere
from onedispatch.dispatch.sources.host import implementation
from onedispatch.operators.declarations import registry
from onedispatch.operators.declarations.tensor import NodeSpec, TensorSpec, Unsupported
from onedispatch.operators.interface.operator import Alias, Lowering, Operator
from onedispatch.operators.plugin.watchdog import asked_of
from onedispatch.transactions import Device
from onedispatch.transactions.base.boundary import attributed_to, plugin_failure
from onedispatch.transactions.base.errors import KernelError


@dataclass(frozen=True)
class Refusal:
    """Why a node does not map, and what would."""

    reason: str
    nearest: str = ""

    @classmethod
    def of(cls, error: Unsupported) -> Refusal:
        return cls(error.reason, error.nearest)

    def __str__(self) -> str:
        return f"{self.reason} (nearest: {self.nearest})" if self.nearest else self.reason


@dataclass(frozen=True, eq=False)
class Unit:
    """The smallest thing that is placed. ``nodes`` are the ONNX nodes it stands for."""

    kind: Literal["op", "alias", "host"]
    nodes: tuple[Node, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    operator: Operator | None = None
    alias: Alias | None = None
    refusal: Refusal | None = None
    parts: tuple[Unit, ...] = ()  # of a merged operator: what it falls apart into
    merges: tuple[str, ...] = ()  # that made it, in order
    missed: tuple[str, ...] = ()  # that nearly took it, each with the condition that failed


@dataclass
class Specs:
    """TensorSpecs by name, one object each."""

    graph: Graph
    _known: dict[str, TensorSpec] = field(default_factory=dict)
    _read: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        reads = {name for node in self.graph.nodes for name in node.reads}
        self._read = frozenset(reads | self.graph.output_names)

    def of(self, name: str) -> TensorSpec:
        """The spec of an edge. Raises ``Unsupported`` where its shape or type is unknown."""
        spec = self._known.get(name)
        if spec is None:
            value = self.graph.value(name)
            dtype = value.dtype
            if dtype is None:
                raise Unsupported(f"{name} is a {value.type or 'value of unknown type'}", "tensors")
            if not value.is_concrete:
                raise Unsupported(
                    f"the shape of {name} is known only at run time", "shapes that follow from the inputs'"
                )
            constant = self.graph.constants.get(name)
            spec = TensorSpec(name, dtype, value.concrete_shape, constant, self.graph.quantised.get(name))
            self._known[name] = spec
        return spec

    def decided(self, name: str) -> TensorSpec:
        """The spec of an operand that decides a shape: its value where the executable is made for it.

        Under a name of its own, for the same edge read as data has no value before the run.
        """
        value = self.graph.decided.get(name)
        if value is None:
            return self.of(name)
        return TensorSpec(f"{name}//decided", value.dtype, value.shape, value)

    def check_shape_operands(self, node: Node) -> None:
        """Raises ``Unsupported`` where the result's shape follows from values that a run computes."""
        if all(self.graph.value(name).is_concrete for name in node.writes):
            return
        for name in shape_operands(node):
            if name not in self.graph.constants and name not in self.graph.decided:
                raise Unsupported(
                    f"the shape of its result follows from {name}, which is computed when the model runs",
                    "an input of the model, or sizes computed of integers: at most "
                    f"{SHAPE_ELEMENTS.most} in a tensor, which say how much is taken, not which data",
                )

    def made_beside(self, node: Node) -> set[str]:
        """Names of inputs, constants, and what the other nodes make."""
        others = {name for other in self.graph.nodes if other is not node for name in other.writes}
        return others.union(self.graph.constants, (value.name for value in self.graph.inputs))

    def node(self, node: Node) -> NodeSpec:
        # What is data as well is an operand of the transaction: its value may not be compiled in.
        deciding = set(shape_positions(node)).difference(data_positions(node))
        return NodeSpec(
            node.name,
            node.op_type,
            node.domain,
            self.graph.opset_of(node),
            [
                (self.decided if i in deciding else self.of)(name) if name else None
                for i, name in enumerate(node.inputs)
            ],
            # Unread outputs are absent: Dropout's mask, say, needs no operator.
            [self.of(name) if name in self._read else None for name in node.outputs],
            node.attributes,
        )


def map_graph(graph: Graph, device: Device) -> list[Unit]:
    """Returns every node of ``graph`` as units, in topological order.

    Every operator on the device can be built for it: one that does not fit is refused here.
    """
    specs = Specs(graph)
    lowering = Lowering(device)
    units: list[Unit] = []
    for node in graph.nodes:
        mapped = _map_node(node, specs, lowering)
        if isinstance(mapped, Refusal):
            units.append(Unit("host", (node,), node.reads, node.writes, refusal=mapped))
        else:
            units += mapped
    return units


def refusals_of(graph: Graph, nodes: Iterable[Node], device: Device) -> dict[str, Refusal]:
    """Why those of ``nodes`` do not map that do not, by name; they are all of ``graph``."""
    specs, lowering = Specs(graph), Lowering(device)
    mapped = ((node.name, _map_node(node, specs, lowering)) for node in nodes)
    return {name: found for name, found in mapped if isinstance(found, Refusal)}


def _strings(node: Node, specs: Specs) -> Refusal | None:
    """The refusal of a node that takes or makes strings, before its mapping says anything of the type."""
    for end, names in (("of", node.inputs), ("to", node.outputs)):
        for name in filter(None, names):
            dtype = specs.graph.value(name).dtype
            if dtype is not None and dtype.hasobject:
                return Refusal(f"{node.op_type} {end} strings ({name})", "numbers")
    return None


def _refusal(error: Unsupported | KernelError) -> Refusal:
    return Refusal.of(error) if isinstance(error, Unsupported) else Refusal(error.statement())


def _map_node(node: Node, specs: Specs, lowering: Lowering) -> list[Unit] | Refusal:
    mapping = registry.mapping_for(node.domain, node.op_type)
    if mapping is None and node.op_type == "If" and not node.domain:
        return Refusal(
            "its condition is known only at run time",
            "conditions that constants or shapes decide, that are inputs of the model, or that compare by "
            "Equal an integer input which nothing else reads",
        )
    if mapping is None:
        return _unknown(specs.graph, node)
    ops, aliases = len(lowering.ops), len(lowering.aliases)
    try:
        specs.check_shape_operands(node)
        spec = specs.node(node)
        own = mapping.origin and mapping.custom is None  # a plug-in's function
        if own:
            mapping_functions.call(mapping, spec, lowering)
        else:  # ours, or a kernel, each of whose methods has its own clock
            lowering.begin(spec)
            with attributed_to(mapping.function, f"node {node.name} ({node.op_type})", Unsupported):
                mapping.function(spec, lowering)
        several = len(lowering.ops) - ops + len(lowering.aliases) - aliases > 1
        for alias in lowering.aliases[aliases:]:
            _check_alias(alias)
            if several:  # a node of several parts goes to the host as a whole, or not at all
                device_copy(alias.output, alias.output.name, lowering.device)
    except (Unsupported, KernelError) as error:
        if isinstance(error, KernelError) and implementation(node.domain, node.op_type) is None:
            raise
        del lowering.ops[ops:]
        del lowering.aliases[aliases:]
        return _strings(node, specs) or _refusal(error)
    new_ops, new_aliases = [op for _, op in lowering.ops[ops:]], lowering.aliases[aliases:]
    _check_ends(spec, mapping, new_ops, new_aliases)
    if own:
        taken = {t.name for _, op in lowering.ops[:ops] for t in op.outputs} | specs.made_beside(node)
        mapping_functions.check_results(mapping, spec, new_ops, new_aliases, taken)
    renamed = [alias_unit((node,), alias) for alias in new_aliases]
    said = tuple(lowering.remarks)
    return in_order([*renamed, *(replace(op_unit((node,), op), missed=said) for op in new_ops)])


def _check_alias(alias: Alias) -> None:
    output, source, offset = alias
    if not output.lies_in(source, offset):
        raise Unsupported(f"{source} and {output} lie differently in device memory", "rows of whole words")


def _check_ends(
    node: NodeSpec,
    mapping: registry.OpMapping,
    ops: Sequence[Operator],
    aliases: Sequence[Alias],
) -> None:
    """Raises ``InternalError`` when no operator makes an output of the node, or what an operator reads."""
    made = {t.name for op in ops for t in op.outputs} | {alias.output.name for alias in aliases}
    known = made | {tensor.name for tensor in node.inputs if tensor is not None}
    reads = [t for op in ops for t in op.inputs] + [alias.source for alias in aliases]
    wrong = [f"output {t.name!r} that no operator makes" for t in node.outputs if t and t.name not in made]
    wrong += [f"input {t.name!r} that nothing makes" for t in reads if not t.is_const and t.name not in known]
    if wrong:
        about = f"node {node.name} ({node.op_type})"
        raise plugin_failure(mapping.function, about, "operators with " + ", ".join(wrong))


# Operators whose results are as long as their data says.
DATA_DECIDES_SHAPE = frozenset(("Compress", "NonMaxSuppression", "NonZero", "Unique"))


_SEQUENCES = "ConcatFromSequence SequenceAt SequenceConstruct SequenceInsert SplitToSequence"
_RANDOM = "Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike"
_INSTEAD = {
    **dict.fromkeys(("Loop", "Scan", "SequenceMap"), "the nodes of its body, unrolled"),
    **dict.fromkeys(_SEQUENCES.split(), "tensors, with Split and Concat"),
    **dict.fromkeys(_RANDOM.split(), "random numbers as an input"),
    "If": "a condition that follows from constants and shapes, or is an input of the model",
}
"""What computes the same, or serves the same purpose, for operators that do not map."""


def _unknown(graph: Graph, node: Node) -> Refusal:
    """Says that nothing maps it, and what does the same: similar spelling is no similar function."""
    if not node.domain and node.op_type in DATA_DECIDES_SHAPE:
        reason = f"the shape of {node.op_type}'s result depends on its data, and is known only at run time"
        return Refusal(reason, "operators whose shapes follow from those of their inputs")
    reason = f"no device operator for {node.domain or 'ai.onnx'}.{node.op_type}"
    reason += refused_by_rules(graph, node.name, node.op_type)
    listed = "what `onedispatch ops` lists"
    instead = None if node.domain else _INSTEAD.get(node.op_type)
    return Refusal(reason, f"{instead}, or {listed}" if instead else listed)


def op_unit(nodes: tuple[Node, ...], op: Operator) -> Unit:
    """An operator that stands for ``nodes``."""
    reads = tuple(dict.fromkeys(t.name for t in op.inputs if not t.is_const))
    return Unit("op", nodes, reads, tuple(t.name for t in op.outputs), operator=op)


def roots_of(units: Iterable[Unit]) -> dict[str, str]:
    """The names that aliases give, each with the tensor that it is byte by byte; other names are left out."""
    roots: dict[str, str] = {}
    for unit in units:
        if unit.alias is not None:
            output, source, offset = unit.alias
            alike = (output.dtype, output.device_bytes) == (source.dtype, source.device_bytes)
            if alike and offset == 0 and not source.is_const:
                roots[output.name] = roots.get(source.name, source.name)
    return roots


def elsewhere(units: Sequence[Unit], outputs: frozenset[str], roots: Mapping[str, str]) -> frozenset[str]:
    """Tensors that have to lie as they do: those that leave the device, by any of their names, those of which
    parts have other names, and those that lie in another, or have others in them."""
    parts = (unit for unit in units if unit.alias is not None and unit.writes[0] not in roots)
    joined = (unit for unit in units if unit.operator is not None and unit.operator.elided)
    names = outputs.union(*((*unit.reads, *unit.writes) for unit in (*parts, *joined)))
    return names.union(roots.get(name, name) for name in names)


def held(places: Mapping[str, tuple[str, int]], name: str) -> tuple[str, int]:
    """What holds a tensor in the end, itself if nothing does, and from which byte on."""
    at = 0
    while name in places:
        name, begin = places[name]
        at += begin
    return name, at


def alias_unit(nodes: tuple[Node, ...], alias: Alias) -> Unit:
    reads = () if alias.source.is_const else (alias.source.name,)
    return Unit("alias", nodes, reads, (alias.output.name,), alias=alias)


def in_order(units: Sequence[Unit]) -> list[Unit]:
    """The units, each after those that make what it reads."""
    pending, ordered = list(units), []
    later = Counter(name for unit in units for name in unit.writes)
    while pending:
        ready = next((u for u in pending if not any(later[name] for name in u.reads)), pending[0])
        pending.remove(ready)
        ordered.append(ready)
        later.subtract(ready.writes)
    return ordered


def merged(units: Sequence[Unit], outputs: frozenset[str]) -> list[Unit]:
    """Merges operators into the producer of one of their inputs until nothing changes.

    A producer merges with its reader when the value between them has no other reader, or when the merged
    operator writes it too. The merged operator takes the reader's place, where all its inputs exist, so no
    reader of the value may stand before. What would not fit the device is not merged. Units say which
    merges made them, and which nearly took them.
    """
    live: list[Unit | None] = list(units)
    while True:
        before = sum(unit is not None for unit in live)
        missed = _merge_once(live, outputs)
        if sum(unit is not None for unit in live) == before:
            left = ((unit, missed.get(i, ())) for i, unit in enumerate(live) if unit is not None)
            return [replace(u, missed=(*u.missed, *more)) if more else u for u, more in left]


def _merge_once(live: list[Unit | None], outputs: frozenset[str]) -> dict[int, list[str]]:
    """Merges what can be; by place in ``live``, the merges that nearly took a unit that stays."""
    readers: dict[str, list[Unit]] = {}
    for unit in live:
        for name in unit.reads if unit else ():
            readers.setdefault(name, []).append(unit)  # type: ignore[arg-type]
    made_at: dict[str, int] = {}
    missed: dict[int, list[str]] = {}
    for index, unit in enumerate(live):
        if unit is None:
            continue
        # The latest producer first: it runs right before its reader anyway.
        sources = sorted((made_at[name] for name in unit.reads if name in made_at), reverse=True)
        for source in sources:
            producer = live[source]
            joined = _merge(producer, unit, readers, outputs) if producer else None
            if isinstance(joined, str) and producer is not None:
                if producer.nodes[-1] is not unit.nodes[0]:  # within a node it is no remark
                    missed.setdefault(index, []).append(joined)
            elif isinstance(joined, Unit):
                live[source] = None
                live[index] = unit = joined
                missed.pop(index, None)
                break
        made_at.update(dict.fromkeys(unit.writes, index))
    return missed


def _merge(
    producer: Unit, consumer: Unit, readers: Mapping[str, Sequence[Unit]], outputs: frozenset[str]
) -> Unit | str | None:
    """What both become; a merge that nearly took them, with what failed; None where there is none."""
    first, second = producer.operator, consumer.operator
    if first is None or second is None or first.further_outputs:
        return None
    between = first.output.name
    if sum(t.name == between for t in second.inputs) != 1:
        return None
    about = f"nodes {producer.nodes[0].name} and {consumer.nodes[0].name}"
    merges = (one for one in first.merges if one.concerns(first, second))
    merge = asked_of(first, about, lambda: next(merges, None), Unsupported)
    if merge is None:
        return None
    name = f"merge {first.kind or type(first).__name__}_{merge.name}"
    reason, make = _needed_elsewhere(producer, consumer, readers, outputs), merge.make
    if reason and merge.keep is not None:
        reason, make = _needed_before(producer, consumer, readers), merge.keep
    if reason:
        return did_not_fire(name, reason)
    try:
        operator = asked_of(first, about, lambda: _fitting(make(first, second)), Unsupported)
    except Unsupported as error:  # together they do not fit, say
        return did_not_fire(name, str(error))
    merged = op_unit(tuple(dict.fromkeys((*producer.nodes, *consumer.nodes))), operator)
    parts = (*(producer.parts or (producer,)), *(consumer.parts or (consumer,)))
    return replace(merged, parts=parts, merges=(*producer.merges, *consumer.merges, name))


def _fitting(operator: Operator) -> Operator:
    operator.check_fits()
    return operator


def _needed_elsewhere(
    producer: Unit, consumer: Unit, readers: Mapping[str, Sequence[Unit]], outputs: frozenset[str]
) -> str:
    """Names another reader of the one value that ``producer`` makes; "" where there is none."""
    (between,), node = producer.writes, producer.nodes[-1].name
    if between in outputs:
        return an_output(between, node)
    given = readers.get(between, ())
    if len(given) == 1:
        return ""
    mine = {one.name for one in consumer.nodes}
    other = next((unit.nodes[0].name for unit in given if unit.nodes[0].name not in mine), "")
    return read_elsewhere(between, node, other or consumer.nodes[0].name)


def _needed_before(producer: Unit, consumer: Unit, readers: Mapping[str, Sequence[Unit]]) -> str:
    """Names a reader before ``consumer`` of the one value that ``producer`` makes; "" where there is none."""
    (between,) = producer.writes
    earliest, *_ = readers[between]  # in the order in which they run
    if earliest.writes[0] == consumer.writes[0]:  # it may have taken in another producer by now
        return ""
    return read_earlier(between, producer.nodes[-1].name, earliest.nodes[0].name)


def to_host(unit: Unit, refusal: Refusal) -> Unit:
    """The one node of an alias as a unit of the host."""
    (node,) = unit.nodes
    return replace(unit, kind="host", alias=None, refusal=refusal, reads=node.reads, writes=node.writes)
