# SPDX-License-Identifier: Apache-2.0
"""What passes did: a row for each (``inspect --passes``), and the value after each (``--dump-passes``)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import singledispatch
from pathlib import Path
from typing import Any

from onedispatch.dispatch.compiler.executable import Executable
from onedispatch.dispatch.compiler.passes import Pass
from onedispatch.dispatch.compiler.phases import MappedGraph, PartitionedGraph, ScheduledGraph
from onedispatch.dispatch.frontend.exporter import sub_model
from onedispatch.dispatch.frontend.graph import Graph
from onedispatch.transactions.base.errors import InputError, ModelError, OneDispatchError, statement_of
from onedispatch.transactions.base.files import write_file
from onedispatch.transactions.base.text import counted


@dataclass(frozen=True)
class PassRow:
    """One pass that ran: what it made, what it changed, how long it took."""

    name: str
    result: str
    changed: str
    seconds: float


@dataclass
class PassReport:
    """An observer that keeps a row for each pass."""

    rows: list[PassRow] = field(default_factory=list)

    def after(self, ran: Pass, before: Any, result: Any, seconds: float) -> None:
        self.rows.append(PassRow(ran.name, summary(result), changes(before, result), seconds))


@dataclass
class PassDump:
    """An observer that writes the value after each pass to ``folder``: as text, graphs as ONNX too."""

    folder: Path
    _count: int = 0

    def after(self, ran: Pass, before: Any, result: Any, seconds: float) -> None:
        self._count += 1
        path = self.folder / f"{self._count:02}-{ran.name}"
        text = [f"{ran.name}: {ran.summary}", summary(result), changes(before, result), "", *listing(result)]
        write_file(path.with_suffix(".txt"), "\n".join([*text, ""]).encode())
        if isinstance(result, Graph):
            _export(result, path.with_suffix(".onnx"))


def dump_folder(folder: Path) -> Path:
    """Returns ``folder``, made where it is not there. Raises ``InputError`` where it cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            "--dump-passes", f"{folder}: {error.strerror}", "a folder that can be made"
        ) from error
    return folder


def _export(graph: Graph, path: Path) -> None:
    try:
        foreign = next((node for node in graph.nodes if not node.proto), None)
        if foreign is not None:
            raise ModelError(f"node {foreign.name}", foreign.op_type, "operators of ONNX")
        model = sub_model(graph, graph.nodes, graph.inputs, graph.outputs, graph.constants)
        data = model.SerializeToString()
    except (OneDispatchError, ValueError, TypeError) as error:  # types that ONNX has no tensors of, 2 GiB
        data, path = f"no ONNX: {statement_of(error)}\n".encode(), path.with_suffix(".onnx.txt")
    write_file(path, data)


# -- in words --------------------------------------------------------------------------------


@singledispatch
def summary(value: Any) -> str:
    """Returns how much there is of a value."""
    return type(value).__name__


@summary.register
def _(value: Graph) -> str:
    return counted(len(value.nodes), "node")


@summary.register
def _(value: MappedGraph) -> str:
    return _units(value.units)


@summary.register
def _(value: PartitionedGraph) -> str:
    kinds = Counter(region.place for region in value.plain)
    return f"{counted(kinds['npu'], 'device region')}, {counted(kinds['cpu'], 'host region')}"


@summary.register
def _(value: Executable) -> str:
    steps = value.device_steps
    size = sum(len(step.transaction) for step in steps)
    return f"{counted(len(steps), 'transaction')}, {counted(size, 'byte')}"


def _units(units: Any) -> str:
    kinds = Counter(unit.kind for unit in units)
    return (
        f"{counted(kinds['op'], 'operator')}, {counted(kinds['alias'], 'alias')}, "
        f"{counted(kinds['host'], 'host node')}"
    )


def changes(before: Any, after: Any) -> str:
    """Returns what a pass took away and put in; "" where it left the value as it was."""
    if before is after:
        return ""
    if isinstance(after, ScheduledGraph) and after.grouping is not getattr(before, "grouping", None):
        return str(after.grouping)
    if isinstance(before, ScheduledGraph) and isinstance(after, ScheduledGraph):
        return _left_out(before, after)
    if not isinstance(before, Graph) or not isinstance(after, Graph):
        known_before = isinstance(before, MappedGraph) and summary(before) != summary(after)
        return f"from {summary(before)}" if known_before else ""
    old, new = ({node.name: node.op_type for node in graph.nodes} for graph in (before, after))
    gone = Counter(op for name, op in old.items() if new.get(name) != op)
    made = Counter(op for name, op in new.items() if old.get(name) != op)
    known = sum(value.is_concrete for value in after.values.values())
    known -= sum(value.is_concrete for value in before.values.values())
    words = [f"-{_counts(gone)}"] if gone else []
    words += [f"+{_counts(made)}"] if made else []
    words += [f"{counted(known, 'more shape')} known"] if known > 0 else []
    return "; ".join(words)


def _left_out(before: ScheduledGraph, after: ScheduledGraph) -> str:
    """Copies of Concat that are not made any more, and transpositions that became other names."""
    copies, transposed = (
        sum(len(op.elided) for op in after.operators) - sum(len(op.elided) for op in before.operators),
        len(before.operators) - len(after.operators),
    )
    words = [counted(copies, "copy")] if copies > 0 else []
    words += [counted(transposed, "transposition")] if transposed > 0 else []
    return f"{' and '.join(words)} left out" if words else ""


def _counts(kinds: Counter[str]) -> str:
    return ", ".join(
        f"{count} {op}" for op, count in sorted(kinds.items(), key=lambda row: (-row[1], row[0]))
    )


@singledispatch
def listing(value: Any) -> list[str]:
    """Returns a value line by line."""
    return [str(value)]


@listing.register
def _(value: Graph) -> list[str]:
    return [
        *(f"input {one}" for one in value.inputs),
        *(
            f"{node.name}: {', '.join(str(value.value(n)) for n in node.writes)} = "
            f"{node.op_type}({', '.join(node.inputs)})"
            for node in value.nodes
        ),
        *(f"output {one}" for one in value.outputs),
    ]


@listing.register
def _(value: MappedGraph) -> list[str]:
    return [_unit(unit) for unit in value.units]


@listing.register
def _(value: ScheduledGraph) -> list[str]:
    groups = () if value.grouping is None else value.grouping.groups
    kept = [f"kept in memory tiles: {', '.join(group.tensors)}" for group in groups]
    held = [f"{name} lies in {op.output.name}" for op in value.operators for name in op.holds]
    return [*map(_unit, value.units), *held, *kept]


@listing.register
def _(value: PartitionedGraph) -> list[str]:
    return [line for region in value.plain for line in (f"on {region.place}:", *map(_unit, region.units))]


@listing.register
def _(value: Executable) -> list[str]:
    return [f"{op.name} ({op.op_type})" for step in value.device_steps for op in step.ops]


def _unit(unit: Any) -> str:
    what = unit.operator.name if unit.operator is not None else unit.kind
    why = f": {unit.refusal}" if unit.refusal is not None else ""
    return f"  {', '.join(unit.writes)} = {what}({', '.join(unit.reads)}){why}"
