# SPDX-License-Identifier: Apache-2.0
"""The verdict on a model, which commands print first, and its nodes on the host."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from onedispatch.dispatch.artifact.model import CompiledModel
from onedispatch.dispatch.cli import output as out
from onedispatch.dispatch.compiler.executable import Executable
from onedispatch.dispatch.runtime.clock import timed_summary
from onedispatch.dispatch.runtime.report import RunReport
from onedispatch.dispatch.runtime.session import InferenceSession
from onedispatch.dispatch.runtime.summary import Summary

_MOST_HOST_NODES = 10


def of(compiled: CompiledModel, report: RunReport | None = None) -> Summary:
    """The verdict on the executable used last, by ``report`` or else by a clock."""
    key, executable = compiled.used_last()
    placement = InferenceSession(compiled).placed(key, executable)
    return timed_summary(compiled, executable, placement, report)


def of_each(compiled: CompiledModel, executables: Iterable[tuple[str, Executable]]) -> dict[str, Summary]:
    """The verdicts on some of a model's executables, by their keys."""
    session = InferenceSession(compiled)
    return {key: timed_summary(compiled, one, session.placed(key, one)) for key, one in executables}


def of_run(session: InferenceSession, report: RunReport | None) -> Summary | None:
    """The verdict on what a session ran last; None where it ran nothing."""
    if report is None:
        return None
    _, executable = session.model.used_last()
    return timed_summary(session.model, executable, session.placement, report)


def show_each(verdicts: Iterable[tuple[str, Summary]]) -> None:
    """Prints a verdict for each of several sizes, a line each."""
    for key, summary in verdicts:
        out.tell(f"{key}: {summary}", style="bold", whole=True)


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
