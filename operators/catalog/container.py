# SPDX-License-Identifier: Apache-2.0
"""Files of catalogs: a checked head, a MessagePack description, and tables that are mapped.

    offset  size  what
         0     8  magic, the ASCII characters ODCATLG and a zero byte
         8     4  u32 version, 1
        12     4  u32 CRC-32 of the description
        16     8  u64 size of the whole file
        24     8  u64 size of the description, which follows at offset 32
         .     .  tables (``table.py``), each at a multiple of 64

A file whose name ends in .yaml has the same for people; it is turned into these bytes when it is opened. A
description has the tree, the tables of this file (name: offset, size) and the children (name: file, size,
CRC-32) that have the others.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgpack

from onedispatch.operators.catalog import tree
from onedispatch.operators.catalog.table import TableData, encode
from onedispatch.transactions.base.errors import CatalogError
from onedispatch.transactions.base.signature import bounded_repr
from onedispatch.transactions.base.text import counted

MAGIC = b"ODCATLG\0"
VERSION = 1
SUFFIX, TEXT_SUFFIX = ".odcat", ".yaml"
KINDS = ("parent", "child", "merged")
_HEAD = struct.Struct("<8sIIQQ")
_ALIGN = 64
_REMEDY = "build it again"


@dataclass(frozen=True)
class Child:
    """A file beside the parent that has one table."""

    file: str
    size: int
    crc: int
    rows: int


@dataclass(frozen=True)
class Library:
    """A catalog's file as data: what builders make and people read.

    Attributes:
        objects: the file beside it that has code objects, if any.
        kind: ``parent`` (its tables lie in children), ``child`` or ``merged`` (all in one).
        device: the identity of the device that it is for; "" of the fallback child.
    """

    kind: str
    name: str
    device: str
    tree: tree.Node
    tables: Mapping[str, TableData] = field(default_factory=dict)
    children: Mapping[str, Child] = field(default_factory=dict)
    made_by: str = ""
    objects: str = ""

    def to_bytes(self) -> bytes:
        """The file."""
        blocks = {name: encode(table) for name, table in sorted(self.tables.items())}
        places: dict[str, tuple[int, int]] = {}
        at = 0  # behind the description, whose size depends on these numbers
        for name, block in blocks.items():
            places[name] = at, len(block)
            at += len(block) + -len(block) % _ALIGN
        description: bytes = msgpack.packb(
            {
                "kind": self.kind,
                "name": self.name,
                "device": self.device,
                "tree": tree.to_data(self.tree),
                "tables": places,
                "children": {
                    name: [c.file, c.size, c.crc, c.rows] for name, c in sorted(self.children.items())
                },
                "made_by": self.made_by,
                "objects": self.objects,
            }
        )
        first = -(-(_HEAD.size + len(description)) // _ALIGN) * _ALIGN
        head = _HEAD.pack(MAGIC, VERSION, zlib.crc32(description), first + at, len(description))
        begin = (head + description).ljust(first, b"\0")
        return begin + b"".join(
            block.ljust(-(-len(block) // _ALIGN) * _ALIGN, b"\0") for block in blocks.values()
        )


@dataclass(frozen=True)
class Opened:
    """A file of a catalog, mapped; its description is checked and read, its tables are not."""

    path: str
    kind: str
    name: str
    device: str
    tree: tree.Node
    tables: Mapping[str, memoryview]
    children: Mapping[str, Child]
    made_by: str
    objects: str
    data: memoryview = field(repr=False)

    @property
    def crc(self) -> int:
        return zlib.crc32(self.data)


def open_bytes(data: memoryview, path: str) -> Opened:
    """A file's bytes, checked. Raises ``CatalogError`` where they are no catalog, or not all of one."""
    if len(data) < _HEAD.size or data[: len(MAGIC)] != MAGIC:
        raise CatalogError(
            path, "no catalog", "a file that `onedispatch catalog build` wrote", "name another file"
        )
    _, version, crc, size, length = _HEAD.unpack_from(data)
    if version != VERSION:
        raise CatalogError(path, f"version {version}", str(VERSION), "build it with this version")
    if size != len(data) or _HEAD.size + length > size:
        raise CatalogError(
            path, counted(len(data), "byte"), f"{size}: the file was cut short or added to", _REMEDY
        )
    packed = data[_HEAD.size : _HEAD.size + length]
    if zlib.crc32(packed) != crc:
        raise CatalogError(path, "a description that was changed", "one with its checksum", _REMEDY)
    try:
        read = msgpack.unpackb(packed)
    except (ValueError, msgpack.UnpackException) as error:
        raise CatalogError(
            path, f"a description that cannot be read: {error}", "MessagePack", _REMEDY
        ) from error
    return _described(read, data, path, -(-(_HEAD.size + length) // _ALIGN) * _ALIGN)


def _described(read: Any, data: memoryview, path: str, first: int) -> Opened:
    texts = ("kind", "name", "device", "made_by", "objects")
    known = {*texts, "tree", "tables", "children"}
    if not isinstance(read, dict) or set(read) != known or not all(isinstance(read[k], str) for k in texts):
        raise CatalogError(path, bounded_repr(read), f"a description of {', '.join(sorted(known))}", _REMEDY)
    if read["kind"] not in KINDS:
        raise CatalogError(path, f"kind {read['kind']!r}", ", ".join(KINDS), _REMEDY)
    tables: dict[str, memoryview] = {}
    for name, place in _items(read["tables"], 2, path):
        at, size = place
        if not isinstance(at, int) or not isinstance(size, int) or not 0 <= first + at <= len(data) - size:
            raise CatalogError(f"{path}, table {name}", f"bytes {place}", "a place in the file", _REMEDY)
        tables[name] = data[first + at : first + at + size]
    children = {
        name: _child(place, f"{path}, child {name}") for name, place in _items(read["children"], 4, path)
    }
    node = tree.from_data(read["tree"], f"{path}, tree")
    kind, name, device, made, objects = (read[key] for key in texts)
    if objects != os.path.basename(objects):
        raise CatalogError(f"{path}, objects", bounded_repr(objects), "a file's name", _REMEDY)
    return Opened(path, kind, name, device, node, tables, children, made, objects, data)


def _items(value: Any, length: int, path: str) -> list[tuple[str, list[Any]]]:
    fits = isinstance(value, dict) and all(
        isinstance(name, str) and isinstance(place, list) and len(place) == length
        for name, place in value.items()
    )
    if not fits:
        raise CatalogError(path, bounded_repr(value), f"names of lists of {length}", _REMEDY)
    return list(value.items())


def _child(place: list[Any], where: str) -> Child:
    file, *numbers = place
    plain = isinstance(file, str) and os.path.basename(file) == file and file not in ("", ".", "..")
    if not plain or not all(isinstance(number, int) for number in numbers):
        raise CatalogError(where, bounded_repr(place), "a file name, its size, CRC-32 and rows", _REMEDY)
    return Child(file, *numbers)


def made_by() -> str:
    """What builds files now, for their descriptions."""
    return f"onedispatch catalog, version {VERSION}"
