# SPDX-License-Identifier: Apache-2.0
"""A worker of pytest that dies fails one test; all others run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CONFTEST = """
from tests.scheduling import Scheduling

def pytest_xdist_make_scheduler(config, log):
    return Scheduling(config, log)
"""
DYING = """
import os, signal
import pytest

@pytest.mark.parametrize("number", range({count}))
def test_one(number):
    if number == {dies}:
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(("count", "dies"), [(5, 0), (5, 4), (1, 0)])
def test_a_worker_that_dies_fails_one_test(tmp_path: Path, count: int, dies: int) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    for number in range(4):
        source = DYING.format(count=count, dies=dies if number == 1 else -1)
        (tmp_path / f"test_{number}.py").write_text(source)
    options = ["-q", "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "--rootdir", str(tmp_path), str(tmp_path)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert f"1 failed, {4 * count - 1} passed" in done.stdout, done.stdout + done.stderr
