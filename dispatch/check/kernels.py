# SPDX-License-Identifier: Apache-2.0
"""``onedispatch kernel check FILE``: checks every kernel of a file, on given cases or on generated ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onedispatch.dispatch.base import arguments
from onedispatch.dispatch.base.native import core
from onedispatch.dispatch.check.child import CheckReport, Reporter, TimeLimit, run_in_child
from onedispatch.dispatch.plugins import discovery, engine
from onedispatch.operators.declarations.statuses import CODES, KernelTimeoutError
from onedispatch.operators.plugin import registrations
from onedispatch.operators.plugin.cases import Case, cases_of, parsed
from onedispatch.operators.plugin.check import Checker, Options
from onedispatch.operators.plugin.findings import Finding
from onedispatch.operators.plugin.node import Node
from onedispatch.operators.plugin.plugin_kernel import PluginKernel
from onedispatch.transactions import Device, find_device
from onedispatch.transactions.base.errors import InputError, KernelError, OneDispatchError
from onedispatch.transactions.base.host import kernel_limit

if TYPE_CHECKING:
    from onedispatch.operators.plugin.plugin_kernel import PluginKernel

LOADING = "the file, while it is loaded"
GRACE = 10.0  # seconds without a heartbeat, beyond the limit of a kernel call


def check_file(
    file: str,
    options: Options,
    *,
    kernel: str = "",
    cases: Sequence[str] = (),
    device: str = "npu2",
) -> CheckReport:
    """Checks the kernels of ``file`` (or ``kernel`` alone) in a child process, which loads it too.

    Raises:
        InputError: no such file, a case that cannot be read, no such kernel.
    """
    path = arguments.file_path("kernel check", file).resolve()
    if not path.exists():
        raise InputError("kernel check", str(file), "a kernel library (.so), or a Python file with kernels")
    report = check_kernels(lambda: _kernels_of(path, kernel), options, cases, find_device(device))
    if report.failed is not None:
        raise InputError(*report.failed) if not report.findings else KernelError(*report.failed)
    return report


def check_kernels(
    find: Callable[[], Sequence[PluginKernel]],
    options: Options,
    cases: Sequence[str] = (),
    target: Device | None = None,
    more: Callable[[Reporter, PluginKernel, Device], None] = lambda *_: None,
) -> CheckReport:
    """Checks the kernels that ``find`` gives in a child process; where one ends it, another does the rest.

    ``more`` says of each kernel what else it is checked for.
    """
    report, device = CheckReport(), target or find_device("npu2")

    def work(reporter: Reporter) -> None:
        reporter.case(LOADING, "")
        try:
            plugins = find()
        except OneDispatchError as error:
            reporter.failed(error)
            return
        with kernel_limit(options.seconds):
            for plugin in plugins:
                if plugin.kernel.name not in report.kernels:
                    reporter.case(plugin.kernel.name, "")
                    if plugin.has_body:
                        check_kernel(reporter, plugin, device, options, cases)
                    more(reporter, plugin, device)

    limit = TimeLimit(options.limit)
    run_in_child(work, options.seconds + GRACE, report, limit=limit)
    while (
        report.died and not report.late and report.last[0] != LOADING
    ):  # another child checks the remaining kernels
        run_in_child(work, options.seconds + GRACE, report, limit=limit)
    report.kernels = {name: one for name, one in report.kernels.items() if name != LOADING or one.findings}
    return report


def _kernels_of(path: Path, wanted: str) -> list[PluginKernel]:
    discovery.load([str(path)], "kernel check")
    engine.register_kernels()
    found = [
        one
        for one in registrations.kernels()
        if str(path) in (one.origin, str(one.functions.get("library", "")))
    ]
    if not wanted:
        return found
    chosen = [one for one in found if wanted in (one.kernel.name, one.kernel.name.partition("@")[0])]
    if not chosen:
        raise InputError("kernel check", repr(wanted), ", ".join(one.kernel.name for one in found))
    return chosen


def check_kernel(
    reporter: Reporter, plugin: Any, device: Device, options: Options, texts: Sequence[str] = ()
) -> None:
    """Reports the findings about one kernel, on all its cases."""
    name = plugin.kernel.name
    reporter.case(name, "")
    try:
        given = [parsed(plugin.kernel, text) for text in texts]
        made = not texts and getattr(getattr(plugin, "cls", None), "examples", None) is None
        cases = given or cases_of(plugin)
    except OneDispatchError as error:
        reporter.found(name, Finding("refused", str(error)))
        return
    taken = False
    for case in cases:
        taken = _check_case(reporter, plugin, device, options, case, made) or taken
        if reporter.reported("timeout"):  # every other case would take as long
            return
    if not taken:
        why = "the kernel takes none of the cases generated from its declaration: give it examples, or --case"
        reporter.found(name, Finding("refused", why))


def _check_case(
    reporter: Reporter, plugin: PluginKernel, device: Device, options: Options, case: Case, made: bool
) -> bool:
    """Checks one case; returns True if the kernel takes it."""
    name, text = plugin.kernel.name, str(case)
    try:
        node = Node(plugin.kernel, case.spec(plugin.kernel), device)
        instance = plugin.instantiate(node)
    except KernelTimeoutError as error:
        reporter.case(name, text)
        reporter.found(name, Finding("timeout", str(error), text))
        return True
    except KernelError as error:
        if error.status == CODES["access"]:
            reporter.case(name, text)
            kind = "race" if "a race" in error.where else "gap"
            reporter.found(name, Finding(kind, str(error), text))
            return True
        reporter.refused(name, text, str(error))
        if not made:
            reporter.found(name, Finding("refused", str(error), text))
        return not made
    except OneDispatchError as error:  # raised by a method of the plug-in
        reporter.case(name, text)
        reporter.found(name, Finding("failed", str(error), text))
        return True
    if instance.is_empty:
        return False
    reporter.case(name, text)
    check_call(reporter, plugin, instance, case.arrays, options, text)
    return True


def check_call(
    reporter: Reporter, plugin: Any, instance: Any, arrays: Any, options: Options, text: str
) -> None:
    """Reports the findings about one kernel call on ``arrays``."""
    checker = Checker(plugin, instance, arrays, core.run_members, options, text, reporter.beat)
    for finding in checker.findings():
        reporter.found(plugin.kernel.name, finding)
