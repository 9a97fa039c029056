# SPDX-License-Identifier: Apache-2.0
"""The C++ headers and pages made from Python tables are the ones that the tables make today."""

from __future__ import annotations

import difflib
import subprocess
import sys
from pathlib import Path

import pytest

INCLUDE = "cpp_ext/include/onedispatch"
# module -> the folder that its one argument names
GENERATORS = {
    "onedispatch.operators.codegen.genheader": INCLUDE,
    "onedispatch.operators.codegen.gendocs": "operators",
    "onedispatch.transactions.codegen.genheader": INCLUDE,
}


@pytest.mark.parametrize("module", GENERATORS)
def test_generated_files_are_up_to_date(module: str, repository: Path, tmp_path: Path) -> None:
    # The child starts elsewhere than in the root, where a bare `operators` would be found.
    command = [sys.executable, "-m", module, str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"python -m {module} failed:\n{done.stderr}"
    fresh = sorted(tmp_path.iterdir())
    assert fresh, f"python -m {module} wrote nothing"
    for path in fresh:
        wanted, committed = path.read_text(), (repository / GENERATORS[module] / path.name).read_text()
        difference = difflib.unified_diff(
            committed.splitlines(), wanted.splitlines(), "committed", f"from {module}", lineterm="", n=1
        )
        assert wanted == committed, f"{path.name} is stale, run `make generate`:\n" + "\n".join(difference)


def test_the_architecture_page_has_the_passes_and_folders_of_today(repository: Path, tmp_path: Path) -> None:
    committed = (repository / "ARCHITECTURE.md").read_text(encoding="utf-8")
    page = tmp_path / "ARCHITECTURE.md"
    page.write_text(committed, encoding="utf-8")
    command = [sys.executable, "-m", "onedispatch.dispatch.codegen.gendocs", str(page)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert page.read_text(encoding="utf-8") == committed, "ARCHITECTURE.md is stale, run `make generate`"


def test_every_generated_header_has_a_generator(repository: Path, tmp_path: Path) -> None:
    for module in GENERATORS:
        command = [sys.executable, "-m", module, str(tmp_path)]
        subprocess.run(command, cwd=tmp_path, capture_output=True, check=True)
    made = {path.name for path in tmp_path.iterdir()}
    headers = (repository / INCLUDE).glob("*.h")
    says = {path.name for path in headers if "GENERATED" in path.read_text()[:300]}
    assert says <= made, f"no generator makes {', '.join(sorted(says - made))}"
