# SPDX-License-Identifier: Apache-2.0
"""``models/examples/acme_kernels``: built by its one command, installed, found by its entry point."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.devices import device_file

EXAMPLE = Path("models") / "examples" / "acme_kernels"


def environment(**changes: str) -> dict[str, str]:
    tools = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("ONEDISPATCH_", "PYTHONPATH", "PIP_"))}
    return {**kept, "PATH": tools, **changes}


def done(command: list[str], folder: Path, **changes: str) -> str:
    """What a command prints that has to end well."""
    ended = subprocess.run(
        command, cwd=folder, env=environment(**changes), capture_output=True, text=True, timeout=280
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def built(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the example, built by the command that README.md says."""
    folder = tmp_path_factory.mktemp("acme") / "acme_kernels"
    shutil.copytree(
        repository / EXAMPLE,
        folder,
        ignore=shutil.ignore_patterns("*.so", "build", "*.egg-info", "__pycache__"),
    )
    (command,) = re.findall(r"^g\+\+ .*$", (folder / "README.md").read_text(), re.M)
    assert command in (folder / "acme.cpp").read_text()
    done(["bash", "-c", f"{command} -Wall -Wextra -Werror"], folder)
    return folder


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package and nothing else, installed without the network."""
    target = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-build-isolation", "--no-deps", "--no-index"]
    done([*pip, "--disable-pip-version-check", "--target", str(target), "."], built)
    return target


def ran(folder: Path, built: Path, *options: str, **changes: str) -> tuple[str, list[np.ndarray]]:
    """What the script prints, away from the sources beside it, and the answers that it saved."""
    script = str(shutil.copy(built / "run_model.py", folder))
    text = done([sys.executable, script, "--save", "out.npz", *options], folder, **changes)
    with np.load(folder / "out.npz") as saved:
        return text, [saved[name] for name in saved.files]


def test_the_installed_package_is_found_and_computes_what_numpy_does(
    installed: Path, built: Path, tmp_path: Path
) -> None:
    text, answers = ran(tmp_path, built, PYTHONPATH=str(installed))
    assert re.findall(r"(\d+) of (\d+) elements equal NumPy's", text) == [("3360", "3360")] * 2
    assert re.findall(r"^(\w+): npu, as acme::(\w+)@1", text, re.M) == [
        ("blur", "blur"),
        ("tone", "tone"),
        ("normalise", "normalise_rows"),
    ]
    assert re.search(r"^1 dispatch, [\d,]+ cycles, [\d.]+ us modelled$", text, re.M)
    printed = re.findall(
        r"^\[normalise acme::normalise_rows@1 core c\d r\d member (\d+)\] flat row of 0.7", text, re.M
    )
    assert sorted(map(int, printed)) == [10, 11, 12]
    assert [one.shape for one in answers] == [(48, 70)] * 2


def test_without_the_package_its_nodes_are_nobodys(built: Path, tmp_path: Path) -> None:
    script = str(shutil.copy(built / "run_model.py", tmp_path))
    ended = subprocess.run(
        [sys.executable, script], cwd=tmp_path, env=environment(), capture_output=True, text=True
    )
    assert ended.returncode != 0
    assert "UnknownOperatorError" in ended.stderr and "blur: acme.Blur" in ended.stderr


def test_one_core_and_all_cores_give_the_same_bits(built: Path, tmp_path: Path) -> None:
    plugin = ("--plugin", str(built / "acme_kernels" / "libacme.so"))
    single = str(device_file(tmp_path, "one"))
    answers = [ran(tmp_path, built, "--device", device, *plugin)[1] for device in ("npu2", "npu1", single)]
    for others in answers[1:]:
        for one, other in zip(answers[0], others, strict=True):
            assert one.tobytes() == other.tobytes()


def test_nothing_that_was_built_is_committed(repository: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-files", str(EXAMPLE)], cwd=repository, capture_output=True, text=True, check=False
    )
    if listed.returncode != 0:
        pytest.skip("no git checkout")
    kinds = {Path(name).suffix for name in listed.stdout.split()}
    assert kinds <= {".cpp", ".md", ".py", ".toml"}
