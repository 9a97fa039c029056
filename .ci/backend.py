# SPDX-License-Identifier: Apache-2.0
"""The build backend: scikit-build-core's, with an editable install that people and tools can see into.

``pip install -e .`` puts one ``.pth`` file into site-packages. It leads to ``build/dev/onedispatch``, a
folder of symbolic links to the source folders. So an edited, new or removed Python file counts at once,
and mypy and editors find the sources without knowing of any import hook (scikit-build-core's own
editable mode is one, and knows only the files of the day it was installed).

The sources are compiled to byte code, as pip does with what it installs: where PYTHONDONTWRITEBYTECODE is
set, as in images, or the checkout cannot be written to, every process would spend 0.7 s on that.

The compiled modules are built as for a wheel and then laid beside their stubs in the source folders,
where git ignores them. Only the ``.pth`` file and the metadata are recorded as installed: nothing that
pip removes leads through a link.
"""

from __future__ import annotations

import base64
import compileall
import hashlib
import os
import sys
import tempfile
import zipfile
from pathlib import Path

from scikit_build_core import build as scikit
from scikit_build_core.build import (
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Settings = dict[str, list[str] | str] | None

ROOT = Path(__file__).resolve().parent.parent
LINKS = ROOT / "build" / "dev"


def build_wheel(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    """A wheel; ``Python.h`` may be where ``.ci/bootstrap`` put it."""
    _use_own_headers()
    return scikit.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    """A wheel of metadata and a path; the checkout becomes the package."""
    with tempfile.TemporaryDirectory() as folder:
        name = build_wheel(folder, config_settings)
        with zipfile.ZipFile(Path(folder) / name) as whole:
            files = {entry: whole.read(entry) for entry in whole.namelist()}
    for entry, data in files.items():
        if entry.endswith(".so"):
            _replace(ROOT / Path(entry).relative_to("onedispatch"), data)
    _link()
    kept = {entry: data for entry, data in files.items() if ".dist-info/" in entry}
    record = next(entry for entry in kept if entry.endswith(".dist-info/RECORD"))
    del kept[record]
    kept["onedispatch.pth"] = f"{LINKS}\n".encode()
    kept[record] = "".join([*(_recorded(*file) for file in kept.items()), f"{record},,\n"]).encode()
    with zipfile.ZipFile(Path(wheel_directory) / name, "w", zipfile.ZIP_DEFLATED) as thin:
        for entry, data in kept.items():
            thin.writestr(entry, data)
    return name


def _recorded(entry: str, data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{entry},sha256={digest},{len(data)}\n"


def _replace(path: Path, data: bytes) -> None:
    """A new file in place of the old one: processes that have mapped that one keep it."""
    fresh = path.with_name(f".{os.getpid()}.{path.name}")
    fresh.write_bytes(data)
    fresh.chmod(0o755)
    fresh.replace(path)


def _link() -> None:
    """Links for the folders and files that a wheel would hold, and their byte code."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["scikit-build"]
    for name, source in settings["wheel"]["packages"].items():
        link = LINKS / name
        link.parent.mkdir(parents=True, exist_ok=True)
        wanted = os.path.relpath(ROOT / source, link.parent)
        if not link.is_symlink() or os.readlink(link) != wanted:
            link.unlink(missing_ok=True)
            link.symlink_to(wanted)
        if (ROOT / source).is_dir():
            compileall.compile_dir(ROOT / source, quiet=2)


def _use_own_headers() -> None:
    note = ROOT / ".venv" / "python_include"
    include = note.read_text().strip() if note.is_file() else ""
    if include:
        os.environ["CPLUS_INCLUDE_PATH"] = f"{include}:{Path(include).parent}"
        os.environ["CMAKE_ARGS"] = f"-DPython_INCLUDE_DIR={include} -DPython3_INCLUDE_DIR={include}"
