# SPDX-License-Identifier: Apache-2.0
"""Plug-ins of installed packages: the entry points of group ``onedispatch.plugins``.

An entry point names a module, which registers kernels when it is imported, or in a module a list of paths,
or a function without arguments that returns one: libraries, Python files or folders, relative ones beside
that module.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType

from onedispatch.dispatch.plugins.files import files_of, refused
from onedispatch.dispatch.plugins.loading import Plugin, blamed, committed, load_file
from onedispatch.operators.plugin import registrations
from onedispatch.operators.plugin.registrations import OnConflict

GROUP = "onedispatch.plugins"
_ACCEPTED = "a module, a list of paths, or a function that returns one"


def installed() -> list[EntryPoint]:
    """Every entry point of the group, by name of the package and its own: the same order on every machine."""
    return sorted(
        set(entry_points(group=GROUP)), key=lambda point: (package_of(point), point.name, point.value)
    )


def package_of(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else ""


def described(point: EntryPoint) -> str:
    """``entry point acme = acme:libraries of package acme-kernels``"""
    package = package_of(point)
    return f"entry point {point.name} = {point.value}" + (f" of package {package}" if package else "")


def load_entry_point(point: EntryPoint, on_conflict: OnConflict, known: Iterable[str]) -> list[Plugin]:
    """Its plug-ins but those files that are ``known`` already.

    Raises ``KernelLibraryError`` that names the entry point and its package.
    """
    where = described(point)
    with registrations.collecting(where) as batch:
        found = blamed(where, where, lambda: _paths(point))
    plugins = []
    if batch.kernels or batch.mappings or batch.extras or found is None:
        # A module that was imported before has registered what it has.
        plugins.append(committed(batch, where, on_conflict, may_be_empty=True))
    paths = [Path(file) for given in found or () for file in files_of(given, where)]
    for path in dict.fromkeys(paths):
        if str(path) not in known:
            plugins.append(load_file(path, where, on_conflict))
    return plugins


def _paths(point: EntryPoint) -> list[str] | None:
    """The paths that it gives; None where it is a module."""
    value = point.load()
    if isinstance(value, ModuleType):
        return None
    if callable(value):
        value = value()
    if isinstance(value, str | os.PathLike):
        value = [value]
    if not isinstance(value, list | tuple) or not all(isinstance(one, str | os.PathLike) for one in value):
        raise refused(described(point), f"a {type(value).__name__}", _ACCEPTED, status="declaration_invalid")
    beside = Path(getattr(sys.modules.get(point.module), "__file__", None) or ".").parent
    return [str(beside / os.fspath(one)) for one in value]
