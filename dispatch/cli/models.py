# SPDX-License-Identifier: Apache-2.0
"""Commands that take a model: run, compile, inspect."""

from __future__ import annotations

import io
import time
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from onedispatch.dispatch.artifact.model import CompiledModel
from onedispatch.dispatch.cli import comparison, opening, traces, what_if
from onedispatch.dispatch.cli import output as out
from onedispatch.dispatch.cli.group_tables import GROUP_TITLES, PASSED_TITLES, group_rows, passed_rows
from onedispatch.dispatch.cli.opening import open_model, with_executable
from onedispatch.dispatch.cli.page import Html, write_page
from onedispatch.dispatch.compiler.executable import BUFFERS, DeviceStep, Executable, NodePlacement
from onedispatch.dispatch.compiler.used_kernels import notes_on
from onedispatch.dispatch.frontend.graph import Array, sizes_of_names
from onedispatch.dispatch.page.collect import observing
from onedispatch.dispatch.runtime.devices import notes_of
from onedispatch.dispatch.runtime.session import InferenceSession
from onedispatch.transactions.base.errors import InputError
from onedispatch.transactions.base.files import write_file
from onedispatch.transactions.base.signature import bounded_repr
from onedispatch.transactions.base.text import counted

if TYPE_CHECKING:
    from onedispatch.dispatch.compiler.grouping import Grouping
    from onedispatch.dispatch.runtime.report import RunReport
    from onedispatch.dispatch.tools.compare import Comparison
    from onedispatch.dispatch.tools.pass_reports import PassReport


@dataclass(frozen=True)
class InputFlags:
    """What a model is run on."""

    inputs: Annotated[
        list[str] | None, typer.Option("--input", "-i", help="name=array.npy, or one arrays.npz. Repeatable.")
    ] = None
    random: Annotated[bool, typer.Option("--random", help="Seeded random values for all inputs.")] = False
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


def run(
    model: opening.Model,
    given: InputFlags,
    compiling: opening.CompileFlags,
    running: RunFlags,
    comparing: CompareFlags,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the outputs to an .npz.")
    ] = None,
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
    with opening.taken_as_one(compiled, shapes):
        values = _values(session, feed, quiet=json)
    names = [info.name for info in session.get_outputs()]
    _write_arrays(output, names, values)
    report = _traced(session, running.trace, json)
    rows = list(map(_summary, names, values))
    beside = (
        asked.compared(feed, values, compiled, running.threads, running.kernel_seconds) if asked else None
    )
    _tell(rows, report, beside, json)
    if beside is not None and beside.first is not None:
        raise typer.Exit(comparison.DIVERGES)


def feed_of(
    session: InferenceSession, compiled: CompiledModel, given: InputFlags, named: opening.Shapes
) -> tuple[dict[str, Array], opening.Shapes]:
    """The values of inputs, as the flags say, and the shapes that are known before they are made up."""
    feed = out.parse_inputs(given.inputs)
    shapes = opening.shapes_of(compiled, named) | {n: feed[n].shape for n in feed}
    if given.random:
        missing = [info for info in session.get_inputs() if info.name not in feed]
        feed |= opening.random_feed(missing, shapes, given.seed)
    return feed, shapes


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
    if report is not None and trace is not None and not (json and trace == traces.TABLE):
        traces.write(trace, report.trace)
    return report


def _tell(
    rows: list[dict[str, Any]], report: RunReport | None, beside: Comparison | None, json: bool
) -> None:
    if json:
        compared = {} if beside is None else {"comparison": beside.as_dict()}
        out.print_json({"outputs": rows, "report": report.as_dict() if report else None} | compared)
        return
    for row in rows:
        out.tell(" ".join(f"{key}={item}" for key, item in row.items()))
    out.tell(f"\n{report}")
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
    compiled.save(output)
    counts = dict(Counter(row.device for row in compiled.placement)) if compiled.latest else {}
    size = output.stat().st_size
    fits = "" if compiled.latest else opening.suggested(compiled, compiling.shapes)
    if json:
        made: dict[str, Any] = {"path": str(output), "bytes": size, "seconds": seconds, "placement": counts}
        out.print_json(made | {"shapes": list(compiled.executables), "suggested": fits})
        return
    placed = ", ".join(f"{count} on {place}" for place, count in counts.items()) or "compiled on first sight"
    out.tell(f"{output}: {counted(size, 'byte')} in {seconds:.2f} s; nodes: {placed}", whole=True)
    for key in compiled.executables if len(compiled.executables) > 1 else ():
        out.tell(f"  compiled for {key}")
    if fits:
        out.tell(f"its dimensions are open; sizes that fit it, to compile ahead: {fits}", whole=True)


