# SPDX-License-Identifier: Apache-2.0
"""``onedispatch layer new | list | remove | build | rebuild | check``: projects of layers."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from onedispatch.dispatch.cli import output as out
from onedispatch.dispatch.cli.flags import expands_flags
from onedispatch.dispatch.cli.layer_check import check
from onedispatch.dispatch.cli.plugins import takes_plugins
from onedispatch.dispatch.plugins import discovery, layer_build, layer_remove, layer_skeleton
from onedispatch.dispatch.plugins import project as projects
from onedispatch.dispatch.plugins.layer_skeleton import Wanted
from onedispatch.dispatch.plugins.project import FoundLayer, Project
from onedispatch.operators.layers.parameters import Parameter
from onedispatch.transactions.base.errors import InputError
from onedispatch.transactions.base.text import counted

app = typer.Typer(no_args_is_help=True, help="Layers: projects of them, and what they have.")

ProjectFolder = Annotated[Path, typer.Argument(help="The project's folder: the one with its pyproject.toml.")]
COLUMNS = ("layer", "node", "bodies", "parameters", "file", "compiled body")


@app.command("new")
def new(
    name: Annotated[str, typer.Argument(help="acme::crop, or a namespace, acme.")],
    local: Annotated[bool, typer.Option("--local", help="With a body for a core too.")] = False,
    cpp: Annotated[bool, typer.Option("--cpp", help="With one in C++.")] = False,
    folder: Annotated[
        Path | None,
        typer.Option(
            help="The project, new or there already; the default is the current folder where that is one, "
            "else one that is called as the namespace."
        ),
    ] = None,
    json: out.Json = False,
) -> None:
    """Write a layer that works, with its tests, into a project of its own or one that is there.

    Nothing is overwritten.
    """
    out.written(layer_skeleton.write(name, Wanted(local, cpp), folder), json)


@app.command("list")
@takes_plugins
def list_layers(
    project: Annotated[
        Path | None,
        typer.Argument(help="A project, or a file; else the project of this folder, or all that are loaded."),
    ] = None,
    json: out.Json = False,
) -> None:
    """Every layer: its node, its bodies, its parameters, its file, and whether its compiled body is built."""
    found = _here() if project is None else projects.project_at("layer list", project)
    layers = _loaded() if found is None else projects.layers_of(found)
    if json:
        out.print_json([described(one) for one in layers])
        return
    out.table(counted(len(layers), "layer"), COLUMNS, map(_row, layers))


def _here() -> Project | None:
    """The project that the working directory is."""
    with suppress(InputError):
        return projects.folder_at("layer list", Path())
    return None


def _loaded() -> list[FoundLayer]:
    discovery.ensure()
    return projects.loaded_layers()


def _row(one: FoundLayer) -> tuple[str, ...]:
    parameters = "\n".join(f"{p.name}: {_type(p)}{_default(p)}" for p in one.parameters)
    return (one.name, one.node, one.bodies, parameters, str(one.file), layer_build.state(one))


def _type(one: Parameter) -> str:
    """As ``Params`` spells it."""
    if one.choices:
        return f"Literal[{', '.join(map(repr, one.choices))}]"
    if one.member is None:
        return str(one.type.__name__)
    member = one.member.__name__
    if one.type is list:
        return f"list[{member}]"
    return f"tuple[{', '.join([member] * one.length) if one.length > 0 else f'{member}, ...'}]"


def _default(one: Parameter) -> str:
    return "" if one.required else f" = {one.default!r}"


def described(one: FoundLayer) -> dict[str, Any]:
    """A layer as plain data."""
    return {
        "name": one.name,
        "node": one.node,
        "bodies": one.bodies.split(", "),
        "parameters": [
            {"name": p.name, "type": _type(p), "required": p.required, "default": p.default}
            for p in one.parameters
        ],
        "file": str(one.file),
        "library": None if one.library is None else str(one.library),
        "compiled": layer_build.state(one) or None,
    }


@app.command("remove")
def remove(
    name: Annotated[str, typer.Argument(help="acme::crop, or crop.")],
    project: ProjectFolder = Path(),
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    json: out.Json = False,
) -> None:
    """Remove the files of one layer, each after a question; what other layers need stays.

    With --json nothing is asked, so that it takes --yes.
    """
    if json and not yes:
        raise InputError("layer remove", "--json without --yes", "both", "a script answers no question")
    files = layer_remove.files_of(projects.folder_at("layer remove", project), name)
    removed, stays = list[Path](), dict(files.stays)
    for file in files.own:
        if yes or typer.confirm(f"remove {out.visible(str(file))}?"):
            layer_remove.remove(file)
            removed.append(file)
            if not json:
                out.say(f"removed {file}")
        else:
            stays[file] = "as you said"
    if json:
        kept = {str(file): why for file, why in sorted(stays.items())}
        out.print_json({"removed": list(map(str, removed)), "stays": kept})
        return
    if not files.own:
        out.say(f"no file is of {name} alone: take its class out of its file")
    for file, why in sorted(stays.items()):
        out.say(f"stays: {file}" + (f" ({why})" if why else ""))


@app.command("build")
def build(project: ProjectFolder = Path(), json: out.Json = False) -> None:
    """Write the parameter header, and compile the C++ bodies that are older than their sources."""
    _build(project, json, again=False)


@app.command("rebuild")
def rebuild(project: ProjectFolder = Path(), json: out.Json = False) -> None:
    """The same after what was generated before is removed."""
    _build(project, json, again=True)


def _build(folder: Path, json: bool, *, again: bool) -> None:
    project = projects.folder_at("layer build", folder)
    with out.working("compiling"):
        built = layer_build.build(project, again=again)
    if json:
        out.print_json({"written": list(map(str, built.files)), "notes": list(built.notes)})
        return
    for file in built.files:
        out.say(f"wrote {file}")
    for note in built.notes:
        out.say(note)
    if not built.files and not built.notes:
        out.say("no layer has a body in C++: nothing to build")


app.command("check")(takes_plugins(expands_flags(check)))
