# SPDX-License-Identifier: Apache-2.0
"""The file of a compiled model: a head, and in frames (see there) a msgpack description and blobs.

    offset  size  what
         0     8  magic, the ASCII characters ODMODEL and a zero byte
         8     4  u32 version, 11
        12     4  u32 size of the description
        16     8  u64 size of the content: the description, msgpack, and blobs, each starting at a multiple
                  of 64; the description's "blobs" lists (offset, size) pairs, from the first blob on
        24     .  the content in frames, and a CRC-32 of all before it

All numbers are little-endian. Blobs of equal content are stored once.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from io import BytesIO
from itertools import chain, pairwise
from typing import Any, BinaryIO

import msgpack
import numpy as np

from onedispatch.dispatch.artifact.forms import BLOBS, Misfit
from onedispatch.dispatch.artifact.frames import Content, FrameError, framed, most_content
from onedispatch.dispatch.frontend.graph import Array, dtype_of, type_name_of
from onedispatch.transactions.base.errors import CompiledModelError, InputError
from onedispatch.transactions.base.files import is_regular, read_open, reading, write_file
from onedispatch.transactions.base.text import counted

MAGIC = b"ODMODEL\0"
VERSION = 12
_HEAD = struct.Struct("<8sIIQ")  # the mark, the version, bytes of the description, bytes of the content
_ALIGN = 64
_MOST_PIPED = 1 << 36  # bytes of a file that comes through a pipe


def is_compiled(model: object) -> bool:
    """True for the path or the bytes of a file of ``CompiledModel.save``, whole or damaged."""
    if isinstance(model, bytes | bytearray | memoryview):
        return bytes(model[: len(MAGIC)]) == MAGIC
    if not isinstance(model, str | os.PathLike):
        return False
    if not is_regular(model):  # a pipe can be read once
        return False
    with suppress(InputError), reading(model) as file:  # what opens it for good says why not
        return bytes(file.read(len(MAGIC))) == MAGIC
    return False


class Writer:
    """Collects blobs; ``write`` puts them behind their description."""

    def __init__(self, *, compress: bool = True) -> None:
        self._compress = compress
        self._blobs: list[tuple[memoryview, Sequence[int]]] = []
        self._known: dict[tuple[int, bytes, bytes], list[int]] = {}  # size and ends -> blobs that have these

    def blob(self, data: bytes | Array, starts: Sequence[int] = ()) -> int:
        """The index of a blob with these bytes; equal parts, between ``starts``, are stored once."""
        view = memoryview(data).cast("B") if isinstance(data, bytes) else _bytes_of(data)
        alike = self._known.setdefault((view.nbytes, bytes(view[:_ALIGN]), bytes(view[-_ALIGN:])), [])
        for known in alike:
            if np.array_equal(np.asarray(self._blobs[known][0]), np.asarray(view)):
                return known
        alike.append(len(self._blobs))
        self._blobs.append((view, starts))
        return alike[-1]

    def array(self, array: Array) -> dict[str, Any]:
        """The description of an array, its bytes as a blob; strings go along as they are."""
        kind = type_name_of(array.dtype)
        head = {"type": kind, "shape": list(array.shape)}
        if kind == "tensor(string)":
            return {**head, "text": [str(item) for item in array.reshape(-1)]}
        return {**head, "blob": self.blob(array)}

    def write(self, path: str | os.PathLike[str], description: Mapping[str, Any]) -> None:
        """Writes the file as ``files.write_file`` does: another reader never sees half of it.

        Raises ``CompiledModelError`` where it cannot be written.
        """
        write_file(path, self._pieces(description), CompiledModelError)

    def to_bytes(self, description: Mapping[str, Any]) -> bytes:
        """The content of the file."""
        return b"".join(self._pieces(description))

    def _pieces(self, description: Mapping[str, Any]) -> Iterator[bytes | memoryview]:
        # Offsets count from the first blob, so that the description's size does not depend on itself.
        table, at = [], 0
        for blob, _ in self._blobs:
            table.append((at, blob.nbytes))
            at += _aligned(blob.nbytes)
        text = msgpack.packb({**description, "blobs": table})
        return _file(text, self._parts(), at, compress=self._compress)

    def _parts(self) -> Iterator[bytes | memoryview]:
        for blob, starts in self._blobs:
            ends = [*starts, blob.nbytes]
            yield from (blob[first:last] for first, last in pairwise([0, *ends]))
            yield bytes(-blob.nbytes % _ALIGN)


def _file(
    text: bytes, parts: Iterable[bytes | memoryview], size: int, *, compress: bool = True
) -> Iterator[bytes | memoryview]:
    """The file of a description and ``size`` bytes of blobs."""
    pad = bytes(-len(text) % _ALIGN)
    head = _HEAD.pack(MAGIC, VERSION, len(text), len(text) + len(pad) + size)
    return framed(head, chain((text, pad), parts), compress=compress)


def joined(text: bytes, blobs: bytes) -> bytes:
    """The file of a description, as MessagePack or not, and blobs of any content."""
    return b"".join(_file(text, [blobs], len(blobs)))


def parted(data: bytes) -> tuple[bytes, bytes]:
    """Description and blobs of a file. Raises ``CompiledModelError`` for any other."""
    where = "the given bytes"
    announced, length, _ = _content(BytesIO(data), len(data), where)
    with _damage(where):
        content = announced.whole()
    return content[:length].tobytes(), content[_aligned(length) :].tobytes()


def _aligned(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN


def _bytes_of(array: Array) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


class Reader:
    """A compiled model's file, checked as a whole before anything is returned.

    Its description comes first, alone: a small file may announce, and unpack to, thousands of times its size.
    """

    def __init__(self, file: BinaryIO, size: int, where: str) -> None:
        """Raises ``CompiledModelError`` where the file, of ``size`` bytes, is foreign, cut off or damaged."""
        self._where, self._most = where, most_content(size)
        content, length, total = _content(file, size, where)
        with _damage(where):
            self.description = self._described(content.until(length))
            self._blobs = self._table()
            self._base = _aligned(length)
            self._check_room(total - self._base)
            self._data = content.whole()

    @classmethod
    def from_path(cls, path: str | os.PathLike[str]) -> Reader:
        """Raises ``CompiledModelError`` when the file is missing, and as the class does."""
        with reading(path, CompiledModelError, "a file written by CompiledModel.save") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                return cls.from_bytes(read_open(file, path, CompiledModelError, _MOST_PIPED), str(path))
            return cls(file, status.st_size, str(path))

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview, where: str) -> Reader:
        return cls(BytesIO(data), memoryview(data).nbytes, where)

    def check_made(self, size: int) -> None:
        """Raises ``CompiledModelError`` for more bytes, made of the file's, than such a file could have."""
        if size > self._most:
            raise self.damaged(f"{counted(size, 'byte')} of constants, where {self._most} are the most")

    def blob(self, index: int) -> Array:
        """The bytes of a blob, uint8, not copied."""
        if index >= len(self._blobs):
            raise self.damaged(f"blob {index} of {len(self._blobs)}")
        at, size = self._blobs[index]
        return self._data[self._base + at :][:size]

    def array(self, head: Mapping[str, Any]) -> Array:
        """What ``Writer.array`` described. Raises ValueError where elements and shape do not fit."""
        shape = tuple(head["shape"])
        if "text" in head:
            return np.array(head["text"], np.object_).reshape(shape)
        return self.blob(head["blob"]).view(np.dtype(dtype_of(head["type"]))).reshape(shape)

    def damaged(self, given: str) -> CompiledModelError:
        return _damaged(self._where, given)

    def _described(self, text: Array) -> dict[str, Any]:
        try:
            description = msgpack.unpackb(text.data, strict_map_key=True)
        except (
            ValueError,
            TypeError,
            msgpack.exceptions.UnpackException,
        ) as error:  # TypeError: a list as key
            raise self.damaged(f"a description that is not msgpack: {error}") from error
        if not isinstance(description, dict):
            raise self.damaged("a description that is no map")
        return description

    def _table(self) -> list[tuple[int, int]]:
        """The blobs' (offset, size), taken out of the description: the container's part of it."""
        rows = self.description.pop("blobs", None)
        try:
            BLOBS(rows, "blobs")
        except Misfit as misfit:
            raise self.damaged(str(misfit)) from misfit
        return [(at, size) for at, size in rows]

    def _check_room(self, room: int) -> None:
        """Raises unless the blobs, one behind the other, are all of the ``room`` bytes."""
        end = 0
        for index, (at, size) in enumerate(self._blobs):
            if at != end or at + size > room:
                raise self.damaged(f"blob {index} at {at} with {counted(size, 'byte')}")
            end = _aligned(at + size)
        if end != room:
            raise self.damaged(f"{counted(room, 'byte')} of blobs, of which the description lists {end}")


def _damaged(where: str, given: str) -> CompiledModelError:
    accepted = "a whole file written by CompiledModel.save"
    return CompiledModelError(where, given, accepted, "compile the model again")


@contextmanager
def _damage(where: str) -> Iterator[None]:
    """Says of frames that are damaged where they are."""
    try:
        yield
    except FrameError as error:
        raise _damaged(where, str(error)) from error


def _content(file: BinaryIO, size: int, where: str) -> tuple[Content, int, int]:
    """The content of a file of ``size`` bytes, not read yet; the description's length, and the whole's."""
    head = file.read(_HEAD.size)
    if len(head) < _HEAD.size or head[: len(MAGIC)] != MAGIC:
        raise CompiledModelError(
            where,
            f"{counted(size, 'byte')} that start with {head[: len(MAGIC)]!r}",
            f"a compiled model, which starts with {MAGIC!r}",
        )
    _, version, length, total = _HEAD.unpack(head)
    if version != VERSION:
        raise CompiledModelError(where, f"version {version}", f"version {VERSION}", "compile the model again")
    if length > total or total > most_content(size):
        raise _damaged(where, f"{counted(total, 'byte')} of content in a file of {size}")
    return Content(file, head, total), length, total
