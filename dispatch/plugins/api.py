# SPDX-License-Identifier: Apache-2.0
"""``onedispatch.plugins``: kernel libraries and Python files with kernels, brought by others.

    od.plugins.load("libacme.so")
    for plugin in od.plugins.loaded():
        print(plugin)

What is loaded without being asked for, and when, is said in ``dispatch/plugins/discovery.py``:
``ONEDISPATCH_PLUGIN_PATH`` and installed packages, with the first model.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from onedispatch.dispatch.base import arguments
from onedispatch.dispatch.plugins import discovery, engine, layer_build
from onedispatch.dispatch.plugins.discovery import PluginWarning
from onedispatch.dispatch.plugins.files import search_path
from onedispatch.dispatch.plugins.listing import known
from onedispatch.dispatch.plugins.loading import Plugin
from onedispatch.dispatch.plugins.project import folder_at
from onedispatch.operators.codegen import headers
from onedispatch.operators.plugin.registrations import OnConflict, check_policy
from onedispatch.transactions.base.boundary import public
from onedispatch.transactions.machine.device import DeviceName

__all__ = [
    "Plugin",
    "PluginWarning",
    "broken",
    "build",
    "include_folder",
    "kernels",
    "load",
    "loaded",
    "reset",
    "search_path",
]

MOST_NAMES = (1 << 32) - 1  # od_kernel_names counts in a uint32_t


@public
def load(path: str | os.PathLike[str], on_conflict: OnConflict | None = None) -> list[Plugin]:
    """Loads a kernel library (.so), a Python file, or those of a folder; a file that is loaded already
    is left as it is. Kernels and mappings of a file become known all together, or none of them.

    Args:
        path: relative ones are looked for from the working directory on.
        on_conflict: ``"error"`` refuses a file that has a kernel name, or maps an ONNX operator, which
            another plug-in has already; ``"first"`` leaves the first one, and ``skipped`` of the result
            says so. None: as ``ONEDISPATCH_PLUGIN_CONFLICT`` says, or else ``"error"``.

    Raises:
        KernelLibraryError: no such file, no plug-in, one that does not load, or a conflict. The file is
            named, in a conflict both are.
        InputError: an argument is something else.
    """
    policy = None if on_conflict is None else check_policy("on_conflict", on_conflict)
    return discovery.load([str(arguments.file_path("the plug-in to load", path))], "load", policy)


@public
def loaded() -> list[Plugin]:
    """Every plug-in, in the order in which they were loaded; those that are found are loaded first.

    Raises ``KernelLibraryError`` where one of ``ONEDISPATCH_PLUGIN_PATH`` does not load.
    """
    discovery.ensure()
    return discovery.loaded()


@public
def broken() -> list[str]:
    """A line for each plug-in of an installed package that did not load, after ``loaded()``."""
    return discovery.broken()


@public
def reset() -> None:
    """Forgets every plug-in, as if none had been loaded: for tests. Compiled models keep what they hold."""
    discovery.reset()
    engine.unregister_kernels()


@public
def kernels(device: DeviceName | None = None, capacity: int | None = None) -> Any:
    """Names of all kernels, ours and those of plug-ins, in alphabetical order.

    Args:
        device: only those that run on it; None: all.
        capacity: how many names there is room for, as ``od_kernel_names`` of the C interface takes it: the
            result is then (names, count), where names are empty and count is the number that is needed
            unless all fit.

    Raises ``DeviceError`` for an unknown device, ``InputError`` for another capacity,
    ``KernelLibraryError`` where a plug-in does not load.
    """
    names = [row.name for row in known(device)]
    if capacity is None:
        return names
    room = arguments.integer("capacity", capacity, 0, MOST_NAMES)
    return (names if len(names) <= room else []), len(names)


@public
def build(project: str | os.PathLike[str]) -> list[Path]:
    """Builds the C++ bodies of a project of layers that are older than their sources, as ``onedispatch layer
    build`` does; returns the files that it wrote.

    Raises ``InputError`` for a folder that is no project, and with what the compiler says;
    ``KernelLibraryError`` for layers that do not load.
    """
    where = "the project to build"
    return list(layer_build.build(folder_at(where, arguments.file_path(where, project))).files)


@public
def include_folder() -> Path:
    """The folder for a compiler's ``-I``: ``onedispatch/plugin_cpp.h`` lies in it."""
    return headers.include_folder()
