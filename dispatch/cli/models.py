# SPDX-License-Identifier: Apache-2.0
"""Commands that take a model: run, compile, inspect."""

from __future__ import annotations

import io
import time
import zipfile
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from onedispatch.dispatch.artifact import model as models
from onedispatch.dispatch.artifact.container import MAGIC
from onedispatch.dispatch.artifact.loading import load
from onedispatch.dispatch.base import limits
from onedispatch.dispatch.base.arguments import integer
from onedispatch.dispatch.base.precisions import EXACT
from onedispatch.dispatch.cli import comparison, traces
from onedispatch.dispatch.cli import output as out
from onedispatch.dispatch.cli.page import page
from onedispatch.dispatch.compiler.executable import BUFFERS, DeviceStep, Executable, NodePlacement
from onedispatch.dispatch.compiler.used_kernels import notes_on
from onedispatch.dispatch.frontend.graph import Array, sizes_of_names
from onedispatch.dispatch.runtime.devices import notes_of
from onedispatch.dispatch.runtime.session import InferenceSession, NodeArg
from onedispatch.transactions.base.errors import InputError
from onedispatch.transactions.base.files import write_file
from onedispatch.transactions.base.phrases import counted

if TYPE_CHECKING:
    from onedispatch.dispatch.runtime.report import RunReport
    from onedispatch.dispatch.tools.compare import Comparison

EXACT_SUMS = models.SUMS[0]
Model = Annotated[
    str, typer.Argument(help="An .onnx file, a file of `onedispatch compile`, or a light model's name.")
]


def open_model(
    name: str,
    device: str,
    fallback: str,
    shapes: list[str] | None,
    cast_policy: str = "error",
    precision: str = EXACT,
    sums: str = EXACT_SUMS,
) -> models.CompiledModel:
    """A compiled model from whatever ``name`` is: our file, an ONNX file, a light model.

    Raises ``InputError`` for a file of ours that was compiled for another ``precision``, or other ``sums``.
    """
    path = Path(name)
    if path.is_file():
        with path.open("rb") as file:
            ours = file.read(len(MAGIC)) == MAGIC
        if ours:
            return _compiled_for(load(path), precision, sums)
    with out.working(f"compiling {name} for {device}"):
        bound = out.parse_shapes(shapes)
        return models.compile_model(
            _onnx(path), device, precision, fallback, shapes=bound, cast_policy=cast_policy, sums=sums
        )


def _onnx(path: Path) -> Any:
    """What ``compile_model`` takes: the path, or a light model with random weights."""
    if not path.exists():
        from onedispatch.dispatch.tools import zoo

        if str(path) in zoo.light_models():
            return zoo.randomised(zoo.find_model(str(path)))
    return path


def _compiled_for(compiled: models.CompiledModel, precision: str, sums: str) -> models.CompiledModel:
    for option, wanted, default, own in (
        ("--precision", precision, EXACT, compiled.precision),
        ("--sums", sums, EXACT_SUMS, compiled.sums),
    ):
        if wanted not in (default, own):
            given = f"{own!r}, which the file was compiled for"
            raise InputError(option, repr(wanted), given, "compile the ONNX file again")
    return compiled


def random_feed(inputs: list[NodeArg], shapes: dict[str, tuple[int, ...]], seed: int) -> dict[str, Array]:
    """Seeded values for every input: normal floats, small integers; open dimensions are 1."""
    from onedispatch.dispatch.frontend.graph import dtype_of

    rng = np.random.default_rng(integer("--seed", seed, 0, (1 << 63) - 1))
    feed: dict[str, Array] = {}
    for info in inputs:
        dtype = dtype_of(info.type)
        if dtype is None or dtype.hasobject:
            raise InputError(
                f"input {info.name!r}", info.type, "numbers, with --random", "use --input name=file.npy"
            )
        shape = shapes.get(info.name) or tuple(d if isinstance(d, int) else 1 for d in info.shape)
        limits.check_tensor(f"input {info.name!r}", dtype, shape, InputError)
        if dtype.kind in "iub":
            feed[info.name] = rng.integers(0, 2 if dtype.kind == "b" else 10, shape).astype(dtype)
        else:
            feed[info.name] = rng.standard_normal(shape).astype(dtype)
    return feed


