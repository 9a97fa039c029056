# SPDX-License-Identifier: Apache-2.0
"""Compiled models that are kept in a folder: equal models with equal options are compiled once.

An entry is named by a digest of all that its content depends on: the model with its external data, the
options, the shapes, the device, the catalogs, and the source of this package. Models are not kept where
plug-ins or a selector take part, nor those of other frameworks, whose rules may warn. An entry that cannot be
read or written is a ``CacheWarning``, and the model is compiled as without a cache.
"""

from __future__ import annotations

import hashlib
import os
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import Message

from onedispatch.dispatch.artifact.loading import load
from onedispatch.dispatch.artifact.model import CompiledModel
from onedispatch.dispatch.base.mapped import view_file
from onedispatch.dispatch.compile import source_of
from onedispatch.dispatch.compiler.options import CompileOptions, ImportOptions
from onedispatch.dispatch.driver.cache_folder import SUFFIX, CacheWarning, keep_bounded
from onedispatch.dispatch.frontend.external_data import external_files
from onedispatch.dispatch.frontend.protobuf import readable
from onedispatch.dispatch.frontend.weights import parse_model
from onedispatch.dispatch.plugins import discovery
from onedispatch.operators.catalog.layers import layers
from onedispatch.operators.plugin import registrations
from onedispatch.transactions.base.errors import (
    CompiledModelError,
    InputError,
    OneDispatchError,
    statement_of,
)
from onedispatch.transactions.base.files import real_path
from onedispatch.transactions.base.signature import bounded_repr

_PACKAGE = Path(__file__).resolve().parents[2]
_FOLDERS = ("dispatch", "operators", "transactions", "cpp_ext")
_READ = (str, os.PathLike, bytes, bytearray, memoryview, Message)
_SOURCES = (".py", ".so", ".toml")


@dataclass(frozen=True)
class Entry:
    """Where a model is kept, or is to be."""

    path: Path

    def read(self, options: CompileOptions) -> CompiledModel | None:
        """Returns the model, None where there is none; a damaged one is a ``CacheWarning``."""
        try:
            if not self.path.exists():
                return None
            model = load(self.path)
            os.utime(self.path)
        except FileNotFoundError:
            return None
        except (OSError, OneDispatchError) as error:
            _warn(f"{self.path}: {statement_of(error)}; the model is compiled again")
            return None
        return replace(model, options=options)

    def write(self, model: CompiledModel) -> None:
        """Keeps a model; where that fails it is a ``CacheWarning``."""
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self.path.exists() and not self.path.is_file():
                self.path.unlink()  # a pipe or a device would be written to, and a pipe waits for its reader
            model.save(self.path, compress=False)
            keep_bounded(self.path.parent, self.path)
        except (OSError, CompiledModelError) as error:
            _warn(f"the model is not kept: {statement_of(error)}", once=True)


_WARNED = set[str]()


def _warn(text: str, *, once: bool = False) -> None:
    if once and _WARNED:
        return
    _WARNED.update((text,) if once else ())
    warnings.warn(f"the cache of compiled models: {text}", CacheWarning, stacklevel=2)


# -- what an entry is named by -----------------------------------------------------------------------


def entry_for(
    place: Path, model: Any, options: CompileOptions, how: ImportOptions, sizes: Sequence[Any]
) -> Entry | None:
    """Returns where a model is kept; None where it is not, or not to be.

    Args:
        sizes: shapes, profiles and how many executables are kept, as plain data.
    """
    if options.selector is not None or not isinstance(model, _READ) or _has_plugins():
        return None
    found = hashlib.sha256()
    try:
        if source_of(model, how) != "onnx":
            return None
        for part in (*_of_model(model), *_of_options(options, how), repr(sizes).encode(), *_of_package()):
            found.update(len(part).to_bytes(8, "little"))
            found.update(part)
    except (OSError, OneDispatchError):
        return None  # what reads the model says what is wrong with it
    about = f"{_name_of(model)}-{options.device.name}-{options.precision}"
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", about)[-80:]
    return Entry(place / f"{name}-{found.hexdigest()[:24]}{SUFFIX}")


def _name_of(model: Any) -> str:
    """What people find an entry by."""
    if isinstance(model, str | os.PathLike):
        return Path(model).stem
    return getattr(getattr(model, "graph", None), "name", "") or "model"


def _has_plugins() -> bool:
    discovery.ensure()
    added = (discovery.loaded(), registrations.kernels(), registrations.mappings(), registrations.extras())
    return any(added)


def _of_model(model: Any) -> Iterator[bytes | memoryview]:
    """The model's bytes, and those of the files that it names."""
    if isinstance(model, Message):
        yield model.SerializeToString(deterministic=True)
    elif isinstance(model, str | os.PathLike):
        data = view_file(model, "an ONNX file that can be read")
        yield data
        proto, _ = readable(lambda: parse_model(memoryview(data)), str(model), "no ONNX", "an ONNX model")
        for path in external_files(proto, Path(real_path(model)).parent):
            yield os.fsencode(path)
            yield view_file(path, "a file of external data")
    else:
        yield memoryview(model)


def _of_options(options: CompileOptions, how: ImportOptions) -> Iterator[bytes]:
    chosen = options.precision, options.fallback, options.cast_policy, options.sums, options.groups
    yield repr((options.device.description(), chosen, sorted(options.pins))).encode()
    yield repr([_stamp(Path(path)) for path in layers(options.catalog)]).encode()
    yield repr((how.frontend, how.outputs, how.fusions, how.strict)).encode()
    yield from _of_values(how.freeze)


def _of_values(values: Mapping[str, Any]) -> Iterator[bytes]:
    for name, value in sorted(values.items()):
        try:
            array = np.asarray(value)
        except (ValueError, TypeError, OverflowError) as error:
            raise InputError(name, bounded_repr(value), "numbers, or lists of equal lengths") from error
        yield repr((name, type(value).__name__, str(array.dtype), array.shape)).encode()
        # All elements: what NumPy prints of a long array leaves the middle out.
        yield repr(array.tolist()).encode() if array.dtype.hasobject else array.tobytes()


def _stamp(path: Path) -> list[tuple[str, int, int]]:
    """What changes when a catalog does: names, sizes and times of its files and those beside it."""
    place = path if path.is_dir() else path.parent
    files = (path, *sorted(one for one in place.iterdir() if one.is_file()))
    return [_stamp_of(one) for one in files]


def _stamp_of(path: Path) -> tuple[str, int, int]:
    status = path.stat()
    return str(path), status.st_size, status.st_mtime_ns


@cache
def _of_package() -> tuple[bytes, ...]:
    """The source of this package, as its files are stamped, and what reads models."""
    files = (path for name in _FOLDERS for path in (_PACKAGE / name).rglob("*") if path.suffix in _SOURCES)
    stamps = sorted(_stamp_of(path) for path in files if path.is_file())
    versions = onnx.__version__, np.__version__, _version_of_onnxruntime()
    return repr((versions, stamps)).encode(), str(_PACKAGE).encode()


def _version_of_onnxruntime() -> str:
    """It computes nodes on the host. It is not imported: that takes longer than to read an entry."""
    for name in ("onnxruntime", "onnxruntime-gpu"):
        with suppress(metadata.PackageNotFoundError):
            return metadata.version(name)
    return ""
