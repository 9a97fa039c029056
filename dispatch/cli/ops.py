# SPDX-License-Identifier: Apache-2.0
"""``onedispatch ops``: which operators there are, how they are mapped, and what becomes of a model's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from onedispatch.dispatch.cli import opening
from onedispatch.dispatch.cli import output as out
from onedispatch.dispatch.cli.flags import expands_flags
from onedispatch.dispatch.cli.plugins import takes_plugins
from onedispatch.dispatch.plugins import discovery
from onedispatch.operators.declarations.registry import OpMapping, all_mappings
from onedispatch.operators.plugin.registrations import spelled
from onedispatch.transactions.base.errors import InputError
from onedispatch.transactions.base.text import counted, did_you_mean

LIST = "list"


class _Group(TyperGroup):
    """``onedispatch ops relu`` is short for ``onedispatch ops list relu``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] not in ("--help", "-h")):
            args = [LIST, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_Group,
    add_completion=False,
    help="Which operators run on the device, how they are mapped, and what becomes of a model's.",
)


def listed(
    name: Annotated[str, typer.Argument(help="Only operators whose name contains this.")] = "",
    json: out.Json = False,
) -> None:
    """Which ONNX operators run on the device, for which dtypes, within which bounds, plug-ins included."""
    discovery.ensure()
    rows = [m for m in all_mappings() if name.lower() in m.op_type.lower()]
    if json:
        out.print_json(
            [
                {"domain": m.domain, "op_type": m.op_type, "dtypes": list(m.dtypes), "notes": m.notes}
                | {"plugin": m.origin}
                for m in rows
            ]
        )
        return
    columns, cells = ["operator", "dtypes", "bounds"], [_cells(m) for m in rows]
    if any(m.origin for m in rows):
        columns, cells = [*columns, "plug-in"], [(*row, m.origin) for row, m in zip(cells, rows, strict=True)]
    out.table(counted(len(rows), "operator"), columns, cells)


def _cells(mapping: OpMapping) -> tuple[str, ...]:
    return spelled(mapping), ", ".join(mapping.dtypes), mapping.notes


def mapped(
    name: Annotated[str, typer.Argument(help="Only operators whose name contains this.")] = "",
    json: out.Json = False,
) -> None:
    """Everything that maps operators: rules of frameworks, fusions, rewrite rules, device operators."""
    from onedispatch.dispatch.tools.rule_map import rule_map

    discovery.ensure()
    rows = [row for row in rule_map() if name.lower() in row.source.lower()]
    if json:
        out.print_json([asdict(row) for row in rows])
        return
    out.table(
        counted(len(rows), "mapping"),
        ("framework", "operator", "versions", "becomes", "kind", "where"),
        [
            (row.framework, row.source, row.versions, row.target, row.kind, _place(row.file, row.line))
            for row in rows
        ],
    )


def _place(file: str, line: int) -> str:
    return f"{file}:{line}" if line else file


def check(model: opening.Model, reading: opening.ReadFlags, json: out.Json = False) -> None:
    """Which nodes of a model are mapped, and how, without compiling it. Exit code 2 if one is not.

    Shapes are not looked at: what a mapping refuses for its sizes or types, `onedispatch inspect` says.
    """
    from onedispatch.dispatch.tools.op_check import UNMAPPED, check_nodes_of

    rows = check_nodes_of(opening.source(Path(model)), reading.options)
    missing = [row for row in rows if row.where == UNMAPPED]
    if json:
        out.print_json({"nodes": [asdict(row) for row in rows], "unmapped": [row.node for row in missing]})
    else:
        cells = [
            (row.node, _spelled(row), out.place(row.where), row.how, ", ".join(row.nearest)) for row in rows
        ]
        out.table(counted(len(rows), "node"), ("node", "operator", "runs on", "by", "nearest"), cells)
        out.tell(f"{counted(len(missing), 'node')} not mapped" if missing else "every node is mapped")
    if missing:
        raise typer.Exit(2)


def _spelled(row: Any) -> str:
    return f"{row.domain}::{row.op_type}" if row.domain else row.op_type


def explain(
    model: opening.Model,
    node: Annotated[str, typer.Argument(help="The name of a node, as `onedispatch ops check` shows it.")],
    reading: opening.ReadFlags,
    json: out.Json = False,
) -> None:
    """What rules do to one node, step by step: which rule, what it made, or on which condition it refused."""
    from onedispatch.dispatch.tools.op_check import check_nodes_of, examined, explained

    given = opening.source(Path(model))
    graph, found = examined(given, reading.options)
    names = [one.name for one in graph.nodes]
    if node not in names:
        raise InputError("NODE", repr(node), "a node of the model", did_you_mean(node, names))
    steps = explained(found, node)
    row = next(row for row in check_nodes_of(given, reading.options) if row.node == node)
    if json:
        out.print_json({"node": asdict(row), "steps": [asdict(step) for step in steps]})
        return
    out.tell(f"{node}: {_spelled(row)} version {row.version}")
    for number, step in enumerate(steps, 1):
        made = ", ".join(f"{op} ({name})" for name, op in step.made) or "its operand, as it is"
        took = f"took {', '.join(step.took)}; " if step.took else ""
        what = f"refused: {step.refused}" if step.refused else f"{took}made {made}"
        out.tell(f"  {number}. {step.rule}\n     {what}")
    if not steps:
        out.tell("  no rule or fusion is for it")
    out.tell(f"  -> {row.where}{f': {row.how}' if row.how and not steps else ''}")
    for name in row.nearest:
        out.tell(f"     nearest: {name}")


_COMMANDS: dict[str, Callable[..., None]] = {LIST: listed, "map": mapped, "check": check, "explain": explain}
for _name, _command in _COMMANDS.items():
    app.command(_name)(takes_plugins(expands_flags(_command)))
