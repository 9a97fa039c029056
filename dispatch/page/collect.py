# SPDX-License-Identifier: Apache-2.0
"""The facts of a compiled model, from the model and what ``inspect`` says of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from onedispatch.dispatch.artifact.model import CompiledModel
from onedispatch.dispatch.compiler.executable import BUFFERS, Executable
from onedispatch.dispatch.compiler.passes import observed
from onedispatch.dispatch.page.edges import EdgeObserver, edges_of_steps
from onedispatch.dispatch.page.facts import ExecutableFacts, PageFacts
from onedispatch.dispatch.page.scratch import alive
from onedispatch.dispatch.runtime import clock
from onedispatch.transactions.base.errors import OneDispatchError
from onedispatch.transactions.base.text import counted


@dataclass(frozen=True)
class Seen:
    """What passes showed of a model while it was compiled, which an executable does not keep."""

    edges: EdgeObserver = field(default_factory=EdgeObserver)


@contextmanager
def observing() -> Iterator[Seen]:
    """Sees what is compiled inside, for ``facts_of``."""
    seen = Seen()
    with observed(seen.edges):
        yield seen


def facts_of(
    name: str,
    compiled: CompiledModel,
    inspected: Sequence[Mapping[str, Any]],
    seen: Seen,
) -> PageFacts:
    """The facts of a page. ``inspected``: a row of ``inspect --json`` for each executable, in their order.

    Every executable is timed; where that cannot be done, the page says why.
    """
    if compiled.source is not None:
        seen.edges.add(compiled.source)
    pairs = zip(compiled.executables.values(), inspected, strict=True)
    executables = [_executable(one, compiled, row, seen) for one, row in pairs]
    return PageFacts(f"{name} on {compiled.device}", executables, _model(name, compiled))


def _executable(
    executable: Executable, compiled: CompiledModel, row: Mapping[str, Any], seen: Seen
) -> ExecutableFacts:
    names, steps = [row.node for row in executable.placement], executable.device_steps
    members = [seen.edges.members(names, step) for step in steps]
    edges = seen.edges.edges(names) or edges_of_steps(members, steps)
    scratch = [alive(step) for step in steps]
    facts = ExecutableFacts(row, members, edges, scratch=scratch, verdict=row["summary"]["verdict"])
    try:
        report = clock.report_of(executable, compiled.target)
    except OneDispatchError as error:
        return replace(facts, unprofiled=error.statement())
    if report.profile is None or not report.profile.rows:
        return replace(facts, unprofiled="nothing runs on the device")
    return replace(facts, profile=report.profile.as_dict())


def _model(name: str, compiled: CompiledModel) -> list[tuple[str, str]]:
    """What was compiled, and how: in words."""
    weights = {
        key: sum(step.sizes[BUFFERS.index("const")] for step in one.device_steps)
        for key, one in compiled.executables.items()
    }
    return [
        ("model", name),
        ("device", compiled.device),
        *(("input", str(value)) for value in compiled.inputs),
        *(("output", str(value)) for value in compiled.outputs),
        ("precision", compiled.precision),
        ("sums", compiled.sums),
        ("groups", compiled.groups),
        ("fallback", compiled.fallback),
        *(("constants on the device", counted(size, "byte")) for size in dict.fromkeys(weights.values())),
    ]
