# SPDX-License-Identifier: Apache-2.0
"""Messages count in words: "1 node", never "1 node(s)" or "1 nodes"."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from onedispatch.transactions.base.phrases import counted, span

FOLDERS = ("dispatch", "operators", "transactions", "models")
NOUNS = (
    "addresses arguments bytes channels columns dimensions errors events images kernels locks nodes "
    "operations operators ops outputs packets patches PDIs regions registers rows runs steps tasks "
    "threads tiles tokens values warnings words"
).split()
COUNT = re.compile(rf" (?:more |other )?(?:{'|'.join(NOUNS)})\b")
IN_CPP = re.compile(rf'std::to_string\([^"\n]*\)\s*\+\s*" (?:{"|".join(NOUNS)})\b')
# Listings that the assembler reads back, and a plural that no number of one can reach.
READ_BACK = {"transactions/text/listing.py": 3}


def constant(expression: ast.expr) -> bool:
    """A number that does not change: whoever wrote the sentence knew it."""
    name = getattr(expression, "attr", getattr(expression, "id", ""))
    return bool(name) and name == name.upper()


def bare_counts(source: str) -> list[str]:
    """Numbers in f-strings that a plural follows, without ``counted``."""
    found = []
    for text in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.JoinedStr)):
        for value, after in zip(text.values, text.values[1:], strict=False):
            if not isinstance(value, ast.FormattedValue) or not isinstance(after, ast.Constant):
                continue
            expression = value.value
            if value.conversion != -1 or constant(expression) or not COUNT.match(str(after.value)):
                continue
            if isinstance(expression, ast.Call | ast.Name | ast.Attribute | ast.BinOp | ast.Subscript):
                called = getattr(getattr(expression, "func", None), "id", "")
                if called not in ("counted", "span") and not ast.unparse(expression).endswith("name"):
                    found.append(f"{text.lineno}: {ast.unparse(text)}")
    return found


@pytest.mark.parametrize("folder", FOLDERS)
def test_python_counts_with_one_helper(repository: Path, folder: str) -> None:
    for path in sorted((repository / folder).rglob("*.py")):
        name = path.relative_to(repository).as_posix()
        found = bare_counts(path.read_text())
        assert len(found) <= READ_BACK.get(name, 0), f"{name}: {found}"


def test_nothing_says_perhaps_plural(repository: Path) -> None:
    kinds = {".py", ".cpp", ".h"}
    sources = [p for f in (*FOLDERS, "cpp_ext") for p in (repository / f).rglob("*") if p.suffix in kinds]
    assert sources
    for path in sources:
        for literal in re.findall(r'"(?:[^"\\\n]|\\.)*"', path.read_text()):
            assert not re.search(r"\w\(e?s\)", literal) or "Inference error(s)" in literal, (
                f"{path}: {literal}"
            )


def test_cpp_counts_with_one_helper(repository: Path) -> None:
    for path in sorted((repository / "cpp_ext").rglob("*.cpp")):
        found = IN_CPP.findall(path.read_text())
        assert not found, f"{path}: {found}"


def test_phrases() -> None:
    assert [counted(n, "task") for n in (0, 1, 2000)] == ["0 tasks", "1 task", "2,000 tasks"]
    assert (counted(2, "address"), counted(3, "entry"), counted(2, "day")) == (
        "2 addresses",
        "3 entries",
        "2 days",
    )
    assert (span(0, 3), span(5, 5), span(0, -1)) == ("0 to 3", "5", "nothing")


def test_the_check_sees_what_it_should() -> None:
    assert bare_counts('f"{len(x)} nodes"') and bare_counts('f"{n:,} more words of"')
    assert not bare_counts("f\"{counted(n, 'node')} and {MOST} words, {name} is\"")
