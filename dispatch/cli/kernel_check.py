# SPDX-License-Identifier: Apache-2.0
"""``onedispatch kernel check``: checks that custom kernels touch what they declare, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from onedispatch.dispatch.check.child import CheckReport, KernelResult
from onedispatch.dispatch.check.kernels import check_file
from onedispatch.dispatch.cli import output as out
from onedispatch.dispatch.runtime.session import InferenceSession
from onedispatch.operators.plugin.check import Options
from onedispatch.operators.plugin.findings import failed
from onedispatch.transactions.base.errors import InputError
from onedispatch.transactions.base.host import CHECK_SECONDS, seconds_of
from onedispatch.transactions.base.host import kernel_seconds as kernel_seconds_of
from onedispatch.transactions.base.text import counted

REASONS = 3  # for which cases are refused that are shown


@dataclass(frozen=True)
class CheckFlags:
    """How members are run, and how long."""

    order: Annotated[str, typer.Option(help="Of members and partitions: shuffle, or plain.")] = "shuffle"
    seed: Annotated[int, typer.Option(help="Of the shuffled order.")] = 0
    partitions: Annotated[int, typer.Option(help="Boxes of members at most.")] = 32
    kernel_seconds: out.KernelSeconds = None
    seconds: Annotated[float, typer.Option(help="What all of the check may take.")] = CHECK_SECONDS

    @property
    def options(self) -> Options:
        """Raises ``InputError`` for what is out of range."""
        if self.order not in ("shuffle", "plain"):
            raise InputError("--order", repr(self.order), "shuffle, plain")
        if not 1 <= self.partitions <= 1024:
            raise InputError("--partitions", str(self.partitions), "1 to 1024")
        limit, each = seconds_of("--seconds", self.seconds), kernel_seconds_of(self.kernel_seconds)
        return Options(self.order == "shuffle", self.seed, self.partitions, seconds=each, limit=limit)


def check(
    file: Annotated[str, typer.Argument(help="A kernel library (.so), or a Python file with kernels.")],
    flags: CheckFlags,
    kernel: Annotated[str, typer.Option(help="This kernel alone: acme::blur.")] = "",
    case: Annotated[
        list[str] | None,
        typer.Option(
            help='Inputs and attributes, "x=f32[4,5] y=[4,5] a=2.0". Repeatable; else cases are made.'
        ),
    ] = None,
    model: Annotated[str | None, typer.Option(help="Check the nodes of this model, on real inputs.")] = None,
    inputs: Annotated[
        list[str] | None, typer.Option("--input", "-i", help="Of --model: name=array.npy, or one arrays.npz.")
    ] = None,
    device: out.Device = "npu2",
    json: out.Json = False,
) -> None:
    """Run every member of a kernel alone, in shuffled order and in partitions, in a child process.

    Names members that read or write what was not declared, that write what others write, that leave out what
    was declared, and declarations that are much too wide. Ends with 0 where nothing is wrong (warnings are
    not), with 1 where something is.
    """
    options = flags.options
    with out.working("checking"):
        report = _report(file, kernel, case or [], model, inputs, options, device)
    if json:
        out.print_json(as_dict(file, report))
    else:
        for line in lines(report):
            out.say(line)
    if failed(report.findings):
        raise typer.Exit(1)


def _report(
    file: str,
    kernel: str,
    cases: list[str],
    model: str | None,
    inputs: list[str] | None,
    options: Options,
    device: str,
) -> CheckReport:
    if model is None:
        return check_file(file, options, kernel=kernel, cases=cases, device=device)
    limits = {"kernel_seconds": options.seconds, "check_seconds": options.limit}
    session = InferenceSession(model, device, plugins=[file], check="access", **limits)  # type: ignore[arg-type]
    return session.checked(out.parse_inputs(inputs), options)


def as_dict(file: str, report: CheckReport) -> dict[str, Any]:
    """The report for scripts."""
    rows = [
        {
            "kernel": name,
            "cases": checked.cases,
            "refused": checked.refused,
            "more": checked.more,
            "findings": [one.as_dict() for one in checked.findings],
        }
        for name, checked in report.kernels.items()
    ]
    return {"file": file, "clean": not failed(report.findings), "kernels": rows}


def lines(report: CheckReport) -> list[str]:
    """The report for people."""
    found = []
    for name, checked in report.kernels.items():
        found.append(f"{name}: {_verdict(checked)}")
        found += [f"  {finding}" for finding in checked.findings]
        found += [f"  and {checked.more} more like these"] if checked.more else []
        found += [f"  {line}" for line in _refused(checked)]
    return found or ["no kernels"]


def _refused(checked: KernelResult) -> list[str]:
    """Cases that the kernel, or its placement, refuses, each with the reason; the first of each reason."""
    first: dict[str, str] = {}
    for case, why in checked.refused.items():
        first.setdefault(why, case)
    shown = [f"refuses {case}: {why}" for why, case in first.items()][:REASONS]
    left = len(checked.refused) - len(shown)
    return [*shown, f"refuses {counted(left, 'more case')}"] if left > 0 else shown


def _verdict(checked: KernelResult) -> str:
    errors = sum(one.level == "error" for one in checked.findings)
    warnings = len(checked.findings) - errors
    cases = counted(len([case for case in checked.cases if case]), "case")
    report = [counted(count, what) for count, what in ((errors, "error"), (warnings, "warning")) if count]
    return f"{', '.join(report) or 'clean'} ({cases})"
