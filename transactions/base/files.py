# SPDX-License-Identifier: Apache-2.0
"""The one way in which this project reads and writes files.

What is read is a regular file, or a pipe that is open already (/dev/stdin, ``<(command)``), and has an end: a
device may never end, and a named pipe may wait for a writer that never comes.

What is written is written whole or not at all, and stays what it was. A regular file is written beside its
target under a name of its own and then renamed over it, so a reader, a second writer or a failure never
meets half of one; of several writers the last one wins.
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
from pathlib import Path
from typing import BinaryIO

from onedispatch.transactions.base.errors import InputError, OneDispatchError
from onedispatch.transactions.base.handlers import let_through
from onedispatch.transactions.base.phrases import counted

MOST_READ = (1 << 31) - 1  # bytes: protobuf takes no larger model
_PIECE = 1 << 26  # bytes between two syncs; none of them keeps an interrupt waiting for long
_MOST_LINKS = 40  # as Linux follows
_PARTIAL = re.compile(r"\.[0-9a-f]{16}\.partial")
_STALE = 60.0  # seconds after which a temporary file without a lock has nobody who is about to take it
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


# (device, inode) of what was read and written where it matters: in a command, which ends with what it wrote.
_read: ContextVar[set[tuple[int, int]] | None] = ContextVar("read", default=None)


@contextlib.contextmanager
def keeping_what_is_read() -> Iterator[None]:
    """In the block no file is overwritten that was read or written in it, whatever names it has."""
    before = _read.set(set())
    try:
        yield
    finally:
        _read.reset(before)


def note_read(status: os.stat_result) -> None:
    """For files that are read otherwise than by ``reading``."""
    known = _read.get()
    if known is not None and stat.S_ISREG(status.st_mode):
        known.add((status.st_dev, status.st_ino))


def check_target(path: FilePath, error: type[OneDispatchError] = InputError) -> None:
    """Raises ``error`` where ``path`` names a file that must be kept; see ``keeping_what_is_read``."""
    known, status = _read.get(), _status(_name_of(path, error))
    if known and status is not None and (status.st_dev, status.st_ino) in known:
        given = "a file that this command read or wrote already"
        raise error(os.fsdecode(os.fspath(path)), given, "another file", "name another file to write")


def read_file(
    path: FilePath,
    error: type[OneDispatchError] = InputError,
    accepted: str = "a file that can be read",
    most: int = MOST_READ,
) -> bytes:
    """The bytes of a file, ``most`` at most.

    Raises:
        error: (a class of ``errors``) it cannot be read, is no file, or is larger.
    """
    with reading(path, error, accepted) as file:
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
) -> Iterator[BinaryIO]:
    """The file, open: a regular one, or a pipe that is open already. Raises like ``read_file``."""
    name = _name_of(path, error, "a file to read")
    try:
        with open(name, "rb", opener=_at_once) as file:
            mode = os.fstat(file.fileno()).st_mode
            if not stat.S_ISREG(mode) and not (stat.S_ISFIFO(mode) and _file_of(name) is None):
                raise error(name, _KINDS.get(stat.S_IFMT(mode), "no file"), accepted)
            os.set_blocking(file.fileno(), True)
            note_read(os.fstat(file.fileno()))
            yield file
    except OSError as reason:
        let_through(reason)
        raise error(name, reason.strerror or str(reason), accepted) from reason


def _at_once(name: str, flags: int) -> int:
    """Opens without waiting for somebody who writes."""
    return os.open(name, flags | os.O_NONBLOCK | os.O_NOCTTY)


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
        check_target(name, error)
        old, target = _status(name), _file_of(name)
        if target is None or (old is not None and not stat.S_ISREG(old.st_mode)):
            with open(name, "wb") as file:
                yield file
            return
        if old is not None:  # only asks whether it may be written: rename() does not
            os.close(os.open(target, os.O_WRONLY | os.O_CLOEXEC))
        with _replacing(target, old) as file:
            yield file
        note_read(os.stat(target))
    except OSError as reason:
        raise error(name, reason.strerror or str(reason), _ACCEPTED) from reason


def _name_of(path: FilePath, error: type[OneDispatchError], where: str = "a file to write") -> str:
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
    """Whether there is a regular file behind the path; False for what is no path too."""
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except (OSError, ValueError) as reason:
        let_through(reason)
        return False


def real_path(path: FilePath, error: type[OneDispatchError] = InputError) -> str:
    """The path behind all symbolic links; that of a process's open file (/dev/stdin) as it is.

    Raises ``error`` where a folder on the way does not exist.
    """
    name = _name_of(path, error, "a file")
    try:
        return _file_of(name) or name
    except OSError as reason:
        let_through(reason)
        raise error(name, reason.strerror or str(reason), "a file in a folder that exists") from reason


def _file_of(name: str) -> str | None:
    """The path of the file that ``name`` leads to, which need not exist, behind all symbolic links.

    None where it is one of the open files of a process, as /dev/stdout and /dev/fd/3 are: behind such a
    name a rename would put another file at the place of the open one. Raises ``OSError`` where a folder on
    the way does not exist. (``os.path.realpath`` without ``strict`` drops what a signal handler raises.)
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
    # A short name: that of the target may be as long as names can be.
    partial = os.path.join(folder, f".{secrets.token_hex(8)}.partial")
    try:
        file = _beside(partial, old)
        with file or open(target, "wb") as out:
            yield out
            _sync(out)
            if file is not None and _link_status(partial) is None:
                _name(out, partial)
        if file is not None:
            _move(partial, target)
    except BaseException:
        Path(partial).unlink(missing_ok=True)
        raise


