# SPDX-License-Identifier: Apache-2.0
"""Imports point one way: models -> dispatch -> operators -> transactions; one door to each extension.

Neither files nor folders import each other in a circle; imports for type checkers count.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
MAY_IMPORT = {
    "transactions": {"transactions"},
    "operators": {"operators", "transactions"},
    "dispatch": {"dispatch", "operators", "transactions", "cpp_ext"},
    "cpp_ext": {"cpp_ext"},
}
# Extension -> the one file that imports it.
BRIDGES = {
    "onedispatch.cpp_ext._core": "dispatch/base/native.py",
    "onedispatch.transactions.format._native": "transactions/format/decode.py",
}
# The public face re-exports by `onedispatch` itself; nothing inside may go through it.
FACADE = "dispatch/facade/__init__.py"


@cache
def imports_of(source: str) -> list[tuple[int, str]]:
    """(line, dotted name) of every import, also those inside functions."""
    found: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                found.append((node.lineno, "." * node.level + (node.module or "")))
            else:
                found += ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
    return found


def breaks_rule(path: str, name: str) -> str | None:
    """Why the file at ``path`` (from the root) may not import ``name``; None when it may."""
    folder = path.split("/")[0]
    if name.startswith("."):
        return "relative import; write `from onedispatch.<folder> import ...`"
    parts = name.split(".")
    if parts[0] in MAY_IMPORT:
        return f"bare import loads a second copy; write onedispatch.{name}"
    if parts[0] != "onedispatch":
        return None
    if folder not in MAY_IMPORT:
        return None
    if len(parts) < 2 or parts[1] not in MAY_IMPORT:
        return None if path == FACADE else "goes through the public face; import the folder that defines it"
    for bridge, owner in BRIDGES.items():
        if name.startswith(bridge) and path != owner:
            return f"only {owner} may import the C++ extension"
    if parts[1] not in MAY_IMPORT[folder]:
        return f"{folder} may import {', '.join(sorted(MAY_IMPORT[folder]))} only"
    return None


def python_files() -> list[Path]:
    folders = (*MAY_IMPORT, "models", "tests")
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def test_every_import_follows_the_one_way_rule() -> None:
    broken = []
    for path in python_files():
        relative = path.relative_to(ROOT).as_posix()
        for line, name in imports_of(path.read_text(encoding="utf-8")):
            reason = breaks_rule(relative, name)
            if reason:
                broken.append(f"{relative}:{line}: imports {name}: {reason}")
    assert not broken, "\n" + "\n".join(broken)


OPERATOR_ROOMS = ("kernels", "lowering", "mappings")
"""Each may import those before it; ``@maps`` is for the last alone"""


def test_rooms_of_operators() -> None:
    broken = []
    for level, room in enumerate(OPERATOR_ROOMS):
        above = tuple(f"onedispatch.operators.{other}." for other in OPERATOR_ROOMS[level + 1 :])
        for path in sorted((ROOT / "operators" / room).glob("[!_]*.py")):
            text = path.read_text(encoding="utf-8")
            broken += [f"{room}/{path.name}: {n}" for _, n in imports_of(text) if n.startswith(above)]
            if ("\n@maps(" in text) != (room == "mappings"):
                broken.append(f"{room}/{path.name}: mappings of ONNX operators are in operators/mappings")
    assert not broken, "\n".join(broken)


Arrows = Mapping[str, set[str]]
"""Who imports whom, by path from the root"""


def arrows(sources: Mapping[str, str]) -> dict[str, set[str]]:
    """The files that each file imports, also inside functions and for type checkers only."""
    found: dict[str, set[str]] = {}
    for path, text in sources.items():
        names = [name.removeprefix("onedispatch.") for _, name in imports_of(text)]
        places = {place for name in names for place in places_of(name, sources)}
        found[path] = places - {path}
    return found


def places_of(name: str, sources: Mapping[str, str]) -> list[str]:
    """The file that a dotted name means: a module, or what holds the name in it."""
    parts = name.split(".")
    for end in (len(parts), len(parts) - 1):
        module = "/".join(parts[:end])
        for path in (f"{module}.py", f"{module}/__init__.py"):
            if path in sources:
                return [path]
    return []


def between_folders(files: Arrows) -> dict[str, set[str]]:
    folders: dict[str, set[str]] = {}
    for path, others in files.items():
        own = str(PurePosixPath(path).parent)
        folders.setdefault(own, set()).update({str(PurePosixPath(other).parent) for other in others} - {own})
    return folders


def circle(graph: Arrows) -> list[str]:
    """One circle, each importing the next, or nothing."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(reversed(error.args[1]))
    return []


def own_sources() -> dict[str, str]:
    paths = {path.relative_to(ROOT).as_posix(): path for f in MAY_IMPORT for path in (ROOT / f).rglob("*.py")}
    return {name: path.read_text(encoding="utf-8") for name, path in paths.items()}


def test_no_files_and_no_folders_import_each_other_in_a_circle() -> None:
    files = arrows(own_sources())
    assert sum(map(len, files.values())) > 500, "imports are not read any more"
    for graph in (files, between_folders(files)):
        found = circle(graph)
        assert not found, "a circle of imports: " + " -> ".join(found)


def test_a_circle_is_seen() -> None:
    lazy = {
        "transactions/a/x.py": "def f():\n    from onedispatch.transactions.b import y",
        "transactions/b/y.py": "if TYPE_CHECKING:\n    from onedispatch.transactions.a.x import X",
    }
    assert len(circle(arrows(lazy))) == 3
    rooms = {
        "transactions/a/x.py": "import onedispatch.transactions.b.y",
        "transactions/b/y.py": "",
        "transactions/b/z.py": "from onedispatch.transactions.a import w",
        "transactions/a/w.py": "",
    }
    assert not circle(arrows(rooms)) and circle(between_folders(arrows(rooms)))


@pytest.mark.parametrize(
    ("path", "source", "expected"),
    [
        ("transactions/x.py", "import onedispatch.operators.kernels.conv", "transactions may import"),
        ("operators/x.py", "from onedispatch.dispatch import graph", "operators may import"),
        ("operators/x.py", "from .base import Operator", "relative"),
        ("dispatch/x.py", "from operators.base import Operator", "second copy"),
        ("dispatch/x.py", "from onedispatch.cpp_ext import _core", "only dispatch/"),
        ("dispatch/x.py", "def f():\n    import onedispatch.cpp_ext._core", "only dispatch/"),
        (
            "transactions/fusion/fuse.py",
            "from onedispatch.transactions.format import _native",
            "only transactions/format/decode.py",
        ),
        ("transactions/format/decode.py", "from onedispatch.transactions.format import _native", None),
        ("dispatch/x.py", "import onedispatch", "public face"),
        ("tests/unit/test_x.py", "from transactions import spec", "second copy"),
        ("dispatch/base/native.py", "from onedispatch.cpp_ext import _core", None),
        ("operators/x.py", "from onedispatch.transactions import Device", None),
        ("models/demo.py", "import onedispatch", None),
        ("operators/x.py", "import operator", None),
    ],
)
def test_the_rule_itself(path: str, source: str, expected: str | None) -> None:
    reasons = [breaks_rule(path, name) for _, name in imports_of(source)]
    if expected is None:
        assert reasons == [None]
    else:
        assert any(reason and expected in reason for reason in reasons)
