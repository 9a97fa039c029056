# SPDX-License-Identifier: Apache-2.0
"""``onedispatch tune``: measures solutions of a model's problems, and logs them."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onedispatch.dispatch.base.json_files import read_json
from onedispatch.dispatch.cli import opening, verdict
from onedispatch.dispatch.cli import output as out
from onedispatch.dispatch.cli.progress import compiling
from onedispatch.operators.scheduling.problem import Problem
from onedispatch.transactions.base.errors import InputError
from onedispatch.transactions.base.signature import bounded_repr
from onedispatch.transactions.base.text import counted

if TYPE_CHECKING:
    from onedispatch.dispatch.artifact.model import CompiledModel
    from onedispatch.dispatch.runtime.summary import Summary
    from onedispatch.dispatch.tuning.explore import Tuning

_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}
_BUDGET = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)([smh])")
Report = Callable[[Sequence["Tuning"]], None]


@dataclass(frozen=True)
class TuneFlags:
    """What is tuned, how long, and by whom."""

    log: Annotated[
        Path,
        typer.Option(help="The log that every measurement is appended to. Its rows are not measured again."),
    ]
    budget: Annotated[str, typer.Option(help="How long: 90s, 10m, 1h.")] = "10m"
    device: out.Device = "npu2"
    shape: out.Shapes = None
    set: out.Frozen = None
    precision: out.Precision = "fp32"
    groups: out.Groups = "on"
    jobs: Annotated[int, typer.Option(help="How many workers measure at a time.")] = 1
    processes: Annotated[
        bool, typer.Option("--processes", help="Workers are processes, not threads: several times as fast.")
    ] = False
    scheduler: Annotated[
        str, typer.Option(help="Address of a Dask scheduler, whose workers measure: tcp://10.0.0.1:8786.")
    ] = ""

    @property
    def seconds(self) -> float:
        """Raises ``InputError`` for a budget that is none."""
        found = _BUDGET.fullmatch(self.budget.strip())
        if found is None:
            accepted = "a number of seconds, minutes or hours: 90s, 10m, 1h"
            raise InputError("--budget", bounded_repr(self.budget), accepted)
        return float(found[1]) * _SECONDS[found[2]]


def tune(
    flags: TuneFlags,
    models: Annotated[
        list[str], typer.Argument(help=".onnx files, light models' names, or .json files of problems.")
    ],
    json: out.Json = False,
) -> None:
    """Look for faster solutions than the search's, measured on the simulated device.

    Every loop nest of the models is a problem, equal ones are one. Each begins with what the search chooses;
    then come solutions that its cost model finds nearly as good, and others near the best so far, as the
    clock of the simulator measures them. All are appended to the log at once, so that an end at any time
    loses nothing, and the same command goes on where the last one stopped. A .json file is a list of
    problems, as Problem.to_data() writes them.
    """
    from onedispatch.dispatch.tuning import tune as tuning

    seconds, shapes = flags.seconds, out.parse_shapes(flags.shape)
    problems: Counter[Problem] = Counter()
    summaries: dict[str, Summary] = {}
    for name in models:
        opening.keep(name, None)
        if name.endswith(".json"):
            problems.update(_read(Path(name)))
            continue
        found, compiled = _posed(name, flags, shapes)
        problems.update(found)
        summaries[name] = verdict.of(compiled)
        if not json:
            out.tell(f"{name}: {summaries[name]}", style="bold")
    start = time.perf_counter()
    with _progress(seconds, len(problems)) as report:
        tunings = tuning.tune(
            problems,
            flags.device,
            seconds,
            log=flags.log,
            jobs=flags.jobs,
            workers="processes" if flags.processes else "threads",
            scheduler=flags.scheduler,
            progress=report,
        )
    _show(tunings, flags, time.perf_counter() - start, summaries, json)


def _posed(
    name: str, flags: TuneFlags, shapes: opening.Shapes
) -> tuple[Mapping[Problem, int], CompiledModel]:
    """The problems of a model, as it is compiled for the device, and what it is compiled to."""
    from onedispatch.dispatch.driver.compile_model import compile_model
    from onedispatch.dispatch.tuning.collect import problems_of

    model = opening.source(Path(name))
    options: dict[str, Any] = {"precision": flags.precision, "groups": flags.groups}
    options["freeze"] = out.parse_frozen(flags.set)
    made: list[CompiledModel] = []
    with compiling(f"compiling {name} for {flags.device}"):
        found = problems_of(
            lambda selector: made.append(
                compile_model(model, flags.device, shapes=shapes, selector=selector, **options)
            )
        )
    if not found and made[0].is_static:
        given = "no problem: nothing of it that can be tuned runs on the device"
        raise InputError(name, given, "", f"see why: onedispatch inspect {name}")
    if not found:
        remedy = "give the sizes of open dimensions: --shape input=sizes"
        raise InputError(name, "no problem: its shapes are open", "", remedy)
    return found, made[0]


def _read(path: Path) -> Mapping[Problem, int]:
    """The problems of a .json file. Raises ``InputError`` or ``SolutionError`` where it has others."""
    accepted = "a JSON list of problems, as Problem.to_data() writes them"
    data = read_json(path, accepted)
    if not isinstance(data, list):
        raise InputError(str(path), bounded_repr(data), accepted)
    return Counter(map(Problem.from_data, data))


@contextmanager
def _progress(seconds: float, count: int) -> Iterator[Report]:
    """A bar of the time on the error stream, with what was gained so far."""
    with out.progress(f"tuning {counted(count, 'problem')}", seconds) as advance:
        shown = time.monotonic()

        def report(tunings: Sequence[Tuning]) -> None:
            nonlocal shown
            now = time.monotonic()
            advance(now - shown, _gained(tunings))
            shown = now

        yield report


def _gained(tunings: Sequence[Tuning]) -> str:
    tried = sum(len(one.tried) for one in tunings)
    begun = sum(one.before is not None for one in tunings)
    if begun < len(tunings):
        return f"measuring what the search chooses: {begun} of {counted(len(tunings), 'problem')}"
    before, after = _sums(tunings)
    return f"{counted(tried, 'solution')} measured: {before:,} -> {after:,} cycles, {_ratio(before, after)}"


def _sums(tunings: Sequence[Tuning]) -> tuple[int, int]:
    """Cycles of all problems, each as often as it occurs: before, and after."""
    known = [(one.weight, one.before, one.after) for one in tunings]
    before = sum(weight * cycles for weight, cycles, _ in known if cycles is not None)
    return before, sum(weight * after for weight, cycles, after in known if cycles is not None and after)


def _ratio(before: int, after: int) -> str:
    return f"{before / after:.3f} x" if after else "–"


def _show(
    tunings: Sequence[Tuning],
    flags: TuneFlags,
    seconds: float,
    summaries: Mapping[str, Summary],
    json: bool,
) -> None:
    """What was gained; as JSON with ``summaries``, the verdicts on the models before."""
    rows = sorted(tunings, key=lambda one: -one.weight * (one.before or 0))
    before, after = _sums(tunings)
    failed = [reason for one in tunings for reason in one.failed]
    if json:
        judged = {name: summary.as_dict() for name, summary in summaries.items()}
        gained = {"before": before, "after": after, "seconds": seconds, "failed": failed}
        listed = {"problems": list(map(_as_dict, rows)), "summaries": judged}
        out.print_json({"device": flags.device} | listed | gained)
        return
    lines = [
        (one.problem.kernel, _extents(one.problem), str(one.weight), *_cycles(one), str(len(one.tried)))
        for one in rows
    ]
    lines.append(("all", "", "", f"{before:,}", f"{after:,}", _ratio(before, after), ""))
    titles = ("problem", "extents", "times", "search", "tuned", "ratio", "tried")
    caption = (
        f"Measured cycles on {flags.device}: {counted(len(rows), 'problem')}, {seconds:.0f} s, in {flags.log}"
    )
    out.table(caption, titles, lines, right=(2, 3, 4, 5, 6))
    for reason in dict.fromkeys(failed):
        out.tell(f"fits, and does not run: {reason}", to=out.errors)


def _cycles(one: Tuning) -> tuple[str, str, str]:
    if one.before is None or one.after is None:
        return "–", "–", "–"
    return f"{one.before:,}", f"{one.after:,}", _ratio(one.before, one.after)


def _extents(problem: Problem) -> str:
    sizes = [dim.extent for dim in problem.dims] + ([problem.k_extent] if problem.k_extent else [])
    return " x ".join(map(str, sizes))


def _as_dict(one: Tuning) -> dict[str, Any]:
    return {
        "problem": one.problem.digest,
        "kernel": one.problem.kernel,
        "extents": [dim.extent for dim in one.problem.dims],
        "reduction": one.problem.k_extent,
        "times": one.weight,
        "before": one.before,
        "after": one.after,
        "tried": len(one.tried),
        "solution": None if one.best is None else one.best.to_data(),
    }
