# SPDX-License-Identifier: Apache-2.0
"""``onedispatch bench``: our wall clock beside onnxruntime's, from one process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onedispatch.dispatch.base.arguments import integer
from onedispatch.dispatch.base.precisions import EXACT
from onedispatch.dispatch.cli import output as out
from onedispatch.dispatch.cli import verdict
from onedispatch.transactions.base.errors import InputError
from onedispatch.transactions.base.host import MOST_THREADS
from onedispatch.transactions.base.text import counted

if TYPE_CHECKING:
    from onnx import ModelProto

    from onedispatch.dispatch.tools.beside import Measured, Sides

_MOST_RUNS = 1_000_000
_MOST_SIZE = 1 << 20  # of --batch and --image; tensors have bounds of their own


@dataclass(frozen=True)
class BenchFlags:
    """What is timed, and how."""

    device: out.Device = "npu2"
    threads: Annotated[
        list[int] | None, typer.Option(help="Host threads of both sides, 1 by default. Repeatable.")
    ] = None
    runs: Annotated[
        int, typer.Option(help="Timed runs of each side at least, in turn, after some to warm up.")
    ] = 5
    batch: Annotated[int | None, typer.Option(help="Another batch size.")] = None
    image: Annotated[int | None, typer.Option(help="Another height and width.")] = None
    fallback: out.Fallback = "error"
    precision: Annotated[
        list[str] | None,
        typer.Option(
            help="fp32, the default; bf16: ours, beside the same file; int8: as onnxruntime's quantiser "
            "makes it, both. Repeatable."
        ),
    ] = None
    groups: out.Groups = "on"
    set: out.Frozen = None
    seed: Annotated[int, typer.Option(help="Seed of weights and inputs.")] = 0

    @property
    def counts(self) -> list[int]:
        """Of threads."""
        return self.threads or [1]

    @property
    def precisions(self) -> list[str]:
        return self.precision or [EXACT]

    def check(self) -> None:
        """Raises ``InputError`` for numbers out of range."""
        from onedispatch.dispatch.tools.beside import PRECISIONS

        integer("--runs", self.runs, 1, _MOST_RUNS)
        for count in self.counts:
            integer("--threads", count, 1, MOST_THREADS)
        for option, size in (("--batch", self.batch), ("--image", self.image)):
            if size is not None:
                integer(option, size, 1, _MOST_SIZE)
        integer("--seed", self.seed, 0, (1 << 63) - 1)
        for one in self.precisions:
            if one not in PRECISIONS:
                raise InputError("precision", f"{one!r}", ", ".join(map(repr, PRECISIONS)))

    def sides(self, precision: str, threads: int) -> Sides:
        from onedispatch.dispatch.tools.beside import Sides

        return Sides(self.device, precision, threads, self.runs, self.fallback, self.groups, self.seed)


def bench(
    flags: BenchFlags,
    models: Annotated[
        list[str] | None,
        typer.Argument(help="Light models' names (light_resnet50), or .onnx files."),
    ] = None,
    published: Annotated[
        bool,
        typer.Option("--published", help="No model: runs that were measured on silicon, and modelled."),
    ] = False,
    json: out.Json = False,
) -> None:
    """Time models on the simulated device beside onnxruntime on the CPU.

    Both run in this process, in turn, with the same number of threads, one by default, so that neither
    has more of the machine than the other. Light models of the onnx package get seeded random
    weights; their final Softmax is dropped. Several models, precisions or numbers of threads make one
    table, with the geometric mean of the ratios of each kind; with --json, one measurement is an object,
    several are in "rows".
    """
    if published:
        _published(models, flags, json)
        return
    if not models:
        raise InputError("bench", "no model", "light models' names, or .onnx files; or --published")
    flags.check()
    rows = [
        row
        for precision in flags.precisions
        for name in models
        for row in measured(name, _model(name, precision, flags), flags, precision)
    ]
    show(rows, json)


def measured(name: str, model: ModelProto, flags: BenchFlags, precision: str) -> list[Measured]:
    """A row for each number of threads."""
    from onedispatch.dispatch.tools.beside import measure

    rows = []
    for threads in flags.counts:
        with out.working(f"{name}, {precision}, {counted(threads, 'thread')}"):
            rows.append(measure(name, model, flags.sides(precision, threads)))
    return rows


def _model(name: str, precision: str, flags: BenchFlags) -> ModelProto:
    from onedispatch.dispatch.tools import zoo
    from onedispatch.dispatch.tools.beside import prepared
    from onedispatch.dispatch.tools.freezing import frozen_model

    proto = zoo.find_model(name)
    if name in zoo.light_models() or flags.batch is not None or flags.image is not None:
        proto = zoo.randomised(proto, flags.seed, batch=flags.batch, image=flags.image)
    try:
        proto = frozen_model(proto, out.parse_frozen(flags.set))
    except InputError as error:
        error.where = f"{name}, {error.where}"
        raise
    with out.working(f"preparing {name} in {precision}"):
        return prepared(proto, precision, flags.seed)


def _published(models: Sequence[str] | None, flags: BenchFlags, json: bool) -> None:
    from onedispatch.dispatch.tools.published import compare_runs, measurements

    if models:
        raise InputError("bench --published", f"the model {models[0]!r}", "no model: it has its own")
    given = [f"--{one.name}" for one in fields(flags) if getattr(flags, one.name) != one.default]
    if given:
        raise InputError(
            "bench --published", ", ".join(given), "--json alone: what was measured says the rest"
        )
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


def show(rows: Sequence[Measured], json: bool) -> None:
    """One measurement in full, or a table of several."""
    from onedispatch.dispatch.tools.beside import geometric_means

    if json and len(rows) == 1:
        out.print_json(rows[0].as_dict())
    elif json:
        means = [asdict(mean) for mean in geometric_means(rows)]
        out.print_json({"rows": [row.as_dict() for row in rows], "geometric_means": means})
    elif len(rows) == 1:
        verdict.show(rows[0].summary)
        _show(rows[0])
    else:
        judged = {(row.model, row.precision): row.summary for row in rows}
        for (model, precision), summary in judged.items():
            out.tell(f"{Path(model).stem}, {precision}: {summary}")
        _show_table(rows)


def _show(result: Measured) -> None:
    rows = [
        ("onedispatch, wall clock", f"{_milliseconds(result.seconds)} ms"),
        ("onnxruntime, wall clock", f"{_milliseconds(result.onnxruntime_seconds)} ms"),
        ("ratio", _ratio(result.ratio)),
        (
            "largest error",
            "–" if result.largest_error is None else f"{result.largest_error:.2e} of the largest value",
        ),
        (f"modelled time on {result.device}", f"{result.modelled_seconds * 1e3:.3f} ms"),
        ("host launch, modelled", f"{result.launch_seconds * 1e3:.3f} ms"),
        ("dispatches", str(result.dispatches)),
        ("compile", f"{result.compile_seconds:.2f} s"),
        ("model", f"{result.model_bytes / 1e6:.1f} MB"),
        ("peak memory", f"{result.peak_bytes / 1e6:.1f} MB"),
    ]
    sides = f"median of {counted(result.runs, 'run')}, {counted(result.threads, 'thread')} on both sides"
    grouped = ", groups off" if result.groups == "off" else ""
    caption = f"{result.model} in {result.precision}{grouped}: {sides}"
    out.table(caption, ("what", "value"), rows, right=(1,))


def _show_table(rows: Sequence[Measured]) -> None:
    from onedispatch.dispatch.tools.beside import geometric_means

    lines = [
        (
            Path(row.model).stem,
            row.precision,
            str(row.threads),
            _milliseconds(row.seconds),
            _milliseconds(row.onnxruntime_seconds),
            _ratio(row.ratio),
            _milliseconds(row.modelled_seconds),
        )
        for row in rows
    ]
    lines += [
        (f"mean of {mean.models}", mean.precision, str(mean.threads), "", "", _ratio(mean.ratio), "")
        for mean in geometric_means(rows)
    ]
    titles = ("milliseconds", "as", "threads", "ours", "onnxruntime", "ratio", "modelled")
    caption = "Wall clock, medians of runs of each side in turn; geometric means of the ratios"
    out.table(caption, titles, lines, right=(2, 3, 4, 5, 6))


def _milliseconds(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    return f"{seconds * 1e3:.1f}" if seconds >= 1e-3 else f"{seconds * 1e3:.3f}"


def _ratio(ratio: float | None) -> str:
    return "–" if ratio is None else f"{ratio:.2f} x"
