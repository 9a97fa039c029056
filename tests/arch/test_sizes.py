# SPDX-License-Identifier: Apache-2.0
"""Files stay small enough to be read: 600 lines per file, 60 lines and 8 parameters per Python function."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDERS = ("dispatch", "operators", "transactions", "cpp_ext", "tests", "models", ".ci")
FILE_CAP = 600
FUNCTION_CAP = 60
PARAMETER_CAP = 8
PUBLIC = frozenset((("operators/plugin/plugin.py", "kernel"),))  # its keywords declare a kernel


def sources(*suffixes: str) -> list[Path]:
    found = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*"))
    return sorted(path for path in found if path.suffix in suffixes and path.is_file())


def generated(text: str) -> bool:
    """Generated files may be as long as their tables make them; they say so at the top."""
    return "GENERATED" in text[:300]


def test_no_file_is_longer_than_the_cap() -> None:
    long = []
    for path in sources(".py", ".pyi", ".cpp", ".h", ".hpp"):
        text = path.read_text(encoding="utf-8")
        lines = text.count("\n")
        if lines > FILE_CAP and not generated(text):
            long.append(f"{path.relative_to(ROOT)}: {lines} lines, at most {FILE_CAP}: split it by concept")
    assert not long, "\n" + "\n".join(long)


Function = ast.FunctionDef | ast.AsyncFunctionDef


@functools.cache
def functions() -> list[tuple[str, Function]]:
    """All Python functions, and the file of each."""
    return [
        (str(path.relative_to(ROOT)), node)
        for path in sources(".py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, Function)
    ]


def test_no_function_is_longer_than_the_cap() -> None:
    long = []
    for where, node in functions():
        lines = (node.end_lineno or node.lineno) - node.lineno + 1
        if lines > FUNCTION_CAP:
            given = f"{lines} lines, at most {FUNCTION_CAP}: name its parts"
            long.append(f"{where}:{node.lineno}: {node.name}: {given}")
    assert not long, "\n" + "\n".join(long)


def parameters(function: Function) -> int:
    given = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    return len(given) - (bool(given) and given[0].arg in ("self", "cls"))


def test_no_function_takes_more_parameters_than_the_cap() -> None:
    wide = []
    for where, node in functions():
        if (where, node.name) in PUBLIC or where.startswith("tests/"):
            continue
        if parameters(node) > PARAMETER_CAP:
            given = f"{parameters(node)} parameters, at most {PARAMETER_CAP}"
            wide.append(f"{where}:{node.lineno}: {node.name}: {given}: make those that go together one value")
    assert not wide, "\n" + "\n".join(wide)


def test_every_source_names_its_license() -> None:
    bare = []
    for path in sources(".py", ".cpp", ".h", ".hpp"):
        head = path.read_text(encoding="utf-8")[:200]
        if head.strip() and "SPDX-License-Identifier: Apache-2.0" not in head:
            bare.append(str(path.relative_to(ROOT)))
    assert not bare, f"no SPDX line at the top of: {', '.join(bare)}"
