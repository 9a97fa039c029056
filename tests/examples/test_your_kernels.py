# SPDX-License-Identifier: Apache-2.0
"""The page "Your own kernels": its blocks run one after the other, as a reader would type them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path("operators") / "YOUR_KERNELS.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)
RUNS = ("python", "cpp", "sh")
# All Python blocks are one session, in which a shared object, once compiled by a shell block, is loaded.
DRIVER = """
import subprocess, sys
from pathlib import Path
names = {{"__name__": "page"}}
for kind, line, text in {blocks!r}:
    if kind == "cpp":
        Path(text.split("\\n")[0].removeprefix("// ")).write_text(text)
    elif kind == "sh":
        subprocess.run(["bash", "-euo", "pipefail", "-c", text], check=True)
    else:
        exec(compile("\\n" * line + text, {page!r}, "exec"), names)
    print("ran", kind, line, flush=True)
"""


def blocks(repository: Path) -> list[tuple[str, int, str]]:
    """(language, line, text) of every block, in order."""
    page = (repository / PAGE).read_text(encoding="utf-8")
    return [(m[1], page[: m.start(2)].count("\n"), m[2]) for m in BLOCK.finditer(page)]


def test_every_block_is_one_that_runs_or_a_picture(repository: Path) -> None:
    kinds = {kind for kind, _, _ in blocks(repository)}
    assert kinds == {*RUNS, "text", "toml"}


@pytest.mark.slow
def test_the_blocks_run_in_order(repository: Path, tmp_path: Path) -> None:
    run = [block for block in blocks(repository) if block[0] in RUNS]
    driver = tmp_path / "driver.py"
    driver.write_text(DRIVER.format(blocks=run, page=str(repository / PAGE)), encoding="utf-8")
    tools = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    environment = {k: v for k, v in os.environ.items() if not k.startswith("ONEDISPATCH_")} | {"PATH": tools}
    done = subprocess.run(
        [sys.executable, str(driver)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ran ") == len(run)
    assert "warning:" not in done.stderr, done.stderr


def test_the_first_kernel_takes_fifteen_lines_or_fewer(repository: Path) -> None:
    _, _, text = next(block for block in blocks(repository) if block[0] == "python")
    lines = [line for line in text.splitlines() if line.strip()]
    assert any("acme::scale_add" in line for line in lines) and len(lines) <= 15


def test_links_of_the_page_lead_somewhere(repository: Path) -> None:
    page = (repository / PAGE).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#:]+)\)", page):
        assert (repository / PAGE.parent / target).exists(), target
