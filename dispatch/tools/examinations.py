# SPDX-License-Identifier: Apache-2.0
"""Runs what plug-ins registered once: kernels, mappings, rules and fusions.

Kernels and mappings are run in a child process, which they may end. Rules and fusions are run on the cases
of their file, or else on nodes that are made up of what they say.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from onnx import helper

from onedispatch.dispatch.check.child import CheckReport, Reporter, TimeLimit, run_in_child
from onedispatch.dispatch.check.kernels import GRACE, LOADING, check_kernels
from onedispatch.dispatch.driver.compile_model import compile_model
from onedispatch.dispatch.plugins import engine
from onedispatch.dispatch.plugins.loading import Plugin
from onedispatch.dispatch.runtime.session import InferenceSession
from onedispatch.dispatch.sources import registry
from onedispatch.dispatch.sources.facts import Refused
from onedispatch.dispatch.sources.rule import Fusion, Rule
from onedispatch.dispatch.tools.made_cases import made_for_fusion, made_for_rule
from onedispatch.dispatch.tools.rule_cases import Case, case_of
from onedispatch.dispatch.tools.rule_check import CaseResult, Checked, applies, declared, run_case
from onedispatch.operators.declarations.statuses import KernelTimeoutError
from onedispatch.operators.plugin import registrations
from onedispatch.operators.plugin.cases import Case as KernelCase
from onedispatch.operators.plugin.cases import cases_of
from onedispatch.operators.plugin.check import Options
from onedispatch.operators.plugin.findings import Finding
from onedispatch.operators.plugin.plugin import NodeMapping
from onedispatch.operators.plugin.registrations import Bound
from onedispatch.transactions.base.boundary import error_line
from onedispatch.transactions.base.errors import InputError, OneDispatchError, RuleError, statement_of
from onedispatch.transactions.base.handlers import reraise_from_handler
from onedispatch.transactions.base.host import kernel_limit

_FEW = Options(partitions=4, alone=64, seconds=30.0)  # of kernels: `onedispatch kernel check` does more
_TRIED = 4  # cases of a kernel that its mappings are tried on
# What a callback raises that no other node would mend.
_MISTAKES = (
    *(NameError, AttributeError, ImportError, SyntaxError, TypeError, NotImplementedError),
    KernelTimeoutError,
)


@dataclass(frozen=True)
class Failure:
    """What failed, of which plug-in, and where that is written; 0 where no line is known."""

    plugin: str
    what: str
    file: str
    line: int
    reason: str

    def __str__(self) -> str:
        place = f" ({self.file}{f':{self.line}' if self.line else ''})" if self.file else ""
        return " ".join(f"{self.plugin}: {self.what}{place}: {self.reason}".split())


@dataclass
class Outcome:
    """What running found."""

    failures: list[Failure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    ran: dict[str, int] = field(default_factory=dict)


# -- kernels and mappings --------------------------------------------------------------------------


def examine_kernels(plugins: Sequence[Plugin]) -> Outcome:
    """Checks every kernel of plug-ins, and compiles and runs a node of every mapping."""
    outcome = Outcome()
    kernels = registrations.kernels()
    if kernels:
        checked = check_kernels(_registered, replace(_FEW, limit=_limit(len(kernels))))
        for kernel in kernels:
            name = kernel.kernel.name
            _take(
                outcome, checked, name, f"kernel {name}", _owner(plugins, name, kernel.origin), _place(kernel)
            )
    known = {kernel.kernel.name for kernel in kernels}
    for plugin in plugins:
        outcome.notes += [
            f"{plugin.file}: kernel {name}: for program images, which alone can run it"
            for name in plugin.kernels
            if name not in known
        ]
    outcome.ran["kernels"] = len(kernels)
    _examine_mappings(outcome, plugins)
    return outcome


def _limit(count: int) -> float:
    """Seconds that this many kernels or operators may take in all."""
    return 60.0 + 15.0 * count


def _registered() -> list[Any]:
    engine.register_kernels()
    return registrations.kernels()


def _take(
    outcome: Outcome, report: CheckReport, key: str, what: str, plugin: str, place: tuple[str, int]
) -> None:
    """Takes what was found about one kernel or mapping: the first of each kind of finding."""
    found = report.kernels.get(key)
    if report.kernels.get(LOADING) is not None and found is None:
        found = report.kernels[LOADING]
    if found is None:
        text = "it was not reached: what came before took all the time"
        outcome.failures.append(Failure(plugin, what, *place, text))
        return
    kinds: dict[str, Finding] = {}
    for finding in found.findings:
        if finding.level == "error":
            kinds.setdefault(finding.kind, finding)
    for finding in kinds.values():
        case = f"{finding.case}: " if finding.case else ""
        outcome.failures.append(Failure(plugin, what, *place, f"{finding.kind}: {case}{finding.text}"))


def _owner(plugins: Sequence[Plugin], name: str, origin: str) -> str:
    """The plug-in that brought a name: its file, or the entry point."""
    for plugin in plugins:
        if name in (*plugin.kernels, *plugin.operators, *plugin.rules):
            return plugin.file
    return origin


def _place(kernel: Any) -> tuple[str, int]:
    """Where a kernel is declared."""
    try:
        cls = kernel.cls
        return inspect.getsourcefile(cls) or kernel.origin, inspect.getsourcelines(cls)[1]
    except (AttributeError, OSError, TypeError):
        return kernel.origin, 0


def _examine_mappings(outcome: Outcome, plugins: Sequence[Plugin]) -> None:
    """Compiles and runs each mapping of a kernel on the first case that it takes."""
    bound = registrations.mappings()
    runnable = [one for one in bound if isinstance(one.mapping.custom, NodeMapping)]
    outcome.notes += [
        f"{one.mapping.origin}: operator {one.name}: nothing says which inputs its function takes"
        for one in bound
        if one not in runnable
    ]
    report = CheckReport()

    def work(reporter: Reporter) -> None:
        with kernel_limit(_FEW.seconds):
            for one in runnable:
                if one.name not in report.kernels:
                    _run_mapping(reporter, one)

    limit = TimeLimit(_limit(len(runnable)))
    if runnable:
        run_in_child(work, _FEW.seconds + GRACE, report, limit=limit)
    while report.died and not report.late and report.last[0]:
        run_in_child(work, _FEW.seconds + GRACE, report, limit=limit)
    for one in runnable:
        place = _place(one.mapping.custom.plugin)
        plugin = _owner(plugins, one.name, one.mapping.origin)
        _take(outcome, report, one.name, f"operator {one.name}", plugin, place)
    outcome.ran["operators"] = len(runnable)


def _run_mapping(reporter: Reporter, bound: Bound) -> None:
    mapping = bound.mapping.custom
    assert isinstance(mapping, NodeMapping)
    reporter.case(bound.name, "")
    first = ""
    with reporter.quiet():
        try:
            for case in cases_of(mapping.plugin)[:_TRIED]:
                try:
                    _run_node(bound, mapping, case)
                    return
                except OneDispatchError as error:
                    first = first or f"{case}: {statement_of(error)}"
        except OneDispatchError as error:
            first = statement_of(error)
    reporter.found(bound.name, Finding("failed", first or "its kernel has no cases"))


def _run_node(bound: Bound, mapping: NodeMapping, case: KernelCase) -> None:
    """Runs a model of one node."""
    kernel = mapping.plugin.kernel
    names = [one.name if one.name in case.arrays else "" for one in kernel.inputs]
    while names and not names[-1]:
        names.pop()
    attributes = {mapping.attributes.get(name, name): value for name, value in case.attributes.items()}
    outputs = [one.name for one in kernel.outputs]
    row = bound.mapping
    node = helper.make_node(row.op_type, names, outputs, name="node", domain=row.domain, **attributes)
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in case.arrays.items()
    ]
    graph = helper.make_graph(
        [node], "doctor", inputs, [helper.make_empty_tensor_value_info(n) for n in outputs]
    )
    opsets = [helper.make_opsetid("", 17), *([helper.make_opsetid(row.domain, 1)] if row.domain else [])]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    InferenceSession(compile_model(model, fallback="error")).run(None, dict(case.arrays))


# -- rules and fusions -----------------------------------------------------------------------------


def examine_rules(plugins: Sequence[Plugin]) -> Outcome:
    """Runs every rule and fusion of plug-ins."""
    outcome = Outcome()
    every: list[Checked] = [*registry.rules(), *registry.fusions()]
    found = [one for one in every if not one.ours]
    files: dict[str, _Declared] = {}
    for one in found:
        plugin = _owner(plugins, one.name, one.origin)
        file = files.setdefault(one.origin, _Declared.of(one.origin))
        if file.wrong:
            outcome.failures.append(Failure(plugin, "cases", one.origin, 0, file.wrong))
            files[one.origin] = _Declared()  # said once
        try:
            _examine_one(outcome, plugin, one, files[one.origin])
        except Exception as error:  # noqa: BLE001 (one that fails does not keep the others from being examined)
            reraise_from_handler(error)
            outcome.failures.append(
                Failure(plugin, one.name, one.place.file, one.place.line, error_line(error))
            )
    outcome.ran["rules"] = sum(isinstance(one, Rule) for one in found)
    outcome.ran["fusions"] = len(found) - outcome.ran["rules"]
    return outcome


@dataclass(frozen=True)
class _Declared:
    """CASES and REFERENCES of a file; ``wrong`` says why they cannot be read."""

    cases: tuple[Case, ...] = ()
    references: dict[str, Callable[..., Any]] = field(default_factory=dict)
    wrong: str = ""

    @classmethod
    def of(cls, origin: str) -> _Declared:
        try:
            data, references = declared(Path(origin))
            return cls(tuple(case_of(one, where) for where, one in data), dict(references))
        except InputError as error:
            return cls(wrong=statement_of(error))


def _examine_one(outcome: Outcome, plugin: str, one: Checked, file: _Declared) -> None:
    """Runs one on all cases of its file; where there is none, on made-up ones until it takes one."""
    what = f"fusion {one.name}" if isinstance(one, Fusion) else one.name
    place = one.place.file, one.place.line
    cases = [case for case in file.cases if applies(case, one)]
    name = one.name if isinstance(one, Fusion) else one.op_type
    for case in cases:
        found = run_case(one, case, file.references.get(name))
        if found.reason and not found.unproven:
            outcome.failures.append(Failure(plugin, what, *place, f"{case.name}: {found.reason}"))
    if not cases:
        _examine_made(outcome, plugin, what, one)


def _examine_made(outcome: Outcome, plugin: str, what: str, one: Checked) -> None:
    first = ""
    for found in _made_results(one):
        if not found.reason or found.unproven:
            return
        if _is_mistake(found.error):
            place = one.place.file, one.place.line
            outcome.failures.append(Failure(plugin, what, *place, found.reason))
            return
        first = first or found.reason
    outcome.notes.append(
        f"{plugin}: {what}: not run, since no made-up node fits ({first}): CASES of its file would"
    )


def _made_results(one: Checked) -> Iterator[CaseResult]:
    cases = made_for_fusion(one) if isinstance(one, Fusion) else made_for_rule(one)
    return (run_case(one, case, None) for case in cases)


def _is_mistake(error: BaseException | None) -> bool:
    """Whether an error is the rule's own, for any node: not of inputs or attributes that it misses."""
    causes = []
    while error is not None:
        causes.append(error)
        error = error.__cause__
    if any(isinstance(one, Refused | IndexError | KeyError | ValueError) for one in causes):
        return False
    if not causes or any("NoneType" in str(one) for one in causes):  # of a constant that the node lacks
        return False
    if any(isinstance(one, _MISTAKES) for one in causes):
        return True
    root = causes[-1]
    if not isinstance(root, RuleError):
        return False
    lacks = root.where.startswith("node ") and ": attribute " in root.where
    return not lacks and not root.given.endswith(("operand", "operands"))  # of inputs that the node lacks
