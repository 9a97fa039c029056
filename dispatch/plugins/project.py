# SPDX-License-Identifier: Apache-2.0
"""A project of layers: a folder with a package, as ``layer new`` writes it, and what it has, read without its
compiled bodies."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from onedispatch.dispatch.plugins.entry_points import GROUP
from onedispatch.dispatch.plugins.files import refused
from onedispatch.dispatch.plugins.loading import Plugin, blamed, committed, load_file
from onedispatch.operators.layers.layer import only_reading
from onedispatch.operators.layers.layer_kernel import LayerKernel
from onedispatch.operators.layers.methods import LayerMethods, overridden
from onedispatch.operators.layers.parameters import Parameter, parameters_of
from onedispatch.operators.plugin import registrations
from onedispatch.operators.plugin.python_kernel import origin_of
from onedispatch.transactions.base.errors import InputError, OneDispatchError
from onedispatch.transactions.base.files import read_file, record_read

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DESCRIPTION = "pyproject.toml"
MOST_BYTES = 1 << 20  # of a project's description
ACCEPTED = f"a folder with a {DESCRIPTION} whose entry point of group {GROUP} names a package beside it"
REMEDY = "`onedispatch layer new acme::crop` writes one"


@dataclass(frozen=True)
class FoundLayer:
    """A layer as its class says it; ``file`` is where the class stands."""

    cls: type[LayerMethods]
    file: Path
    parameters: tuple[Parameter, ...]

    @property
    def name(self) -> str:
        """``acme::crop``, without a version."""
        return self.cls.name.partition("@")[0]

    @property
    def node(self) -> str:
        """``acme.Crop``"""
        space, _, own = self.name.partition("::")
        return f"{space}.{registrations.camel_case(own)}"

    def struct(self, space: str) -> str:
        """What its parameters are called in C++, in the header of a project: ``Crop`` of ``acme::crop`` in
        ``acme``, ``AcmeCrop`` in another one."""
        own, _, name = self.node.partition(".")
        return name if own == space else registrations.camel_case(own) + name

    @property
    def bodies(self) -> str:
        """``local``, ``global``, ``local, global``, or ``reshape``."""
        local = overridden(self.cls, "local") or bool(self.cls.library)
        said = [("local", local), ("global", overridden(self.cls, "global_"))]
        if overridden(self.cls, "just_reshape"):
            said.append(("reshape", True))
        return ", ".join(word for word, there in said if there)

    @property
    def library(self) -> Path | None:
        """Where its compiled body is to lie; None of a layer without."""
        return self.file.parent / self.cls.library if self.cls.library else None

    @property
    def source(self) -> Path | None:
        """What the library is made of: ``crop.cpp`` of ``libcrop.so``, beside the class; None where a project
        does not build it."""
        library = self.library
        if library is None or library.parent != self.file.parent or library.suffix != ".so":
            return None
        stem = library.stem.removeprefix("lib")
        return library.with_name(f"{stem}.cpp") if stem and library.name != f"{stem}.so" else None


@dataclass(frozen=True)
class Project:
    """``root`` has the description, ``package`` the layers' files; of a file that is in no project both are
    its folder. ``single``: of all files this one alone."""

    root: Path
    package: Path
    space: str
    single: Path | None = None

    @property
    def files(self) -> list[Path]:
        """The Python files that may have layers."""
        if self.single is not None:
            return [self.single]
        return sorted(path for path in self.package.glob("*.py") if not path.name.startswith("_"))

    @property
    def is_package(self) -> bool:
        return self.package != self.root

    @property
    def whole(self) -> Project:
        """With all of its files, where there is more than one."""
        return replace(self, single=None) if self.is_package else self

    @property
    def header(self) -> Path:
        """The parameters of its layers in C++, which is generated."""
        return self.package / f"{self.space}_params.h"


def project_at(where: str, given: Path) -> Project:
    """The project of a folder, or of one file. Raises ``InputError`` for anything else."""
    try:
        path = given.resolve(strict=True)
        if path.is_dir():
            return _of_folder(where, path)
    except (OSError, RuntimeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(where, f"{given}: {reason}", ACCEPTED, REMEDY) from error
    if not path.is_file() or path.suffix != ".py":
        raise InputError(where, f"{given}", f"a Python file with layers, or {ACCEPTED}", REMEDY)
    record_read(path.stat())
    for root in path.parents[1:3]:
        with suppress(InputError):
            project = _of_folder(where, root)
            if project.package == path.parent:
                return replace(project, single=path)
    return Project(path.parent, path.parent, path.stem, path)


def folder_at(where: str, given: Path) -> Project:
    """The project of a folder. Raises ``InputError`` for anything else, a single file too."""
    project = project_at(where, given)
    if project.single is not None:
        raise InputError(where, f"the file {given}", ACCEPTED, REMEDY)
    return project


def _of_folder(where: str, root: Path) -> Project:
    file = root / DESCRIPTION
    if not file.exists():
        raise InputError(where, f"{root}, which has no {DESCRIPTION}", ACCEPTED, REMEDY)
    for module in modules_of(file):
        for folder in (root, root / "src"):
            if (folder / module / "__init__.py").is_file():
                return Project(root, folder / module, module)
    raise InputError(where, f"{file}, which names no package beside it", ACCEPTED, REMEDY)


def modules_of(file: Path) -> list[str]:
    """The modules that its entry points name. Raises ``InputError`` for what is no description."""
    text = read_file(file, most=MOST_BYTES)
    try:
        points = tomllib.loads(text.decode())["project"]["entry-points"][GROUP].values()
        return [
            str(value).partition(":")[0] for value in points if str(value).partition(":")[0].isidentifier()
        ]
    except (KeyError, TypeError, AttributeError):
        return []
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(str(file), str(error), "TOML") from error


# -- reading ------------------------------------------------------------------------------------------


def read(project: Project) -> tuple[list[FoundLayer], dict[Path, OneDispatchError]]:
    """The layers of a project by name, and files that cannot be read, with why.

    Code of the files runs; nothing of it is known afterwards. Raises ``KernelLibraryError`` that names both
    files where two layers have one name, or one node.
    """
    found: list[FoundLayer] = []
    broken: dict[Path, OneDispatchError] = {}
    with importing(project):
        for file in project.files:
            try:
                found += _read_file(project, file)
            except OneDispatchError as error:
                broken[file] = error
    found = list({id(one.cls): one for one in found}.values())
    _check_names(found)
    return sorted(found, key=lambda one: one.name), broken


def layers_of(project: Project) -> list[FoundLayer]:
    """The layers of a project. Raises the error of the first file that cannot be read."""
    found, broken = read(project)
    for error in broken.values():
        raise error
    return found


def _read_file(project: Project, file: Path) -> list[FoundLayer]:
    with registrations.collecting(str(file)), only_reading() as classes:
        record_read(file.stat())
        blamed(
            f"layers of {file}", str(file), lambda: importlib.import_module(f"{project.space}.{file.stem}")
        )
        return [_found(cls) for cls in classes]


def _found(cls: type[LayerMethods]) -> FoundLayer:
    """While its module is there: annotations are read by its names."""
    return FoundLayer(cls, Path(origin_of(cls)), parameters_of(cls.name, cls.Params)[1])


def _check_names(found: list[FoundLayer]) -> None:
    seen: dict[str, FoundLayer] = {}
    for one in found:
        for what, key in (("layer", one.name), ("node", one.node)):
            other = seen.setdefault(key, one)
            if other is not one:
                given = f"{what} {key}, which {other.file} has already"
                raise refused(
                    f"layers of {one.file}",
                    given,
                    "each name once",
                    "rename one of the two",
                    status="name_conflict",
                )


@contextmanager
def importing(project: Project) -> Iterator[None]:
    """Within the block the project's modules are imported from its files, before others of the same names.

    What was imported is forgotten. The package's own ``__init__`` does not run: so a file that fails hides
    no other.
    """
    kept, written = _taken_out(project.space), sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    package = ModuleType(project.space)
    package.__path__ = [str(project.package)]
    sys.modules[project.space] = package
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.dont_write_bytecode = written
        _taken_out(project.space)
        sys.modules.update(kept)


def _taken_out(space: str) -> dict[str, ModuleType]:
    names = [name for name in sys.modules if name == space or name.startswith(f"{space}.")]
    return {name: sys.modules.pop(name) for name in names}


def load(project: Project) -> Plugin:
    """Makes the layers of a project known, as its entry point would: for a process that checks them.

    Raises ``KernelLibraryError`` where the package does not load, and where names are taken.
    """
    if project.single is not None and not project.is_package:
        return load_file(project.single, "layer check", "error", may_be_empty=True)
    _taken_out(project.space)
    sys.path.insert(0, str(project.package.parent))
    importlib.invalidate_caches()
    where = str(project.package)
    with registrations.collecting(where) as batch:
        blamed(f"layers of {where}", where, lambda: importlib.import_module(project.space))
    return committed(batch, "layer check", "error", may_be_empty=True)


def loaded_layers() -> list[FoundLayer]:
    """Every layer that plug-ins and the program itself made known."""
    kernels: list[Any] = [one for one in registrations.kernels() if isinstance(one, LayerKernel)]
    return [FoundLayer(one.cls, Path(one.origin), one.parameters) for one in kernels]


def named(where: str, found: list[FoundLayer], name: str) -> FoundLayer:
    """The layer of this name; its namespace may be left out. Raises ``InputError`` that names all."""
    wanted = name.partition("@")[0]
    for one in found:
        if wanted in (one.name, one.name.partition("::")[2]):
            return one
    accepted = ", ".join(one.name for one in found) or "a project with layers: this one has none"
    raise InputError(where, repr(name), accepted)
