# SPDX-License-Identifier: Apache-2.0
"""Reading and writing files: all file access of this project goes through here.

Reading takes a regular file or an already open pipe (/dev/stdin, ``<(command)``). Devices and named pipes are
refused: a device may never end, and a named pipe may wait for a writer that never comes.

Writing is atomic and keeps the kind of file. A regular file is written to a temporary file in the same folder
and then renamed over its target, so a reader, a second writer or a failure never sees half a file; of several
writers the last one wins.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO

from onedispatch.transactions.base.context import setting
from onedispatch.transactions.base.errors import InputError, OneDispatchError
from onedispatch.transactions.base.handlers import reraise_from_handler
from onedispatch.transactions.base.text import counted

MOST_READ = (1 << 31) - 1  # bytes: protobuf takes no larger model
_PIECE = 1 << 26  # bytes between two syncs: a sync delays interrupts, so no sync may be long
_MOST_LINKS = 40  # as Linux follows
_PARTIAL = re.compile(r"\.[0-9a-f]{16}\.partial")
_STALE = 60.0  # seconds after which an unlocked temporary file is abandoned: no writer is about to lock it
_CLOSED_FOLDER = (errno.EACCES, errno.EPERM, errno.EROFS)
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}
_ACCEPTED = "a place that can be written"

FilePath = str | os.PathLike[str]
Bytes = bytes | bytearray | memoryview


# (device, inode) of the files that the current command has read or written; None outside of a command.
_read: ContextVar[set[tuple[int, int]] | None] = ContextVar("read", default=None)


@contextlib.contextmanager
def protecting_files() -> Iterator[None]:
    """Refuses, within the block, to overwrite a file that the block has read or written, under any name."""
    with setting(_read, set()):
        yield


def record_read(status: os.stat_result) -> None:
    """Records a file that was read without ``reading``, for ``protecting_files``."""
    known = _read.get()
    if known is not None and stat.S_ISREG(status.st_mode):
        known.add((status.st_dev, status.st_ino))


def check_target(path: FilePath, error: type[OneDispatchError] = InputError) -> None:
    """Raises ``error`` if ``path`` names a protected file; see ``protecting_files``."""
    known, status = _read.get(), _status(_path_name(path, error))
    if known and status is not None and (status.st_dev, status.st_ino) in known:
        given = "a file that this command read or wrote already"
        raise error(os.fsdecode(os.fspath(path)), given, "another file", "name another file to write")


def read_file(
    path: FilePath,
    error: type[OneDispatchError] = InputError,
    accepted: str = "a file that can be read",
    most: int = MOST_READ,
) -> bytes:
    """Returns the bytes of a file, ``most`` at most.

    Raises:
        error: (a class of ``errors``) the file cannot be read, is no regular file, or is larger.
    """
    with reading(path, error, accepted) as file:
        return read_open(file, path, error, most)


def read_open(
    file: BinaryIO, path: FilePath, error: type[OneDispatchError] = InputError, most: int = MOST_READ
) -> bytes:
    """The same of a file that is open. Raises ``error`` where it is larger."""
    size, pieces = os.fstat(file.fileno()).st_size, list[bytes]()
    while size <= most and (piece := file.read(max(size + 1, _PIECE))):
        pieces.append(piece)
        size = max(size, sum(map(len, pieces)))
    if size > most:
        limit = counted(most, "byte")
        raise error(os.fsdecode(os.fspath(path)), f"a file of more than {limit}", f"up to {limit}")
    return b"".join(pieces)


@contextlib.contextmanager
def reading(
    path: FilePath, error: type[OneDispatchError] = InputError, accepted: str = "a file that can be read"
) -> Iterator[BufferedReader]:
    """Opens a regular file or an already open pipe for reading. Raises like ``read_file``."""
    name = _path_name(path, error, "a file to read")
    try:
        with open(name, "rb", opener=_open_nonblocking) as file:
            mode = os.fstat(file.fileno()).st_mode
            if not stat.S_ISREG(mode) and not (stat.S_ISFIFO(mode) and _file_of(name) is None):
                raise error(name, _KINDS.get(stat.S_IFMT(mode), "no file"), accepted)
            os.set_blocking(file.fileno(), True)
            record_read(os.fstat(file.fileno()))
            yield file
    except OSError as reason:
        reraise_from_handler(reason)
        raise error(name, reason.strerror or str(reason), accepted) from reason


def _open_nonblocking(name: str, flags: int) -> int:
    """Opens without waiting for a writer of a named pipe."""
    return os.open(name, flags | os.O_NONBLOCK | os.O_NOCTTY)


def _open_appending(name: str, flags: int) -> int:
    """The same, of a file that may have to be made."""
    return os.open(name, flags | os.O_NONBLOCK | os.O_NOCTTY, 0o666)


def write_file(
    path: FilePath, pieces: Bytes | Iterable[Bytes], error: type[OneDispatchError] = InputError
) -> None:
    """Writes ``pieces``, concatenated, as the content of ``path``; see ``writing``."""
    with writing(path, error) as file:
        for piece in [pieces] if isinstance(pieces, Bytes) else pieces:
            view = memoryview(piece).cast("B")
            for at in range(0, len(view), _PIECE):
                file.write(view[at : at + _PIECE])
                if len(view) > _PIECE:
                    _sync(file)


@contextlib.contextmanager
def writing(path: FilePath, error: type[OneDispatchError] = InputError) -> Iterator[BinaryIO]:
    """Yields a binary file whose content replaces that of ``path`` when the block succeeds.

    - An existing file keeps its mode and owner; a new one gets its mode from the umask.
    - For a symbolic link the target is written; the link stays.
    - A file that is not regular (a device, a pipe, /dev/stdout) is written directly.
    - A file in a folder that takes no new files, or whose owner cannot be kept, is written in place;
      a failure then leaves a partial file.
    - If the block ends early, by an interrupt too, the old file is unchanged and no temporary file stays.

    Raises:
        error: (a class of ``errors``) the path is invalid, or cannot be written.
    """
    name = _path_name(path, error)
    try:
        check_target(name, error)
        old, target = _status(name), _file_of(name)
        if target is None or (old is not None and not stat.S_ISREG(old.st_mode)):
            with open(name, "wb") as file:
                yield file
            return
        if old is not None:  # tests the permission to write, which rename() does not check
            os.close(os.open(target, os.O_WRONLY | os.O_CLOEXEC))
        with _replacing(target, old) as file:
            yield file
        record_read(os.stat(target))
    except OSError as reason:
        raise error(name, reason.strerror or str(reason), _ACCEPTED) from reason


@contextlib.contextmanager
def appending(path: FilePath, error: type[OneDispatchError] = InputError) -> Iterator[BinaryIO]:
    """Opens a regular file, made where there is none, to read it and to append to it: what is written goes to
    its end, and is on disk when the block has ended. Others that append wait until then.

    Raises:
        error: (a class of ``errors``) the path is invalid, no regular file, or cannot be written.
    """
    name = _path_name(path, error)
    try:
        with open(name, "a+b", opener=_open_appending) as file:
            mode = os.fstat(file.fileno()).st_mode
            if not stat.S_ISREG(mode):
                raise error(name, _KINDS.get(stat.S_IFMT(mode), "no file"), "a file that can be appended to")
            fcntl.flock(file, fcntl.LOCK_EX)  # of this open file: its closing unlocks it
            yield file
            _sync(file)
    except OSError as reason:
        reraise_from_handler(reason)
        raise error(name, reason.strerror or str(reason), _ACCEPTED) from reason


def _path_name(path: FilePath, error: type[OneDispatchError], where: str = "a file to write") -> str:
    try:
        name = os.fsdecode(os.fspath(path))
    except TypeError:
        raise error(where, f"a {type(path).__name__}", "a path") from None
    if not name or "\0" in name:
        raise error(where, repr(name), "the path of a file")
    return name


def _status(name: str) -> os.stat_result | None:
    try:
        return os.stat(name)
    except FileNotFoundError:
        return None


def _link_status(name: str) -> os.stat_result | None:
    try:
        return os.lstat(name)
    except FileNotFoundError:
        return None


def is_regular(path: FilePath) -> bool:
    """True if the path leads to a regular file; False for an invalid path too."""
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except (OSError, ValueError) as reason:
        reraise_from_handler(reason)
        return False


def real_path(path: FilePath, error: type[OneDispatchError] = InputError) -> str:
    """Returns the path with all symbolic links resolved; an open file's path (/dev/stdin) is unchanged.

    Raises ``error`` if a parent folder does not exist.
    """
    name = _path_name(path, error, "a file")
    try:
        return _file_of(name) or name
    except OSError as reason:
        reraise_from_handler(reason)
        raise error(name, reason.strerror or str(reason), "a file in a folder that exists") from reason


def _file_of(name: str) -> str | None:
    """Returns ``name`` with all symbolic links resolved; the file itself need not exist.

    Returns None for a process's open file, such as /dev/stdout or /dev/fd/3: a rename to such a path would
    replace the open file. Raises ``OSError`` if a parent folder does not exist. (``os.path.realpath`` without
    ``strict`` swallows exceptions of signal handlers.)
    """
    for _ in range(_MOST_LINKS):
        folder = os.path.realpath(os.path.dirname(name) or ".", strict=True)
        if f"{folder}/".startswith("/proc/"):
            return None
        name = os.path.join(folder, os.path.basename(name))
        status = _link_status(name)
        if status is None or not stat.S_ISLNK(status.st_mode):
            return name
        name = os.path.join(folder, os.readlink(name))
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


@contextlib.contextmanager
def _replacing(target: str, old: os.stat_result | None) -> Iterator[BinaryIO]:
    folder = os.path.dirname(target)
    _remove_stale(folder)
    # A short name: the target's name may already have the maximum length.
    partial = os.path.join(folder, f".{secrets.token_hex(8)}.partial")
    try:
        file = _open_partial(partial, old)
        with file or open(target, "wb") as out:
            yield out
            _sync(out)
            if file is not None and _link_status(partial) is None:
                _link_partial(out, partial)
        if file is not None:
            _replace_file(partial, target)
    except BaseException:
        Path(partial).unlink(missing_ok=True)
        raise


def _open_partial(partial: str, old: os.stat_result | None) -> BinaryIO | None:
    """Opens the temporary file; None if ``old`` can only be written in place."""
    try:
        number = _unnamed(os.path.dirname(partial))
        if number is None:
            number = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            fcntl.flock(
                number, fcntl.LOCK_EX | fcntl.LOCK_NB
            )  # the lock tells _remove_stale that it is in use
    except OSError as reason:
        if old is None or reason.errno not in _CLOSED_FOLDER:
            raise
        return None
    file: BinaryIO = os.fdopen(number, "wb")
    try:
        _copy_owner_and_mode(number, old)
    except PermissionError:  # another user owns the file, and this user may write it
        file.close()
        Path(partial).unlink(missing_ok=True)
        return None
    return file


def _copy_owner_and_mode(number: int, old: os.stat_result | None) -> None:
    """Sets owner and mode to those of the file that is replaced."""
    if old is None:
        return
    mine = os.stat(number)
    if (old.st_uid, old.st_gid) != (mine.st_uid, mine.st_gid):
        os.chown(number, old.st_uid, old.st_gid)
    os.chmod(number, stat.S_IMODE(old.st_mode))


def _unnamed(folder: str) -> int | None:
    """Opens an unnamed file, which the system removes when this process ends; None if unsupported."""
    if not hasattr(os, "O_TMPFILE") or _status("/proc/self/fd") is None:
        return None
    try:
        return os.open(folder, os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC, 0o666)
    except OSError as reason:
        if reason.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL):
            raise
        return None


def _link_partial(file: BinaryIO, partial: str) -> None:
    """Links an unnamed file to the temporary name ``partial``: only a rename can replace another file."""
    number = file.fileno()
    try:
        os.link(f"/proc/self/fd/{number}", partial, src_dir_fd=number, follow_symlinks=True)
    except OSError as reason:  # some container file systems cannot link an unnamed file
        reraise_from_handler(reason)
        os.lseek(number, 0, os.SEEK_SET)
        with open(number, "rb", closefd=False) as made, open(partial, "xb") as out:
            _copy_owner_and_mode(out.fileno(), os.stat(number))
            shutil.copyfileobj(made, out)
            _sync(out)


def _remove_stale(folder: str) -> None:
    """Removes temporary files of processes that were killed while writing; active writers hold a lock."""
    with _ignored_errors(), os.scandir(folder) as entries:
        for one in entries:
            if _PARTIAL.fullmatch(one.name) and one.is_file(follow_symlinks=False):
                with _ignored_errors(), open(one.path, "rb") as file:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    if time.time() - os.fstat(file.fileno()).st_mtime > _STALE:
                        os.unlink(one.path)


@contextlib.contextmanager
def _ignored_errors() -> Iterator[None]:
    """Ignores file errors of the block; exceptions of signal handlers pass."""
    try:
        yield
    except OSError as reason:
        reraise_from_handler(reason)


def _replace_file(partial: str, target: str) -> None:
    try:
        os.replace(partial, target)
    except OSError as reason:
        if reason.errno != errno.EBUSY:  # the target is a mount point, as files in containers may be
            raise
        with open(partial, "rb") as made, open(target, "wb") as out:
            shutil.copyfileobj(made, out)
        os.unlink(partial)


def _sync(file: BinaryIO) -> None:
    """Flushes to disk, so that even after a power loss the file has its old or its new content."""
    file.flush()
    os.fsync(file.fileno())
