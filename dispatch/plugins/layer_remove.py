# SPDX-License-Identifier: Apache-2.0
"""``onedispatch layer remove``: which files are one layer's own, and which stay."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from onedispatch.dispatch.plugins import project as projects
from onedispatch.dispatch.plugins.layer_skeleton import test_file
from onedispatch.dispatch.plugins.project import FoundLayer, Project
from onedispatch.transactions.base.errors import InputError


@dataclass(frozen=True)
class Files:
    """``own``: files of one layer alone. ``stays``: the project's others, and why."""

    own: tuple[Path, ...]
    stays: dict[Path, str]


def files_of(project: Project, name: str) -> Files:
    """The files of a layer, also of one whose source cannot be read: it is then known by its file's name.

    Raises ``InputError`` for a layer that there is not.
    """
    found, broken = projects.read(project)
    layer = _known(found, project, name, list(broken))
    file = layer.file if layer is not None else _by_name(project, name)
    others = [one for one in found if one is not layer]
    wanted = [file, *_compiled(layer, file), test_file(project, file.stem)]
    shared = {path: _sharing(path, others) for path in wanted}
    if shared[file]:  # its class stays there, and needs the rest
        wanted = []
    own = [path for path in dict.fromkeys(wanted) if not shared[path] and _removable(project, path)]
    stays = {path: shared.get(path) or "" for path in _every_file(project) if path not in own}
    return Files(tuple(own), stays)


def remove(file: Path) -> None:
    """Removes one file; of a link the link alone. Raises ``InputError`` where it cannot be."""
    try:
        file.unlink()
    except OSError as error:
        accepted = "a file in a folder that can be written"
        raise InputError("layer remove", f"{file}: {error.strerror}", accepted) from error


def _known(found: list[FoundLayer], project: Project, name: str, broken: list[Path]) -> FoundLayer | None:
    """The layer; None of one that stands in a file which cannot be read."""
    if _by_name(project, name) in broken:
        return None
    return projects.named("layer remove", found, name)


def _by_name(project: Project, name: str) -> Path:
    own = name.partition("@")[0].rpartition("::")[2]
    return project.package / f"{own.replace('/', '_')}.py"


def _compiled(layer: FoundLayer | None, file: Path) -> Iterator[Path]:
    """Its source and its library, as far as a project builds them."""
    if layer is None:
        yield from (file.with_suffix(".cpp"), file.with_name(f"lib{file.stem}.so"))
    elif layer.source is not None and layer.library is not None:
        yield from (layer.source, layer.library)


def _sharing(path: Path, others: list[FoundLayer]) -> str:
    """Which other layers need a file, as the reason why it stays; "" for none."""
    named = [one.name for one in others if path in (one.file, one.source, one.library)]
    return f"{', '.join(named)} too" if named else ""


def _removable(project: Project, path: Path) -> bool:
    """Whether it is a file, or a link, in the project."""
    return path.parent in (project.root, project.package) and (path.is_file() or path.is_symlink())


def _every_file(project: Project) -> list[Path]:
    folders = dict.fromkeys((project.root, project.package))
    paths = [path for folder in folders for path in folder.iterdir()]
    return sorted(path for path in paths if path.is_file() or path.is_symlink())
