# SPDX-License-Identifier: Apache-2.0
"""The C++ headers made from Python tables are the ones that the tables make today."""

from __future__ import annotations

import difflib
import subprocess
import sys
from pathlib import Path

import pytest

INCLUDE = "cpp_ext/include/onedispatch"
GENERATORS = {
    "kernel_params.h": ("operators/params.py", "onedispatch.operators.params"),
    "txn_format.h": ("transactions/genheader.py", "onedispatch.transactions.genheader"),
}


@pytest.mark.parametrize("header", GENERATORS)
def test_header_is_up_to_date(header: str, repository: Path, tmp_path: Path) -> None:
    source, module = GENERATORS[header]
    fresh = tmp_path / header
    # Elsewhere than in the root, so that the installed package is what runs.
    done = subprocess.run(
        [sys.executable, "-m", module, str(fresh)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"python -m {module} failed:\n{done.stderr}"
    wanted, committed = fresh.read_text(), (repository / INCLUDE / header).read_text()
    difference = difflib.unified_diff(
        committed.splitlines(), wanted.splitlines(), "committed", f"from {source}", lineterm="", n=1
    )
    assert wanted == committed, f"{header} is stale, run `make generate`:\n" + "\n".join(difference)
