# SPDX-License-Identifier: Apache-2.0
"""Generates parts of ``ARCHITECTURE.md``: passes from ``dispatch/compile.py``, folders from their docstrings
and imports. A test compares.

``python -m onedispatch.dispatch.codegen.gendocs ARCHITECTURE.md`` replaces the text between the markers.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Sequence
from graphlib import TopologicalSorter
from pathlib import Path

from onedispatch.dispatch import compile as passes
from onedispatch.dispatch.compiler import properties
from onedispatch.dispatch.compiler.passes import Pass, Property
from onedispatch.transactions.base.errors import InternalError
from onedispatch.transactions.base.files import write_file
from onedispatch.transactions.base.text import markdown_table

ROOT = Path(__file__).resolve().parents[2]
TOP_FOLDERS = ("dispatch", "operators", "transactions")
LISTS = (
    ("MODEL_PASSES", "once for a model: from the file to a `Graph`"),
    ("GRAPH_PASSES", "for each set of input shapes: from `Graph` to `Graph`"),
    ("LOWERING_PASSES", "after these: from `Graph` to `Executable`"),
)
_FACADE = "dispatch/facade"  # its docstring is that of the package `onedispatch`
_FACADE_JOB = "Becomes the package `onedispatch`: the public names, loaded on first use."
_ALWAYS = Pass.__dataclass_fields__["when"].default


# -- passes ----------------------------------------------------------------------------------------------


def _names() -> dict[Property, str]:
    return {one: name for name, one in vars(properties).items() if isinstance(one, Property)}


def passes_text() -> str:
    """Returns the passes in the order in which they run, and the properties that they name."""
    names = _names()
    parts = []
    for attribute, when in LISTS:
        rows = [
            (
                f"`{one.name}`" + ("" if one.when is _ALWAYS else " *"),
                one.summary,
                ", ".join(names[p] for p in one.requires),
                ", ".join(names[p] for p in one.ensures),
            )
            for one in getattr(passes, attribute)
        ]
        head = f"**`{attribute}`**, {when}:"
        parts.append(f"{head}\n\n{markdown_table(('pass', 'what it does', 'requires', 'ensures'), rows)}")
    parts.append("`*`: under some options only (`when` of the pass). What the properties say of a value:")
    parts.append("\n".join(f"- {name}: {one.name}" for one, name in names.items()))
    return "\n\n".join(parts)


# -- folders ---------------------------------------------------------------------------------------------


def _rooms(top: str) -> list[str]:
    """The folders in ``top``, and the modules that lie in it itself, as paths from the root."""
    paths = (path for path in (ROOT / top).iterdir() if not path.name.startswith(("_", ".")))
    found = (path for path in paths if path.suffix == ".py" or (path / "__init__.py").is_file())
    return sorted(path.relative_to(ROOT).as_posix() for path in found)


def _files(room: str) -> list[Path]:
    path = ROOT / room
    return [path] if path.is_file() else sorted(path.rglob("*.py"))


def _imports(room: str, rooms: Sequence[str]) -> list[str]:
    """Those of ``rooms`` that ``room`` imports, also inside functions and for type checkers only."""
    named = set[str]()
    for file in _files(room):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                named.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                named.update(f"{node.module}.{alias.name}" for alias in node.names)
    dotted = {other: "onedispatch." + other.removesuffix(".py").replace("/", ".") + "." for other in rooms}
    return [o for o in rooms if o != room and any(f"{name}.".startswith(dotted[o]) for name in named)]


def _job(room: str) -> str:
    """The first sentence of the docstring."""
    if room == _FACADE:
        return _FACADE_JOB
    path = ROOT / room
    source = path if path.is_file() else path / "__init__.py"
    text = " ".join((ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or "").split())
    found = re.match(r".*?\.(?= |$)", text)
    if found is None:
        raise InternalError(f"docstring of {room}", repr(text), "a sentence that says what it is for")
    return found[0].replace("``", "`")


def rooms_text(top: str) -> str:
    """Returns the folders of ``top``: each imports those below it alone."""
    rooms = _rooms(top)
    imports = {room: _imports(room, rooms) for room in rooms}
    order = reversed(list(TopologicalSorter(imports).static_order()))
    short = {room: room.removeprefix(f"{top}/") for room in rooms}
    rows = [
        (f"`{short[room]}`", _job(room), ", ".join(short[other] for other in imports[room])) for room in order
    ]
    return markdown_table((f"`{top}/`", "its job", "imports of these"), rows)


# -- the page --------------------------------------------------------------------------------------------


def updated(page: str) -> str:
    """Returns ``page`` with what stands between each pair of markers as it is today."""
    for name, text in (("passes", passes_text()), *((top, rooms_text(top)) for top in TOP_FOLDERS)):
        begin, end = f"<!-- {name}: generated by `make generate` -->", f"<!-- end of {name} -->"
        if page.count(begin) != 1 or page.count(end) != 1:
            raise InternalError("ARCHITECTURE.md", f"other markers of {name}", f"one {begin} and one {end}")
        head, rest = page.split(begin)
        page = f"{head}{begin}\n{text}\n{end}{rest.split(end)[1]}"
    return page


if __name__ == "__main__":
    path = Path(sys.argv[1])
    write_file(path, updated(path.read_text(encoding="utf-8")).encode())
