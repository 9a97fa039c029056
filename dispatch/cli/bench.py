# SPDX-License-Identifier: Apache-2.0
"""``onedispatch bench``: our wall clock beside onnxruntime's, from one process."""

from __future__ import annotations

import resource
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from onedispatch.dispatch.base.arguments import integer
from onedispatch.dispatch.base.precisions import EXACT
from onedispatch.dispatch.cli import output as out
from onedispatch.dispatch.frontend.graph import Array
from onedispatch.transactions.base.errors import InputError
from onedispatch.transactions.base.host import MOST_THREADS
from onedispatch.transactions.base.text import counted

_MOST_RUNS = 1_000_000
_MOST_SIZE = 1 << 20  # of --batch and --image; tensors have bounds of their own


@dataclass(frozen=True)
class Measured:
    """One benchmark. Seconds are wall clock, medians over ``runs``, except ``modelled_seconds``."""

    model: str
    device: str
    precision: str
    threads: int
    batch: int | None
    runs: int
    model_bytes: int
    compile_seconds: float
    compile_cpu_seconds: float  # of this process: what a machine with other work would hide
    seconds: float
    onnxruntime_seconds: float
    ratio: float
    largest_error: float  # of the first output, relative to its largest value
    modelled_seconds: float
    launch_seconds: float  # of the host, modelled, beside modelled_seconds
    dispatches: int
    peak_bytes: int  # of this process before onnxruntime's session exists


@dataclass(frozen=True)
class BenchFlags:
    """What is timed, and how."""

    device: out.Device = "npu2"
    threads: Annotated[int, typer.Option(help="Host threads of both sides.")] = 1
    runs: Annotated[int, typer.Option(help="Timed runs of each side, after one to warm up.")] = 5
    batch: Annotated[int | None, typer.Option(help="Another batch size.")] = None
    image: Annotated[int | None, typer.Option(help="Another height and width.")] = None
    fallback: out.Fallback = "error"
    precision: out.Precision = EXACT
    seed: Annotated[int, typer.Option(help="Seed of weights and inputs.")] = 0

    def check(self) -> None:
        """Raises ``InputError`` for numbers out of range."""
        integer("--runs", self.runs, 1, _MOST_RUNS)
        integer("--threads", self.threads, 1, MOST_THREADS)
        for option, size in (("--batch", self.batch), ("--image", self.image)):
            if size is not None:
                integer(option, size, 1, _MOST_SIZE)
        integer("--seed", self.seed, 0, (1 << 63) - 1)


def bench(
    flags: BenchFlags,
    model: Annotated[
        str | None, typer.Argument(help="A light model's name (light_resnet50), or an .onnx file.")
    ] = None,
    published: Annotated[
        bool,
        typer.Option("--published", help="No model: runs that were measured on silicon, and modelled."),
    ] = False,
    json: out.Json = False,
) -> None:
    """Time a model on the simulated device beside onnxruntime on the CPU.

    Both run in this process with the same number of threads, one by default, so that neither
    has more of the machine than the other. Light models of the onnx package get seeded random
    weights; their final Softmax is dropped.
    """
    if published:
        _published(model, json)
        return
    if model is None:
        raise InputError("bench", "no model", "a light model's name, or an .onnx file; or --published")
    flags.check()
    result = measure(model, flags)
    if json:
        out.print_json(asdict(result))
    else:
        _show(result)


def _published(model: str | None, json: bool) -> None:
    from onedispatch.dispatch.tools.published import compare_runs, measurements

    if model is not None:
        raise InputError("bench --published", f"the model {model!r}", "no model: it has its own")
    with out.working("modelling what was measured"):
        rows = list(compare_runs(measurements()))
    if json:
        out.print_json([asdict(row) for row in rows])
        return
    lines = [
        (
            row.name,
            row.device,
            f"{row.published:.2f} ms",
            f"{row.modelled:.2f} + {row.launch:.2f} ms",
            f"{row.ratio:.2f} x",
            f"{row.source}: {row.differs}",
        )
        for row in rows
    ]
    titles = ("what", "device", "published", "modelled + launch", "ratio", "what was measured")
    out.table("Measured on silicon, and modelled", titles, lines, right=(2, 3, 4))