def _beside(partial: str, old: os.stat_result | None) -> BinaryIO | None:
    """The temporary file, or None where ``old`` can only be written in place."""
    try:
        number = _unnamed(os.path.dirname(partial))
        if number is None:
            number = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)  # nobody has it: it is not stale
    except OSError as reason:
        if old is None or reason.errno not in _CLOSED_FOLDER:
            raise
        return None
    file: BinaryIO = os.fdopen(number, "wb")
    try:
        _make_alike(number, old)
    except PermissionError:  # somebody else's file that this user may write
        file.close()
        Path(partial).unlink(missing_ok=True)
        return None
    return file


def _make_alike(number: int, old: os.stat_result | None) -> None:
    """Owner and mode of the file that it takes the place of."""
    if old is None:
        return
    mine = os.stat(number)
    if (old.st_uid, old.st_gid) != (mine.st_uid, mine.st_gid):
        os.chown(number, old.st_uid, old.st_gid)
    os.chmod(number, stat.S_IMODE(old.st_mode))


def _unnamed(folder: str) -> int | None:
    """A file without a name, which ends with this process however that ends; None where there are none."""
    if not hasattr(os, "O_TMPFILE") or _status("/proc/self/fd") is None:
        return None
    try:
        return os.open(folder, os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC, 0o666)
    except OSError as reason:
        if reason.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL):
            raise
        return None


def _name(file: BinaryIO, partial: str) -> None:
    """Gives a file without a name one: for a moment, since only a rename replaces another file."""
    number = file.fileno()
    try:
        os.link(f"/proc/self/fd/{number}", partial, src_dir_fd=number, follow_symlinks=True)
    except OSError as reason:  # as some file systems of containers
        let_through(reason)
        os.lseek(number, 0, os.SEEK_SET)
        with open(number, "rb", closefd=False) as made, open(partial, "xb") as out:
            _make_alike(out.fileno(), os.stat(number))
            shutil.copyfileobj(made, out)
            _sync(out)


def _remove_stale(folder: str) -> None:
    """Removes what processes left that were killed while they wrote; those that write hold a lock."""
    with _ignored_errors(), os.scandir(folder) as entries:
        for one in entries:
            if _PARTIAL.fullmatch(one.name) and one.is_file(follow_symlinks=False):
                with _ignored_errors(), open(one.path, "rb") as file:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    if time.time() - os.fstat(file.fileno()).st_mtime > _STALE:
                        os.unlink(one.path)


@contextlib.contextmanager
def _ignored_errors() -> Iterator[None]:
    """Errors of files end the block and no more; what a signal handler raises is none of them."""
    try:
        yield
    except OSError as reason:
        let_through(reason)


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
