# SPDX-License-Identifier: Apache-2.0
"""The examples of layers, as a reader would run them: as scripts, and from the command line."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest


def run(*command: str | Path) -> str:
    """Output of a command that must end well."""
    done = subprocess.run(
        [sys.executable, *map(str, command)], capture_output=True, text=True, check=False, timeout=280
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(("mode", "shapes"), [([], 1), (["--dynamic"], 3), (["--device", "npu1"], 1)])
def test_crop_and_double(repository: Path, tmp_path: Path, mode: list[str], shapes: int) -> None:
    script = repository / "models" / "examples" / "crop_double.py"
    assert run(script, *mode).count("equal to NumPy's; 1 dispatch") == shapes
    model = tmp_path / "crop.onnx"
    run(script, *mode, "--save", model)
    shape = ["--shape", "x=3,64,64"] if "--dynamic" in mode else []
    said = run(
        "-m",
        "onedispatch.dispatch.cli",
        "run",
        model,
        "--plugin",
        script,
        "--random",
        "--fallback",
        "error",
        *shape,
    )
    assert "shape=[1, 3, 32, 40]" in said and "crop_double::double@1" in said


def test_the_detector_finds_most_and_draws_them(repository: Path, tmp_path: Path) -> None:
    folder = repository / "models" / "examples" / "detector"
    said = run(folder / "detect.py", "--pictures", "8", "--folder", tmp_path)
    found, total, right = map(int, re.findall(r"(\d+) of (\d+) objects found, (\d+) of them", said)[0])
    assert found >= 0.75 * total and right >= 0.6 * found and "1 dispatch," in said
    assert all((tmp_path / f"picture{i}.png").read_bytes().startswith(b"\x89PNG") for i in range(8))
    model, plugin = tmp_path / "shapes.onnx", folder / "head.py"
    shown = run("-m", "onedispatch.dispatch.cli", "inspect", model, "--plugin", plugin)
    assert "detection_output" in shown
