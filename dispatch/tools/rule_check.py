# SPDX-License-Identifier: Apache-2.0
"""Runs the mapping rules and fusions of a file on cases, and compares with NumPy functions of the file.

Each case goes through the translation and the simulator. What it should give is ``expected`` of the case, or
what ``REFERENCES[operator](*inputs, **attributes)`` returns; of a fusion without either, what the same nodes
give while it is off.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from onedispatch.dispatch.artifact.model import CACHE_SIZE, CompiledModel
from onedispatch.dispatch.base import arguments
from onedispatch.dispatch.compile import MODEL_PASSES, framework_of
from onedispatch.dispatch.compiler.fold import deciding_inputs
from onedispatch.dispatch.compiler.options import CompileOptions, ImportOptions
from onedispatch.dispatch.compiler.passes import ImportContext, run_passes
from onedispatch.dispatch.frontend.graph import Array, Graph, Node
from onedispatch.dispatch.frontend.importer import import_model
from onedispatch.dispatch.plugins import discovery
from onedispatch.dispatch.plugins.loading import module_of
from onedispatch.dispatch.runtime.session import InferenceSession
from onedispatch.dispatch.sources import registry
from onedispatch.dispatch.sources.rule import Fusion, Rule
from onedispatch.dispatch.sources.translate import Examination, examine
from onedispatch.dispatch.tools.compare import ValueComparison, value_comparison
from onedispatch.dispatch.tools.rule_cases import Case, case_of, graph_of, model_of, read_prototype
from onedispatch.transactions.base.boundary import error_line
from onedispatch.transactions.base.errors import InputError, OneDispatchError
from onedispatch.transactions.base.handlers import reraise_from_handler
from onedispatch.transactions.base.text import did_you_mean

Checked = Rule | Fusion
Reference = Callable[..., Any]


@dataclass(frozen=True)
class CaseResult:
    """One rule or fusion on one case: ``reason`` says why it failed, "" if it passed.

    ``written`` are the nodes that the translation left, ``steps`` what it did; ``beside`` is what the outputs
    were compared with. ``unproven``: it runs, and nothing says what it should give.
    """

    case: str
    reason: str = ""
    unproven: bool = False
    beside: str = ""
    outputs: tuple[ValueComparison, ...] = ()
    steps: tuple[str, ...] = ()
    written: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    error: OneDispatchError | None = field(default=None, repr=False)  # that it ended with


@dataclass
class RuleResult:
    """One rule or fusion, and its cases; ``missing`` says what it lacks to be checked."""

    name: str
    kind: str
    target: str
    file: str
    line: int
    missing: str = ""
    cases: list[CaseResult] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        return bool(self.missing) or any(case.reason for case in self.cases)

    def as_dict(self) -> dict[str, Any]:
        found = asdict(replace(self, cases=[replace(case, error=None) for case in self.cases]))
        for case in found["cases"]:
            del case["error"]
        return found | {"failed": self.failed}


class Unproven(Exception):
    """Nothing says what a case should give."""


def check_rules(file: str, prototypes: Sequence[str] = ()) -> list[RuleResult]:
    """Returns a row for each rule and fusion of a file, in its order.

    Raises ``InputError`` for cases that are none, cases of operators that the file has no rule for, and a
    file without rules; the errors of loading it.
    """
    path = arguments.file_path("rule check", file).resolve()
    found = _rules_of(path)
    data, references = declared(path)
    for name in prototypes:
        data += [(name, one) for one in read_prototype(Path(name))]
    cases = [case_of(one, where) for where, one in data]
    _check_known(path, cases, references, found)
    return [_checked(one, [case for case in cases if applies(case, one)], references) for one in found]


def _rules_of(path: Path) -> list[Checked]:
    """The rules that a file registers, also by modules that it imports."""
    before = {id(one) for one in _everything()}
    discovery.load([str(path)], "rule check")
    found = [one for one in _everything() if id(one) not in before or one.origin == str(path)]
    if not found:
        accepted = "rules (od.frontend) or fusions (od.fusion)"
        raise InputError("rule check", f"{path}, which registers none", accepted)
    return sorted(found, key=lambda one: (one.place.file, one.place.line))


def _everything() -> list[Checked]:
    found: list[Checked] = [*registry.rules(), *registry.fusions()]
    return [one for one in found if not one.ours]


def declared(path: Path) -> tuple[list[tuple[str, Any]], Mapping[str, Reference]]:
    """Returns ``CASES`` of a loaded file, each with where it is, and ``REFERENCES``.

    A text among the cases names a prototype beside the file. Raises ``InputError`` for other values.
    """
    module = module_of(path)
    given, references = getattr(module, "CASES", []), getattr(module, "REFERENCES", {})
    if not isinstance(given, list | tuple):
        raise InputError(f"CASES of {path}", f"a {type(given).__name__}", "a list of cases")
    if not isinstance(references, Mapping) or not all(map(callable, references.values())):
        accepted = 'a dict of functions: {"TopKV2": top_k}'
        raise InputError(f"REFERENCES of {path}", repr(references)[:80], accepted)
    found: list[tuple[str, Any]] = []
    for number, one in enumerate(given):
        if isinstance(one, str):
            found += [(one, data) for data in read_prototype(path.parent / one)]
        else:
            found.append((f"CASES[{number}] of {path}", one))
    return found, references


def _check_known(
    path: Path, cases: Sequence[Case], references: Mapping[str, Any], found: Sequence[Checked]
) -> None:
    """Raises ``InputError`` for names that the file has no rule or fusion of: they would never be run."""
    rules = {one.op_type for one in found if isinstance(one, Rule)}
    fusions = {one.name for one in found if isinstance(one, Fusion)}
    named = [("a case", case.fusion or case.op, fusions if case.fusion else rules) for case in cases]
    named += [("REFERENCES", str(name), rules | fusions) for name in references]
    for what, name, known in named:
        if name not in known:
            given = f"{name!r}, which no rule or fusion of the file is for"
            raise InputError(
                f"{what} of {path}", given, ", ".join(sorted(known)) or "none", did_you_mean(name, known)
            )


def applies(case: Case, one: Checked) -> bool:
    """Whether a case is one of this rule or fusion."""
    if isinstance(one, Fusion):
        return case.fusion == one.name
    return case.op == one.op_type and (case.version is None or one.covers(case.version))


# -- running ---------------------------------------------------------------------------------------


def _checked(one: Checked, cases: Sequence[Case], references: Mapping[str, Reference]) -> RuleResult:
    row = row_of(one)
    if not cases:
        row.missing = f"no case: CASES has none of {_called(one)!r}"
    row.cases += [run_case(one, case, references.get(_called(one))) for case in cases]
    if any(case.unproven for case in row.cases):
        row.missing = f"no reference: neither REFERENCES[{_called(one)!r}] nor expected of the case"
    return row


def row_of(one: Checked) -> RuleResult:
    """Returns a row without cases."""
    place = one.place
    if isinstance(one, Fusion):
        ends = ", ".join(dict.fromkeys(root[0].op_type for root in one.roots))
        return RuleResult(f"fusion {one.name}", "N:M", f"in place of {ends}", place.file, place.line)
    target = "ONNX nodes" if one.target is None else str(one.target)
    return RuleResult(one.source, one.kind, target, place.file, place.line)


def _called(one: Checked) -> str:
    return one.name if isinstance(one, Fusion) else one.op_type


def source_graph(one: Checked, case: Case) -> Graph:
    """Returns the graph of a case, in the operators of the source framework."""
    framework = case.framework or one.framework or "onnx"
    version = case.version
    if version is None and isinstance(one, Rule) and one.versions is not None:
        version = one.versions[0]
    try:
        if framework == "tensorflow":
            return graph_of(case, version)
        model = model_of(case, one.domain if isinstance(one, Rule) else "", version)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"case {case.name}", error_line(error), "nodes that ONNX can hold") from error
    return import_model(model)


def run_case(one: Checked, case: Case, reference: Reference | None) -> CaseResult:
    """Runs one case; its result says what is wrong with it."""
    fusions = (one.name,) if isinstance(one, Fusion) else ()
    found: Examination | None = None
    try:
        graph = source_graph(one, case)
        found = examine(graph, framework_of(graph), fusions)
        reason = _not_taken(one, found)
        if reason:
            return _result(case, found, reason)
        values = run_graph(graph, case.feed, fusions)
        expected, beside = _expected(one, case, graph, reference)
    except OneDispatchError as error:
        return replace(_result(case, found, error.statement()), error=error)
    except Unproven as error:
        gives = ", ".join(f"{np.asarray(one).dtype}{list(np.shape(one))}" for one in values)
        return replace(_result(case, found, f"{error}; it runs, and gives {gives}"), unproven=True)
    rows, reason = _compared(case, graph, values, expected)
    return _result(case, found, reason, beside, rows)


def _result(
    case: Case,
    found: Examination | None,
    reason: str,
    beside: str = "",
    rows: tuple[ValueComparison, ...] = (),
) -> CaseResult:
    if found is None:
        return CaseResult(case.name, reason, beside=beside)
    steps = tuple(
        f"{step.node}: {step.rule}: "
        + (f"refused: {step.refused}" if step.refused else f"made {_made(step)}")
        for step in found.steps
    )
    written = tuple(map(_spelled, found.nodes))
    notes = tuple(f"attributes that no fact mentions: {line}" for line in found.unmentioned)
    return CaseResult(case.name, reason, False, beside, rows, steps, written, notes)


def _made(step: Any) -> str:
    return ", ".join(f"{op} ({name})" for name, op in step.made) or "its operand, as it is"


def _spelled(node: Node) -> str:
    op = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
    attributes = "".join(f", {name}={value!r}" for name, value in node.attributes.items())
    return f"{', '.join(node.outputs)} = {op}({', '.join(node.inputs)}{attributes})"


def _not_taken(one: Checked, found: Examination) -> str:
    """Why the rule or fusion did nothing, "" if it did something."""
    start = f"fusion {one.name} (" if isinstance(one, Fusion) else str(one)
    own = [step for step in found.steps if step.rule.startswith(start)]
    refused = next((step.refused for step in own if step.refused), "")
    if refused:
        return f"refused: {refused}"
    unmapped = [str(one) for one in (*found.unmapped.values(), *found.refused.values())]
    if unmapped:
        return f"no rule maps {'; '.join(unmapped)}"
    if own:
        return ""
    return (
        "its pattern is not in the nodes of the case" if isinstance(one, Fusion) else "another rule took it"
    )


def run_graph(graph: Graph, feed: Mapping[str, Array], fusions: Sequence[str] = ()) -> list[Any]:
    """Returns the outputs of a graph of any framework, translated and run on the simulator."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # attributes that no rule mentions: the examination has them
        how = ImportContext(ImportOptions.checked(fusions=fusions))
        made = run_passes(MODEL_PASSES[1:], graph, how)
    assert isinstance(made, Graph)
    options = CompileOptions.checked(fallback="cpu")
    model = CompiledModel(options, made.inputs, made.outputs, deciding_inputs(made), made, CACHE_SIZE)
    return InferenceSession(model).run(None, {value.name: feed[value.name] for value in made.inputs})


