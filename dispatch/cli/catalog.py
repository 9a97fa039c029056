# SPDX-License-Identifier: Apache-2.0
"""``onedispatch catalog``: files of tuned solutions, built, looked into, joined and checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onedispatch.dispatch.base.json_files import read_json
from onedispatch.dispatch.cli import output as out
from onedispatch.transactions.base.errors import CatalogError, InputError
from onedispatch.transactions.base.files import write_file
from onedispatch.transactions.base.text import counted

if TYPE_CHECKING:
    from onedispatch.operators.catalog.build import Programs
    from onedispatch.operators.catalog.container import Library
    from onedispatch.operators.catalog.selector import Walk
    from onedispatch.operators.emission.programs import NestProgram
    from onedispatch.operators.scheduling.problem import Problem

app = typer.Typer(no_args_is_help=True, help="Tuned solutions in files: build, look into, check.")


class Form(str, Enum):
    """How a catalog's main file is written."""

    msgpack = "msgpack"
    yaml = "yaml"


Folder = Annotated[Path, typer.Option("--output", "-o", help="The folder to write to.")]
Lazy = Annotated[
    bool, typer.Option("--lazy/--merged", help="A parent and its children, or all of a device in one file.")
]
Written = Annotated[Form, typer.Option("--format", help="Of the parent, or of the merged file.")]
Files = Annotated[list[Path], typer.Argument(help="Catalogs: files, .odcat or .yaml.")]


@app.command()
def build(
    logs: Annotated[list[Path], typer.Argument(help="What `onedispatch tune` wrote.")],
    output: Folder,
    lazy: Lazy = True,
    form: Written = Form.msgpack,
    prebuild: Annotated[
        list[str] | None,
        typer.Option(help="MODEL or MODEL:bf16, whose transactions are built ahead. Repeatable."),
    ] = None,
    json: out.Json = False,
) -> None:
    """Make catalogs of tuning logs, one for each device: of every problem, the best row.

    With --prebuild they have code objects, too: compiling these models, or others that have nests of them,
    loads what would be emitted. Objects belong to the source that made them, and are left alone by others.
    """
    from onedispatch.operators.catalog.build import merged
    from onedispatch.operators.catalog.log import read

    libraries = merged(row for path in logs for row in read(path))
    _write(libraries, output, lazy, form, json, _programs(libraries, prebuild or []))


def _programs(libraries: list[Library], models: list[str]) -> Programs:
    """The programs of models on each library's device, as they are compiled by it."""
    from onedispatch.dispatch.cli.opening import source
    from onedispatch.dispatch.driver.compile_model import compile_model
    from onedispatch.dispatch.tuning.prebuild import programs_by

    def compile_all(device: str, catalog: Sequence[str]) -> None:
        for name, precision in map(_named, models):
            with out.working(f"compiling {name} for {device}"):
                compile_model(source(Path(name)), device, precision, catalog=catalog)

    return {
        one.device: programs_by(one, partial(compile_all, _known(one.device)))
        for one in (libraries if models else [])
    }


def _named(model: str) -> tuple[str, str]:
    """A model and its precision, of MODEL or MODEL:PRECISION."""
    from onedispatch.dispatch.base.precisions import EXACT, PRECISIONS

    name, _, precision = model.rpartition(":")
    return (name, precision) if name and precision in PRECISIONS else (model, EXACT)


def _known(identity: str) -> str:
    """The name of a device. Raises ``CatalogError`` where that names another one here."""
    from onedispatch.transactions import find_device

    name = identity.partition("@")[0]
    if find_device(name).identity != identity:
        remedy = "build it without --prebuild"
        raise CatalogError("--prebuild", f"a log for {identity}", f"{find_device(name).identity}", remedy)
    return name


@app.command()
def merge(files: Files, output: Folder, form: Written = Form.msgpack, json: out.Json = False) -> None:
    """Join catalogs of each device into one file; of a problem in several, the best row stays."""
    _write(_by_device(files), output, False, form, json, _built(files))


@app.command()
def split(files: Files, output: Folder, form: Written = Form.msgpack, json: out.Json = False) -> None:
    """Write catalogs as parents with children, which are read when a problem needs them."""
    _write(_by_device(files), output, True, form, json, _built(files))


def _by_device(files: list[Path]) -> list[Library]:
    from onedispatch.operators.catalog.build import joined, library_of

    libraries = [library_of(path) for path in files]
    devices = sorted({one.device for one in libraries})
    return [joined([one for one in libraries if one.device == device]) for device in devices]


