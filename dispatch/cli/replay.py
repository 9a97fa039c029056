# SPDX-License-Identifier: Apache-2.0
"""``onedispatch txn replay``: what a foreign transaction does, executed without its overlay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from onedispatch.dispatch.artifact.container import is_compiled
from onedispatch.dispatch.artifact.loading import load
from onedispatch.dispatch.cli import output as out
from onedispatch.dispatch.cli.txn import app, hint_at_packets, hint_at_run, read_transaction
from onedispatch.dispatch.tools.replay import ReplayReport, read_packets
from onedispatch.dispatch.tools.replay import replay as run_replay
from onedispatch.transactions.base.text import counted

_ROWS = 24  # of each table, unless all are asked for


@app.command()
def replay(
    path: Annotated[Path, typer.Argument(help="A transaction (.bin), or a file of `onedispatch compile`.")],
    device: Annotated[
        str | None,
        typer.Option(
            help="The NPU; by default a compiled model's own, or the whole one of the header's generation."
        ),
    ] = None,
    packets: Annotated[
        Path | None,
        typer.Option(help="Its control packets (_ctrl.bin); patches come from the _meta.json beside them."),
    ] = None,
    argument: Annotated[
        int | None,
        typer.Option(help="The kernel argument that the packets are; 4 unless the JSON says another."),
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Every row of long tables.")] = False,
    json: out.Json = False,
) -> None:
    """Execute a transaction without its overlay: cycles, bytes per channel, stalls, what never ended.

    Exits with 2 when the transaction does not reach its last operation, and when a task is lost: a
    descriptor is written, and nothing queues it.
    """
    given = None if packets is None else read_packets(packets, argument)
    target = device or (load(path).target if is_compiled(path) else None)
    report = run_replay(read_transaction(path), target, given)
    if json:
        out.print_json({"verdict": report.verdict, "complete": report.complete, **asdict(report)})
    else:
        _show(path.name, report, None if full else _ROWS)
        hint_at_packets(path, packets)
        hint_at_run(path)
    if not report.finished or report.lost:
        raise typer.Exit(2)


def _show(name: str, report: ReplayReport, rows: int | None) -> None:
    out.tell(f"{name}: {report.verdict}", style="bold")
    text = (
        f"{report.executed} of {counted(report.operations, 'operation')}, {report.cycles} cycles "
        f"({report.seconds * 1e6:.1f} us) on {report.device}"
    )
    if report.settled_cycles != report.cycles:
        text += f"; tasks went on until cycle {report.settled_cycles}"
    if report.packets:
        text += f"; {report.packets} control packets executed"
    if report.handshakes:
        text += f"; {report.handshakes} parameter blocks taken by absent super kernels"
    if report.assumed_tokens:
        tokens = counted(report.assumed_tokens, "token")
        text += f"; {tokens} taken to reach the controller by routes of the absent overlay"
    if report.packet_tokens:
        tokens = counted(report.packet_tokens, "token")
        text += f"; {tokens} taken as given of tasks that control packets push, which are not here"
    out.say(text)
    if report.stop is not None:
        out.say(f"stopped: {report.stop.text}")
    _table(
        "Kernel arguments",
        ["argument", "bytes touched", "read", "written"],
        [[a.index, f"{a.first}..{a.end}", a.read, a.written] for a in report.arguments],
        None,
    )
    _table(
        "Channels",
        ["tile", "channel", "bytes", "busy", "stall", ""],
        [
            [c.place, c.name, c.bytes, c.busy, c.stall, "open" if c.open else ""]
            for c in sorted(report.channels, key=lambda c: -c.bytes)
        ],
        rows,
    )
    _table(
        "Assumed of what is not in the transaction",
        ["tile", "what", "times"],
        [[a.place or "", a.what, a.times] for a in report.assumptions],
        rows,
    )
    _table("Never finished", ["why"], [[u.why] for u in report.unfinished], rows)
    _table(
        "Never queued",
        ["tile", "operation", "what"],
        [[u.place, u.op_index, u.why] for u in report.unqueued],
        rows,
    )


def _table(title: str, columns: Sequence[str], cells: list[list[object]], rows: int | None) -> None:
    if not cells:
        return
    shown = cells[:rows]
    left = len(cells) - len(shown)
    out.table(
        title + (f" (the first {len(shown)} of {len(cells)})" if left else ""),
        columns,
        shown,
        right=[i for i, name in enumerate(columns) if name not in ("tile", "channel", "what", "why", "")],
    )
