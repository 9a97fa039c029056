# SPDX-License-Identifier: Apache-2.0
"""What the wheel holds: all Python, the device descriptions, the extension; no C++ source."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

FOLDERS = ("dispatch", "operators", "transactions")


@pytest.fixture
def installed() -> set[str]:
    """Files of the installed distribution, as posix paths."""
    try:
        files = importlib.metadata.files("onedispatch")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("onedispatch is imported from a source tree, not installed")
    return {path.as_posix() for path in files or [] if "__pycache__" not in path.parts}


def test_every_module_and_data_file_is_installed(installed: set[str], repository: Path) -> None:
    wanted = {
        f"onedispatch/{path.relative_to(repository).as_posix()}"
        for folder in FOLDERS
        for path in (repository / folder).rglob("*")
        if path.suffix in (".py", ".toml") and "facade" not in path.parts
    }
    assert wanted <= installed, f"missing: {', '.join(sorted(wanted - installed))}"
    assert {"onedispatch/__init__.py", "onedispatch/py.typed"} <= installed


def test_the_wheel_holds_no_sources_of_the_simulator(installed: set[str]) -> None:
    assert not [name for name in installed if name.endswith((".cpp", ".h", ".hpp", "CMakeLists.txt"))]


@pytest.mark.parametrize("extension", ["cpp_ext/_core", "transactions/format/_native"])
def test_the_extensions_and_their_types_are_installed(extension: str, installed: set[str]) -> None:
    start = f"onedispatch/{extension}."
    assert any(name.startswith(start) and name.endswith(".so") for name in installed)
    assert f"{start}pyi" in installed


def test_the_command_is_declared() -> None:
    commands = importlib.metadata.entry_points(group="console_scripts", name="onedispatch")
    if not commands:
        pytest.skip("onedispatch is imported from a source tree, not installed")
    assert {command.value for command in commands} == {"onedispatch.dispatch.cli:main"}