def _expected(
    one: Checked, case: Case, graph: Graph, reference: Reference | None
) -> tuple[Sequence[Any], str]:
    """What a case should give, and what says so. Raises ``Unproven``, and ``InputError`` of a function."""
    if case.expected is not None:
        return case.expected, "expected of the case"
    if reference is not None:
        name = getattr(reference, "__name__", "the reference")
        return _called_with(reference, name, case, graph), f"{name} of REFERENCES"
    if isinstance(one, Fusion):
        return run_graph(graph, case.feed, (f"-{one.name}",)), "the same nodes without the fusion"
    raise Unproven(f"nothing says what {case.op} gives")


def _called_with(reference: Reference, name: str, case: Case, graph: Graph) -> Sequence[Any]:
    arrays = [one.array.copy() for one in case.inputs]
    attributes = {} if case.fusion else dict(graph.nodes[-1].attributes)
    try:
        found = reference(*arrays, **_taken(reference, attributes, len(arrays)))
    except NotImplementedError as error:
        raise Unproven(f"{name} is still to be written: {error}") from error
    except Exception as error:  # code of others
        reraise_from_handler(error)
        code = getattr(inspect.unwrap(reference), "__code__", None)
        line = f" ({code.co_filename}, line {code.co_firstlineno})" if code is not None else ""
        accepted = "a function of the inputs, with attributes by keyword"
        raise InputError(f"reference {name}{line}", error_line(error), accepted) from error
    if isinstance(found, Mapping):
        return [found[value.name] for value in graph.outputs if value.name in found]
    return list(found) if isinstance(found, tuple | list) else [found]


