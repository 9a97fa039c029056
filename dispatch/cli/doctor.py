# SPDX-License-Identifier: Apache-2.0
"""``onedispatch doctor``: versions, paths, and whether everything that is installed works."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from onedispatch.dispatch.cli import output as out
from onedispatch.dispatch.cli.plugins import Conflict, Plugins
from onedispatch.dispatch.plugins import discovery
from onedispatch.operators.plugin.registrations import check_policy
from onedispatch.transactions.base.text import counted

if TYPE_CHECKING:
    from onedispatch.dispatch.tools.doctor import Report


def doctor(plugin: Plugins = None, plugin_conflict: Conflict = None, json: out.Json = False) -> None:
    """Say which versions are there, load every plug-in, and run all that they register once.

    Kernels are checked as `onedispatch kernel check` does, operators and rules are run on a node that they
    take, fusions on the nodes of their own pattern; CASES of a file are taken where it has them. At the end a
    small model is run on the simulator, beside onnxruntime. Every failure is one line, and none stops the
    others: the exit code is 1 then.
    """
    from onedispatch.dispatch.tools.doctor import examine

    discovery.set_policy(
        None if plugin_conflict is None else check_policy("--plugin-conflict", plugin_conflict)
    )
    with out.working("examining"):
        report = examine(plugin or ())
    if json:
        out.print_json(report.as_dict())
    else:
        _show(report)
    if not report.healthy:
        raise typer.Exit(1)


def _show(report: Report) -> None:
    out.table("Versions", ("what", "version"), report.versions.items())
    places = [(what, line) for what, lines in report.paths.items() for line in lines or ["none"]]
    out.table("Paths", ("what", "where"), places)
    rows = [
        (
            one.file,
            one.named_by,
            *("\n".join(names) for names in (one.kernels, one.operators, one.rules, one.fusions)),
        )
        for one in report.plugins
    ]
    columns = ("plug-in", "named by", "kernels", "operators", "rules", "fusions")
    out.table(counted(len(rows), "plug-in"), columns, rows)
    ran = ", ".join(counted(count, what.removesuffix("s")) for what, count in report.ran.items())
    out.say(f"ran: {ran}")
    out.say(f"simulator: {report.simulator}")
    for one in report.plugins:
        for line in one.skipped:
            out.say(f"note: {one.file}: skipped {line}")
    for note in report.notes:
        out.say(f"note: {' '.join(note.split())}")
    for failure in report.failures:
        out.say(f"FAILED: {failure}")
    out.say(counted(len(report.failures), "failure") if report.failures else "everything works")
