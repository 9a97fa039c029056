# SPDX-License-Identifier: Apache-2.0
"""What is known of every node of a model: where it runs and why, as part of which operators, how long."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onedispatch.dispatch.compiler.executable import NodePlacement
from onedispatch.dispatch.frontend.importer import node_names
from onedispatch.dispatch.runtime.profile import Profile, RowProfile, bound_of, sums_of
from onedispatch.dispatch.runtime.report import RunReport


@dataclass(frozen=True)
class NodeFacts:
    """A node of the model.

    ``operators`` are the device operators that it is part of; ``cycles`` those of these operators, shared
    equally between the nodes of each, so that sums over nodes are those over operators. ``dispatch`` is the
    kernel run that it is part of, None on the host. ``inputs``, ``outputs`` and ``domain`` are there where
    the model's ONNX file is.
    """

    name: str
    op_type: str
    device: str  # npu, cpu or folded
    reason: str
    engine: str = ""
    domain: str = ""
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()  # other nodes of these operators
    dispatch: int | None = None
    cycles: float = 0.0
    bound: str = ""


@dataclass(frozen=True)
class ModelFacts:
    """A model on a device. ``graph``: the name of its ONNX graph."""

    device: str
    array_hz: float
    cycles: int
    nodes: Sequence[NodeFacts]
    graph: str = ""

    def microseconds(self, cycles: float) -> float:
        return cycles * 1e6 / self.array_hz


def facts_of(
    device: str,
    array_hz: float,
    placement: Sequence[NodePlacement],
    report: RunReport,
    model: Any | None = None,
) -> ModelFacts:
    """Returns the facts. ``model``: the onnx.ModelProto, where there is one."""
    protos = {} if model is None else named_nodes(model)
    by_name = _rows_by_operator(report.profile)
    beside: dict[str, list[str]] = defaultdict(list)
    for row in placement:
        for name in row.operators:
            beside[name].append(row.node)
    dispatch: int | None = None  # of an alias: that of the operators around it
    nodes: list[NodeFacts] = []
    for row in placement:
        rows = [one for name in row.operators for one in by_name.get(name, ())]
        dispatch = rows[0].dispatch if rows else dispatch
        where = (dispatch or 0) if row.device == "npu" else None
        nodes.append(_node(row, rows, beside, protos.get(row.node), where))
    graph = "" if model is None else model.graph.name
    return ModelFacts(device, array_hz, report.cycles, tuple(nodes), graph)


def named_nodes(model: Any) -> dict[str, Any]:
    """The top-level nodes of an onnx.ModelProto by the names that placements have."""
    return dict(zip(node_names(model.graph.node), model.graph.node, strict=True))


def _rows_by_operator(profile: Profile | None) -> Mapping[str, Sequence[RowProfile]]:
    found: dict[str, list[RowProfile]] = defaultdict(list)
    for row in () if profile is None else profile.rows:
        if row.nodes:
            found[row.name].append(row)
    return found


def _node(
    row: NodePlacement,
    rows: Sequence[RowProfile],
    beside: Mapping[str, Sequence[str]],
    proto: Any,
    dispatch: int | None,
) -> NodeFacts:
    others = dict.fromkeys(name for one in rows for name in beside[one.name] if name != row.node)
    return NodeFacts(
        row.node,
        row.op_type,
        row.device,
        row.reason,
        row.engine,
        "" if proto is None else proto.domain,
        () if proto is None else tuple(proto.input),
        () if proto is None else tuple(proto.output),
        tuple(one.name for one in rows),
        tuple(others),
        dispatch,
        sum(one.cycles / len(beside[one.name]) for one in rows),
        bound_of(sums_of(one.parts for one in rows)) if rows else "",
    )
