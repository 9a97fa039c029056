# SPDX-License-Identifier: Apache-2.0
"""The facts of a compiled model, from the model and what ``inspect`` says of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from onedispatch.dispatch.artifact.model import CompiledModel
from onedispatch.dispatch.compiler.executable import BUFFERS, Executable
from onedispatch.dispatch.compiler.passes import observed
from onedispatch.dispatch.page.edges import EdgeObserver, edges_of_steps
from onedispatch.dispatch.page.facts import Edge, ExecutableFacts, PageFacts
from onedispatch.dispatch.page.scratch import alive
from onedispatch.dispatch.runtime import clock
from onedispatch.transactions.base.errors import OneDispatchError
from onedispatch.transactions.base.text import counted


@contextmanager
def observing() -> Iterator[EdgeObserver]:
    """Keeps the edges of models that are compiled inside, for ``facts_of``."""
    observer = EdgeObserver()
    with observed(observer):
        yield observer


def facts_of(
    name: str,
    compiled: CompiledModel,
    inspected: Sequence[Mapping[str, Any]],
    observer: EdgeObserver,
) -> PageFacts:
    """The facts of a page. ``inspected``: a row of ``inspect --json`` for each executable, in their order.

    Every executable is timed; where that cannot be done, the page says why.
    """
    if compiled.source is not None:
        observer.add(compiled.source)
    pairs = zip(compiled.executables.values(), inspected, strict=True)
    executables = [_executable(one, compiled, row, observer) for one, row in pairs]
    return PageFacts(f"{name} on {compiled.device}", executables, _model(name, compiled))


def _executable(
    executable: Executable, compiled: CompiledModel, row: Mapping[str, Any], observer: EdgeObserver
) -> ExecutableFacts:
    facts = ExecutableFacts(
        row, _edges(executable, observer), scratch=[alive(step) for step in executable.device_steps]
    )
    try:
        profile = clock.profile(executable, compiled.target)
    except OneDispatchError as error:
        return replace(facts, unprofiled=error.statement())
    if not profile.rows:
        return replace(facts, unprofiled="nothing runs on the device")
    return replace(facts, profile=profile.as_dict())


def _edges(executable: Executable, observer: EdgeObserver) -> list[Edge]:
    names = [row.node for row in executable.placement]
    return observer.edges(names) or edges_of_steps(names, executable.device_steps)


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
