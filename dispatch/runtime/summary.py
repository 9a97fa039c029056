# SPDX-License-Identifier: Apache-2.0
"""The verdict on a model: how much of it runs on the NPU, how fast, and what bounds it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import prod
from typing import Any

from onedispatch.dispatch.compiler.executable import Executable, HostStep, NodePlacement
from onedispatch.dispatch.frontend.graph import Graph
from onedispatch.dispatch.runtime.profile import END, LAUNCH
from onedispatch.dispatch.runtime.report import RunReport
from onedispatch.transactions.base.text import counted, duration

_MOST_KINDS = 3  # that the verdict names
_LEAST_SHARE = 0.05  # of the cycles, of a kind that it names


@dataclass(frozen=True)
class HostNode:
    """A node on the host: why, what would map, what computes it, and how many bytes it makes."""

    node: str
    op_type: str
    reason: str
    nearest: str
    engine: str
    nbytes: int


@dataclass(frozen=True)
class Summary:
    """What ``session.summary()`` says of a model, for the shapes used last.

    Attributes:
        npu, cpu, folded: counts of the model's nodes by place; folded ones were computed at compile time.
        dispatches: kernel runs of one inference.
        seconds: modelled seconds of all dispatches on the device; ``launch_seconds`` of the host come beside.
        busy_share: of all cores and cycles, those that computed; 0 to 1.
        bound: what most of the critical path goes into: "compute", "memory", "streams" or "commands"; "" for
            a model that runs on the host alone.
        kinds: device operators by kind with their share of the cycles, the largest first.
        host: nodes on the host; those that make the most bytes first.
        untimed: why there are no times and shares; "" where there are.
    """

    device: str
    npu: int
    cpu: int
    folded: int
    dispatches: int
    seconds: float
    launch_seconds: float
    busy_share: float
    bound: str
    kinds: Sequence[tuple[str, float]]
    host: Sequence[HostNode]
    untimed: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Plain data, as JSON takes it, with the verdict as text."""
        return asdict(self) | {"verdict": str(self)}

    def __str__(self) -> str:
        texts = [where_nodes_are(self.npu, self.cpu, self.folded, self.dispatches)]
        if self.untimed:
            texts.append(f"not timed: {self.untimed}")
        elif self.dispatches:
            texts.append(
                f"{duration(self.seconds)} on {self.device} (+ {duration(self.launch_seconds)} launch)"
            )
            texts += [f"cores {self.busy_share:.0%} busy", f"bound by {self.bound}"]
            named = [one for one in self.kinds if one[1] >= _LEAST_SHARE][:_MOST_KINDS]
            texts += [", ".join(f"{kind} {share:.0%}" for kind, share in named)] if named else []
        return "; ".join(texts)


def where_nodes_are(npu: int, cpu: int, folded: int, dispatches: int) -> str:
    """How many of a model's nodes are where, as every command says it: folded ones count as nodes of the NPU,
    where some run there."""
    count = npu + cpu + folded
    nodes = counted(count, "node")
    if not count:
        return "a model without nodes"
    if not cpu:
        runs = f"in {counted(dispatches, 'dispatch')}" if dispatches != 1 else "in one dispatch"
        here = f"all {nodes}" if count > 1 else nodes
        if not npu:
            return f"{here} computed when the model was compiled"
        computed = f", {folded:,} of them computed when it was compiled" if folded else ""
        return f"{here} on the NPU {runs}{computed}"
    if not npu:
        return f"none of {nodes} on the NPU, {cpu:,} on the host"
    return f"{npu + folded:,} of {nodes} on the NPU in {counted(dispatches, 'dispatch')}, {cpu:,} on the host"


def summary_of(
    device: str,
    executable: Executable,
    placement: Sequence[NodePlacement],
    report: RunReport | None,
    untimed: str = "",
) -> Summary:
    """Returns the summary of an executable, from the report of a run or of ``CompiledModel.timing``; where
    there is none, ``untimed`` says why."""
    counts = Counter(row.device for row in placement)
    profile = report.profile if report else None
    kinds = profile.kinds() if profile else []
    cycles = report.cycles if report else 0
    return Summary(
        device,
        counts["npu"],
        counts["cpu"],
        counts["folded"],
        len(executable.device_steps),
        report.seconds if report else 0.0,
        report.launch_seconds if report else 0.0,
        profile.busy_share if profile else 0.0,
        profile.bound if profile and profile.rows else "",
        tuple((one.kind, one.cycles / cycles) for one in kinds if one.kind not in (LAUNCH, END)),
        tuple(host_nodes(executable, placement)),
        untimed,
    )


def host_nodes(executable: Executable, placement: Sequence[NodePlacement]) -> list[HostNode]:
    """Returns the nodes on the host, those that make the most bytes first."""
    made: dict[str, int] = {}
    for step in executable.steps:
        if isinstance(step, HostStep):
            made |= {node.name: _result_bytes(step.graph, node.outputs) for node in step.graph.nodes}
    rows = [
        HostNode(row.node, row.op_type, row.reason, row.nearest, row.engine, made.get(row.node, 0))
        for row in placement
        if row.device == "cpu"
    ]
    return sorted(rows, key=lambda row: -row.nbytes)


def _result_bytes(graph: Graph, names: Sequence[str]) -> int:
    """Bytes of results; those of shapes that the run decides count as none."""
    values = [graph.value(name) for name in names if name in graph.values]
    return sum(prod(v.concrete_shape) * v.dtype.itemsize for v in values if v.is_concrete and v.dtype)
