# SPDX-License-Identifier: Apache-2.0
"""``onedispatch kernel check FILE``: every kernel of a file, on cases made from its declaration or given."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onedispatch.dispatch.base import arguments
from onedispatch.dispatch.base.native import core
from onedispatch.dispatch.check.child import Clock, Teller, Told, told_by_child
from onedispatch.dispatch.plugins import discovery, engine
from onedispatch.operators.declarations.statuses import STATUSES, KernelTimeoutError
from onedispatch.operators.plugin import catalog
from onedispatch.operators.plugin.cases import Case, cases_of, parsed
from onedispatch.operators.plugin.check import Checker, Options
from onedispatch.operators.plugin.findings import Finding
from onedispatch.operators.plugin.node import Node
from onedispatch.operators.plugin.plugin import PluginKernel, is_empty
from onedispatch.transactions import Device, find_device
from onedispatch.transactions.base.errors import InputError, KernelError, OneDispatchError
from onedispatch.transactions.base.host import kernel_limit

if TYPE_CHECKING:
    from onedispatch.operators.plugin.catalog import Offered

LOADING = "the file, while it is loaded"
GRACE = 10.0  # seconds of silence beyond what a call may take
_ACCESS = next(row.code for row in STATUSES if row.name == "access")


def check_file(
    file: str,
    options: Options,
    *,
    kernel: str = "",
    cases: Sequence[str] = (),
    device: str = "npu2",
) -> Told:
    """Checks the kernels of ``file`` (or ``kernel`` alone) in a child process, which loads it too.

    Raises:
        InputError: no such file, a case that cannot be read, no such kernel.
    """
    path = arguments.file_path("kernel check", file).resolve()
    if not path.exists():
        raise InputError("kernel check", str(file), "a kernel library (.so), or a Python file with kernels")
    target = find_device(device)

    told = Told()

    def work(teller: Teller) -> None:
        teller.case(LOADING, "")
        try:
            plugins = _kernels_of(path, kernel)
        except OneDispatchError as error:
            teller.failed(error)
            return
        with kernel_limit(options.seconds):
            for plugin in plugins:
                if plugin.kernel.name not in told.kernels:
                    check_kernel(teller, plugin, target, options, cases)

    clock = Clock(options.limit)
    told_by_child(work, options.seconds + GRACE, told, clock=clock)
    while told.died and not told.late and told.last[0] != LOADING:  # what is left, in another child
        told_by_child(work, options.seconds + GRACE, told, clock=clock)
    told.kernels = {name: one for name, one in told.kernels.items() if name != LOADING or one.findings}
    if told.failed is not None:
        raise InputError(*told.failed) if not told.findings else KernelError(*told.failed)
    return told


def _kernels_of(path: Path, wanted: str) -> list[Offered]:
    discovery.load([str(path)], "kernel check")
    engine.carry()
    found = [
        one for one in catalog.kernels() if str(path) in (one.origin, str(one.functions.get("library", "")))
    ]
    if not wanted:
        return found
    chosen = [one for one in found if wanted in (one.kernel.name, one.kernel.name.partition("@")[0])]
    if not chosen:
        raise InputError("kernel check", repr(wanted), ", ".join(one.kernel.name for one in found))
    return chosen


def check_kernel(
    teller: Teller, plugin: Any, device: Device, options: Options, texts: Sequence[str] = ()
) -> None:
    """Tells the findings of one kernel, on all its cases."""
    name = plugin.declared.name
    teller.case(name, "")
    try:
        given = [parsed(plugin.declared, text) for text in texts]
        made = not texts and getattr(getattr(plugin, "cls", None), "examples", None) is None
        cases = given or cases_of(plugin)
    except OneDispatchError as error:
        teller.found(name, Finding("refused", str(error)))
        return
    taken = False
    for case in cases:
        taken = _check_case(teller, plugin, device, options, case, made) or taken
        if teller.told("timeout"):  # every other case would take as long
            return
    if not taken:
        why = (
            "none of the cases that its declaration allows is one that it takes: give it examples, or --case"
        )
        teller.found(name, Finding("refused", why))


def _check_case(
    teller: Teller, plugin: PluginKernel, device: Device, options: Options, case: Case, made: bool
) -> bool:
    """Whether the kernel takes the case."""
    name, text = plugin.declared.name, str(case)
    try:
        node = Node(plugin.declared, case.spec(plugin.declared), device)
        placement = plugin.place(node)
    except KernelTimeoutError as error:
        teller.case(name, text)
        teller.found(name, Finding("timeout", str(error), text))
        return True
    except KernelError as error:
        if error.status == _ACCESS:
            teller.case(name, text)
            kind = "race" if "a race" in error.where else "gap"
            teller.found(name, Finding(kind, str(error), text))
            return True
        teller.refused(name, text, str(error))
        if not made:
            teller.found(name, Finding("refused", str(error), text))
        return not made
    except OneDispatchError as error:  # what a method raised
        teller.case(name, text)
        teller.found(name, Finding("failed", str(error), text))
        return True
    if is_empty(placement):
        return False
    teller.case(name, text)
    check_call(teller, plugin, placement, case.arrays, options, text)
    return True


def check_call(teller: Teller, plugin: Any, placement: Any, arrays: Any, options: Options, text: str) -> None:
    """Tells what one instance of a kernel does with ``arrays``."""
    checker = Checker(plugin, placement, arrays, core.run_members, options, text, teller.beat)
    for finding in checker.findings():
        teller.found(plugin.declared.name, finding)
