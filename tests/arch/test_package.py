# SPDX-License-Identifier: Apache-2.0
"""What a wheel holds: all Python, the device descriptions, the extensions; of C++ the kernel interface
alone. And that the development installation is the checkout itself."""

from __future__ import annotations

import importlib.metadata
import inspect
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import onedispatch
from onedispatch.dispatch.runtime import session
from onedispatch.operators.codegen.headers import KERNEL_HEADERS
from onedispatch.operators.kernels import conv

FOLDERS = ("dispatch", "operators", "transactions")
DATA = (".py", ".toml", ".odcat", ".odobj", ".html", ".css", ".js")


@pytest.fixture(scope="module")
def installed(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Files of a wheel built now, as posix paths."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-build-isolation", "--no-deps", "-w"]
    done = subprocess.run(
        [*command, str(folder), "."], cwd=repository, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("onedispatch-*.whl")
    with zipfile.ZipFile(wheel) as file:
        return set(file.namelist())


@pytest.mark.parametrize("module", [onedispatch, session, conv])
def test_what_runs_is_the_checkout(module: object, repository: Path) -> None:
    source = Path(inspect.getfile(module)).resolve()  # type: ignore[arg-type]
    folders = {repository / name for name in FOLDERS}
    assert folders & set(source.parents), f"{source} runs; `make .venv/stamps/dev` installs the checkout"


def test_nothing_installed_leads_through_a_link(repository: Path) -> None:
    """What pip removes is outside the checkout's sources."""
    for path in importlib.metadata.files("onedispatch") or []:
        place = Path(str(path.locate())).resolve()
        assert not any(place.is_relative_to(repository / name) for name in (*FOLDERS, "cpp_ext")), place


def test_every_module_and_data_file_is_installed(installed: set[str], repository: Path) -> None:
    wanted = {
        f"onedispatch/{path.relative_to(repository).as_posix()}"
        for folder in FOLDERS
        for path in (repository / folder).rglob("*")
        if path.suffix in DATA and "facade" not in path.parts
    }
    assert wanted <= installed, f"missing: {', '.join(sorted(wanted - installed))}"
    assert {"onedispatch/__init__.py", "onedispatch/py.typed"} <= installed


def test_the_wheel_holds_no_sources_of_the_simulator(installed: set[str]) -> None:
    shipped = {f"onedispatch/cpp_ext/include/onedispatch/{name}" for name in KERNEL_HEADERS}
    sources = {name for name in installed if name.endswith((".cpp", ".h", ".hpp", "CMakeLists.txt"))}
    assert sources == shipped  # what kernels of others are compiled against


@pytest.mark.parametrize("extension", ["cpp_ext/_core", "transactions/format/_native"])
def test_the_extensions_and_their_types_are_installed(extension: str, installed: set[str]) -> None:
    start = f"onedispatch/{extension}."
    assert sum(name.startswith(start) and name.endswith(".so") for name in installed) == 1
    assert f"{start}pyi" in installed


def test_the_command_is_declared() -> None:
    commands = importlib.metadata.entry_points(group="console_scripts", name="onedispatch")
    assert {command.value for command in commands} == {"onedispatch.dispatch.cli:main"}