def time_model(
    model: opening.Model,
    compiling: opening.CompileFlags,
    asked: what_if.WhatIfFlags,
    json: out.Json = False,
) -> None:
    """Say what a run would cost, without running the model.

    Cycles, traffic and stalls are those of a run, several times faster: no data moves and no kernel is
    called. --device asks about any NPU: one of `onedispatch devices`, or a file of your own. Nodes on the
    host take no time; what needs data is not checked.

    --devices, --batch and --sweep make one table of all their combinations: time, how busy the cores are,
    bytes of device memory and multiply-accumulates, which stand for energy, and the resource that bounds
    each. A combination that does not fit says why, and the others go on; the exit code is 1 where none fits.
    """
    if asked.asked:
        what_if.answer(model, compiling, asked, json)
        return
    compiled = with_executable(model, compiling)
    with out.working("timing"):
        report = compiled.timing()
    if json:
        out.print_json({"device": compiled.device, "report": report.as_dict()})
        return
    out.tell(str(report))


def inspect(
    model: opening.Model,
    compiling: opening.CompileFlags,
    full: Annotated[bool, typer.Option("--full", help="Arg maps and schedules of every operator.")] = False,
    html: Html = None,
    passes: Annotated[
        bool, typer.Option("--passes", help="What each pass of the compiler changed, and its time.")
    ] = False,
    dump_passes: Annotated[
        Path | None, typer.Option("--dump-passes", help="Write the graph after each pass to this folder.")
    ] = None,
    json: out.Json = False,
) -> None:
    """Where every node runs and why, what the buffers hold, how operators use the array.

    Of a node on the host: the bound that failed, the nearest that would map, the engine that computes it.
    Of others: what they became, alone, together with others, by a rule or by their function body; and which
    rules nearly fit.
    """
    opening.keep(model, html)
    if passes or dump_passes is not None or html is not None:
        compiling = replace(compiling, cache=False)  # passes that do not run cannot be seen
    with pass_observers(passes, dump_passes) as report, observing() as seen:
        compiled = with_executable(model, compiling)
    placed = placed_of(compiled)
    rows = [_row(compiled, *row) for row in placed]
    if html is not None:
        write_page(html, model, compiled, rows, seen)
    if json:
        out.print_json([*rows, {"passes": [asdict(row) for row in report.rows]}] if report else rows)
        return
    if report is not None:
        _show_passes(report)
    if html is not None:
        out.tell(f"{html}: {counted(html.stat().st_size, 'byte')}")
        return
    for note in notes_of(compiled.target):
        out.tell(f"{compiled.device}: {note}")
    for key, executable, placement in placed:
        out.tell(f"{compiled.device}, {compiled.precision}, {key}\n")
        for name, array in compiled.frozen.items():
            out.tell(f"input {name}, frozen: {bounded_repr(array.tolist())}")
        for name, sizes in _sizes(compiled, executable).items():
            text = f"the dimension name {name!r} stands for different sizes: {', '.join(map(str, sizes))}"
            out.tell(text)
        _show(executable, placement, full, _program_room(compiled))


Placed = tuple[str, Executable, list[NodePlacement]]  # an executable by its key, and where its nodes run


def placed_of(compiled: CompiledModel) -> list[Placed]:
    """Every executable, with the engines of nodes on the host."""
    session = InferenceSession(compiled)
    return [(key, one, session.placed(key, one)) for key, one in compiled.executables.items()]


def inspected(compiled: CompiledModel) -> list[dict[str, Any]]:
    """What ``inspect --json`` says of each executable."""
    return [_row(compiled, *row) for row in placed_of(compiled)]


def _row(
    compiled: CompiledModel, key: str, executable: Executable, placement: list[NodePlacement]
) -> dict[str, Any]:
    return _as_dict(key, executable, placement, _program_room(compiled)) | {
        "precision": compiled.precision,
        "sums": compiled.sums,
        "groups": compiled.groups,
        "dimension_names": _sizes(compiled, executable),
        "frozen": {name: array.tolist() for name, array in compiled.frozen.items()},
        "device_notes": list(notes_of(compiled.target)),
    }


@contextmanager
def pass_observers(passes: bool, folder: Path | None) -> Iterator[PassReport | None]:
    """The report of the passes that run inside, where one is wanted; they are written to ``folder`` too."""
    if not passes and folder is None:
        yield None
        return
    from onedispatch.dispatch.compiler.passes import observed
    from onedispatch.dispatch.tools.pass_reports import PassDump, PassReport, dump_folder

    report = PassReport()
    with ExitStack() as stack:
        stack.enter_context(observed(report))
        if folder is not None:
            stack.enter_context(observed(PassDump(dump_folder(folder))))
        yield report if passes else None


def _show_passes(report: PassReport) -> None:
    rows = [(row.name, row.result, row.changed or "-", f"{row.seconds * 1e3:.1f} ms") for row in report.rows]
    if not rows:
        out.tell("no pass ran: the model is compiled already\n")
        return
    out.table("Passes", ("pass", "result", "changed", "time"), rows, right=(3,))


