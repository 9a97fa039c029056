# SPDX-License-Identifier: Apache-2.0
"""``onedispatch gate``: fails where a model costs more than it may, or than it did."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onedispatch.dispatch.artifact.model import CompiledModel
from onedispatch.dispatch.cli import opening
from onedispatch.dispatch.cli import output as out
from onedispatch.transactions.base.errors import InputError
from onedispatch.transactions.base.files import check_target, write_file

if TYPE_CHECKING:
    from onedispatch.dispatch.compiler.executable import Executable
    from onedispatch.dispatch.tools.cost_record import CostRecord
    from onedispatch.dispatch.tools.gate import Limits, Verdict

NOT_MET = 2  # the exit code

Full = Annotated[bool, typer.Option("--full", help="Every operator, not only those that differ.")]
Markdown = Annotated[
    Path | None, typer.Option("--markdown", help="Write what is found as Markdown too, for a summary page.")
]


@dataclass(frozen=True)
class LimitFlags:
    """The most that a model may cost."""

    max_us: Annotated[float | None, typer.Option(help="Modelled microseconds on the device, at most.")] = None
    max_ms: Annotated[float | None, typer.Option(help="The same in milliseconds.")] = None
    max_cycles: Annotated[int | None, typer.Option(help="Cycles of the array's clock, at most.")] = None
    max_ddr_mb: Annotated[
        float | None, typer.Option(help="Bytes read from and written to device memory, in 10^6, at most.")
    ] = None
    max_dispatches: Annotated[int | None, typer.Option(help="Kernel runs on the device, at most.")] = None
    no_cpu: Annotated[bool, typer.Option("--no-cpu", help="No node may run on the host.")] = False
    min_npu_share: Annotated[
        str | None, typer.Option(help="Of the nodes that a run computes, those on the device at least: 95%.")
    ] = None

    @property
    def limits(self) -> Limits:
        """Raises ``InputError`` for what is no limit."""
        from onedispatch.dispatch.tools.gate import Limits

        for option in ("max_us", "max_ms", "max_cycles", "max_ddr_mb", "max_dispatches"):
            most = getattr(self, option)
            if most is not None and not (math.isfinite(most) and most >= 0):
                raise InputError(f"--{option.replace('_', '-')}", f"{most:g}", "a number from 0")
        share = None
        if self.min_npu_share is not None:
            share = out.parse_share("--min-npu-share", self.min_npu_share)
        return Limits(
            self.max_us,
            self.max_ms,
            self.max_cycles,
            self.max_ddr_mb,
            self.max_dispatches,
            self.no_cpu,
            share,
        )


@dataclass(frozen=True)
class BaselineFlags:
    """What it may cost beside what it did."""

    baseline: Annotated[
        Path | None, typer.Option(help="What the model cost before: a file of --write-baseline.")
    ] = None
    tolerance: Annotated[
        str | None,
        typer.Option(help="How much more than the baseline is let pass, in all: 2%.  [default: 0%]"),
    ] = None
    max_regression: Annotated[
        str | None, typer.Option(help="How much longer any operator may take than in the baseline: 10%.")
    ] = None
    write_baseline: Annotated[
        Path | None, typer.Option(help="Write what the model costs now, for --baseline.")
    ] = None

    @property
    def shares(self) -> tuple[float, float | None]:
        """The tolerance, and what an operator may take longer. Raises ``InputError`` for no percentages, and
        for either without a baseline."""
        for option, text in (("--tolerance", self.tolerance), ("--max-regression", self.max_regression)):
            if text is not None and self.baseline is None:
                raise InputError(option, f"{text!r}, without --baseline", "--baseline, which it is for")
        tolerance = 0.0 if self.tolerance is None else out.parse_share("--tolerance", self.tolerance)
        if self.max_regression is None:
            return tolerance, None
        return tolerance, out.parse_share("--max-regression", self.max_regression)

    @property
    def before(self) -> CostRecord | None:
        """The baseline, where there is one. Raises ``InputError`` for what is no cost record."""
        from onedispatch.dispatch.tools.cost_record import read_baseline

        return None if self.baseline is None else read_baseline(self.baseline)


def gate(
    model: opening.Model,
    limits: LimitFlags,
    against: BaselineFlags,
    compiling: opening.CompileFlags,
    full: Full = False,
    markdown: Markdown = None,
    json: out.Json = False,
) -> None:
    """Fail where a model costs more than it may, or more than a baseline says that it did.

    Nothing runs: time and traffic are those of `onedispatch time`, equal to the cycle each time, so a
    tolerance is for what you let pass, not for noise. With --baseline, more cycles, bytes of device memory or
    dispatches beyond --tolerance fail, and so does a node that moved to the host, which would make the model
    look faster; --max-regression holds each operator to the same. Each failure is a line that begins with
    FAILED and names its option; then comes what changed, operator by operator.

    A batch that the model leaves open is 1. Other open dimensions are to be named, --shape x=1,3,224,224: a
    limit on guessed sizes is no gate, which fails. A file that was compiled for several sizes is held to the
    limits at each of them, or at the one that --shape names.

    Exit codes: 0 where the gate is met, 2 where it is not, 1 for errors: a model that does not compile, a
    baseline that is none, or one of another device, other options or shapes.
    """
    from onedispatch.dispatch.cli.cost_tables import show_verdicts, verdict_markdown
    from onedispatch.dispatch.tools.gate import as_dict

    wanted, _ = limits.limits, against.shares
    if not wanted.any and against.baseline is None and against.write_baseline is None:
        raise InputError(
            "gate", "no limit", "limits such as --max-us 5000 or --no-cpu, or --baseline", "state one"
        )
    for target in (against.write_baseline, markdown):
        opening.keep(model, target)
    before = against.before
    if before is not None and against.write_baseline is not None:
        check_target(against.write_baseline)
    verdicts = _verdicts(model, compiling, against, before, wanted)
    record = verdicts[0].record
    if against.write_baseline is not None and record is not None:
        write_file(against.write_baseline, record.to_bytes())
    if markdown is not None:
        write_file(markdown, verdict_markdown(verdicts, full).encode())
    if json:
        out.print_json(as_dict(verdicts))
    else:
        show_verdicts(verdicts, full)
    if not all(one.met for one in verdicts):
        raise typer.Exit(NOT_MET)


def _verdicts(
    model: str,
    compiling: opening.CompileFlags,
    against: BaselineFlags,
    before: CostRecord | None,
    wanted: Limits,
) -> list[Verdict]:
    """The verdict on each of the sizes that the model is compiled for, and on none that would be guessed.

    Raises ``InputError`` for a baseline, which is of one size, beside several.
    """
    from onedispatch.dispatch.tools.cost_diff import compare_costs
    from onedispatch.dispatch.tools.gate import judge, unmeasured

    tolerance, most = against.shares
    compiled, shapes = opening.open_model(model, compiling), compiling.shapes
    if not compiled.executables and (unknown := opening.guessed(compiled, shapes)):
        fits = opening.suggested(compiled, shapes) or "--shape input=sizes"
        return [unmeasured(", ".join(map(str, unknown)), f"name them, for instance {fits}")]
    compiled = opening.concrete(compiled, shapes)
    executables = opening.agreeing(compiled, shapes)
    several = len(executables) > 1
    if several and (against.baseline or against.write_baseline):
        option = "--baseline" if against.baseline else "--write-baseline"
        keys = "; ".join(key for key, _ in executables)
        raise InputError(option, f"a model of several sizes: {keys}", "one of them", "name it by --shape")
    verdicts = []
    for key, executable in executables:
        record = _record(compiled, model, executable)
        diff = None if before is None else compare_costs(before, record, tolerance)
        verdicts.append(replace(judge(record, wanted, diff, most), sizes=key if several else ""))
    return verdicts


def measured(model: str, compiling: opening.CompileFlags) -> CostRecord:
    """What a model costs, by the clock."""
    compiled = opening.with_executable(model, compiling)
    return _record(compiled, model, compiled.used_last()[1])


def _record(compiled: CompiledModel, model: str, executable: Executable) -> CostRecord:
    from onedispatch.dispatch.runtime.clock import report_of
    from onedispatch.dispatch.tools.cost_record import record_of

    with out.working("timing"):
        report = report_of(executable, compiled.target)
    return record_of(compiled, report, Path(model).name, opening.file_of(model), executable)
