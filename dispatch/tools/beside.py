# SPDX-License-Identifier: Apache-2.0
"""Wall clock beside onnxruntime's: both in this process, with the same threads, run by run in turn.

onnxruntime is what we are compared with, not what we need: without it, rows have our side alone.
"""

from __future__ import annotations

import importlib.util
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto

from onedispatch.dispatch.base.precisions import EXACT
from onedispatch.dispatch.runtime.summary import Summary
from onedispatch.dispatch.tools import zoo
from onedispatch.dispatch.tools.differences import errors_of, largest_of, share_of

Once = Callable[[], Any]
Array = np.ndarray[Any, Any]
_SECONDS, _MOST_RUNS = 0.2, 1000  # short runs are repeated for so long, as busy machines need
PRECISIONS = ("fp32", "int8", "bf16")


@dataclass(frozen=True)
class Sides:
    """What both sides have in common."""

    device: str = "npu2"
    precision: str = EXACT  # int8: the model is one of integers, which both compute as it says
    threads: int = 1
    runs: int = 5  # at least
    fallback: str = "error"
    groups: str = "on"  # of our side
    seed: int = 0


@dataclass(frozen=True)
class Measured:
    """One model. Seconds are medians over ``runs``: of wall clock, or of this process's processor time.

    What onnxruntime says is None where it is not installed.
    """

    model: str
    device: str
    precision: str
    threads: int
    groups: str
    runs: int
    model_bytes: int
    compile_seconds: float
    compile_cpu_seconds: float  # what a machine with other work would hide
    seconds: float
    cpu_seconds: float
    onnxruntime_seconds: float | None
    onnxruntime_cpu_seconds: float | None
    ratio: float | None
    largest_error: float | None  # of the first output, relative to its largest value; share of texts
    modelled_seconds: float
    launch_seconds: float  # of the host, modelled, beside modelled_seconds
    dispatches: int
    recorded: tuple[str, ...]  # how the last run was made, by step
    peak_bytes: int  # of this process before onnxruntime's session exists
    summary: Summary  # where its nodes run, how fast, and what bounds it

    def as_dict(self) -> dict[str, Any]:
        """Plain data, as JSON takes it."""
        return asdict(self) | {"summary": self.summary.as_dict()}


@dataclass(frozen=True)
class Mean:
    """The geometric mean of the ratios of all models with these sides."""

    precision: str
    threads: int
    models: int
    ratio: float


@dataclass(frozen=True)
class Median:
    """Of the runs of one side."""

    seconds: float
    cpu_seconds: float
    runs: int


def measure(name: str, model: ModelProto, sides: Sides) -> Measured:
    """Compiles a model and runs it beside onnxruntime, which computes the same file.

    Two runs of ours warm up, since the second is the one that is recorded.
    """
    from onedispatch.dispatch.runtime.clock import timed_summary
    from onedispatch.dispatch.runtime.session import InferenceSession

    feed = zoo.random_input(model, sides.seed)
    start, cpu = time.perf_counter(), time.process_time()
    precision = EXACT if sides.precision == "int8" else sides.precision
    session = InferenceSession(
        model, sides.device, precision, sides.fallback, sides.threads, groups=sides.groups
    )
    session.run(None, feed) if session.model.latest is None else None
    compiled, compiled_cpu = time.perf_counter() - start, time.process_time() - cpu
    ours: Once = lambda: session.run(None, feed)  # noqa: E731
    ours(), ours()
    peak = peak_bytes()
    theirs = onnxruntime_run(model, feed, sides.threads)
    medians = in_turn(
        ours, *([theirs] if theirs else []), least=sides.runs, most=_MOST_RUNS, seconds=_SECONDS
    )
    mine, other = medians[0], medians[1] if theirs else None
    report = session.last_run
    assert report is not None
    _, executable = session.model.used_last()
    return Measured(
        model=name,
        device=session.device,
        precision=sides.precision,
        threads=sides.threads,
        groups=sides.groups,
        runs=mine.runs,
        model_bytes=model.ByteSize(),
        compile_seconds=compiled,
        compile_cpu_seconds=compiled_cpu,
        seconds=mine.seconds,
        cpu_seconds=mine.cpu_seconds,
        onnxruntime_seconds=other.seconds if other else None,
        onnxruntime_cpu_seconds=other.cpu_seconds if other else None,
        ratio=mine.seconds / other.seconds if other else None,
        largest_error=_error(ours()[0], theirs()[0]) if theirs else None,
        modelled_seconds=report.seconds,
        launch_seconds=report.launch_seconds,
        dispatches=report.dispatches,
        recorded=tuple(report.recorded),
        peak_bytes=peak,
        summary=timed_summary(session.model, executable, session.placement, report),
    )


def in_turn(*sides: Once, least: int, most: int, seconds: float = 0.0) -> list[Median]:
    """Calls each side in turn after one call to warm up: ``least`` times, and up to ``most`` while the
    processor time of all sides is below ``seconds``."""
    for once in sides:
        once()
    wall: list[list[float]] = [[] for _ in sides]
    cpu: list[list[float]] = [[] for _ in sides]
    while len(cpu[0]) < least or (len(cpu[0]) < most and sum(map(sum, cpu)) < seconds):
        for index, once in enumerate(sides):
            start, start_cpu = time.perf_counter(), time.process_time()
            once()
            cpu[index].append(time.process_time() - start_cpu)
            wall[index].append(time.perf_counter() - start)
    return [
        Median(statistics.median(one), statistics.median(two), len(one))
        for one, two in zip(wall, cpu, strict=True)
    ]


def geometric_means(rows: Iterable[Measured]) -> list[Mean]:
    """For each precision and number of threads, in the order of ``rows``."""
    ratios: dict[tuple[str, int], list[float]] = {}
    for row in rows:
        if row.ratio is not None:
            ratios.setdefault((row.precision, row.threads), []).append(row.ratio)
    return [Mean(*key, len(them), statistics.geometric_mean(them)) for key, them in ratios.items()]


def onnxruntime_run(model: ModelProto, feed: dict[str, Array], threads: int) -> Once | None:
    """A run of onnxruntime's on the CPU; None where it is not installed."""
    if importlib.util.find_spec("onnxruntime") is None:
        return None
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # Else its threads wait busily behind each run, on the processors that ours is timed on next.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return lambda: list(session.run(None, feed))


def _error(mine: Any, reference: Any) -> float | None:
    """The largest error as a share of the largest number; of texts, the share that differs; None of what is
    no tensor."""
    if not isinstance(mine, np.ndarray) or not isinstance(reference, np.ndarray):
        return None
    if mine.dtype.hasobject or reference.dtype.hasobject:
        return float(np.mean(mine != reference)) if mine.size else 0.0
    return share_of(float(errors_of(mine, reference).max(initial=0.0)), largest_of(reference))


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


def prepared(model: ModelProto, precision: str, seed: int) -> ModelProto:
    """What both sides run: for int8, the model as onnxruntime's quantiser makes it, calibrated with inputs
    like those that it runs with."""
    if precision != "int8":
        return model
    from onedispatch.dispatch.tools.quantising import quantised

    feeds = [zoo.random_input(model, seed + one) for one in range(2)]
    return quantised(model, feeds, activations="u8", per_channel=True)
