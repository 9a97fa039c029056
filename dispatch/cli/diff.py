# SPDX-License-Identifier: Apache-2.0
"""``onedispatch diff``: what two models, or two records of what they cost, differ in."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onedispatch.dispatch.cli import opening
from onedispatch.dispatch.cli import output as out
from onedispatch.dispatch.cli.gate import Full, Markdown, measured
from onedispatch.transactions.base.files import write_file

if TYPE_CHECKING:
    from onedispatch.dispatch.tools.cost_record import CostRecord

DIFFERS = 2  # the exit code, with --exit-code

_Side = "a record, as `gate --write-baseline` or `time --json` writes it, or a model"


def diff(
    first: Annotated[str, typer.Argument(help=f"What it cost before: {_Side}.")],
    second: Annotated[str, typer.Argument(help="What it costs now: the same kinds.")],
    compiling: opening.CompileFlags,
    tolerance: Annotated[str, typer.Option(help="How much of a difference is let pass: 2%.")] = "0%",
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="Exit with 2 where anything differs by more than that.")
    ] = False,
    full: Full = False,
    markdown: Markdown = None,
    json: out.Json = False,
) -> None:
    """Compare what two models cost, in all and operator by operator.

    A side that is a model is compiled and timed, as the options say; a record was. Each
    side may be of another device or other options: that is said, and compared all the same. Operators belong
    together by name, or else by type and nodes that they share. The exit code is 0, or with --exit-code 2
    where anything differs; 1 is for errors.
    """
    from onedispatch.dispatch.cli.cost_tables import diff_markdown, show_diff
    from onedispatch.dispatch.tools.cost_diff import compare_costs

    share = out.parse_share("--tolerance", tolerance)
    for side in (first, second):
        opening.keep(side, markdown)
    found = compare_costs(_side(first, compiling), _side(second, compiling), share)
    if markdown is not None:
        write_file(markdown, diff_markdown(found, full).encode())
    if json:
        out.print_json(found.as_dict())
    else:
        show_diff(found, full)
    if exit_code and found.differs:
        raise typer.Exit(DIFFERS)


def _side(name: str, compiling: opening.CompileFlags) -> CostRecord:
    from onedispatch.dispatch.tools.cost_record import is_record, read_record

    path = Path(name)
    return read_record(path) if is_record(path) else measured(name, compiling)