def measure(name: str, flags: BenchFlags) -> Measured:
    from onedispatch.dispatch.runtime.session import InferenceSession
    from onedispatch.dispatch.tools import zoo

    proto = zoo.find_model(name)
    if name in zoo.light_models() or flags.batch is not None or flags.image is not None:
        proto = zoo.randomised(proto, flags.seed, batch=flags.batch, image=flags.image)
    feed = zoo.random_input(proto, flags.seed)
    with out.working(f"compiling {name} for {flags.device}"):
        start, cpu = time.perf_counter(), time.process_time()
        session = InferenceSession(proto, flags.device, flags.precision, flags.fallback, flags.threads)
        session.run(None, feed) if session.model.latest is None else None
        compiled, compiled_cpu = time.perf_counter() - start, time.process_time() - cpu
    ours, mine = _time("simulating", flags.runs, lambda: session.run(None, feed))
    report = session.last_run
    peak = peak_bytes()
    theirs, reference = _time("onnxruntime", flags.runs, _onnxruntime(proto, feed, flags.threads))
    return Measured(
        model=name,
        device=session.device,
        precision=flags.precision,
        threads=flags.threads,
        batch=flags.batch,
        runs=flags.runs,
        model_bytes=proto.ByteSize(),
        compile_seconds=compiled,
        compile_cpu_seconds=compiled_cpu,
        seconds=ours,
        onnxruntime_seconds=theirs,
        ratio=ours / theirs,
        largest_error=_error(mine[0], reference[0]),
        modelled_seconds=report.seconds if report else 0.0,
        launch_seconds=report.launch_seconds if report else 0.0,
        dispatches=report.dispatches if report else 0,
        peak_bytes=peak,
    )


def _time(what: str, runs: int, once: Callable[[], list[Any]]) -> tuple[float, list[Any]]:
    """The median seconds of ``runs``, and the last outputs."""
    with out.working(what):
        outputs = once()
        seconds = []
        for _ in range(runs):
            start = time.perf_counter()
            outputs = once()
            seconds.append(time.perf_counter() - start)
    return statistics.median(seconds), outputs


def _onnxruntime(proto: Any, feed: dict[str, Array], threads: int) -> Callable[[], list[Any]]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    data = proto.SerializeToString()
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    del data
    return lambda: list(session.run(None, feed))


def _error(mine: Array, reference: Array) -> float:
    largest = float(np.abs(reference).max()) if reference.size else 0.0
    return float(np.abs(mine - reference).max()) / largest if largest else 0.0


def peak_bytes() -> int:
    """The most memory that this process has held, in bytes.

    Linux hands ``ru_maxrss`` of the parent on to what it executes next, so the kernel's own high-water
    mark is read where there is one.
    """
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
    fields = (line.split() for line in status.splitlines() if line.startswith("VmHWM:"))
    return next((int(field[1]) * 1024 for field in fields), 0)


def _show(result: Measured) -> None:
    rows = [
        ("onedispatch, wall clock", f"{result.seconds * 1e3:.1f} ms"),
        ("onnxruntime, wall clock", f"{result.onnxruntime_seconds * 1e3:.1f} ms"),
        ("ratio", f"{result.ratio:.2f} x"),
        ("largest error", f"{result.largest_error:.2e} of the largest value"),
        (f"modelled time on {result.device}", f"{result.modelled_seconds * 1e3:.3f} ms"),
        ("host launch, modelled", f"{result.launch_seconds * 1e3:.3f} ms"),
        ("dispatches", str(result.dispatches)),
        ("compile", f"{result.compile_seconds:.2f} s"),
        ("model", f"{result.model_bytes / 1e6:.1f} MB"),
        ("peak memory", f"{result.peak_bytes / 1e6:.1f} MB"),
    ]
    sides = f"median of {counted(result.runs, 'run')}, {counted(result.threads, 'thread')} on both sides"
    out.table(f"{result.model} in {result.precision}: {sides}", ("what", "value"), rows, right=(1,))
