# SPDX-License-Identifier: Apache-2.0
"""The C++ headers made from Python tables are the ones that the tables make today."""

from __future__ import annotations

import difflib
import subprocess
import sys
from pathlib import Path

import pytest

INCLUDE = "cpp_ext/include/onedispatch"
# module -> what its one argument names: a file, or "" for the folder to fill
GENERATORS = {
    "onedispatch.operators.codegen.genheader": "",
    "onedispatch.transactions.codegen.genheader": "",
}


@pytest.mark.parametrize("module", GENERATORS)
def test_headers_are_up_to_date(module: str, repository: Path, tmp_path: Path) -> None:
    # The child starts elsewhere than in the root, where a bare `operators` would be found.
    command = [sys.executable, "-m", module, str(tmp_path / GENERATORS[module])]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"python -m {module} failed:\n{done.stderr}"
    fresh = sorted(tmp_path.iterdir())
    assert fresh, f"python -m {module} wrote nothing"
    for path in fresh:
        wanted, committed = path.read_text(), (repository / INCLUDE / path.name).read_text()
        difference = difflib.unified_diff(
            committed.splitlines(), wanted.splitlines(), "committed", f"from {module}", lineterm="", n=1
        )
        assert wanted == committed, f"{path.name} is stale, run `make generate`:\n" + "\n".join(difference)


def test_every_generated_header_has_a_generator(repository: Path, tmp_path: Path) -> None:
    for module, name in GENERATORS.items():
        command = [sys.executable, "-m", module, str(tmp_path / name)]
        subprocess.run(command, cwd=tmp_path, capture_output=True, check=True)
    made = {path.name for path in tmp_path.iterdir()}
    headers = (repository / INCLUDE).glob("*.h")
    says = {path.name for path in headers if "GENERATED" in path.read_text()[:300]}
    assert says <= made, f"no generator makes {', '.join(sorted(says - made))}"
