# SPDX-License-Identifier: Apache-2.0
"""Code objects of a catalog: transactions and super-kernel parameters that were emitted before.

One file, all numbers little-endian, every part at a multiple of 8:

    head      8 bytes magic, u32 version, u32 CRC-32 of the index, u64 size of the file, 16 bytes digest of
              the source that emitted them, u32 keys, u32 objects, u32 bytes of dictionary, u32 0
    keys      16 bytes each, sorted: digests of what a program depends on (``emission/programs.py``)
    numbers   u32 per key: its object
    contents  16 bytes per object: the digest of its content
    offsets   u64 per object, and the end: where each lies behind the index
    dictionary
    objects   zstandard frames of MessagePack: transaction, parameters, parameter blocks

Equal objects are stored once. One is decompressed when it is chosen, and held to the digest of its content.
A file of another source is not used: what it has may not be what would be emitted.
"""

from __future__ import annotations

import hashlib
import struct
import warnings
import zlib
from bisect import bisect_left
from collections.abc import Mapping

import msgpack
import numpy as np

from onedispatch.operators.catalog.files import mapped_file
from onedispatch.operators.emission.programs import DIGEST_BYTES, NestProgram, source_digest
from onedispatch.transactions.base.errors import CatalogError
from onedispatch.transactions.base.signature import matches_hint
from onedispatch.transactions.base.text import counted

MAGIC = b"ODOBJCT\0"
VERSION = 1
SUFFIX = ".odobj"
LEVEL, DICTIONARY_BYTES, LEAST_SAMPLES = 19, 1 << 14, 16
MOST_UNPACKED = 1 << 30  # bytes of an object
_HEAD = struct.Struct("<8sIIQ16sIIII")
_REMEDY = "build it again"