def _built(files: list[Path]) -> Programs:
    """The code objects of catalogs, which go where their catalogs go."""
    from onedispatch.operators.catalog.build import programs_of

    found: dict[str, dict[bytes, NestProgram]] = {}
    for path in files:
        device, programs = programs_of(path)
        found.setdefault(device, {}).update(programs)
    return found


def _write(
    libraries: list[Library],
    folder: Path,
    lazy: bool,
    form: Form,
    json: bool,
    programs: Programs | None = None,
) -> None:
    from onedispatch.operators.catalog.build import write

    rows = []
    written = write(libraries, folder, lazy=lazy, form=form.value, programs=programs)
    for library in libraries:
        files = written[library.device]
        entries = [entry for table in library.tables.values() for entry in table.entries]
        solutions = len({entry.solution for entry in entries})
        size = sum(path.stat().st_size for path in files)
        rows.append((library.device, len(library.tables), len(entries), solutions, len(files), size))
    names = ("device", "tables", "problems", "solutions", "files", "bytes")
    if json:
        out.print_json([dict(zip(names, row, strict=True)) for row in rows])
        return
    shown = [(device, *(f"{number:,}" for number in numbers)) for device, *numbers in rows]
    out.table(f"Catalogs in {folder}", names, shown, right=(1, 2, 3, 4, 5))


@app.command()
def lint(
    path: Annotated[Path, typer.Argument(help="A catalog's file, or a folder of such files.")],
    json: out.Json = False,
) -> None:
    """Find what is wrong with catalogs before they are used: exit code 1 where selection could not use it."""
    from onedispatch.operators.catalog.lint import lint as findings_of
    from onedispatch.transactions import device_names, find_device

    if not path.exists():
        raise CatalogError(str(path), "no such file", "a catalog's file or folder")
    findings = findings_of(path, [find_device(name) for name in device_names()])
    if json:
        out.print_json([asdict(one) for one in findings])
    elif findings:
        rows = [(one.level, Path(one.file).name, one.text) for one in findings]
        out.table("Findings", ("level", "file", "what"), rows)
    else:
        out.tell(f"{path}: nothing wrong")
    if any(one.level == "error" for one in findings):
        raise typer.Exit(1)


@app.command()
def diff(first: Path, second: Path, json: out.Json = False) -> None:
    """Compare two catalogs: problems that only one has, or has other solutions of. Exit code 1 if any."""
    from onedispatch.operators.catalog.build import library_of

    one, other = (_entries(library_of(path)) for path in (first, second))
    rows: list[tuple[str, ...]] = []
    for problem in sorted(one.keys() | other.keys()):
        before, after = one.get(problem), other.get(problem)
        if before != after:
            shown = ["-" if x is None else f"{x[0]}, {x[1]:,.0f} cycles" for x in (before, after)]
            rows.append((problem, *shown))
    if json:
        out.print_json([dict(zip(("problem", "first", "second"), row, strict=True)) for row in rows])
    elif rows:
        out.table("Problems that differ", ("problem", str(first), str(second)), rows)
    else:
        out.tell(f"the same {counted(len(one), 'problem')} with the same solutions")
    if rows:
        raise typer.Exit(1)


def _entries(library: Library) -> dict[str, tuple[str, float]]:
    return {
        entry.problem.hex(): (entry.solution.name, entry.cycles)
        for table in library.tables.values()
        for entry in table.entries
    }


@app.command()
def explain(
    what: Annotated[
        str, typer.Argument(help="A model, or a file of problems (.json) as `Problem.to_data` has.")
    ],
    device: out.Device = "npu2",
    catalog: Annotated[
        list[str] | None, typer.Option(help="Files or folders, asked first. Repeatable.")
    ] = None,
    pin: Annotated[list[str] | None, typer.Option(help="A solution's name. Repeatable.")] = None,
    precision: Annotated[str, typer.Option(help="fp32 or bf16.")] = "fp32",
    only: Annotated[str, typer.Option(help="Problems whose digest or kernel has this text.")] = "",
    json: out.Json = False,
) -> None:
    """Show how each problem's solution is found: the levels, the candidates, the choice, the runner-up."""
    from onedispatch.operators.catalog.layers import selector_of
    from onedispatch.operators.catalog.selector import CatalogSearch, check_pins
    from onedispatch.transactions import find_device

    check_pins(pin or ())
    target, selector = find_device(device), selector_of(catalog, pin or ())
    asked = selector if isinstance(selector, CatalogSearch) else CatalogSearch()
    problems = _problems(what, device, precision)
    if not problems:
        raise InputError(what, "no problem: nothing of it runs on the device", "one or more")
    chosen = [p for p in problems if only in p.digest or only in p.kernel]
    if not chosen:
        raise InputError("--only", repr(only), f"a part of {', '.join(sorted({p.kernel for p in problems}))}")
    walks = [(problem, asked.explain(problem, target)) for problem in chosen]
    if json:
        out.print_json([_walk_data(problem, walk) for problem, walk in walks])
        return
    for one in asked.catalogs:
        out.tell(f"catalog {one.path}: {one.about_objects(target)}")
    if not asked.catalogs:
        out.tell("no catalog: problems are searched, programs are emitted")
    out.tell()
    for problem, walk in walks:
        _show(problem, walk)


