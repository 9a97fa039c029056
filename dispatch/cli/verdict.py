# SPDX-License-Identifier: Apache-2.0
"""The verdict on a model, which commands print first, and its nodes on the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
from onnx import ModelProto
from rich.text import Text

from onedispatch.dispatch.artifact.container import is_compiled
from onedispatch.dispatch.artifact.model import CompiledModel
from onedispatch.dispatch.cli import opening
from onedispatch.dispatch.cli import output as out
from onedispatch.dispatch.compiler.executable import Executable, NodePlacement
from onedispatch.dispatch.frontend.importer import import_model
from onedispatch.dispatch.runtime.clock import reported
from onedispatch.dispatch.runtime.report import RunReport
from onedispatch.dispatch.runtime.session import InferenceSession
from onedispatch.dispatch.runtime.summary import Summary, summary_of
from onedispatch.dispatch.tools.advice.trials import Advisor
from onedispatch.transactions.base.errors import InputError

_MOST_HOST_NODES = 10


def of(compiled: CompiledModel, report: RunReport | None = None) -> Summary:
    """The verdict on the executable used last, by ``report`` or else by a clock."""
    key, executable = compiled.used_last()
    placement = InferenceSession(compiled).placed(key, executable)
    return of_executable(compiled, executable, placement, report)


def of_run(session: InferenceSession, report: RunReport | None) -> Summary | None:
    """The verdict on what a session ran last; None where it ran nothing."""
    if report is None:
        return None
    _, executable = session.model.used_last()
    return of_executable(session.model, executable, session.placement, report)


def of_executable(
    compiled: CompiledModel,
    executable: Executable,
    placement: Sequence[NodePlacement],
    report: RunReport | None = None,
) -> Summary:
    """The verdict on one of a model's executables."""
    return summary_of(compiled.device, executable, placement, report or reported(executable, compiled.target))


def moves(
    model: str, executable: Executable, summary: Summary, flags: opening.CompileFlags
) -> Mapping[str, str]:
    """For nodes on the host, an edit that was tried and moves them; of ONNX models, nothing of others."""
    if not summary.host or is_compiled(model):
        return {}
    try:
        proto = proto_of(model)
    except InputError:
        return {}
    with out.working("trying edits") as status:
        found = advisor(proto, flags, status).moves(executable, summary)
    return {node: edit.text for node, edit in found.items()}


def advisor(
    proto: ModelProto, flags: opening.CompileFlags, status: Any, sizes: opening.Shapes | None = None
) -> Advisor:
    """What tries edits as the flags of a command say; ``status``, where there is one, shows which.

    ``sizes`` are of inputs whose dimensions the flags leave open.
    """
    shapes = (sizes or {}) | flags.shapes
    return Advisor(
        proto,
        flags.requested.given | {"cache": False},  # trials are not asked for again
        shapes,
        lambda compiled: opening.first_executable(compiled, shapes, quiet=True)[1],
        lambda text: status and status.update(Text(out.visible(f"trying: {text}"))),
    )


def show(summary: Summary, moved: Mapping[str, str] | None = None, *, full: bool = False) -> None:
    """Prints the verdict, and the nodes on the host: why, and an edit that moves them where one was tried."""
    out.tell(str(summary), style="bold")
    listed = summary.host if full else summary.host[:_MOST_HOST_NODES]
    if not listed:
        return
    left = len(summary.host) - len(listed)
    title = f"On the host, most bytes first{f' ({left:,} more: --full)' if left else ''}"
    titles: tuple[str, ...] = ("node", "operator", "why")
    edits = moved or {}
    rows: list[Sequence[object]] = [(one.node, one.op_type, one.reason) for one in listed]
    if edits:
        titles = (*titles, "what moves it, tried")
        rows = [(*row, edits.get(one.node, "")) for row, one in zip(rows, listed, strict=True)]
    out.table(title, titles, rows)


def proto_of(name: str) -> ModelProto:
    """The ONNX model that a command names, weights included. Raises ``InputError`` for anything else."""
    source = opening.source(Path(name))
    if isinstance(source, ModelProto):
        return source
    import_model(source)  # refuses what cannot be read, pipes and endless files included
    try:
        return onnx.load(source)
    except Exception as error:
        raise InputError("advise", f"{name}: {error}", "an ONNX model: its nodes are edited") from error
