# SPDX-License-Identifier: Apache-2.0
"""The file of a compiled model: a checked head, a msgpack description, and raw blobs.

    offset  size  what
         0     8  magic, the ASCII characters ODMODEL and a zero byte
         8     4  u32 version, 8
        12     4  u32 CRC-32 of all bytes from offset 16 on
        16     8  u64 size of the whole file
        24     8  u64 size of the description, msgpack, which follows at offset 32
         .     .  blobs, each starting at a multiple of 64; the description's "blobs" lists
                  (offset, size) pairs

All numbers are little-endian. Blobs of equal content are stored once.
"""

from __future__ import annotations

import hashlib
import os
import struct
import zlib
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgpack
import numpy as np

from onedispatch.dispatch.artifact.forms import BLOBS, Misfit
from onedispatch.dispatch.base.lendable import lendable
from onedispatch.dispatch.frontend.graph import Array, dtype_of, type_name_of
from onedispatch.transactions.base.errors import CompiledModelError, InputError
from onedispatch.transactions.base.files import is_regular, reading, write_file
from onedispatch.transactions.base.text import counted

MAGIC = b"ODMODEL\0"
VERSION = 9
_HEAD = struct.Struct("<8sIIQQ")
_CHECKED_FROM = 16
_ALIGN = 64


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

    def __init__(self) -> None:
        self._blobs: list[memoryview] = []
        self._known: dict[bytes, int] = {}

    def blob(self, data: bytes | Array) -> int:
        """The index of a blob with these bytes."""
        view = memoryview(data).cast("B") if isinstance(data, bytes) else _bytes_of(data)
        key = hashlib.blake2b(view, digest_size=16).digest()
        if key not in self._known:
            self._known[key] = len(self._blobs)
            self._blobs.append(view)
        return self._known[key]

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

    def _pieces(self, description: Mapping[str, Any]) -> list[bytes | memoryview]:
        # Offsets count from the first blob, so that the description's size does not depend on itself.
        table, at = [], 0
        for blob in self._blobs:
            table.append((at, blob.nbytes))
            at += -(-blob.nbytes // _ALIGN) * _ALIGN
        text = msgpack.packb({**description, "blobs": table})
        base = _aligned(_HEAD.size + len(text))
        total = base + at
        pieces: list[bytes | memoryview] = [text, bytes(base - _HEAD.size - len(text))]
        for blob in self._blobs:
            pieces += [blob, bytes(-blob.nbytes % _ALIGN)]
        check = zlib.crc32(struct.pack("<QQ", total, len(text)))
        for piece in pieces:
            check = zlib.crc32(piece, check)
        return [_HEAD.pack(MAGIC, VERSION, check, total, len(text)), *pieces]


def _aligned(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN


def _bytes_of(array: Array) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


class Reader:
    """A compiled model's file, checked as a whole before anything is believed."""

    def __init__(self, data: Array, where: str) -> None:
        self._data = data
        self._where = where
        self.description = self._open()
        self._blobs = self._table()

    @classmethod
    def from_path(cls, path: str | os.PathLike[str]) -> Reader:
        """Raises ``CompiledModelError`` when the file is missing, foreign, cut off or damaged."""
        with reading(path, CompiledModelError, "a file written by CompiledModel.save") as file:
            data = lendable(os.fstat(file.fileno()).st_size)
            known = file.readinto(data.data)
            more = np.frombuffer(file.read(), np.uint8)  # of a pipe: all of it
        if more.size or known < data.size:
            data = np.concatenate([data[:known], more])
        data.flags.writeable = False
        return cls(data, str(path))

    def blob(self, index: int) -> Array:
        """The bytes of a blob, uint8, not copied."""
        if index >= len(self._blobs):
            raise self.damaged(f"blob {index} of {len(self._blobs)}")
        at, size = self._blobs[index]
        start = self._base + at
        if at % _ALIGN or start + size > self._data.size:
            raise self.damaged(f"blob {index} at {at} with {counted(size, 'byte')}")
        return self._data[start : start + size]

    def array(self, head: Mapping[str, Any]) -> Array:
        """What ``Writer.array`` described. Raises ValueError where elements and shape do not fit."""
        shape = tuple(head["shape"])
        if "text" in head:
            return np.array(head["text"], np.object_).reshape(shape)
        return self.blob(head["blob"]).view(np.dtype(dtype_of(head["type"]))).reshape(shape)

    def damaged(self, given: str) -> CompiledModelError:
        return CompiledModelError(
            self._where, given, "a whole file written by CompiledModel.save", "compile the model again"
        )

    def _open(self) -> dict[str, Any]:
        data = self._data
        if data.size < _HEAD.size or data[:8].tobytes() != MAGIC:
            raise CompiledModelError(
                self._where,
                f"{counted(data.size, 'byte')} that start with {data[:8].tobytes()!r}",
                f"a compiled model, which starts with {MAGIC!r}",
            )
        _, version, check, total, length = _HEAD.unpack(data[: _HEAD.size].tobytes())
        if version != VERSION:
            raise CompiledModelError(
                self._where, f"version {version}", f"version {VERSION}", "compile the model again"
            )
        if total != data.size or length > data.size - _HEAD.size:
            raise self.damaged(f"{counted(data.size, 'byte')} of a file of {total}")
        if zlib.crc32(data[_CHECKED_FROM:].data) != check:
            raise self.damaged("content that does not match its checksum")
        self._base = _aligned(_HEAD.size + length)
        try:
            description = msgpack.unpackb(data[_HEAD.size : _HEAD.size + length].data, strict_map_key=True)
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
