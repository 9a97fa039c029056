# SPDX-License-Identifier: Apache-2.0
"""The plug-ins of this process: found at the first need, each loaded once.

In this order: those that are named in the program or on the command line (``load``, ``plugins=``,
``--plugin``), when they are named; then, when the first model is compiled or run or kernels are listed, the
entries of ``ONEDISPATCH_PLUGIN_PATH``, and the entry points of installed packages. Where the variable is
changed later, the entries that it has then are loaded at the next need. With
``ONEDISPATCH_PLUGIN_CONFLICT=first`` the first plug-in that has a name keeps it.

What the caller named for this run is an error where it does not load, and it is tried again at the next
need. An entry point is another package's, and models that have nothing to do with it still run: a broken
one is a ``PluginWarning``, kept in ``broken()``, and named by whatever then misses a kernel. Two plug-ins
that have one name are an error wherever they come from: which one ran would depend on what is installed.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from onedispatch.dispatch.base import arguments
from onedispatch.dispatch.base.forks import ForkLock
from onedispatch.dispatch.plugins.entry_points import described, installed, load_entry_point
from onedispatch.dispatch.plugins.files import PATH_VARIABLE, files_of, search_path
from onedispatch.dispatch.plugins.loading import Plugin, load_file
from onedispatch.operators.plugin import registrations
from onedispatch.operators.plugin.registrations import OnConflict, check_policy
from onedispatch.transactions.base.errors import InputError, KernelLibraryError, OneDispatchError, RuleError
from onedispatch.transactions.base.signature import bounded_repr

CONFLICT_VARIABLE = "ONEDISPATCH_PLUGIN_CONFLICT"


class PluginWarning(UserWarning):
    """A plug-in of an installed package does not load; models that do not need it run all the same."""


class _State:
    """What is known, guarded by ``_LOCK``."""

    def __init__(self) -> None:
        self.plugins: dict[str, Plugin] = {}  # by file
        self.broken: list[str] = []
        self.policy: OnConflict | None = None  # as the command line says
        self.listed: list[str] | None = None  # the path list that is loaded
        self.installed = False  # the entry points are
        self.busy = False  # loading: a plug-in that asks for kernels meanwhile gets those that there are


_LOCK = ForkLock()
_STATE = _State()


def ensure() -> None:
    """Loads what the path list and installed packages name, as far as that is not done.

    Raises ``KernelLibraryError`` for an entry of the path list that does not load, and for conflicts;
    ``InputError`` where ``ONEDISPATCH_PLUGIN_CONFLICT`` is neither error nor first.
    """
    if _STATE.installed and _STATE.listed == search_path():
        return
    with _LOCK.guard:
        _renewed()
        if _STATE.busy:
            return
        _STATE.busy = True
        try:
            _load_found(conflict_policy(), search_path())
        finally:
            _STATE.busy = False


def load(given: Iterable[str], named_by: str, on_conflict: OnConflict | None = None) -> list[Plugin]:
    """Loads files and folders in this order; those that are loaded already are returned as they are."""
    with _LOCK.guard:
        _renewed()
        policy = on_conflict or conflict_policy()
        return [plugin for one in given for plugin in _load(one, named_by, policy)]


def load_each(named: Iterable[str], named_by: str = "--plugin") -> list[tuple[str, OneDispatchError]]:
    """Loads what is named and what is found, one after another, and returns what does not load, with why.

    Nothing is left for ``ensure`` to load afterwards, or to fail on.
    """
    failed: list[tuple[str, OneDispatchError]] = []
    with _LOCK.guard:
        _renewed()
        policy, listed = conflict_policy(), search_path()
        for given, by in (*((one, named_by) for one in named), *((one, PATH_VARIABLE) for one in listed)):
            try:
                files = [str(file) for file in files_of(given, by)]
            except OneDispatchError as error:
                failed.append((given, error))
                continue
            failed += _load_apart(files, by, policy)
        for point in installed():
            try:
                found = load_entry_point(point, policy, _STATE.plugins)
                _STATE.plugins.update({plugin.file: plugin for plugin in found})
            except OneDispatchError as error:
                failed.append((described(point), error))
        _STATE.listed, _STATE.installed = listed, True
    return failed


def _load_apart(files: list[str], by: str, policy: OnConflict) -> list[tuple[str, OneDispatchError]]:
    """Loads files; those of a folder need not register anything."""
    failed: list[tuple[str, OneDispatchError]] = []
    for file in files:
        if file not in _STATE.plugins:
            try:
                _STATE.plugins[file] = load_file(Path(file), by, policy, may_be_empty=len(files) > 1)
            except OneDispatchError as error:
                failed.append((file, error))
    return failed


def use(plugins: Any) -> None:
    """Loads what an argument ``plugins`` names: None, or a list of paths."""
    if plugins is None:
        return
    if not isinstance(plugins, list | tuple):
        raise InputError("plugins", bounded_repr(plugins), 'a list of paths: ["libacme.so"]')
    load([str(arguments.file_path("plugins", one)) for one in plugins], "plugins=")


def set_policy(policy: OnConflict | None) -> None:
    """What the command line says about conflicts, before anything is loaded."""
    _STATE.policy = policy


def conflict_policy() -> OnConflict:
    """As the command line, or else the environment says: ``error`` unless it is ``first``."""
    if _STATE.policy is not None:
        return _STATE.policy
    return check_policy(CONFLICT_VARIABLE, os.environ.get(CONFLICT_VARIABLE) or "error")


def loaded() -> list[Plugin]:
    """Every plug-in, in the order in which they were loaded."""
    with _LOCK.guard:
        return list(_STATE.plugins.values())


def broken() -> list[str]:
    """A line for each installed plug-in that did not load."""
    with _LOCK.guard:
        return list(_STATE.broken)


def searched() -> str:
    """Where plug-ins came from, for the message that misses one."""
    with _LOCK.guard:
        files = [f"{plugin.file} ({plugin.named_by})" for plugin in _STATE.plugins.values()]
        listed = search_path()
        text = (
            f"plug-ins loaded: {', '.join(files) or 'none'}; {PATH_VARIABLE}: {', '.join(listed) or 'empty'}"
        )
        return "; ".join([text, *(f"not loaded: {line}" for line in _STATE.broken)])


def reset() -> None:
    """Forgets every plug-in, for tests; libraries stay in the process, and are read again."""
    global _STATE
    with _LOCK.guard:
        _STATE = _State()
        registrations.forget()


def _renewed() -> None:
    """In a forked child whose parent was loading on another thread: what was half done is done again."""
    if _LOCK.take_lost():
        _STATE.busy = False


def _load(given: str, named_by: str, policy: OnConflict) -> list[Plugin]:
    files = files_of(given, named_by)
    for file in files:
        if str(file) not in _STATE.plugins:
            _STATE.plugins[str(file)] = load_file(file, named_by, policy, may_be_empty=len(files) > 1)
    return [_STATE.plugins[str(file)] for file in files]


def _load_found(policy: OnConflict, listed: list[str]) -> None:
    for entry in listed:
        _load(entry, PATH_VARIABLE, policy)
    _STATE.listed = listed
    if not _STATE.installed:
        _load_installed(policy)
        _STATE.installed = True


def _load_installed(policy: OnConflict) -> None:
    _STATE.broken = []
    for point in installed():
        try:
            found = load_entry_point(point, policy, _STATE.plugins)
        except (KernelLibraryError, RuleError) as error:
            if getattr(error, "conflict", getattr(error, "status", 0) == registrations.TAKEN):
                raise
            line = str(error)
            if isinstance(error, RuleError):  # which names the rule, not who brought it
                line = f"{described(point)}: {line}"
            _STATE.broken.append(line)
            warnings.warn(f"{line} Models that do not need it run.", PluginWarning, stacklevel=2)
            continue
        _STATE.plugins.update({plugin.file: plugin for plugin in found})
