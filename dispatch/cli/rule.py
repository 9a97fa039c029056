# SPDX-License-Identifier: Apache-2.0
"""``onedispatch rule new | check``: mapping rules of source frameworks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onedispatch.dispatch.cli import output as out
from onedispatch.dispatch.cli.plugins import takes_plugins
from onedispatch.transactions.base.errors import InputError
from onedispatch.transactions.base.text import counted

if TYPE_CHECKING:
    from onedispatch.dispatch.tools.rule_check import CaseResult, RuleResult

app = typer.Typer(
    no_args_is_help=True, help="Mapping rules: how operators of a source framework become ONNX's."
)


@app.command("new")
def new(
    file: Annotated[Path, typer.Argument(help="Where to write the rule: top_k.py; its tests go beside it.")],
    framework: Annotated[str, typer.Option(help="tensorflow or onnx.")],
    domain: Annotated[
        str | None, typer.Option(help="Of --framework onnx: the operator's domain, acme.")
    ] = None,
    prototype: Annotated[
        Path | None, typer.Option("--from", help="A prototype: the operator with its inputs, in JSON.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="A model, of which --node is taken in its place.")] = None,
    node: Annotated[str | None, typer.Option(help="The name of a node of --model.")] = None,
    to: Annotated[str, typer.Option(help="The operator to map to: TopK, or acme::Bucketize.")] = "",
    json: out.Json = False,
) -> None:
    """Write a mapping rule that works, with a case of it and its tests. Nothing is overwritten.

    What can be guessed is written: attributes of the same or nearly the same name, the target's defaults,
    attributes that are inputs there. What the operator computes is a NumPy function to fill in.
    """
    from onedispatch.dispatch.tools import rule_skeleton

    if (prototype is None) is (model is None) or (model is None) is not (node is None):
        given = f"--from {prototype}, --model {model}, --node {node}"
        raise InputError("rule new", given, "--from PROTOTYPE.json, or --model MODEL --node NODE")
    if prototype is not None:
        data, notes = rule_skeleton.from_prototype(prototype), list[str]()
    else:
        data, domain, notes = rule_skeleton.from_node(str(model), str(node), framework, domain)
    written = rule_skeleton.write(file, framework, domain, data, to)
    if json:
        made = {"files": list(map(str, written.files)), "notes": [*notes, *written.notes]}
        out.print_json(made | {"next": list(written.commands)})
        return
    for path in written.files:
        out.say(str(path))
    for note in (*notes, *written.notes):
        out.say(f"note: {note}")
    out.say("\nNext:")
    for command in written.commands:
        out.say(f"  {command}")


def check(
    file: Annotated[str, typer.Argument(help="A Python file with rules or fusions.")],
    prototypes: Annotated[
        list[str] | None, typer.Option("--from", help="Cases from a prototype in JSON too. Repeatable.")
    ] = None,
    json: out.Json = False,
) -> None:
    """Run every rule and fusion of a file on its cases, beside NumPy functions.

    CASES of the file has the cases, REFERENCES a function for each operator: it gets the inputs, and the
    attributes by keyword. Each case is translated and run on the simulator. The exit code is 1 where a case
    fails, and where a rule or fusion has no case, or nothing says what it computes.
    """
    from onedispatch.dispatch.tools.rule_check import check_rules

    with out.working("checking"):
        rows = check_rules(file, prototypes or ())
    failed = any(row.failed for row in rows)
    if json:
        out.print_json({"file": file, "clean": not failed, "rules": [row.as_dict() for row in rows]})
    else:
        for row in rows:
            _show(row)
    if failed:
        raise typer.Exit(1)


app.command("check")(takes_plugins(check))


def _show(row: RuleResult) -> None:
    wrong = sum(bool(case.reason) for case in row.cases)
    count = counted(len(row.cases), "case")
    verdict = row.missing or (f"{wrong} of {count} failed" if wrong else f"passed ({count})")
    out.say(f"{row.name} -> {row.target} ({row.file}:{row.line}): {verdict}")
    for case in row.cases:
        _show_case(case)


def _show_case(case: CaseResult) -> None:
    worst = max((one.relative for one in case.outputs), default=0.0)
    passed = f"passed beside {case.beside}, error {worst:.3g} of the largest number"
    out.say(f"  {case.case}: {f'FAILED: {case.reason}' if case.reason else passed}")
    for note in case.notes:
        out.say(f"    note: {note}")
    for line in case.steps if case.reason else ():
        out.say(f"    step: {line}")
    for line in case.written:
        out.say(f"    wrote: {line}")
