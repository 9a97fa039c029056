# SPDX-License-Identifier: Apache-2.0
"""Commands that take a model: run, compile, time."""

from __future__ import annotations

import io
import time
import zipfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from onedispatch.dispatch.artifact.model import CompiledModel
from onedispatch.dispatch.cli import comparison, opening, traces, verdict
from onedispatch.dispatch.cli import output as out
from onedispatch.dispatch.cli.opening import open_model, with_executable
from onedispatch.dispatch.cli.what_if_flags import WhatIfFlags
from onedispatch.dispatch.frontend.graph import Array
from onedispatch.dispatch.runtime.report import OPERATORS, RunReport
from onedispatch.dispatch.runtime.session import InferenceSession
from onedispatch.transactions.base.errors import InputError
from onedispatch.transactions.base.files import write_file
from onedispatch.transactions.base.text import counted

if TYPE_CHECKING:
    from onedispatch.dispatch.runtime.summary import Summary
    from onedispatch.dispatch.tools.compare import Comparison


_RANDOM = "Seeded random values for all inputs. Takes no number: of `compare`, --samples says how many."


@dataclass(frozen=True)
class InputFlags:
    """What a model is run on."""

    inputs: Annotated[
        list[str] | None, typer.Option("--input", "-i", help="name=array.npy, or one arrays.npz. Repeatable.")
    ] = None
    random: Annotated[bool, typer.Option("--random", help=_RANDOM)] = False
    seed: Annotated[int, typer.Option(help="Seed of --random.")] = 0


@dataclass(frozen=True)
class RunFlags:
    """How a model is run."""

    threads: out.Threads = None
    kernel_seconds: out.KernelSeconds = None
    print_bytes: traces.PrintBytes = None
    trace: traces.Target = None


@dataclass(frozen=True)
class CompareFlags:
    """What the values of a run are compared with."""

    compare: comparison.Compare = False
    threshold: comparison.Threshold = None


Full = Annotated[
    bool, typer.Option("--full", help="The schedule of every operator, too: tiles, and why cores idle.")
]


def run(
    model: opening.Model,
    given: InputFlags,
    compiling: opening.CompileFlags,
    running: RunFlags,
    comparing: CompareFlags,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the outputs to an .npz.")
    ] = None,
    full: Full = False,
    json: out.Json = False,
) -> None:
    """Run a model once and say what it cost.

    Give every input with --input, or let --random make them up. The report names the modelled
    time of each device operator and the traffic between memory and array. What kernels print comes
    first, with --json in its report.

    --compare shows the largest error of each output beside onnxruntime with its default options, and of each
    node's value beside onnxruntime on the same nodes with these values as outputs. Where one differs by more
    than --threshold of its largest number it diverges: the first is named, and the exit code is 2.
    """
    traces.check_target(running.trace)
    opening.keep(model, output, given.inputs)
    how = compiling.requested.reading
    asked = comparison.asked_by_run(model, comparing.threshold, comparing.compare, how)
    compiled = open_model(model, compiling)
    session = InferenceSession(
        compiled,
        threads=running.threads,
        kernel_seconds=running.kernel_seconds,
        print_bytes=running.print_bytes,
        trace=running.trace is not None,
    )
    feed, shapes = feed_of(session, compiled, given, compiling.shapes)
    with opening.taken_sizes(compiled, shapes, shapes_in(feed)):
        values = _values(session, feed, quiet=json)
    names = [info.name for info in session.get_outputs()]
    _write_arrays(output, names, values)
    report = _traced(session, running.trace, json)
    rows = list(map(_summary, names, values))
    beside = (
        asked.compared(feed, values, compiled, running.threads, running.kernel_seconds) if asked else None
    )
    summary = verdict.of_run(session, report)
    _tell(rows, report, summary, beside, full=full, json=json)
    if beside is not None and beside.first is not None:
        raise typer.Exit(comparison.DIVERGES)


def feed_of(
    session: InferenceSession, compiled: CompiledModel, given: InputFlags, named: opening.Shapes
) -> tuple[dict[str, Array], opening.Shapes]:
    """The values of inputs, as the flags say, and the shapes that are known before they are made up."""
    feed = out.parse_inputs(given.inputs)
    shapes = opening.shapes_of(compiled, named | shapes_in(feed)) | shapes_in(feed)
    if given.random:
        opening.tell_taken(compiled, named | shapes_in(feed))
        missing = [info for info in session.get_inputs() if info.name not in feed]
        feed |= opening.random_feed(missing, opening.sized(compiled, shapes), given.seed)
    return feed, shapes


def shapes_in(feed: dict[str, Array]) -> opening.Shapes:
    """The shapes of arrays, by name."""
    return {name: array.shape for name, array in feed.items()}


def _values(session: InferenceSession, feed: dict[str, Array], *, quiet: bool) -> list[Any]:
    """The outputs of a run; what kernels print is printed, also where it fails, unless ``quiet``."""
    try:
        with out.working("running"):
            return session.run(None, feed)
    finally:
        for line in session.prints if not quiet else ():
            out.say(str(line))


def _traced(session: InferenceSession, trace: str | None, json: bool) -> RunReport | None:
    """The report of the run, its trace written to where ``--trace`` says."""
    report = session.last_run
    if report is not None:
        traces.write_asked(trace, report, json)
    return report


def _tell(
    rows: list[dict[str, Any]],
    report: RunReport | None,
    summary: Summary | None,
    beside: Comparison | None,
    *,
    full: bool,
    json: bool,
) -> None:
    if json:
        compared = {} if beside is None else {"comparison": beside.as_dict()}
        found = {"summary": summary.as_dict() if summary else None}
        out.print_json({"outputs": rows, "report": report.as_dict() if report else None} | found | compared)
        return
    if summary is not None:
        verdict.show(summary)
    for row in rows:
        out.tell(" ".join(f"{key}={item}" for key, item in row.items()))
    out.tell()
    if report is not None:
        _show_report(report, full)
    if beside is not None:
        comparison.show(beside)