def _taken(reference: Reference, attributes: Mapping[str, Any], inputs: int) -> dict[str, Any]:
    """The attributes that a function has parameters for; all of them where it takes any."""
    form = list(inspect.signature(reference).parameters.values())
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in form):
        return dict(attributes)
    several = any(one.kind is inspect.Parameter.VAR_POSITIONAL for one in form)
    names = {
        one.name
        for place, one in enumerate(form)
        if place >= inputs or one.kind is one.KEYWORD_ONLY or several
    }
    return {name: value for name, value in attributes.items() if name in names}


def _compared(
    case: Case, graph: Graph, values: Sequence[Any], expected: Sequence[Any]
) -> tuple[tuple[ValueComparison, ...], str]:
    """A row for each output, and what is wrong with the first that is."""
    names = [value.name for value in graph.outputs]
    if len(expected) != len(names):
        return (), f"{len(expected)} expected, of the outputs {', '.join(names)}"
    rows, reason = [], ""
    last = graph.nodes[-1]
    for name, value, wanted in zip(names, values, expected, strict=True):
        mine, theirs = np.asarray(value), np.asarray(wanted)
        wrong = _wrong_type(name, mine, theirs, case)
        if not wrong and not (mine.dtype.hasobject or theirs.dtype.hasobject):
            bound = case.threshold if mine.dtype.kind not in "iub" else 0.0
            if mine.dtype.kind not in "iub":
                theirs = theirs.astype(mine.dtype)  # what NumPy widens
            row = value_comparison((last.name, last.op_type), (), name, mine, theirs, bound)
            rows.append(row)
            wrong = difference_in(row) if row.diverges else ""
        elif not wrong and not np.array_equal(mine, theirs):
            wrong = f"output {name}: {mine!r}, where {theirs!r} is expected"
        reason = reason or wrong
    return tuple(rows), reason


def _wrong_type(name: str, mine: Array, theirs: Array, case: Case) -> str:
    said = case.dtypes.get(name)
    if said is not None and said != mine.dtype:
        return f"output {name}: {mine.dtype}, where the case says {said}"
    if case.plain and floating(mine):
        return ""  # 1 is 1.0 where nothing says otherwise
    floats = [floating(array) for array in (mine, theirs)]
    truths = [array.dtype.kind == "b" for array in (mine, theirs)]
    if theirs.size and (floats[0] is not floats[1] or truths[0] is not truths[1]):
        return f"output {name}: {mine.dtype}, where {theirs.dtype} is expected"
    return ""


def floating(array: Array) -> bool:
    """Whether an array has floats of any size."""
    return array.dtype.kind == "f" or "float" in array.dtype.name


def difference_in(row: ValueComparison) -> str:
    """What is wrong with a value, in numbers."""
    if row.index is None:
        return f"output {row.value}: shape {list(row.shape)}, where {list(row.theirs_shape)} is expected"
    at = f"output {row.value}{list(row.index)}: {row.mine}, where {row.theirs} is expected"
    return f"{at}: error {row.difference:.6g}, {row.ulp:.6g} ULP of {row.dtype}"