def run(
    model: Model,
    inputs: Annotated[
        list[str] | None, typer.Option("--input", "-i", help="name=array.npy, or one arrays.npz. Repeatable.")
    ] = None,
    random: Annotated[bool, typer.Option("--random", help="Seeded random values for all inputs.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of --random.")] = 0,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the outputs to an .npz.")
    ] = None,
    shape: out.Shapes = None,
    device: out.Device = "npu2",
    fallback: out.Fallback = "cpu",
    cast_policy: out.CastPolicy = "error",
    precision: out.Precision = EXACT,
    sums: out.Sums = EXACT_SUMS,
    threads: out.Threads = None,
    kernel_seconds: out.KernelSeconds = None,
    print_bytes: traces.PrintBytes = None,
    trace: traces.Target = None,
    compare: comparison.Compare = False,
    threshold: comparison.Threshold = None,
    json: out.Json = False,
) -> None:
    """Run a model once and say what it cost.

    Give every input with --input, or let --random make them up. The report names the modelled
    time of each device operator and the traffic between memory and array. What kernels print comes
    first, with --json in its report.

    --compare shows each node's largest error beside the same model on the host (with --precision bf16
    beside float32, with quantised models beside onnxruntime's integers), and names the first that diverges.
    """
    traces.check_target(trace)
    comparison.check_threshold(threshold, compare)
    graph = comparison.graph_of(model, _onnx) if compare else None
    compiled = open_model(model, device, fallback, shape, cast_policy, precision, sums)
    session = InferenceSession(
        compiled,
        threads=threads,
        kernel_seconds=kernel_seconds,
        print_bytes=print_bytes,
        trace=trace is not None,
    )
    feed = out.parse_inputs(inputs)
    if random:
        missing = [info for info in session.get_inputs() if info.name not in feed]
        feed |= random_feed(missing, out.parse_shapes(shape), seed)
    values = _values(session, feed, quiet=json)
    names = [info.name for info in session.get_outputs()]
    if output is not None:
        _write_arrays(output, names, values)
    report = session.last_run
    if report is not None and trace is not None and not (json and trace == traces.TABLE):
        traces.write(trace, report.trace)
    rows = [_summary(name, value) for name, value in zip(names, values, strict=True)]
    with out.working("comparing"):
        options = (threshold, threads, kernel_seconds)
        beside = None if graph is None else comparison.compared(graph, feed, compiled, *options)
    _tell(rows, report, beside, json)


def _values(session: InferenceSession, feed: dict[str, Array], *, quiet: bool) -> list[Any]:
    """The outputs of a run; what kernels print is printed, also where it fails, unless ``quiet``."""
    try:
        with out.working("running"):
            return session.run(None, feed)
    finally:
        for line in session.prints if not quiet else ():
            out.say(str(line))


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


def _write_arrays(path: Path, names: list[str], values: list[Any]) -> None:
    """An .npz; ``numpy.savez`` does not take every name (``file``), nor a device to write to."""
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
    model: Model,
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write it, usually *.od.")],
    shape: out.Shapes = None,
    device: out.Device = "npu2",
    fallback: out.Fallback = "cpu",
    cast_policy: out.CastPolicy = "error",
    precision: out.Precision = EXACT,
    sums: out.Sums = EXACT_SUMS,
    json: out.Json = False,
) -> None:
    """Compile a model into a file that runs without ONNX.

    Models with open dimensions need --shape, or take their graph along and compile for each
    new shape when they run.
    """
    start = time.perf_counter()
    compiled = open_model(model, device, fallback, shape, cast_policy, precision, sums)
    seconds = time.perf_counter() - start
    compiled.save(output)
    counts = dict(Counter(row.device for row in compiled.placement))
    size = output.stat().st_size
    if json:
        out.print_json({"path": str(output), "bytes": size, "seconds": seconds, "placement": counts})
        return
    placed = ", ".join(f"{count} on {place}" for place, count in counts.items()) or "compiled on first sight"
    out.tell(f"{output}: {counted(size, 'byte')} in {seconds:.2f} s; nodes: {placed}")