class CodeObjects:
    """Programs by the digests of what they depend on. Raises ``CatalogError`` for a damaged index."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.loaded = 0  # objects that were chosen
        data = mapped_file(path)
        if len(data) < _HEAD.size or bytes(data[: len(MAGIC)]) != MAGIC:
            raise self._wrong("no code objects", "a file of a catalog's code objects")
        _, version, crc, size, source, self.count, self.objects, words, _ = _HEAD.unpack_from(data)
        if version != VERSION:
            raise self._wrong(f"version {version}", str(VERSION))
        ends = [_HEAD.size]
        digests, numbers = DIGEST_BYTES * self.count, 4 * self.count
        for part in (digests, numbers, DIGEST_BYTES * self.objects, 8 * (self.objects + 1), words):
            ends.append(ends[-1] + part + -part % 8)
        if size != len(data) or ends[-1] > size:
            raise self._wrong(counted(len(data), "byte"), f"{size}: the file was cut short or added to")
        if zlib.crc32(data[_HEAD.size : ends[-1]]) != crc:
            raise self._wrong("an index that was changed", "one with its checksum")
        self.source = source.hex()
        self._data = data
        self._keys, self._numbers, self._contents, offsets, dictionary, self._first = ends
        self._offsets = np.frombuffer(data[offsets : offsets + 8 * (self.objects + 1)], "<u8")
        self._dictionary = bytes(data[dictionary : dictionary + words])

    def _wrong(self, given: str, accepted: str) -> CatalogError:
        return CatalogError(self.path, given, accepted, _REMEDY)

    @property
    def is_of_this_source(self) -> bool:
        """Whether what this package emits is what these objects are."""
        return bool(self.source == source_digest())

    def find(self, digest: bytes) -> NestProgram | None:
        """The program of a digest; None where there is none, or, with a warning, where it is damaged."""
        at = bisect_left(range(self.count), digest, key=self._key)
        if at == self.count or self._key(at) != digest:
            return None
        (number,) = struct.unpack_from("<I", self._data, self._numbers + 4 * at)
        try:
            return self.program(number)
        except CatalogError as error:
            text = f"{error.statement()}. The program is emitted."
            warnings.warn(text, CodeObjectWarning, stacklevel=2)
            return None

    def to_data(self) -> dict[bytes, NestProgram]:
        """All programs by their digests. Raises ``CatalogError`` where one is damaged."""
        numbers = struct.unpack_from(f"<{self.count}I", self._data, self._numbers)
        return {self._key(at): self.program(number) for at, number in enumerate(numbers)}

    def _key(self, at: int) -> bytes:
        return bytes(self._data[self._keys + DIGEST_BYTES * at :][:DIGEST_BYTES])

    def program(self, number: int) -> NestProgram:
        """Object ``number``. Raises ``CatalogError`` where its bytes are damaged."""
        given, accepted = "bytes that were changed", "those that were written"
        where = CatalogError(f"{self.path}, object {number}", given, accepted, _REMEDY)
        if number >= self.objects:
            raise where
        begin, end = (self._first + int(at) for at in self._offsets[number : number + 2])
        wanted = self._data[self._contents + DIGEST_BYTES * number :][:DIGEST_BYTES]
        packed = self._unpacked(bytes(self._data[begin:end]), where)
        if hashlib.blake2b(packed, digest_size=DIGEST_BYTES).digest() != wanted:
            raise where
        self.loaded += 1
        return _program(packed, where)

    def _unpacked(self, frame: bytes, where: CatalogError) -> bytes:
        import zstandard

        # Decompressors serve one thread at a time, and several may compile.
        known = zstandard.ZstdCompressionDict(self._dictionary) if self._dictionary else None
        try:
            if zstandard.frame_content_size(frame) > MOST_UNPACKED:
                raise where
            unpacked: bytes = zstandard.ZstdDecompressor(dict_data=known).decompress(frame)
        except zstandard.ZstdError as error:
            raise where from error
        return unpacked


def _program(packed: bytes, where: CatalogError) -> NestProgram:
    """What ``encode`` packed. Raises ``where`` for anything else."""
    try:
        read = msgpack.unpackb(packed)
    except (ValueError, msgpack.UnpackException) as error:
        raise where from error
    if not isinstance(read, list) or [type(one) for one in read] != [bytes, bytes, list]:
        raise where
    transaction, params, blocks = read
    if not matches_hint(blocks, list[bytes]):
        raise where
    return NestProgram(transaction, params, tuple(blocks))


class CodeObjectWarning(UserWarning):
    """A code object is damaged; its program is emitted instead."""


def encode(programs: Mapping[bytes, NestProgram]) -> bytes:
    """The file of ``programs``, by their digests."""
    import zstandard

    packed = {key: msgpack.packb([p.transaction, p.params, list(p.blocks)]) for key, p in programs.items()}
    contents = {hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest(): data for data in packed.values()}
    ordered = sorted(contents)
    numbers = {digest: number for number, digest in enumerate(ordered)}
    samples = [contents[digest] for digest in ordered]
    dictionary = None
    if len(samples) >= LEAST_SAMPLES:
        dictionary = zstandard.train_dictionary(DICTIONARY_BYTES, samples, level=LEVEL)
    compressor = zstandard.ZstdCompressor(level=LEVEL, dict_data=dictionary)
    blobs = [compressor.compress(data) for data in samples]
    keys = sorted(packed)
    digests = [hashlib.blake2b(packed[key], digest_size=DIGEST_BYTES).digest() for key in keys]
    words = dictionary.as_bytes() if dictionary else b""
    parts = (
        b"".join(keys),
        np.array([numbers[digest] for digest in digests], "<u4").tobytes(),
        b"".join(ordered),
        np.cumsum([0, *map(len, blobs)], dtype="<u8").tobytes(),
        words,
    )
    index = b"".join(part + bytes(-len(part) % 8) for part in parts)
    size = _HEAD.size + len(index) + sum(map(len, blobs))
    counts = len(keys), len(ordered), len(words), 0
    head = _HEAD.pack(MAGIC, VERSION, zlib.crc32(index), size, bytes.fromhex(source_digest()), *counts)
    return head + index + b"".join(blobs)
