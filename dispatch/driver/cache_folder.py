# SPDX-License-Identifier: Apache-2.0
"""The folder in which compiled models are kept, if they are: ``model_cache`` writes and reads them.

``ONEDISPATCH_CACHE`` is ``on``, ``off`` (or another word for these, such as ``0``) or a folder. Where it is
not set, commands keep models in ``~/.cache/onedispatch`` (``XDG_CACHE_HOME`` says another place) unless
``CI`` is set, to other than ``0`` or ``false``; programs keep none, since a library should write no files
unasked.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onedispatch.transactions.base.errors import InputError
from onedispatch.transactions.base.signature import bounded_repr

ENVIRONMENT = "ONEDISPATCH_CACHE"
_WORDS = {"on": True, "1": True, "true": True, "yes": True} | dict.fromkeys(
    ("", "off", "0", "false", "no"), False
)
MOST_BYTES = 2 << 30  # of all entries; the least recently used give way
SUFFIX = ".od"
Asked = bool | str | os.PathLike[str] | None


class CacheWarning(UserWarning):
    """The folder of compiled models cannot be used as it should; models are compiled all the same."""


def folder(asked: Asked = None, *, command: bool = False) -> Path | None:
    """Returns where compiled models are kept, None for nowhere.

    Args:
        asked: True, False, a folder, or a text as of the environment; None: as that says.
        command: what to do where neither says anything is a command's default, not a program's.

    Raises:
        InputError: for anything else.
    """
    value: Any = os.environ.get(ENVIRONMENT) if asked is None else asked
    if value is None:
        value = command and os.environ.get("CI", "").lower() in ("", "0", "false")
    if not isinstance(value, bool | str | os.PathLike):
        raise InputError("cache", bounded_repr(value), "True, False, a folder, or None")
    said = value if isinstance(value, bool) else _WORDS.get(str(value).lower())
    if said is None:
        return Path(str(value))
    return default_folder() if said else None


def default_folder() -> Path:
    """Returns the folder where none is named."""
    home = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(home) if os.path.isabs(home) else Path(os.path.expanduser("~")) / ".cache") / "onedispatch"


@dataclass(frozen=True)
class Kept:
    """An entry as it lies in the folder."""

    path: Path
    nbytes: int
    used: float  # seconds since the epoch


def kept(place: Path) -> list[Kept]:
    """Returns the entries of a folder, the one used last first."""
    rows = []
    with suppress(OSError):
        for path in place.glob(f"*{SUFFIX}"):
            with suppress(OSError):  # another process may have removed it
                status = path.stat()
                rows.append(Kept(path, status.st_size, status.st_mtime))
    return sorted(rows, key=lambda row: row.used, reverse=True)


def clear(place: Path) -> list[Kept]:
    """Removes all entries of a folder, and returns them. Raises ``InputError`` where that is not allowed."""
    rows = kept(place)
    for row in rows:
        try:
            row.path.unlink(missing_ok=True)
        except OSError as error:
            raise InputError(
                str(row.path), error.strerror or str(error), "a folder that can be changed"
            ) from error
    return rows


def keep_bounded(place: Path, newest: Path) -> None:
    """Removes what was not used for longest, until the others take ``MOST_BYTES`` at most."""
    total = 0
    for row in kept(place):
        total += row.nbytes
        if total > MOST_BYTES and (row.path != newest or row.nbytes > MOST_BYTES):
            row.path.unlink(missing_ok=True)


def age(row: Kept) -> float:
    """Returns for how many seconds an entry was not used."""
    return max(0.0, time.time() - row.used)