def inspect(
    model: Model,
    shape: out.Shapes = None,
    device: out.Device = "npu2",
    fallback: out.Fallback = "cpu",
    cast_policy: out.CastPolicy = "error",
    precision: out.Precision = EXACT,
    sums: out.Sums = EXACT_SUMS,
    full: Annotated[bool, typer.Option("--full", help="Arg maps and schedules of every operator.")] = False,
    html: Annotated[
        Path | None, typer.Option("--html", help="Write the same as one HTML page, which needs nothing else.")
    ] = None,
    json: out.Json = False,
) -> None:
    """Where every node runs and why, what the buffers hold, how operators use the array.

    Of a node on the host: the bound that failed, the nearest that would map, the engine that computes it.
    Of others: what they became, alone, together with others, by a rule or by their function body; and which
    rules nearly fit.
    """
    compiled = open_model(model, device, fallback, shape, cast_policy, precision, sums)
    if not compiled.executables:
        bound = {
            info.name: tuple(d if isinstance(d, int) else 1 for d in info.shape or ())
            for info in compiled.inputs
        }
        out.tell(f"open dimensions taken as 1; --shape says otherwise: {bound}", to=out.errors)
        feed = random_feed([NodeArg.of(v) for v in compiled.inputs], {}, 0)
        compiled.executable(bound | out.parse_shapes(shape), feed)
    session = InferenceSession(compiled)  # which knows the engines of host regions
    placed = [(key, one, session.placed(key, one)) for key, one in compiled.executables.items()]
    room, notes = _program_room(compiled), list(notes_of(compiled.target))
    rows = [
        _as_dict(*row, room)
        | {
            "precision": compiled.precision,
            "sums": compiled.sums,
            "dimension_names": _sizes(compiled, row[1]),
            "device_notes": notes,
        }
        for row in placed
    ]
    if html is not None:
        write_file(html, page(Path(model).name, compiled.device, rows).encode())
    if json:
        out.print_json(rows)
        return
    if html is not None:
        out.tell(f"{html}: {counted(html.stat().st_size, 'byte')}")
        return
    for note in notes_of(compiled.target):
        out.tell(f"{compiled.device}: {note}")
    for key, executable, placement in placed:
        out.tell(f"{compiled.device}, {compiled.precision}, {key}\n")
        for name, sizes in _sizes(compiled, executable).items():
            text = f"the dimension name {name!r} stands for different sizes: {', '.join(map(str, sizes))}"
            out.tell(text)
        _show(executable, placement, full, _program_room(compiled))


def _program_room(compiled: models.CompiledModel) -> int:
    """Bytes of a core's program memory."""
    return compiled.target.count("core.program_memory_bytes")


def _sizes(compiled: models.CompiledModel, executable: Executable) -> dict[str, list[int]]:
    """Names of dimensions that mean several sizes in this executable."""
    declared = (*compiled.inputs, *compiled.outputs)
    return sizes_of_names(declared, (*executable.inputs, *executable.outputs))


def _show(executable: Executable, placement: list[NodePlacement], full: bool, room: int) -> None:
    rows = [(p.node, p.op_type, p.device, _why(p)) for p in placement]
    out.table("Placement", ("node", "operator", "where", "why"), rows)
    counts = Counter(row.device for row in placement)
    dispatches = len(executable.device_steps)
    text = ", ".join(f"{count} on {place}" for place, count in counts.items())
    out.tell(f"nodes: {text}; device dispatches: {dispatches}\n")
    _show_kernels(executable)
    for number, step in enumerate(executable.device_steps):
        _show_step(f"Dispatch {number}", step, full, room)


def _why(row: NodePlacement) -> str:
    """The reason, and the rules that nearly took the node, where it does not say so already."""
    return row.reason if not row.remark or row.remark in row.reason else f"{row.reason}; {row.remark}"


def _show_kernels(executable: Executable) -> None:
    """Kernels from outside, with what their declarations say that a reader should know."""
    if not executable.kernels:
        return
    rows = [
        (used.name, f"0x{used.digest:08X}", used.origin, ", ".join(used.nodes) or "-")
        for used in executable.kernels
    ]
    out.table("Kernels from outside", ("kernel", "digest", "from", "nodes on the host"), rows)
    for used in executable.kernels:
        for note in notes_on(used.name):
            out.tell(f"{used.name}: {note}")
    out.tell()


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
