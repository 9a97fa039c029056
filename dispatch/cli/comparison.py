# SPDX-License-Identifier: Apache-2.0
"""``onedispatch run --compare``: the values of a run beside those of the host."""

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
    """A model that is to be compared: as it was given, and what was imported of it."""

    model: Any
    graph: Graph
    threshold: float

    def compared(
        self,
        feed: Mapping[str, Array],
        answers: Sequence[Any],
        compiled: CompiledModel,
        threads: int | None,
        kernel_seconds: float | None,
    ) -> Comparison:
        """See ``tools.compare``, which is loaded only now."""
        from onedispatch.dispatch.tools.compare import compare

        options = {"threshold": self.threshold, "threads": threads, "kernel_seconds": kernel_seconds}
        with out.working("comparing"):
            return compare(self.model, self.graph, feed, answers, compiled, **options)  # type: ignore[arg-type]


def asked(name: str, threshold: float | None, compare: bool, how: ImportOptions) -> Asked | None:
    """The ONNX model ``name``, imported; None without ``compare``.

    Raises ``InputError`` for a threshold of no comparison, and for a file of ours, which has no ONNX model.
    """
    if not compare:
        if threshold is not None:
            raise InputError("--threshold", f"{threshold:g}, without --compare", "--compare, which it is for")
        return None
    if is_compiled(name):
        raise InputError(
            "--compare", f"{name}, a compiled model", "the ONNX file", "which says what to compute"
        )
    from onedispatch.dispatch.driver.compile_model import imported

    model = source(Path(name))
    return Asked(model, imported(model, how=how), THRESHOLD if threshold is None else threshold)


def show(found: Comparison) -> None:
    """The tables, and the first value that diverges."""
    if not found.rows and not found.outputs:
        out.tell("nothing to compare: no operator of the device or the host makes a value that has numbers")
        return
    ends = ("error", "of the largest", "")
    title = f"outputs in {found.precision} beside {found.beside}, the model as it is with default options"
    out.table(title, ("output", *ends), [(row.value, *_errors(row)) for row in found.outputs], right=(1, 2))
    title = f"values in {found.precision} beside onnxruntime's, as outputs (+n: as one with n nodes before)"
    out.table(title, ("node", "operator", "value", *ends), map(_cells, found.rows), right=(3, 4))
    first = found.first
    if first is None:
        out.tell(f"no value differs by more than {found.threshold:.3g} of its largest number")
        return
    out.tell(
        f"first to diverge: {first.node} ({first.op_type}), value {first.value}: error {first.error:.3g} is "
        f"{first.relative:.3g} of the largest number, {first.largest:.3g}; threshold {found.threshold:.3g}"
    )


def _cells(row: ValueComparison) -> tuple[str, ...]:
    name = f"{row.node} +{len(row.nodes) - 1}" if row.nodes[1:] else row.node
    return name, row.op_type, row.value, *_errors(row)


def _errors(row: ValueComparison) -> tuple[str, str, str]:
    return f"{row.error:.3g}", f"{row.relative:.3g}", "diverges" if row.diverges else ""
