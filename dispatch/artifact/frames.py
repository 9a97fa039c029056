# SPDX-License-Identifier: Apache-2.0
"""The content of a compiled model's file, in frames: compressed where that helps, equal ones once.

A frame is two words, the bytes that it stands for and those that follow in the file. As many bytes are the
content itself; fewer are a frame of zstandard; none: a third and fourth word say where in the content, before
this frame, the same bytes lie. A frame of no bytes ends the content; the CRC-32 of all before it follows.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

import numpy as np
import zstandard

from onedispatch.dispatch.base.lendable import lendable
from onedispatch.transactions.base.text import counted

Array = np.ndarray[Any, Any]
Piece = bytes | memoryview

FRAME = 1 << 20  # bytes of content in one at most
_SHARED = 1 << 12  # bytes of a part from which on it begins a frame, which another part may share
_HEAD = struct.Struct("<II")
_COPY = struct.Struct("<Q")
_CHECK = struct.Struct("<I")
_END = _HEAD.pack(0, 0)
_LEVEL = 1
_WORTH = 32  # of so many bytes one has to be saved


class FrameError(ValueError):
    """What is no content in frames."""


def framed(head: bytes, parts: Iterable[Piece], *, compress: bool = True) -> Iterator[Piece]:
    """Yields a file: ``head``, and ``parts``, concatenated, in frames. Parts that come again cost little,
    unless all is to be as it is, without ``compress``."""
    check = zlib.crc32(head)
    yield head
    for piece in _frames(parts, compress):
        check = zlib.crc32(piece, check)
        yield piece
    yield _END + _CHECK.pack(zlib.crc32(_END, check))


def _frames(parts: Iterable[Piece], compress: bool) -> Iterator[Piece]:
    known: dict[bytes, int] = {}  # digest -> where these bytes of the content are
    compressor, at = zstandard.ZstdCompressor(level=_LEVEL), 0
    for part in _long_enough(parts):
        for first in range(0, len(part), FRAME):
            piece = part[first : first + FRAME]
            if not compress:
                yield from (_HEAD.pack(len(piece), len(piece)), piece)
                continue
            seen = known.setdefault(hashlib.sha256(piece).digest(), at)
            at += len(piece)
            if seen < at - len(piece):
                yield _HEAD.pack(len(piece), 0) + _COPY.pack(seen)
                continue
            packed = compressor.compress(piece)
            stored = packed if len(packed) + len(piece) // _WORTH < len(piece) else piece
            yield from (_HEAD.pack(len(piece), len(stored)), stored)


def _long_enough(parts: Iterable[Piece]) -> Iterator[Piece]:
    """Yields the parts; those that are too short to be shared are joined."""
    waiting = bytearray()
    for part in parts:
        if len(part) < _SHARED:
            waiting += part
            if len(waiting) < FRAME:
                continue
        if waiting:
            yield bytes(waiting)
            waiting.clear()
        if len(part) >= _SHARED:
            yield part
    if waiting:
        yield bytes(waiting)


def most_content(size: int) -> int:
    """Returns the most bytes of content that a file of ``size`` bytes has."""
    return size // (_HEAD.size + _COPY.size) * FRAME


class Content:
    """The content of a file, in memory that may be lent; memory is taken as frames are read."""

    def __init__(self, file: BinaryIO, head: bytes, size: int) -> None:
        """``size`` bytes are announced; ``head`` was read already."""
        self._bytes = lendable(size)
        self._source = _Source(file, zlib.crc32(head))
        self._decompressor = zstandard.ZstdDecompressor()
        self._at = 0

    def until(self, end: int) -> Array:
        """Returns the first ``end`` bytes, before the checksum of all is known: no more frames are read than
        hold these. Raises ``FrameError`` where the file has others."""
        content, size = self._bytes, self._bytes.size
        while self._at < end:
            at = self._at
            length, stored = _HEAD.unpack(self._source.read(_HEAD.size))
            if not 0 < length <= min(FRAME, size - at) or stored > length:
                raise FrameError(f"a frame of {counted(length, 'byte')} in {stored}, at byte {at} of {size}")
            _fill(content[at : at + length], stored, self._source, self._decompressor, content[:at])
            self._at += length
        return content[:end]

    def whole(self) -> Array:
        """Returns all of it. Raises ``FrameError`` where the file has another one, or ends elsewhere."""
        self.until(self._bytes.size)
        self._source.end()
        self._bytes.flags.writeable = False
        return self._bytes


def _fill(
    place: Array, stored: int, source: _Source, decompressor: zstandard.ZstdDecompressor, before: Array
) -> None:
    """Reads a frame's bytes into ``place``."""
    if stored == 0:
        (start,) = _COPY.unpack(source.read(_COPY.size))
        if start + place.size > before.size:
            raise FrameError(f"a copy of bytes {start} to {start + place.size}, of {before.size} so far")
        place[:] = before[start : start + place.size]
    elif stored == place.size:
        source.read_into(place)
    else:
        data = source.read(stored)
        try:
            made = decompressor.decompress(data, max_output_size=place.size)
        except zstandard.ZstdError as error:
            raise FrameError(f"a damaged frame: {error}") from error
        if len(made) != place.size:
            raise FrameError(f"a frame of {counted(len(made), 'byte')}, {place.size} announced")
        place[:] = np.frombuffer(made, np.uint8)


class _Source:
    """A file that is read to its end, and the checksum of what was read."""

    def __init__(self, file: BinaryIO, check: int) -> None:
        self._file = file
        self._check = check

    def read(self, size: int) -> bytes:
        data = self._file.read(size)
        if len(data) < size:
            raise FrameError("a file that was cut off")
        self._check = zlib.crc32(data, self._check)
        return data

    def read_into(self, place: Array) -> None:
        """Fills ``place``, of bytes, without a copy in between."""
        if self._file.readinto(place.data) < place.size:  # type: ignore[attr-defined]
            raise FrameError("a file that was cut off")
        self._check = zlib.crc32(place.data, self._check)

    def end(self) -> None:
        """Raises ``FrameError`` unless the content ends here and is what was written."""
        if self.read(len(_END)) != _END:
            raise FrameError("more content than was announced")
        check = self._check
        if _CHECK.pack(check) != self.read(_CHECK.size):
            raise FrameError("content that does not match its checksum")
        if self._file.read(1):
            raise FrameError("bytes behind its end")