def _write_arrays(path: Path | None, names: list[str], values: list[Any]) -> None:
    """An .npz, where one is asked for; ``numpy.savez`` does not take every name (``file``), nor a device."""
    if path is None:
        return
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, value in zip(names, values, strict=True):
            if not isinstance(value, np.ndarray):
                raise InputError(f"output {name!r}", f"a {type(value).__name__}", "arrays, with --output")
            with archive.open(f"{name}.npy", "w", force_zip64=True) as part:
                np.lib.format.write_array(part, value)
    write_file(path, packed.getbuffer())


def _summary(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, np.ndarray) or value.dtype.hasobject:
        return {"name": name, "value": repr(value)[:200]}
    row: dict[str, Any] = {"name": name, "dtype": str(value.dtype), "shape": list(value.shape)}
    if value.size and value.dtype.kind in "iuf":
        row |= {"min": float(value.min()), "max": float(value.max()), "mean": float(value.mean())}
    return row


def compile(
    model: opening.Model,
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write it, usually *.od.")],
    compiling: opening.CompileFlags,
    shapes: Annotated[
        list[str] | None,
        typer.Option(
            help="Open dimensions of an input, to compile ahead for: images=320x320,640x640. Repeatable."
        ),
    ] = None,
    no_graph: Annotated[
        bool, typer.Option("--no-graph", help="A smaller file, for the shapes that it is compiled for alone.")
    ] = False,
    json: out.Json = False,
) -> None:
    """Compile a model into a file that runs without ONNX.

    Models with open dimensions take their graph along, and compile for each new shape when they run. --shape
    compiles for one set of shapes ahead, --shapes for several; all are in the one file. --no-graph leaves the
    graph, and the weights as it has them, out.
    """
    opening.keep(model, output)
    start = time.perf_counter()
    compiled = open_model(model, compiling)
    compiled = opening.with_shapes(compiled, compiling, shapes)
    if no_graph:
        compiled = compiled.without_graph()
    seconds = time.perf_counter() - start
    counts = dict(Counter(row.device for row in compiled.placement)) if compiled.latest else {}
    fits = "" if compiled.latest else opening.suggested(compiled, compiling.shapes)
    summary = verdict.of(compiled) if compiled.latest else None
    compiled.save(output)  # last: a command that is interrupted before has written nothing
    size = output.stat().st_size
    if json:
        made: dict[str, Any] = {"path": str(output), "bytes": size, "seconds": seconds, "placement": counts}
        judged = {"summary": summary.as_dict() if summary else None}
        out.print_json(made | judged | {"shapes": list(compiled.executables), "suggested": fits})
        return
    if summary is not None:
        verdict.show(summary)
    places = (f"{count} {'' if place == 'folded' else 'on '}{place}" for place, count in counts.items())
    placed = ", ".join(places) or "compiled on first sight"
    out.tell(f"{output}: {counted(size, 'byte')} in {seconds:.2f} s; nodes: {placed}", whole=True)
    for key in compiled.executables if len(compiled.executables) > 1 else ():
        out.tell(f"  compiled for {key}")
    if fits:
        out.tell(f"its dimensions are open; sizes that fit it, to compile ahead: {fits}", whole=True)


def time_model(
    model: opening.Model,
    compiling: opening.CompileFlags,
    asked: WhatIfFlags,
    trace: traces.Target = None,
    full: Full = False,
    json: out.Json = False,
) -> None:
    """Say what a run would cost, without running the model.

    Cycles, traffic and stalls are those of a run, several times faster: no data moves and no kernel is
    called. --device asks about any NPU: one of `onedispatch devices`, or a file of your own. Nodes on the
    host take no time; what needs data is not checked.

    Of a file that was compiled for several sizes each has its verdict, under "sizes" with --json; the report
    is of the last, or of the one that --shape names.

    --devices, --batch and --sweep make one table of all their combinations: time, how busy the cores are,
    bytes of device memory and multiply-accumulates, which stand for energy, and the resource that bounds
    each. A combination that does not fit says why, and the others go on; the exit code is 1 where none fits.
    """
    traces.check_target(trace)
    opening.keep(model, traces.file_of(trace))
    if asked.asked and trace is not None:
        given = "a trace of several combinations"
        raise InputError("--trace", given, "one of them", "leave --devices, --batch and --sweep out")
    if asked.asked:
        from onedispatch.dispatch.cli import what_if

        what_if.answer(model, compiling, asked, json)
        return
    compiled = with_executable(model, compiling, every=trace is None)
    executables = opening.agreeing(compiled, compiling.shapes)
    with out.working("timing"):
        each = verdict.of_each(compiled, executables) if len(executables) > 1 else {}
        report = compiled.timing(trace=trace is not None)
    traces.write_asked(trace, report, json)
    summary = verdict.of(compiled, report)
    if json:
        sizes = {"sizes": {key: one.as_dict() for key, one in each.items()}} if each else {}
        found = {"device": compiled.device, "summary": summary.as_dict(), "report": report.as_dict()}
        out.print_json(found | sizes)
        return
    verdict.show_each(each.items())
    if each:
        out.tell(f"\n{executables[-1][0]}, the last; --shape names another:")
    verdict.show(summary)
    _show_report(report, full)


def _show_report(report: RunReport, full: bool) -> None:
    out.tell(report.totals())
    if report.ops:
        out.tell()
        out.columns(OPERATORS, report.operators(), left=(0, 1))
    for remark in report.remarks(full):
        out.tell(remark)
