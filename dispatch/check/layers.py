# SPDX-License-Identifier: Apache-2.0
"""``onedispatch layer check``: layers' bodies as those of kernels, and what only layers say of themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from onedispatch.dispatch.base.native import core
from onedispatch.dispatch.check.child import CheckReport, KernelResult, Reporter
from onedispatch.dispatch.check.kernels import check_kernels
from onedispatch.dispatch.plugins import engine, layer_build
from onedispatch.dispatch.plugins import project as projects
from onedispatch.dispatch.plugins.project import FoundLayer, Project
from onedispatch.operators.layers.layer_kernel import LayerKernel
from onedispatch.operators.layers.methods import overridden, said
from onedispatch.operators.plugin import registrations
from onedispatch.operators.plugin.boxes import Array, MemberBox, bits
from onedispatch.operators.plugin.cases import Case, cases_of
from onedispatch.operators.plugin.check import Checker, Options, Stopped
from onedispatch.operators.plugin.findings import Finding
from onedispatch.operators.plugin.node import Node
from onedispatch.operators.plugin.plugin_kernel import PluginKernel
from onedispatch.transactions import Device
from onedispatch.transactions.base.errors import OneDispatchError

RunGlobal = Callable[[LayerKernel, Case, Device], Array]
"""What ``global_`` of a layer makes of a case, in a session of its own."""


def check_layers(
    project: Project, options: Options, device: Device, run_global: RunGlobal, name: str = ""
) -> CheckReport:
    """Checks the layers of a project (or the one of this name) in a child process, which loads them too.

    Raises ``InputError`` for a layer that there is not, ``KernelLibraryError`` for a file that does not load.
    """
    layers = projects.layers_of(project.whole)
    chosen = [one for one in layers if project.single in (None, one.file)]
    chosen = [projects.named("layer check", chosen, name)] if name else chosen

    def find() -> list[PluginKernel]:
        projects.load(project)
        engine.register_kernels()
        wanted = [one.name for one in chosen]
        return [one for one in registrations.kernels() if one.kernel.name.partition("@")[0] in wanted]

    def more(reporter: Reporter, plugin: PluginKernel, target: Device) -> None:
        if isinstance(plugin, LayerKernel):
            check_reshape(reporter, plugin, target, options, run_global)

    report = check_kernels(find, options, (), device, more)
    for one in chosen:
        result = report.kernels.setdefault(_kernel_name(one), KernelResult())
        for finding in _of_files(project, layers, one):
            result.add(finding)
    if report.failed is not None:  # findings about files may say why
        where, given, accepted, remedy = report.failed
        text = f"{where}: given {given}; accepted: {accepted}" + (f". {remedy}" if remedy else "")
        report.kernels.setdefault(str(project.root), KernelResult()).add(Finding("refused", text))
    return report


def _kernel_name(one: FoundLayer) -> str:
    return one.cls.name if "@" in one.cls.name else f"{one.cls.name}@1"


def _of_files(project: Project, layers: list[FoundLayer], one: FoundLayer) -> list[Finding]:
    """What the generated header and the library are, beside what they are to be."""
    found = []
    why = layer_build.disagreements(project, layers).get(one.name) if project.is_package else None
    if why:
        found.append(Finding("header", why))
    if layer_build.state(one) == "older than its source":
        text = f"{one.library} is older than {one.source}, or a header beside it: `onedispatch layer build`"
        found.append(Finding("stale", text))
    return found


# -- a layer that is said to reshape -------------------------------------------------------------------


def check_reshape(
    reporter: Reporter, plugin: LayerKernel, device: Device, options: Options, run_global: RunGlobal
) -> None:
    """Runs what a layer computes that says ``just_reshape``, and compares element by element."""
    name = plugin.kernel.name
    if not overridden(plugin.cls, "just_reshape"):
        return
    try:
        cases = cases_of(plugin)
    except OneDispatchError as error:
        reporter.found(name, Finding("refused", error.statement()))
        return
    for case in cases:
        try:
            for method, result in _ran(reporter, plugin, device, case, options, run_global):
                _compare(reporter, plugin, case, method, result)
        except OneDispatchError as error:
            reporter.refused(name, str(case), error.statement())
        except Stopped:  # its body fails, which is said already
            return


def _ran(
    reporter: Reporter,
    plugin: LayerKernel,
    device: Device,
    case: Case,
    options: Options,
    run_global: RunGlobal,
) -> Iterator[tuple[str, Array]]:
    """What its bodies make of a case, with the method; nothing of a node that it does not only reshape."""
    node = Node(plugin.kernel, case.spec(plugin.kernel), device)
    if not said(plugin.made(node), "just_reshape"):
        return
    if plugin.has_body:
        yield "local", _local(reporter, plugin, node, case, options)
    if plugin.has_global:
        with reporter.quiet():  # a session says nothing meanwhile
            result = run_global(plugin, case, device)
        yield "global_", result


def _local(reporter: Reporter, plugin: LayerKernel, node: Node, case: Case, options: Options) -> Array:
    checker = Checker(
        plugin, plugin.instantiate(node), case.arrays, core.run_members, options, beat=reporter.beat
    )
    box = MemberBox.all_of(checker.instance.index_space)
    ran = checker.call(box, checker.prepared(box, True))
    return checker.results(box, ran)[plugin.kernel.outputs[0].name]


def _compare(reporter: Reporter, plugin: LayerKernel, case: Case, method: str, result: Array) -> None:
    given = case.arrays[plugin.kernel.inputs[0].name]
    name, output = plugin.kernel.name, plugin.kernel.outputs[0].name
    text = ""
    at: tuple[int, ...] = ()
    if given.size != result.size or given.dtype != result.dtype:
        text = f"{method} makes {result.dtype}{list(result.shape)} of {given.dtype}{list(given.shape)}"
    else:
        differs = bits(np.ascontiguousarray(given).reshape(-1)) != bits(
            np.ascontiguousarray(result).reshape(-1)
        )
        if differs.any():
            flat = int(np.argmax(differs))
            at = tuple(int(i) for i in np.unravel_index(flat, result.shape))
            there = result.reshape(-1)[flat]
            text = (
                f"{method} writes {there:g} to {output} at {list(at)}, where the input has "
                f"{given.reshape(-1)[flat]:g}: just_reshape moves and changes nothing"
            )
    if text:
        reporter.found(name, Finding("reshape", text, str(case), operand=output, coordinate=at))
