# SPDX-License-Identifier: Apache-2.0
"""The one way in which this project writes a file: whole or not at all, and as what it was.

A regular file is written beside its target under a name of its own and then renamed over it, so a
reader, a second writer or a failure never meets half of one; of several writers the last one wins.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from onedispatch.transactions.base.errors import InputError, OneDispatchError

_PIECE = 1 << 26  # bytes between two syncs; none of them keeps an interrupt waiting for long
_MOST_LINKS = 40  # as Linux follows
_CLOSED_FOLDER = (errno.EACCES, errno.EPERM, errno.EROFS)
_ACCEPTED = "a place that can be written"

FilePath = str | os.PathLike[str]
Bytes = bytes | bytearray | memoryview


def write_file(
    path: FilePath, pieces: Bytes | Iterable[Bytes], error: type[OneDispatchError] = InputError
) -> None:
    """Writes ``pieces``, one after the other, as the content of ``path``; see ``writing``."""
    with writing(path, error) as file:
        for piece in [pieces] if isinstance(pieces, Bytes) else pieces:
            view = memoryview(piece).cast("B")
            for at in range(0, len(view), _PIECE):
                file.write(view[at : at + _PIECE])
                if len(view) > _PIECE:
                    _sync(file)


@contextlib.contextmanager
def writing(path: FilePath, error: type[OneDispatchError] = InputError) -> Iterator[BinaryIO]:
    """A binary file whose content becomes that of ``path`` when the block ends well.

    - A file that is there keeps its mode and its owner; a new one gets what the umask leaves.
    - Of a symbolic link the target is written, and the link stays.
    - What is no regular file (a device, a pipe, /dev/stdout) is written straight.
    - So is a file in a folder that takes no new files, or whose owner cannot be kept: in place,
      and a failure then leaves what has been written.
    - Whatever ends the block early, an interrupt included, leaves neither the temporary file nor a
      change of the old one.

    Raises:
        error: (a class of ``errors``) the path is none, or nothing can be written there.
    """
    name = _name_of(path, error)
    try:
        old = _status(name)
        if old is not None and (not stat.S_ISREG(old.st_mode) or _is_descriptor(name)):
            with open(name, "wb") as file:
                yield file
            return
        target = os.path.realpath(name)
        if old is not None:  # only asks whether it may be written: rename() does not
            os.close(os.open(target, os.O_WRONLY | os.O_CLOEXEC))
        with _replacing(target, old) as file:
            yield file
    except OSError as reason:
        raise error(name, reason.strerror or str(reason), _ACCEPTED) from reason


def _name_of(path: FilePath, error: type[OneDispatchError]) -> str:
    try:
        name = os.fsdecode(os.fspath(path))
    except TypeError:
        raise error("a file to write", f"a {type(path).__name__}", "a path") from None
    if not name or "\0" in name:
        raise error("a file to write", repr(name), "the path of a file")
    return name


def _status(name: str) -> os.stat_result | None:
    try:
        return os.stat(name)
    except FileNotFoundError:
        return None


def _is_descriptor(name: str) -> bool:
    """Whether it names one of the open files of a process, as /dev/stdout and /dev/fd/3 do.

    Behind such a name a rename would put another file at the place of the open one.
    """
    for _ in range(_MOST_LINKS):
        if os.path.realpath(os.path.dirname(os.path.abspath(name))).startswith("/proc/"):
            return True
        if not os.path.islink(name):
            return False
        name = os.path.join(os.path.dirname(name), os.readlink(name))
    return False


@contextlib.contextmanager
def _replacing(target: str, old: os.stat_result | None) -> Iterator[BinaryIO]:
    # A short name: that of the target may be as long as names can be.
    partial = os.path.join(os.path.dirname(target), f".{secrets.token_hex(8)}.partial")
    try:
        file = _beside(partial, old)
        with file or open(target, "wb") as out:
            yield out
            _sync(out)
        if file is not None:
            _move(partial, target)
    except BaseException:
        Path(partial).unlink(missing_ok=True)
        raise


def _beside(partial: str, old: os.stat_result | None) -> BinaryIO | None:
    """The temporary file, or None where ``old`` can only be written in place."""
    try:
        number = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    except OSError as reason:
        if old is None or reason.errno not in _CLOSED_FOLDER:
            raise
        return None
    file: BinaryIO = os.fdopen(number, "wb")
    if old is None:
        return file
    mine = os.stat(number)
    try:
        if (old.st_uid, old.st_gid) != (mine.st_uid, mine.st_gid):
            os.chown(number, old.st_uid, old.st_gid)
        os.chmod(number, stat.S_IMODE(old.st_mode))
    except PermissionError:  # somebody else's file that this user may write
        file.close()
        os.unlink(partial)
        return None
    return file


def _move(partial: str, target: str) -> None:
    try:
        os.replace(partial, target)
    except OSError as reason:
        if reason.errno != errno.EBUSY:  # it is a mount of its own, as files in containers may be
            raise
        with open(partial, "rb") as made, open(target, "wb") as out:
            shutil.copyfileobj(made, out)
        os.unlink(partial)


def _sync(file: BinaryIO) -> None:
    """So that after a loss of power too there is the old content or the new."""
    file.flush()
    os.fsync(file.fileno())
