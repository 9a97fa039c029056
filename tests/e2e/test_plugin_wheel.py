# SPDX-License-Identifier: Apache-2.0
"""What a plug-in author has: a new environment with the wheel, g++ and nothing of the checkout."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

BOUND = 240  # seconds of each step


def done(command: list[str] | str, folder: Path, environment: dict[str, str] | None = None) -> str:
    """What the command prints. A text is for the shell."""
    result = subprocess.run(
        command,
        cwd=folder,
        shell=isinstance(command, str),
        env=environment,
        capture_output=True,
        text=True,
        timeout=BOUND,
        check=False,
    )
    assert result.returncode == 0, f"{command}\n{result.stdout}{result.stderr}"
    return result.stdout


@pytest.fixture(scope="module")
def place(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel; what the wheel needs is found where the tests have it."""
    folder = tmp_path_factory.mktemp("author")
    wheel = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-build-isolation",
        "--no-deps",
        "-w",
        str(folder),
    ]
    done([*wheel, "."], repository)
    (built,) = folder.glob("onedispatch-*.whl")
    done([sys.executable, "-m", "venv", "--without-pip", "venv"], folder)
    python = folder / "venv" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "-q", "--python", str(python), "install", "--no-deps", "--no-index"]
    done([*pip, str(built)], folder)
    (site,) = (folder / "venv").glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return folder


@pytest.fixture(scope="module")
def environment(place: Path) -> dict[str, str]:
    path = f"{place / 'venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return {
        **{k: v for k, v in os.environ.items() if not k.startswith(("ONEDISPATCH", "PYTHON"))},
        "PATH": path,
    }


def test_headers_are_shipped_with_all_that_they_include(place: Path, environment: dict[str, str]) -> None:
    folder = Path(done("onedispatch kernel include", place, environment).strip())
    assert folder.is_relative_to(place)
    waiting, seen = ["kernel.h", "plugin.h", "plugin_cpp.h"], set()
    while waiting:
        name = waiting.pop()
        seen.add(name)
        text = (folder / "onedispatch" / name).read_text(encoding="utf-8")
        waiting += [
            other for other in re.findall(r'#include "onedispatch/([^"]+)"', text) if other not in seen
        ]
    assert {p.name for p in (folder / "onedispatch").iterdir()} == seen


@pytest.mark.daily(2)
@pytest.mark.parametrize("language", ["cpp", "python"])
def test_a_skeleton_is_built_tested_and_installed(
    language: str, place: Path, environment: dict[str, str]
) -> None:
    name = f"acme_{language}"
    told = done(f"onedispatch kernel new {name} --{language}", place, environment)
    commands = [line.strip() for line in told.partition("Next:")[2].splitlines() if line.strip()]
    assert commands[0] == f"cd {name}" and commands[-1] == "pip install ."
    for command in commands[1:-1]:
        told = done(command, place / name, environment)
    assert "7 passed" in told
    (site,) = (place / "venv").glob("lib/python*/site-packages")
    # What pip does with it, but for the download of setuptools and wheel.
    setup = [sys.executable, "-c", "import setuptools; setuptools.setup()", "-q"]
    done([*setup, "build_py", "--build-lib", str(site), "egg_info", "--egg-base", str(site)], place / name)
    listed = json.loads(
        done(["onedispatch", "kernel", "show", f"{name}::scale_add", "--json"], place, environment)
    )
    assert Path(listed["file"]).is_relative_to(site)
    # The tests load the project's own file, which is then the installed package's too: no conflict.
    assert "7 passed" in done(commands[-2], place / name, environment)
    mapped = json.loads(done(["onedispatch", "ops", "ScaleAdd", "--json"], place, environment))
    assert f"{name}.ScaleAdd" in {f"{row['domain']}.{row['op_type']}" for row in mapped}
