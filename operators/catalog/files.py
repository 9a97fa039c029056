# SPDX-License-Identifier: Apache-2.0
"""Opens the files of catalogs: mapped where they are bytes, read where they are YAML."""

from __future__ import annotations

import mmap
import os
from importlib import import_module
from pathlib import Path
from typing import Any
from weakref import finalize

from onedispatch.operators.catalog.container import SUFFIX, TEXT_SUFFIX, Opened, open_bytes
from onedispatch.operators.plugin.native import native
from onedispatch.transactions.base.errors import CatalogError, InternalError
from onedispatch.transactions.base.files import reading

_REMEDY = "build it again"


def open_file(path: str | os.PathLike[str]) -> Opened:
    """The catalog of a file, mapped, or of a .yaml file, read. Raises ``CatalogError`` where it is none."""
    name = os.fspath(path)
    if name.endswith(TEXT_SUFFIX):
        text = import_module("onedispatch.operators.catalog.text")  # YAML is slow to import
        with reading(name, CatalogError) as file:
            return open_bytes(memoryview(text.library_of(file.read(), name).to_bytes()), name)
    return open_bytes(mapped_file(name), name)


def mapped_file(path: str) -> memoryview:
    """The bytes of a file, mapped. Raises ``CatalogError`` where it cannot be read."""
    with reading(path, CatalogError) as file:
        return _mapped(file.fileno(), path)


def _mapped(handle: int, path: str) -> memoryview:
    """The bytes of a file. Pages of one that is cut short meanwhile read as zeros: checksums find it."""
    try:
        data = mmap.mmap(handle, 0, access=mmap.ACCESS_READ)
    except ValueError as error:
        raise CatalogError(path, "an empty file", "a catalog", _REMEDY) from error
    try:
        extension: Any = native()
    except InternalError:  # without the C++ extension
        return memoryview(data)
    number = extension.guard_pages(data)
    if number < 0:  # no more files can be guarded
        return memoryview(bytes(data))
    finalize(data, extension.unguard_pages, number)
    return memoryview(data)


def is_catalog(path: Path) -> bool:
    """Whether a file's name is one of a catalog."""
    return path.suffix in (SUFFIX, TEXT_SUFFIX)
