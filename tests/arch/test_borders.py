# SPDX-License-Identifier: Apache-2.0
"""The simulator knows bytes only, and the repository knows no particular machine."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

# Of the extensions: _core, its kernels that Python registers, check mode, what kernels print, and _native.
BINDINGS = (
    "bind.cpp",
    "bind_constructed.h",
    "bind_gil.h",
    "bind_kernels.cpp",
    "bind_kernels.h",
    "bind_members.cpp",
    "bind_members.h",
    "bind_pages.cpp",
    "bind_pages.h",
    "bind_plugins.cpp",
    "bind_plugins.h",
    "bind_prints.cpp",
    "bind_reports.cpp",
    "bind_reports.h",
    "bind_prints.h",
    "bind_transactions.cpp",
)
FOREIGN = re.compile(r'#\s*include\s*[<"](pybind11/|Python\.h|onnx|numpy/|structmember)', re.IGNORECASE)
# Absolute paths of a home, workspace or temporary folder.
MACHINE_PATH = re.compile(r"(?<![\w.~/-])/(?:home|root|Users|work|workspace|mnt|private)/[\w.-]+")
ALLOWED_PATHS = ("/home/user",)


def cpp_files(repository: Path) -> list[Path]:
    found = (repository / "cpp_ext").rglob("*")
    return sorted(path for path in found if path.suffix in (".cpp", ".h", ".hpp", ".cc"))


def foreign_includes(name: str, text: str) -> list[str]:
    """Includes that the C++ libraries may not have; a binding file may have them all."""
    if name in BINDINGS:
        return []
    return [f"{name}:{i}: {line}" for i, line in enumerate(text.splitlines(), 1) if FOREIGN.search(line)]


def test_the_simulator_includes_no_python_and_no_onnx(repository: Path) -> None:
    broken = [
        line for path in cpp_files(repository) for line in foreign_includes(path.name, path.read_text())
    ]
    assert not broken, "only the binding files may:\n" + "\n".join(broken)


def test_the_binding_files_are_there(repository: Path) -> None:
    found = sorted(path.name for path in cpp_files(repository) if path.name in BINDINGS)
    assert found == sorted(BINDINGS)


def test_reading_transactions_needs_no_simulator(repository: Path) -> None:
    """src/txn is a library of its own: it includes itself and the generated tables."""
    broken = []
    for path in cpp_files(repository):
        if path.parent.name != "txn" and path.name != "bind_transactions.cpp":
            continue
        for line in path.read_text().splitlines():
            match = re.match(r'#\s*include\s*"([^"]+)"', line)
            if match and not match.group(1).startswith(
                ("txn/", "onedispatch/txn_format", "onedispatch/register_")
            ):
                broken.append(f"{path.name}: {line}")
    assert not broken, "\n".join(broken)


@pytest.mark.parametrize(
    "line", ["#include <pybind11/pybind11.h>", '# include "Python.h"', "#include <onnx/x.h>"]
)
def test_a_foreign_include_is_seen(line: str) -> None:
    assert foreign_includes("array.cpp", line) and not foreign_includes(BINDINGS[0], line)


def tracked_files(repository: Path) -> list[Path]:
    done = subprocess.run(
        ["git", "ls-files", "-z"], cwd=repository, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        pytest.skip("not a git checkout")
    return [repository / name for name in done.stdout.split("\0") if name]


def test_no_tracked_file_names_a_path_of_one_machine(repository: Path) -> None:
    broken = []
    for path in tracked_files(repository):
        if not path.is_file() or path == Path(__file__):
            continue
        data = path.read_bytes()
        if b"\0" in data[:4096]:
            continue
        for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
            for match in MACHINE_PATH.finditer(line):
                if not match.group().startswith(ALLOWED_PATHS):
                    broken.append(f"{path.relative_to(repository)}:{number}: {match.group()}")
    assert not broken, "\n".join(broken)


def test_no_large_file_is_tracked(repository: Path) -> None:
    large = [p for p in tracked_files(repository) if p.is_file() and p.stat().st_size > 500_000]
    assert not large, f"generate it, or commit its hash: {', '.join(p.name for p in large)}"
