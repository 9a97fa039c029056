# SPDX-License-Identifier: Apache-2.0
"""``onedispatch run --compare``: the values of a run beside those of the host."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onedispatch.dispatch.artifact import model as models
from onedispatch.dispatch.artifact.container import MAGIC
from onedispatch.dispatch.cli import output as out
from onedispatch.dispatch.frontend.graph import Array, Graph
from onedispatch.transactions.base.errors import InputError

if TYPE_CHECKING:
    from onedispatch.dispatch.tools.compare import Comparison, Difference

THRESHOLD = 0.05  # of the largest number of a value: what bfloat16 may cost a network's outputs

Compare = Annotated[
    bool, typer.Option("--compare", help="Every value beside the same ONNX model on the host, as it says.")
]
Threshold = Annotated[
    float | None,
    typer.Option(
        help=f"Where a value diverges, with --compare: a share of its largest number.  [default: {THRESHOLD}]"
    ),
]


def check_threshold(threshold: float | None, compare: bool) -> None:
    """Raises ``InputError`` for a threshold of no comparison."""
    if threshold is not None and not compare:
        raise InputError("--threshold", f"{threshold:g}, without --compare", "--compare, which it is for")


def graph_of(name: str, source: Callable[[Path], Any]) -> Graph:
    """The graph of the ONNX model ``name``. Raises ``InputError`` for a file of ours, which has none."""
    path = Path(name)
    if path.is_file():
        with path.open("rb") as file:
            if file.read(len(MAGIC)) == MAGIC:
                raise InputError(
                    "--compare", f"{name}, a compiled model", "the ONNX file", "which says what to compute"
                )
    return models.imported(source(path))


def compared(
    graph: Graph,
    feed: Mapping[str, Array],
    compiled: models.CompiledModel,
    threshold: float | None,
    threads: int | None,
    kernel_seconds: float | None,
) -> Comparison:
    """See ``tools.compare``, which is loaded only now."""
    from onedispatch.dispatch.tools.compare import compare

    bound = THRESHOLD if threshold is None else threshold
    return compare(graph, feed, compiled, threshold=bound, threads=threads, kernel_seconds=kernel_seconds)


def show(found: Comparison) -> None:
    """The table, and the first value that diverges."""
    if not found.rows:
        out.tell("nothing to compare: no operator of the device or the host makes a value that has numbers")
        return
    title = f"{found.precision} beside the host (+n: as one with n nodes before it)"
    columns = ("node", "operator", "value", "error", "of the largest", "")
    out.table(title, columns, [_cells(row) for row in found.rows], right=(3, 4))
    first = found.first
    if first is None:
        out.tell(f"no value differs by more than {found.threshold:.3g} of its largest number")
        return
    out.tell(
        f"first to diverge: {first.node} ({first.op_type}), value {first.value}: error {first.error:.3g} is "
        f"{first.relative:.3g} of the largest number, {first.largest:.3g}; threshold {found.threshold:.3g}"
    )


def _cells(row: Difference) -> tuple[str, ...]:
    name = f"{row.node} +{len(row.nodes) - 1}" if row.nodes[1:] else row.node
    mark = "diverges" if row.diverges else ""
    return name, row.op_type, row.value, f"{row.error:.3g}", f"{row.relative:.3g}", mark
