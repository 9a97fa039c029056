# SPDX-License-Identifier: Apache-2.0
"""``onedispatch run --compare`` and ``onedispatch compare``: the values of a run beside those of the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onedispatch.dispatch.artifact.container import is_compiled
from onedispatch.dispatch.artifact.model import CompiledModel
from onedispatch.dispatch.cli import output as out
from onedispatch.dispatch.cli.opening import source
from onedispatch.dispatch.compiler.options import ImportOptions
from onedispatch.dispatch.frontend.graph import Array, Graph
from onedispatch.transactions.base.errors import InputError

if TYPE_CHECKING:
    from onedispatch.dispatch.tools.compare import Comparison, ValueComparison

THRESHOLD = 0.05  # of the largest number of a value: what bfloat16 may cost a network's outputs

DIVERGES = 2  # the exit code
RELATIVE = "relative error: the largest error of a value, as a share of its largest magnitude"
NOTHING = "nothing to compare: no operator of the device or the host makes a value that has numbers"

Compare = Annotated[
    bool,
    typer.Option(
        "--compare",
        help="Outputs, and the value of every node, beside onnxruntime. Exit code 2 where one diverges.",
    ),
]
Threshold = Annotated[
    float | None,
    typer.Option(
        help=f"Where a value diverges, with --compare: a share of its largest number.  [default: {THRESHOLD}]"
    ),
]


@dataclass(frozen=True)
class Asked:
    """A model that is to be compared: as it was given, what was imported of it, and with what.

    ``reference`` is a file of saved values, "" for onnxruntime.
    """

    model: Any
    graph: Graph
    threshold: float
    how: ImportOptions
    per_node: bool = True
    reference: str = ""

    def compared(
        self,
        feed: Mapping[str, Array],
        answers: Sequence[Any],
        compiled: CompiledModel,
        threads: int | None = None,
        kernel_seconds: float | None = None,
    ) -> Comparison:
        """See ``tools.compare``, which is loaded only now."""
        from onedispatch.dispatch.tools.compare import Question, compare

        saved = out.archive("--reference", self.reference) if self.reference else None
        question = Question(
            self.model, self.graph, self.threshold, self.how, self.per_node, saved, self.reference
        )
        with out.working("comparing"):
            return compare(question, feed, answers, compiled, threads=threads, kernel_seconds=kernel_seconds)


def asked(
    name: str,
    threshold: float | None,
    how: ImportOptions,
    *,
    option: str = "--compare",
    per_node: bool = True,
    reference: str = "",
) -> Asked:
    """The model ``name``, imported. Raises ``InputError`` for a file of ours, which has no ONNX model."""
    if is_compiled(name):
        raise InputError(option, f"{name}, a compiled model", "the ONNX file", "which says what to compute")
    from onedispatch.dispatch.driver.compile_model import imported

    model, bound = source(Path(name)), THRESHOLD if threshold is None else threshold
    return Asked(model, imported(model, how=how), bound, how, per_node, reference)


def asked_by_run(name: str, threshold: float | None, compare: bool, how: ImportOptions) -> Asked | None:
    """What ``run --compare`` asks; None without ``--compare``.

    Raises ``InputError`` for a threshold of no comparison, and as ``asked`` does.
    """
    if compare:
        return asked(name, threshold, how)
    if threshold is not None:
        raise InputError("--threshold", f"{threshold:g}, without --compare", "--compare, which it is for")
    return None


def show(found: Comparison) -> None:
    """The tables, and the first value that diverges."""
    if not found.rows and not found.outputs:
        out.tell(NOTHING)
        return
    ends, saved = ("error", "relative error", "verdict"), bool(found.saved)
    as_is = "" if not found.unchanged else ", the model as it is with default options"
    title = f"outputs in {found.precision} beside {found.beside}{as_is}"
    out.table(title, ("output", *ends), [(row.value, *_errors(row)) for row in found.outputs], right=(1, 2))
    out.tell(RELATIVE)
    if found.per_node:
        whose = found.beside if saved else "onnxruntime's, as outputs"
        title = f"values in {found.precision} beside {whose} (+n: as one with n nodes before)"
        out.table(
            title, ("node", "operator", "value", *ends), map(_cells, found.rows), right=(3, 4), droppable=(1,)
        )
    if found.skipped:
        out.table("saved values without a comparison", ("value",), [(line,) for line in found.skipped])
    show_first(found.first, found.threshold)


def show_first(first: ValueComparison | None, threshold: float, where: str = "") -> None:
    """The node, the element and both numbers of the first value that diverges, where one does."""
    if first is None:
        out.tell(f"no value differs by more than {threshold:.3g} of its largest number")
        return
    out.tell(
        f"first to diverge: {first.node} ({first.op_type}), value {first.value}{where}: "
        f"error {first.error:.3g} is {first.relative:.3g} of the largest number, {first.largest:.3g}; "
        f"threshold {threshold:.3g}"
    )
    if first.index is None:
        shapes = f"{list(first.shape)} here, {list(first.theirs_shape)} there"
        out.tell(f"  shapes: {shapes}")
        return
    integers = "int" in first.dtype or first.dtype == "bool"
    unit = "" if integers else f", {first.ulp:.4g} ULP of {first.dtype}"
    out.tell(
        f"  element {list(first.index)}: {_number(first.mine)} here, {_number(first.theirs)} there: "
        f"error {first.difference:.6g}{unit}"
    )


def _number(value: object) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def _cells(row: ValueComparison) -> tuple[str, ...]:
    name = f"{row.node} +{len(row.nodes) - 1}" if row.nodes[1:] else row.node
    return name, row.op_type, row.value, *_errors(row)


def verdict_of(diverges: bool) -> str:
    """What tables say of a value."""
    return "diverges" if diverges else "ok"


def _errors(row: ValueComparison) -> tuple[str, str, str]:
    return f"{row.error:.3g}", f"{row.relative:.3g}", verdict_of(row.diverges)
