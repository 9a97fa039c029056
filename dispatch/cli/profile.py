# SPDX-License-Identifier: Apache-2.0
"""``onedispatch profile``: what the time of a run goes into, by operator, kind and tile, without a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated, Any

import typer

from onedispatch.dispatch.base.arguments import choice, integer
from onedispatch.dispatch.cli import opening, traces, verdict
from onedispatch.dispatch.cli import output as out
from onedispatch.dispatch.cli.inspection import inspected, rows_of
from onedispatch.dispatch.cli.page import Html, write_page
from onedispatch.dispatch.runtime.profile import (
    BOUNDS,
    KindProfile,
    Machine,
    Profile,
    RowProfile,
    bounds_of,
    tops_of,
)
from onedispatch.transactions.base.text import counted, duration, tile_name

_ORDERS: dict[str, Callable[[RowProfile], Any]] = {
    "run": lambda row: row.start,
    "time": lambda row: -row.cycles,
    "gain": lambda row: row.ideal - row.cycles,
    "bytes": lambda row: -row.bursts,
    "busy": lambda row: row.busy / row.cycles if row.cycles else 0.0,
    "name": lambda row: row.name,
}
_HEADS = ("time", "share", *BOUNDS, "bound by", "ideal", "TOPS")
_KINDS, _OPERATORS = ("kind", *_HEADS), ("operator", "kind", *_HEADS)


def profile(
    model: opening.Model,
    compiling: opening.CompileFlags,
    sort: Annotated[str, typer.Option(help=f"Order of operators: {', '.join(_ORDERS)}.")] = "time",
    top: Annotated[int, typer.Option(help="Operators that are listed; 0 lists all.")] = 20,
    tiles: Annotated[bool, typer.Option("--tiles", help="What each tile did, too.")] = False,
    html: Html = None,
    trace: traces.Target = None,
    json: out.Json = False,
) -> None:
    """Say what the time of a run goes into, and what bounds each operator, without running the model.

    The cycles of an operator are those of its critical path: what each thing on it waited for last. compute:
    kernel calls. memory: transfers that device memory holds up, and its latency. streams: transfers that a
    stream holds up, and descriptors. commands: what the controller and control packets do before data moves.
    They add up to the time. ideal is the share of it that is left if all cores compute alike and device
    memory is never idle.
    """
    from onedispatch.dispatch.page.collect import observing

    order = _ORDERS[choice("--sort", sort, tuple(_ORDERS))]
    most = integer("--top", top, 0, 1 << 31)
    traces.check_target(trace)
    for file in (html, traces.file_of(trace)):
        opening.keep(model, file)
    compiling = replace(compiling, cache=False)  # passes that do not run cannot be seen
    with observing() as seen:
        compiled = opening.with_executable(model, compiling)
    with out.working("timing"):
        report = compiled.timing(trace=trace is not None)
    traces.write_asked(trace, report, json)
    _, latest = compiled.used_last()
    every = inspected(compiled, model, compiling, None if html else latest)
    one = next(one for one in every if one.executable is latest)
    if html is not None:
        write_page(html, model, compiled, rows_of(compiled, every), seen)
    found = report.profile or Profile(Machine.of(compiled.target))
    if json:
        out.print_json({"summary": one.summary.as_dict(), "edits": one.edits, "profile": found.as_dict()})
        return
    if html is not None:
        out.tell(f"{html}: {counted(html.stat().st_size, 'byte')}")
    verdict.show(one.summary, one.edits)
    if found.rows:
        _show(found, sorted(found.rows, key=order)[: most or None], tiles)


def _show(found: Profile, rows: Sequence[RowProfile], tiles: bool) -> None:
    hz = found.machine.array_hz
    parts = ", ".join(f"{part} {cycles / found.cycles:.1%}" for part, cycles in found.parts.items() if cycles)
    out.tell(f"critical path: {parts}")
    out.tell(
        f"device memory: {found.gigabytes_per_second:.1f} of {found.peak_gigabytes_per_second:.1f} GB/s; "
        f"ideal: {duration(found.ideal / hz)}"
    )
    if found.tops:
        peaks = ", ".join(f"{kind} {tops:.3g}" for kind, tops in found.machine.tops.items())
        out.tell(f"products: {found.tops:.3g} TOPS (peak by type: {peaks})")
    out.tell()
    kinds = [(f"{kind.kind} ({kind.count:,})", *_cells(kind, found)) for kind in found.kinds()]
    out.columns(_KINDS, kinds, droppable=_places(_KINDS, ("ideal",), BOUNDS))
    operators = [(row.name, row.kind, *_cells(row, found)) for row in rows]
    out.tell()
    out.columns(_OPERATORS, operators, (0, 1), _places(_OPERATORS, BOUNDS, ("ideal",), ("TOPS",)))
    left = len(found.rows) - len(rows)
    if left:
        out.tell(f"and {left:,} more: --top 0 lists all")
    if tiles:
        _show_tiles(found)


def _places(heads: Sequence[str], *groups: Sequence[str]) -> list[list[int]]:
    return [[heads.index(name) for name in group] for group in groups]


def _cells(row: RowProfile | KindProfile, found: Profile) -> list[str]:
    """Time, share, what bounds it, shares of the bounds, and the ideal time."""
    bounds, hz, cycles = bounds_of(row.parts), found.machine.array_hz, row.cycles
    shares = (f"{bounds[bound] / cycles:.0%}" if cycles else "" for bound in BOUNDS)
    whole = f"{cycles / found.cycles:.1%}" if found.cycles else ""
    tops = f"{tops_of(row.macs, cycles, hz):.2f}" if row.macs else ""
    bound, ideal = (row.bound, f"{row.ideal / cycles:.0%}") if cycles else ("", "")
    return [duration(cycles / hz), whole, *shares, bound, ideal, tops]


def _show_tiles(found: Profile) -> None:
    def share(cycles: int) -> str:
        return f"{cycles / found.cycles:.1%}" if found.cycles else ""

    rows = [
        (
            f"{one.tile} {tile_name(one.column, one.row)}",
            *map(share, (one.busy, one.waiting, one.rest)),
            f"{one.bytes:,}",
        )
        for one in found.tiles
    ]
    out.tell("\nof memory tiles and shims, the mean of the DMA channels that had tasks:")
    out.columns(("tile", "busy", "waits for locks", "other side, or idle", "bytes"), rows)
