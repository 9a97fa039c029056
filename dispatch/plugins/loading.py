# SPDX-License-Identifier: Apache-2.0
"""One plug-in file into the process: its kernels and mappings are known afterwards, or nothing of it is."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from onedispatch.dispatch.base.native import core
from onedispatch.dispatch.plugins.files import is_library, refused
from onedispatch.operators.plugin import library, registrations
from onedispatch.operators.plugin.plugin import map_to
from onedispatch.operators.plugin.registrations import Batch, OnConflict
from onedispatch.transactions.base.boundary import error_line
from onedispatch.transactions.base.errors import KernelError, KernelLibraryError, RuleError
from onedispatch.transactions.base.host import kernel_seconds

T = TypeVar("T")
_NOTHING = "at least one kernel (od.kernel), mapping (od.maps), rule (od.frontend) or fusion (od.fusion)"


@dataclass(frozen=True)
class Plugin:
    """A plug-in as it was loaded.

    ``skipped`` has a line for each kernel or mapping that another plug-in had already, where the first one
    was asked for.
    """

    file: str
    """Links followed; of an entry point what it names"""
    named_by: str
    """``load``, ``ONEDISPATCH_PLUGIN_PATH``, or the entry point with its package"""
    kernels: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts = [f"{what} {', '.join(names)}" for what, names in self._what() if names]
        return f"{self.file} ({self.named_by}): {'; '.join(parts) or 'nothing'}"

    def _what(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        return (
            ("kernels", self.kernels),
            ("operators", self.operators),
            ("rules", self.rules),
            ("skipped", self.skipped),
        )


def load_file(file: Path, named_by: str, on_conflict: OnConflict, *, may_be_empty: bool = False) -> Plugin:
    """Raises ``KernelLibraryError`` with the file's name, whatever is wrong with it."""
    own: tuple[str, ...] = ()
    with registrations.collecting(str(file)) as batch:
        if is_library(file):
            own = _read_library(file, batch, on_conflict)
        else:
            _run_python(file)
    return committed(batch, named_by, on_conflict, own, may_be_empty=may_be_empty)


def committed(
    batch: Batch,
    named_by: str,
    on_conflict: OnConflict,
    own: tuple[str, ...] = (),
    *,
    may_be_empty: bool = False,
) -> Plugin:
    """What was collected, known from now on; ``own`` are kernels that a library registered itself."""
    if not (batch.kernels or batch.mappings or batch.extras or batch.skipped or own or may_be_empty):
        raise refused(f"plug-in {batch.origin}", "a plug-in that registers nothing", _NOTHING)
    registrations.commit(batch, on_conflict)
    kept = [one.kernel.name for one in batch.kernels if registrations.named(one.kernel.name) is one]
    mapped = [bound.name for bound in batch.mappings if bound in registrations.mappings()]
    rules = [extra.name for extra in batch.extras if extra in registrations.extras()]
    return Plugin(batch.origin, named_by, (*own, *kept), tuple(mapped), tuple(batch.skipped), tuple(rules))


def _read_library(file: Path, batch: Batch, on_conflict: OnConflict) -> tuple[str, ...]:
    """Takes the kernels of a shared object; returns those that it registers itself, for program images.

    The others serve nodes of their name in CamelCase, in the domain of their namespace.
    """
    where = f"plug-in {file}"
    try:
        own = blamed(where, str(file), lambda: core.load_kernel_library(str(file), kernel_seconds()))
    except KernelLibraryError as error:
        if error.status != registrations.TAKEN or on_conflict == "error":
            raise
        batch.skipped.append(f"all kernels: {error.statement()}")
        return ()
    for kernel in blamed(where, str(file), lambda: library.read(file)):
        registrations.add_kernel(kernel)
        map_to(kernel)
    return tuple(row[0] for row in own)


def module_of(file: Path) -> ModuleType | None:
    """Returns the module that a Python file is loaded as, or imported as; None if it is neither."""
    found = sys.modules.get(_module_name(file))
    if found is not None:
        return found
    every = list(sys.modules.values())
    return next((one for one in every if getattr(one, "__file__", None) == str(file)), None)


def _module_name(file: Path) -> str:
    return f"onedispatch_plugin_{file.stem}_{blake2b(str(file).encode(), digest_size=4).hexdigest()}"


def _run_python(file: Path) -> None:
    """Runs the file as a module of its own, which stays in ``sys.modules`` where all goes well."""
    name = _module_name(file)
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise refused(f"plug-in {file}", "a file that Python does not take for a module")
    module = importlib.util.module_from_spec(spec)
    before = sys.modules.get(name)
    sys.modules[name] = module
    try:
        blamed(f"plug-in {file}", str(file), lambda: _executed(spec.loader, module))
    except BaseException:
        del sys.modules[name]
        if before is not None:
            sys.modules[name] = before
        raise


def _executed(loader: object, module: ModuleType) -> None:
    loader.exec_module(module)  # type: ignore[attr-defined]


def blamed(where: str, file: str, action: Callable[[], T]) -> T:
    """``action()``, in which code of a plug-in runs: what it raises becomes a ``KernelLibraryError``.

    ``SystemExit`` too, since a plug-in does not end the process that looks for it. A ``RuleError`` stays.
    """
    try:
        return action()
    except RuleError:
        raise  # it names the file and the line of the rule
    except KernelLibraryError as error:
        if file in str(error):
            raise
        raise _failed(where, file, error) from error
    except (Exception, SystemExit) as error:  # code of others
        raise _failed(where, file, error) from error


def _failed(where: str, file: str, error: BaseException) -> KernelError:
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    if isinstance(error, SyntaxError) and error.filename == file:
        lines.append(error.lineno)
    at = f", line {lines[-1]}" if lines and lines[-1] is not None else ""
    return refused(
        where + at,
        error_line(error),
        "a plug-in that loads",
        "the traceback has the details",
        status="declaration_invalid",
    )