def _program_room(compiled: CompiledModel) -> int:
    """Bytes of a core's program memory."""
    return compiled.target.count("core.program_memory_bytes")


def _sizes(compiled: CompiledModel, executable: Executable) -> dict[str, list[int]]:
    """Names of dimensions that mean several sizes in this executable."""
    declared = (*compiled.inputs, *compiled.outputs)
    return sizes_of_names(declared, (*executable.inputs, *executable.outputs))


def _show(executable: Executable, placement: list[NodePlacement], full: bool, room: int) -> None:
    rows = [(p.node, p.op_type, out.place(p.device), _why(p)) for p in placement]
    out.table("Placement", ("node", "operator", "where", "why"), rows)
    counts = Counter(row.device for row in placement)
    dispatches = len(executable.device_steps)
    text = ", ".join(f"{count} on {place}" for place, count in counts.items())
    out.tell(f"nodes: {text}; device dispatches: {dispatches}\n")
    _show_kernels(executable)
    if executable.grouping is not None:
        _show_grouping(executable.grouping)
    for number, step in enumerate(executable.device_steps):
        _show_step(f"Dispatch {number}", step, full, room)


def _why(row: NodePlacement) -> str:
    """The reason, and the rules that nearly took the node, where it does not say so already."""
    return row.reason if not row.remark or row.remark in row.reason else f"{row.reason}; {row.remark}"


def _show_kernels(executable: Executable) -> None:
    """Prints the custom kernels, with what their declarations warn of."""
    if not executable.kernels:
        return
    rows = [
        (used.name, f"0x{used.digest:08X}", used.origin, ", ".join(used.nodes) or "-")
        for used in executable.kernels
    ]
    out.table("Custom kernels", ("kernel", "digest", "from", "nodes on the host"), rows)
    for used in executable.kernels:
        for note in notes_on(used.name):
            out.tell(f"{used.name}: {note}")
    out.tell()


def _show_grouping(grouping: Grouping) -> None:
    """Prints what stays in memory tiles, and why other tensors do not."""
    plain = asdict(grouping)
    if grouping.groups:
        out.table("Groups", GROUP_TITLES, group_rows(plain), right=(2, 3, 4))
    if grouping.passed:
        out.table("Tensors in device memory", PASSED_TITLES, passed_rows(plain), right=(1,))
    out.tell(f"groups: {grouping}\n")


def _show_step(title: str, step: DeviceStep, full: bool, room: int) -> None:
    sizes = [
        (str(i), name, f"{size:,}") for i, (name, size) in enumerate(zip(BUFFERS, step.sizes, strict=True))
    ]
    out.table(f"{title}: buffers", ("argument", "buffer", "bytes"), sizes, right=(0, 2))
    bound = step.scratch_bound
    if bound:
        ratio = step.sizes[BUFFERS.index("scratch")] / bound
        out.tell(f"scratch is {ratio:.3f} x the most bytes alive at once ({bound:,})")
    out.tell(
        f"transaction: {counted(len(step.transaction), 'byte')}, {counted(len(step.ops), 'operator')}",
    )
    of = f"of a core's {counted(room, 'byte')} of program memory"
    out.tell(f"kernels: {step.image}; {step.image.nbytes:,} {of}")
    for reload in step.reloads:
        then = f"before {step.ops[reload.before].name}" if reload.before < len(step.ops) else "at the end"
        out.tell(f"reloaded {then}: {reload.kernels}; {reload.nbytes:,} {of}")
    out.tell()
    rows = [(op.name, op.op_type, "\n".join(op.schedule)) for op in step.ops]
    out.table(f"{title}: operators", ("operator", "kind", "schedule"), rows)
    if full:
        for op in step.ops:
            out.tell(f"{op.name} ({', '.join(op.nodes)})")
            for line in op.arguments:
                out.tell(f"    {line}")


def _as_dict(key: str, executable: Executable, placement: list[NodePlacement], room: int) -> dict[str, Any]:
    return {
        "key": key,
        "placement": [_place(row) for row in placement],
        "grouping": None if executable.grouping is None else asdict(executable.grouping),
        "kernels": [asdict(used) | {"notes": notes_on(used.name)} for used in executable.kernels],
        "dispatches": [
            {
                "buffers": dict(zip(BUFFERS, step.sizes, strict=True)),
                "scratch_bound": step.scratch_bound,
                "transaction_bytes": len(step.transaction),
                "program_memory_bytes": room,
                "program": {"bytes": step.image.nbytes, "kernels": [str(one) for one in step.image.linked]},
                "reloads": [
                    {"before": r.before, "bytes": r.nbytes, "kernels": r.kernels.split("; ")}
                    for r in step.reloads
                ],
                "operators": [asdict(op) for op in step.ops],
            }
            for step in executable.device_steps
        ],
    }


def _place(row: NodePlacement) -> dict[str, str]:
    return asdict(row)
