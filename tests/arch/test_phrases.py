# SPDX-License-Identifier: Apache-2.0
"""Messages count in words: "1 node", never "1 node(s)". An error in another error's text is one clause, and
text names roles.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from onedispatch.transactions.base import errors
from onedispatch.transactions.base.text import counted, span
from tests.arch.test_sizes import ROOT, sources

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
    """A number that does not change: its sentence was written for it."""
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


# Texts that stand by themselves: what ends the process, a finding of check mode, a warning, a search, what a
# callback is given.
WHOLE = {
    "dispatch/check/kernels.py": 5,
    "dispatch/check/layers.py": 2,
    "dispatch/check/model.py": 1,
    "dispatch/cli/commands.py": 1,
    "dispatch/plugins/discovery.py": 1,
    "dispatch/plugins/loading.py": 1,
    "dispatch/runtime/ort_methods.py": 1,
}


def quoted_errors(source: str) -> list[str]:
    """Places that put ``str`` of a caught ``OneDispatchError`` into a text, where ``statement()`` belongs."""
    found = []
    for handler in (one for one in ast.walk(ast.parse(source)) if isinstance(one, ast.ExceptHandler)):
        caught = {getattr(one, "id", "") for one in ast.walk(handler.type or ast.Pass())}
        if handler.name is None or not any(
            issubclass(of_name(one), errors.OneDispatchError) for one in caught
        ):
            continue
        for node in (inner for part in handler.body for inner in ast.walk(part)):
            taken = node.args if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "str" else []
            taken = [node.value] if isinstance(node, ast.FormattedValue) else taken
            found += [f"{one.lineno}" for one in taken if getattr(one, "id", "") == handler.name]
    return found


def of_name(name: str) -> type:
    found = getattr(errors, name, object)
    return found if isinstance(found, type) else object


@pytest.mark.parametrize("folder", FOLDERS)
def test_an_error_in_another_ones_text_is_a_statement(repository: Path, folder: str) -> None:
    for path in sorted((repository / folder).rglob("*.py")):
        name = path.relative_to(repository).as_posix()
        found = quoted_errors(path.read_text())
        assert len(found) <= WHOLE.get(name, 0), f"{name}: {found}"


def test_a_statement_says_nothing_twice() -> None:
    inner = errors.ModelError("node a (Concat)", "[1, 2]", "the shape [1, 1]", "change it")
    assert inner.statement() == "node a (Concat): [1, 2] (expected: the shape [1, 1])"
    outer = str(errors.InputError("--shape", inner.statement(), "sizes that fit", inner.remedy))
    assert outer.count("given") == outer.count("accepted") == 1 and outer.endswith(" Change it.")
    assert (
        errors.statement_of(ValueError("bad")) == "bad" and errors.statement_of(ValueError()) == "ValueError"
    )
    listed = errors.UnsupportedModelError("model g", "1 node", nodes=["a (Loop): no"])
    assert listed.statement() == "model g: 1 node; a (Loop): no"


def test_a_remedy_that_asks_ends_with_its_question_mark() -> None:
    assert str(errors.InputError("x", "y", "z", "is it this one?")).endswith(". Is it this one?")
    assert str(errors.InputError("x", "y", "z", "write this")).endswith(". Write this.")


def test_text_names_roles() -> None:
    """A caller, a writer, a thread: who does what is a fact that a reader needs."""
    vague = re.compile(r"\b(?:whoever|(?:no|any|every|some)body)\b", re.IGNORECASE)
    assert vague.search("Whoever calls") and vague.search("nobody") and not vague.search("who ever")
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in (*sources(".py", ".cpp", ".h", ".md", ".toml", ".txt"), *ROOT.glob("*.md"))
        if path.relative_to(ROOT).parts[0] != "tests"
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if vague.search(line)
    ]
    assert not found, "\n" + "\n".join(found)


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
    handler = "try: pass\nexcept (ValueError, ModelError) as error:\n    "
    assert quoted_errors(handler + 'raise InputError(f"{error}")') and quoted_errors(
        handler + "x = str(error)"
    )
    assert not quoted_errors(handler.replace("ModelError", "TypeError") + "x = str(error)")
    assert not quoted_errors(handler + "x = error.statement()")
    assert not bare_counts("f\"{counted(n, 'node')} and {MOST} words, {name} is\"")