def _problems(what: str, device: str, precision: str) -> list[Problem]:
    from onedispatch.operators.scheduling.problem import Problem

    if what.endswith(".json"):
        data = read_json(Path(what), "a JSON list of problems, as Problem.to_data() writes them")
        return [Problem.from_data(one) for one in (data if isinstance(data, list) else [data])]
    from onedispatch.dispatch.cli.opening import source
    from onedispatch.dispatch.driver.compile_model import compile_model
    from onedispatch.dispatch.tuning.collect import problems_of

    with out.working(f"compiling {what}"):
        model = source(Path(what))
        return list(problems_of(lambda selector: compile_model(model, device, precision, selector=selector)))


def _show(problem: Problem, walk: Walk) -> None:
    sizes = " ".join(f"{dim.name}:{dim.extent}" for dim in problem.dims)
    reduced = f" k:{problem.k_extent}" if problem.k_extent else ""
    out.tell(f"{problem.kernel} {sizes}{reduced}, problem {problem.digest}")
    for step in walk.steps:
        out.tell(f"  {'  ' * step.depth}{step.asked}: {step.outcome}")
    for one in walk.candidates:
        out.tell(f"    candidate: {one}, of {one.table}")
    searched = "nothing" if walk.searched is None else walk.searched.name
    cycles = "" if walk.searched_cycles is None else f", {walk.searched_cycles:,.0f} cycles estimated"
    if walk.chosen is None:
        out.tell(f"  chosen: by {walk.method}, {searched}{cycles}\n")
    else:
        out.tell(f"  chosen: {walk.chosen}\n  the search: {searched}{cycles}\n")


def _walk_data(problem: Problem, walk: Walk) -> dict[str, Any]:
    def plain(one: Any) -> Any:
        return None if one is None else asdict(replace(one)) | {"solution": one.solution.name}

    return {
        "problem": problem.to_data(),
        "digest": problem.digest,
        "steps": [asdict(step) for step in walk.steps],
        "candidates": [plain(one) for one in walk.candidates],
        "chosen": plain(walk.chosen),
        "method": walk.method,
        "solution": None if walk.solution is None else walk.solution.to_data(),
        "searched": None if walk.searched is None else walk.searched.name,
        "searched_cycles": walk.searched_cycles,
    }


@app.command()
def pin(
    problem: Annotated[Path, typer.Argument(help="A problem's JSON, as `catalog explain --json` shows it.")],
    solution: Annotated[Path, typer.Argument(help="A solution's JSON, as `Solution.to_data` has it.")],
    device: out.Device = "npu2",
    output: Annotated[Path, typer.Option("--output", "-o", help="The catalog to write, .yaml.")] = Path(
        "pins.yaml"
    ),
    json: out.Json = False,
) -> None:
    """Write a catalog of one row: this problem, this solution, held to the rules and measured.

    Name it with --catalog, or in ONEDISPATCH_CATALOG, and it is asked before all others.
    """
    from onedispatch.dispatch.tuning.measure import measure
    from onedispatch.operators.catalog.build import merged
    from onedispatch.operators.catalog.log import Tuned
    from onedispatch.operators.catalog.text import text_of
    from onedispatch.operators.scheduling.problem import Problem
    from onedispatch.operators.scheduling.schedule import Schedule
    from onedispatch.operators.scheduling.search import estimated
    from onedispatch.operators.scheduling.solution import Solution
    from onedispatch.transactions import find_device

    asked = Problem.from_data(read_json(problem, "a problem's JSON"))
    answer = Solution.from_data(read_json(solution, "a solution's JSON"))
    target = find_device(device)
    cycles = measure(asked, answer, target)
    guess = estimated(Schedule(asked.nest, target, answer))
    (library,) = merged([Tuned(asked, answer, cycles, guess, "pinned")])
    write_file(output, text_of(library).encode())
    if json:
        made = {"path": str(output), "solution": answer.name, "problem": asked.digest, "cycles": cycles}
        out.print_json(made)
        return
    out.tell(f"{output}: {answer.name} for problem {asked.digest}, {cycles:,} cycles measured")
