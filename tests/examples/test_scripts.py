# SPDX-License-Identifier: Apache-2.0
"""The demo and the example run as a reader would run them, and the committed model is good."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

datasets = pytest.importorskip("sklearn.datasets", reason="scikit-learn holds the digits")


def run(script: Path, *arguments: str) -> str:
    """Output of a script that must end well."""
    done = subprocess.run(
        [sys.executable, str(script), *arguments], capture_output=True, text=True, check=False, timeout=280
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_committed_digits_model_is_valid_and_good(repository: Path) -> None:
    path = repository / "models" / "digits.onnx"
    onnx.checker.check_model(onnx.load(path), full_check=True)
    digits = datasets.load_digits()
    images = (digits.images / 16).astype(np.float32)[:, None]
    (probabilities,) = onnxruntime.InferenceSession(str(path)).run(None, {"image": images})
    right = np.asarray(probabilities).argmax(1) == digits.target
    assert right[::5].mean() >= 0.98, "the images that training never saw"


@pytest.mark.daily(2)
@pytest.mark.slow
@pytest.mark.parametrize("device", ["npu2", "npu1"])
def test_the_demo_agrees_with_onnxruntime_on_all_images(repository: Path, device: str) -> None:
    output = run(repository / "models" / "demo.py", "--device", device)
    assert "all 1,797 predicted classes equal onnxruntime's" in output
    assert re.search(r"dispatches\s+│\s+1 ", output)
    assert len(re.findall(r"says \d \(", output)) == 8


@pytest.mark.parametrize("shape", [("64", "300"), ("1",), ("37", "3", "5")])
def test_the_host_application_runs_one_operator(repository: Path, shape: tuple[str, ...]) -> None:
    output = run(repository / "models" / "examples" / "run_operator.py", "--shape", *shape)
    size = np.prod([int(n) for n in shape])
    assert f"{size} of {size} sums are right" in output
