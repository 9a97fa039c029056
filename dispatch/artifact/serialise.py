# SPDX-License-Identifier: Apache-2.0
"""Executables and graphs to plain data and back, for the container.

What comes back has the form that ``forms`` says: nothing is checked twice here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from onedispatch.dispatch.artifact.constants import Constant, Part, Stored, copy_of, row_of, split
from onedispatch.dispatch.artifact.container import Reader, Writer
from onedispatch.dispatch.base import limits
from onedispatch.dispatch.compiler.executable import (
    DeviceStep,
    Executable,
    HostStep,
    NodePlacement,
    OpInfo,
    Reload,
    Slot,
    Step,
    UsedKernel,
)
from onedispatch.dispatch.compiler.grouping import Banded, Group, Grouping, Passed
from onedispatch.dispatch.frontend.graph import Folded, Graph, Node, Value, dtype_of, type_name_of
from onedispatch.operators.declarations.tensor import Quantisation
from onedispatch.operators.emission.image import Image, Linked

Plain = dict[str, Any]


def executable_to(writer: Writer, executable: Executable, constant: Constant) -> Plain:
    return {
        "inputs": [value_to(v) for v in executable.inputs],
        "outputs": [value_to(v) for v in executable.outputs],
        "sources": list(executable.sources),
        "steps": [_step_to(writer, step, constant) for step in executable.steps],
        "placement": [_placement_to(row) for row in executable.placement],
        "constants": {name: writer.array(array) for name, array in executable.constants.items()},
        "kernels": [[used.name, used.digest, used.origin, list(used.nodes)] for used in executable.kernels],
        "grouping": None if executable.grouping is None else _grouping_to(executable.grouping),
        "actual": dict(executable.actual),
    }


def _placement_to(row: NodePlacement) -> list[Any]:
    return [row.node, row.op_type, row.device, row.reason, row.nearest, row.remark, list(row.operators)]


def _placement_from(*row: Any) -> NodePlacement:
    *texts, operators = row
    return replace(NodePlacement(*texts), operators=tuple(operators))


def executable_from(reader: Reader, plain: Plain, constant: Constant) -> Executable:
    return Executable(
        tuple(value_from(v) for v in plain["inputs"]),
        tuple(value_from(v) for v in plain["outputs"]),
        tuple(plain["sources"]),
        tuple(_step_from(reader, step, constant) for step in plain["steps"]),
        tuple(_placement_from(*row) for row in plain["placement"]),
        {name: reader.array(head) for name, head in plain["constants"].items()},
        tuple(
            UsedKernel(name, digest, origin, tuple(nodes)) for name, digest, origin, nodes in plain["kernels"]
        ),
        grouping=None if plain["grouping"] is None else _grouping_from(plain["grouping"]),
        actual=dict(plain["actual"]),
    )


def _grouping_to(grouping: Grouping) -> list[Any]:
    groups = [
        [list(one.operators), list(one.tensors), one.saved_bytes, one.tile_bytes, one.saved_cycles]
        for one in grouping.groups
    ]
    passed = [[one.tensor, one.nbytes, one.reason] for one in grouping.passed]
    banded = [[list(one.operators), one.bands, one.saved_cycles] for one in grouping.banded]
    return [groups, passed, grouping.reason, banded]


def _grouping_from(plain: list[Any]) -> Grouping:
    groups, passed, reason, banded = plain
    return Grouping(
        tuple(Group(tuple(operators), tuple(tensors), *rest) for operators, tensors, *rest in groups),
        tuple(Passed(*row) for row in passed),
        reason,
        tuple(Banded(tuple(operators), *rest) for operators, *rest in banded),
    )


def graph_to(writer: Writer, graph: Graph) -> Plain:
    return {
        "name": graph.name,
        "nodes": [_node_to(node) for node in graph.nodes],
        "inputs": [value_to(v) for v in graph.inputs],
        "outputs": [value_to(v) for v in graph.outputs],
        "constants": {name: writer.array(array) for name, array in graph.constants.items()},
        "values": [value_to(v) for v in graph.values.values()],
        "opsets": dict(graph.opsets),
        "ir_version": graph.ir_version,
        "folded": [[f.node, f.op_type, f.reason] for f in graph.folded],
        "order": list(graph.order),
        "annotations": [[name, *said] for name, said in graph.annotations.items()],
        "quantised": [
            [name, list(one.scale), list(one.zero_point), one.axis] for name, one in graph.quantised.items()
        ],
    }


def graph_from(reader: Reader, plain: Plain) -> Graph:
    """Raises ``ModelError`` for nodes that are no ONNX."""
    from onedispatch.dispatch.frontend.importer import read_nodes

    values = [value_from(v) for v in plain["values"]]
    return Graph(
        plain["name"],
        read_nodes(plain["nodes"], plain["opsets"], plain["ir_version"]),
        tuple(value_from(v) for v in plain["inputs"]),
        tuple(value_from(v) for v in plain["outputs"]),
        {name: reader.array(head) for name, head in plain["constants"].items()},
        {v.name: v for v in values},
        dict(plain["opsets"]),
        plain["ir_version"],
        tuple(Folded(*row) for row in plain["folded"]),
        tuple(plain["order"]),
        annotations={name: (scale, zero) for name, scale, zero in plain["annotations"]},
        quantised={
            name: Quantisation(tuple(scale), tuple(zero), axis)
            for name, scale, zero, axis in plain["quantised"]
        },
    )


def value_to(value: Value) -> list[Any]:
    return [value.name, value.type, None if value.shape is None else list(value.shape)]


def value_from(plain: list[Any]) -> Value:
    name, kind, shape = plain
    return Value(name, kind, None if shape is None else tuple(shape))


def _node_to(node: Node) -> list[Any]:
    """Its proto says everything else."""
    return [node.name, node.proto]


def _step_to(writer: Writer, step: Step, constant: Constant) -> Plain:
    if isinstance(step, HostStep):
        return {
            "graph": graph_to(writer, step.graph),
            "inputs": list(step.inputs),
            "outputs": list(step.outputs),
        }
    stored = split(step, constant)
    return {
        "transaction": writer.blob(step.transaction),
        "sizes": list(step.sizes),
        "const": writer.blob(stored.literal, stored.starts(step.const_starts)),
        "const_parts": [list(part) for part in stored.parts],
        "const_copies": [row_of(writer, one) for one in stored.copies],
        "const_starts": list(step.const_starts),
        "params": writer.blob(step.params),
        "inputs": [_slot_to(slot) for slot in step.inputs],
        "outputs": [_slot_to(slot) for slot in step.outputs],
        "ops": [
            [
                op.name,
                op.op_type,
                list(op.nodes),
                op.timer,
                list(op.arguments),
                list(op.schedule),
                op.work_basis,
                op.macs,
            ]
            for op in step.ops
        ],
        "scratch_bound": step.scratch_bound,
        "image": [list(linked) for linked in step.image.linked],
        "reloads": [[r.before, r.timer, r.nbytes, r.kernels] for r in step.reloads],
    }


def _step_from(reader: Reader, plain: Plain, constant: Constant) -> Step:
    if "graph" in plain:
        graph = graph_from(reader, plain["graph"])
        return HostStep(graph, tuple(plain["inputs"]), tuple(plain["outputs"]))
    sizes = plain["sizes"]
    limits.BUFFER_BYTES.check("an executable of the compiled model", sum(sizes))
    reader.check_made(sizes[3])
    parts, copies = plain["const_parts"], tuple(copy_of(reader, row) for row in plain["const_copies"])
    stored = Stored(reader.blob(plain["const"]), tuple(Part(*part) for part in parts), copies)
    return DeviceStep(
        reader.blob(plain["transaction"]).tobytes(),
        (sizes[0], sizes[1], sizes[2], sizes[3], sizes[4]),
        stored.joined(sizes[3], constant),
        reader.blob(plain["params"]).tobytes(),
        tuple(_slot_from(slot) for slot in plain["inputs"]),
        tuple(_slot_from(slot) for slot in plain["outputs"]),
        tuple(
            OpInfo(name, kind, tuple(nodes), timer, tuple(arguments), tuple(schedule), *rest)
            for name, kind, nodes, timer, arguments, schedule, *rest in plain["ops"]
        ),
        plain["scratch_bound"],
        Image(tuple(Linked(*linked) for linked in plain["image"])),
        tuple(Reload(*reload) for reload in plain["reloads"]),
        tuple(plain["const_starts"]),
        copies,
    )


def _slot_to(slot: Slot) -> list[Any]:
    return [slot.name, type_name_of(slot.dtype), list(slot.shape), slot.offset, slot.row_pitch]


def _slot_from(plain: list[Any]) -> Slot:
    name, kind, shape, offset, row_pitch = plain
    return Slot(name, np.dtype(dtype_of(kind)), tuple(shape), offset, row_pitch)
