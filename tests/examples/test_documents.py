# SPDX-License-Identifier: Apache-2.0
"""Every example of every page runs, block after block, as a reader would type them.

A block whose fence says ``python``, ``cpp`` or ``sh`` runs, unless the line before it is
``<!-- not run: why -->``; one of ``cpp`` or ``toml`` whose first line names a file is written there. Other
blocks are pictures: output, synopses, fragments.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from onedispatch.operators.declarations.registry import all_mappings
from tests.served import onedispatch
from tests.tables import NIGHTLY

ROOT = Path(__file__).parents[2]
SKIPPED_FOLDERS = {".venv", "build", ".git"}
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in ROOT.rglob("*.md")
    if SKIPPED_FOLDERS.isdisjoint(path.relative_to(ROOT).parts)
)
FIRST = "README.md"
BLOCK = re.compile(
    r"^(?:<!-- not run: (?P<why>[^\n]+) -->\n)?```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.M | re.S
)
RUNS = ("python", "cpp", "sh")
FILE = re.compile(r"(?://|#) (\w+\.(?:cpp|toml))\b")
SECONDS = 280
# All Python blocks of a page are one session, in which a file that a shell block made is there.
DRIVER = """
import subprocess
from pathlib import Path
names = {{"__name__": "page"}}
for kind, line, text, file in {blocks!r}:
    if file:
        Path(file).write_text(text)
    elif kind == "sh":
        subprocess.run(["bash", "-euo", "pipefail", "-c", text], check=True)
    else:
        exec(compile("\\n" * line + text, {page!r}, "exec"), names)
    print("ran", kind, line, flush=True)
"""


@dataclass(frozen=True)
class Block:
    kind: str
    line: int
    text: str
    why_not: str

    @property
    def file(self) -> str:
        """The file that the text is, "" for none."""
        found = FILE.match(self.text)
        return found[1] if found and self.kind in ("cpp", "toml") else ""

    @property
    def runs(self) -> bool:
        return not self.why_not and (self.kind in RUNS or bool(self.file))


def blocks_of(page: str) -> list[Block]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return [
        Block(m["kind"], text[: m.start("text")].count("\n"), m["text"], m["why"] or "")
        for m in BLOCK.finditer(text)
    ]


def has_examples(page: str) -> bool:
    return any(block.runs for block in blocks_of(page))


def test_pages_are_found() -> None:
    assert {FIRST, "operators/YOUR_KERNELS.md", "operators/YOUR_OPERATORS.md"} <= set(PAGES)
    assert {"operators/README.md", "transactions/README.md"} <= set(PAGES)
    assert {"ARCHITECTURE.md", "CONTRIBUTING.md", "GLOSSARY.md"} <= set(PAGES)


@pytest.mark.parametrize("page", PAGES)
def test_every_block_is_closed_and_of_a_known_kind(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = blocks_of(page)
    assert len(re.findall(r"^ *```", text, re.M)) == 2 * len(blocks), "a fence is indented, or not closed"
    assert {block.kind for block in blocks} <= {*RUNS, "text", "toml", "yaml", ""}
    for block in blocks:  # what is typed has its language, so that it runs
        assert block.kind or not re.match(r"(import|from) \w+", block.text), f"{page}:{block.line}"
        assert block.kind != "cpp" or block.file, f"{page}:{block.line}: the first line names no file"


@pytest.fixture(scope="module")
def programs() -> Iterator[Path]:
    """A folder with ``onedispatch``."""
    with onedispatch(fresh=NIGHTLY) as folder:
        yield folder


@pytest.mark.slow
def test_the_first_page_runs(programs: Path, tmp_path: Path) -> None:
    run_in_order(FIRST, programs, tmp_path)


@pytest.mark.slow
@pytest.mark.daily(5)
@pytest.mark.parametrize("page", [page for page in PAGES if page != FIRST and has_examples(page)])
def test_the_blocks_run_in_order(page: str, programs: Path, tmp_path: Path) -> None:
    run_in_order(page, programs, tmp_path)


def run_in_order(page: str, programs: Path, tmp_path: Path) -> None:
    run = [(one.kind, one.line, one.text, one.file) for one in blocks_of(page) if one.runs]
    (tmp_path / "models").symlink_to(ROOT / "models", target_is_directory=True)
    driver = tmp_path / "driver.py"
    driver.write_text(DRIVER.format(blocks=run, page=str(ROOT / page)), encoding="utf-8")
    tools = os.pathsep.join((str(programs), str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    environment = {k: v for k, v in os.environ.items() if not k.startswith("ONEDISPATCH_")}
    environment |= {"PATH": tools, "ONEDISPATCH_CACHE": "off"}
    done = subprocess.run(
        [sys.executable, str(driver)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert done.stdout.count("ran ") >= len(run)
    assert "warning:" not in done.stderr, done.stderr


@pytest.mark.parametrize("page", PAGES)
def test_quoted_lines_are_those_of_the_file(page: str) -> None:
    """A block of kind ``text`` whose first line is ``# from FILE`` quotes lines of it."""
    for block in blocks_of(page):
        head, *lines = block.text.splitlines()
        quoted = re.fullmatch(r"(?://|#) from (\S+)", head)
        if block.kind != "text" or not quoted:
            continue
        there = (ROOT / quoted[1]).read_text(encoding="utf-8").splitlines()
        assert not [line for line in lines if line not in there], f"{page}:{block.line}: {quoted[1]}"


def test_readme_counts_the_operators() -> None:
    count = len({row.op_type for row in all_mappings() if not row.domain})
    assert f" {count} operators of ONNX map by themselves" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_glossary_names_what_exists() -> None:
    lines = (ROOT / "GLOSSARY.md").read_text(encoding="utf-8").splitlines()
    rows = [row for row in (line.strip("| ").split(" | ") for line in lines) if len(row) == 3]
    places = [part for _, _, where in rows for part in where.split("; ") if part.startswith("`")]
    assert len(places) > 60
    for place in places:
        file, *names = re.findall("`([^`]+)`", place)
        text = (ROOT / file).read_text(encoding="utf-8")
        for name in names:
            assert re.search(rf"\b{re.escape(name)}\b", text), f"{file} has no {name}"


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text):
        assert (ROOT / page).parent.joinpath(target).exists(), target
