# SPDX-License-Identifier: Apache-2.0
"""Which files a path means: a kernel library, a Python file, or those of a folder."""

from __future__ import annotations

import os
import re
from pathlib import Path

from onedispatch.operators.plugin.refusals import refusal
from onedispatch.transactions.base.errors import KernelError
from onedispatch.transactions.base.files import real_path, record_read
from onedispatch.transactions.base.text import counted

PATH_VARIABLE = "ONEDISPATCH_PLUGIN_PATH"
ACCEPTED = "a kernel library (.so), a Python file (.py), or a folder of these"
_LIBRARY = re.compile(r"\.so(\.[0-9]+)*$")
# Of a folder's Python files these are no plug-ins: its tests, and what packaging tools read.
_BESIDE = re.compile(r"(test_.*|.*_test|conftest|setup|_.*)\.py$")


def is_library(path: Path) -> bool:
    return _LIBRARY.search(path.name) is not None


def is_python(path: Path) -> bool:
    return path.suffix == ".py"


def refused(
    where: str, given: str, accepted: str = ACCEPTED, remedy: str = "", *, status: str = "not_found"
) -> KernelError:
    """What is raised for a plug-in that cannot be used; ``where`` names its file and who named it."""
    return refusal(status, where, given, accepted, remedy)


def search_path() -> list[str]:
    """The entries of ``ONEDISPATCH_PLUGIN_PATH``, in order; empty ones are left out."""
    return [entry for entry in os.environ.get(PATH_VARIABLE, "").split(os.pathsep) if entry]


def files_of(given: str, named_by: str = "") -> list[Path]:
    """The plug-ins that a path means, links followed; those of a folder by name.

    Raises ``KernelLibraryError`` where there is nothing, something else, or a folder without any.
    """
    where = f"plug-in {given}" + (f" ({named_by})" if named_by else "")
    if "\0" in given:
        raise refused(where, "a path with a zero character")
    try:
        path = Path(given).expanduser().resolve(strict=True)
        if path.is_dir():
            return _in_folder(where, path)
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle, before Python 3.13; no home
        text = getattr(error, "strerror", None) or str(error)
        raise refused(where, text[0].lower() + text[1:], remedy=_looked(given)) from error
    if not (is_library(path) or is_python(path)) or not path.is_file():
        raise refused(where, f"the file {path.name}" if path.is_file() else "no plain file")
    record_read(path.stat())
    return [path]


def _in_folder(where: str, folder: Path) -> list[Path]:
    entries = [path for path in folder.iterdir() if path.is_file()]
    found = [p for p in entries if is_library(p) or (is_python(p) and not _BESIDE.match(p.name))]
    if not found:
        others = f" among {counted(len(entries), 'file')}" if entries else ""
        raise refused(where, f"a folder without plug-ins{others}", "a folder with .so or .py files")
    return list(dict.fromkeys(Path(real_path(path)) for path in sorted(found)))


def _looked(given: str) -> str:
    return "" if os.path.isabs(given) else f"it was looked for from {os.getcwd()} on"
