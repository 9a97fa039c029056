# SPDX-License-Identifier: Apache-2.0
"""Tables of tuned solutions: found by digest, by rules, and by nearness; solutions decoded when chosen.

A block of a file, all numbers little-endian, every part at a multiple of 8:

    head       u32 each: magic, rows, families, solutions, bytes of rules, extents, CRC-32 of the index, 0
    keys       16 bytes per row: digests of problems, sorted
    rows       u32 solution, u32 family, f64 measured, f64 estimated, f64 least estimated cycles
    families   16 bytes digest, u32 first member, u32 members, u32 sizes, u32 first extent; sorted
    members    u32 per row: rows in the order of their families
    extents    i64: the sizes of every member
    rules      MessagePack: a list of {when, solution, rank}
    offsets    u64 per solution, and the end: where each lies behind the index
    solutions  u32 CRC-32 and MessagePack of each

Equal solutions are stored once.
"""

from __future__ import annotations

import struct
import sys
import zlib
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgpack
import numpy as np

from onedispatch.operators.catalog.features import Features
from onedispatch.operators.catalog.predicates import Predicate, predicate_of
from onedispatch.operators.scheduling.solution import Solution
from onedispatch.transactions.base.cached import cached_property
from onedispatch.transactions.base.errors import CatalogError, SolutionError, statement_of
from onedispatch.transactions.base.signature import bounded_repr
from onedispatch.transactions.base.text import counted

MAGIC = 0x4254444F  # "ODTB"
DIGEST = 16
_HEAD = struct.Struct("<8I")
_ROW = struct.Struct("<IIddd")
_FAMILY = struct.Struct("<16sIIII")
_CRC = struct.Struct("<I")
_REMEDY = "build it again, or let `onedispatch catalog lint` say what is wrong"


CYCLES = "more than 0, and finite"


def is_cycles(value: float) -> bool:
    """Whether a number may be that of a row's cycles: others are reckoned with them."""
    return 0 < value <= sys.float_info.max


@dataclass(frozen=True)
class Entry:
    """A problem that was tuned.

    Attributes:
        problem, family: digests.
        extents: of every dimension and the reduction.
        cycles: measured by the simulator's clock.
        estimated: cycles of the same solution by the cost model.
        least: the least that the cost model found of any solution that was measured: what plans compare, as
            they would without this entry.
    """

    problem: bytes
    family: bytes
    extents: tuple[int, ...]
    solution: Solution
    cycles: float
    estimated: float
    least: float


@dataclass(frozen=True)
class Rule:
    """A solution for every problem of which a predicate holds and that it fits; the highest rank first."""

    when: Predicate
    solution: Solution
    rank: int = 0


@dataclass(frozen=True)
class TableData:
    """A table as data, for builders."""

    entries: tuple[Entry, ...] = ()
    rules: tuple[Rule, ...] = ()


class Found(NamedTuple):
    """A row of a table."""

    solution: int
    extents: tuple[int, ...]
    cycles: float
    estimated: float
    least: float
    distance: float  # in doublings of sizes


# -- writing -----------------------------------------------------------------------------------


def best_entries(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """The entry with the fewest cycles of every problem, ordered by their digests."""
    best: dict[bytes, Entry] = {}
    for entry in sorted(entries, key=lambda e: (e.cycles, e.solution.name)):
        best.setdefault(entry.problem, entry)
    return tuple(best[key] for key in sorted(best))


@dataclass
class _Pool:
    """Solutions, each once, in the order of their names."""

    solutions: Sequence[Solution]
    numbers: dict[str, int] = field(default_factory=dict)
    blobs: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        for solution in sorted({one.name: one for one in self.solutions}.items()):
            packed = msgpack.packb(solution[1].to_data())
            self.numbers[solution[0]] = len(self.blobs)
            self.blobs.append(_CRC.pack(zlib.crc32(packed)) + packed)


def encode(table: TableData) -> bytes:
    """The block of ``table``; see ``best_entries``."""
    entries = best_entries(table.entries)
    pool = _Pool([*(e.solution for e in entries), *(r.solution for r in table.rules)])
    families: dict[bytes, list[int]] = defaultdict(list)
    for number, entry in enumerate(entries):
        families[entry.family].append(number)
    ordered = sorted(families.items())
    numbers = {family: number for number, (family, _) in enumerate(ordered)}
    extents = [size for _, rows in ordered for row in rows for size in entries[row].extents]
    rules = msgpack.packb(
        [
            {"when": r.when.to_data(), "solution": pool.numbers[r.solution.name], "rank": r.rank}
            for r in sorted(table.rules, key=lambda r: (-r.rank, r.solution.name))
        ]
    )
    offsets = np.cumsum([0, *map(len, pool.blobs)], dtype="<u8")
    parts = (
        b"".join(entry.problem for entry in entries),
        b"".join(
            _ROW.pack(pool.numbers[e.solution.name], numbers[e.family], e.cycles, e.estimated, e.least)
            for e in entries
        ),
        b"".join(_families(ordered, entries)),
        np.array([row for _, rows in ordered for row in rows], "<u4").tobytes(),
        np.array(extents, "<i8").tobytes(),
        rules,
        offsets.tobytes(),
    )
    index = b"".join(map(_even, parts))
    counts = len(entries), len(ordered), len(pool.blobs), len(rules), len(extents), zlib.crc32(index)
    return _HEAD.pack(MAGIC, *counts, 0) + index + b"".join(pool.blobs)


def _families(ordered: Sequence[tuple[bytes, list[int]]], entries: Sequence[Entry]) -> Iterator[bytes]:
    member = extent = 0
    for family, rows in ordered:
        sizes = len(entries[rows[0]].extents)
        yield _FAMILY.pack(family, member, len(rows), sizes, extent)
        member += len(rows)
        extent += sizes * len(rows)


def _even(part: bytes) -> bytes:
    return part + bytes(-len(part) % 8)


# -- reading -----------------------------------------------------------------------------------


class Table:
    """A block of a mapped file. Raises ``CatalogError`` on construction where its index is damaged."""

    def __init__(self, block: memoryview, path: str, name: str) -> None:
        self.name = name
        self.where = f"{path}, table {name}"
        self._block = block
        if len(block) < _HEAD.size:
            raise self._damaged(counted(len(block), "byte"), f"{_HEAD.size} of a head and more")
        magic, self.rows, self.families, self.solutions, rules, extents, crc, _ = _HEAD.unpack_from(block)
        self._sizes = extents
        if magic != MAGIC:
            raise self._damaged(f"magic {magic:#x}", f"{MAGIC:#x}")
        sizes = (
            DIGEST * self.rows,
            _ROW.size * self.rows,
            _FAMILY.size * self.families,
            4 * self.rows,
            8 * extents,
            rules,
            8 * (self.solutions + 1),
        )
        starts = [_HEAD.size]
        for size in sizes:
            starts.append(starts[-1] + size + -size % 8)
        self._keys, self._rows, self._family_rows, self._members, self._extents, at, offsets, end = starts
        if end > len(block):
            raise self._damaged(counted(len(block), "byte"), f"{end} of an index and more")
        if zlib.crc32(block[_HEAD.size : end]) != crc:
            raise self._damaged("an index that was changed", "one with its checksum")
        self._rule_block = block[at : at + rules]
        self._offsets = np.frombuffer(block[offsets:end], "<u8")
        self._blobs = block[end:]
        self._decoded: dict[int, Solution] = {}

    def _damaged(self, given: str, accepted: str) -> CatalogError:
        return CatalogError(self.where, given, accepted, _REMEDY)

    @property
    def decoded(self) -> int:
        """Solutions that were decoded so far."""
        return len(self._decoded)

    def solution(self, number: int) -> Solution:
        """Solution ``number``. Raises ``CatalogError`` where its bytes are damaged or are none."""
        found = self._decoded.get(number)
        if found is None:
            found = self._decoded[number] = self._decode(number)
        return found

    def _decode(self, number: int) -> Solution:
        where = f"{self.where}, solution {number}"
        if not 0 <= number < self.solutions:
            raise CatalogError(where, f"of {self.solutions}", "0 or more, below that", _REMEDY)
        begin, end = map(int, self._offsets[number : number + 2])
        blob = self._blobs[begin:end]
        if len(blob) != end - begin or len(blob) < _CRC.size:
            raise CatalogError(where, counted(len(blob), "byte"), f"{end - begin}", _REMEDY)
        if zlib.crc32(blob[_CRC.size :]) != _CRC.unpack_from(blob)[0]:
            raise CatalogError(where, "bytes that were changed", "those with its checksum", _REMEDY)
        try:
            return Solution.from_data(msgpack.unpackb(blob[_CRC.size :]))
        except (ValueError, msgpack.UnpackException, SolutionError) as error:
            raise CatalogError(
                where, f"no solution ({statement_of(error)})", "a solution's data", _REMEDY
            ) from error

    def exact(self, problem: bytes) -> Found | None:
        """The row of a problem's digest."""
        keys, block = self._keys, self._block
        row = bisect_left(
            range(self.rows), problem, key=lambda i: bytes(block[keys + DIGEST * i : keys + DIGEST * (i + 1)])
        )
        at = keys + DIGEST * row
        if row == self.rows or block[at : at + DIGEST] != problem:
            return None
        solution, _, cycles, estimated, least = self._row(row)
        return Found(solution, (), cycles, estimated, least, 0.0)

    def _row(self, row: int) -> tuple[int, int, float, float, float]:
        if row >= self.rows:
            raise self._damaged(f"row {row} of {self.rows}", "a number below that")
        found: tuple[int, int, float, float, float] = _ROW.unpack_from(
            self._block, self._rows + _ROW.size * row
        )
        if not all(map(is_cycles, found[2:])):
            raise self._damaged(f"row {row}: cycles {found[2:]}", CYCLES)
        return found

    def nearest(self, seen: Features, most: int, radius: float) -> list[Found]:
        """Rows of the same family, the nearest first, up to ``most`` of them within ``radius`` doublings."""
        family = self._family(seen.family)
        if family is None:
            return []
        first, members, sizes, extent = family
        if sizes != len(seen.extents):
            raise self._damaged(f"a family of {sizes} sizes", f"{len(seen.extents)}, as its problems have")
        if first + members > self.rows or extent + sizes * members > self._sizes:
            given = f"a family of {counted(members, 'row')} from {first} on"
            raise self._damaged(given, f"rows of the table's {self.rows}")
        at = self._extents + 8 * extent
        known = np.frombuffer(self._block[at : at + 8 * sizes * members], "<i8").reshape(members, sizes)
        points = np.log2(np.maximum(known, 0.5))
        far = np.sqrt(((points - np.array(seen.point)) ** 2).sum(axis=1))
        order = np.argsort(far, kind="stable")[:most]
        rows = np.frombuffer(self._block[self._members : self._members + 4 * self.rows], "<u4")
        return [
            self._found(int(rows[first + i]), tuple(map(int, known[i])), float(far[i]))
            for i in order
            if far[i] <= radius
        ]

    def _found(self, row: int, extents: tuple[int, ...], distance: float) -> Found:
        solution, _, cycles, estimated, least = self._row(row)
        return Found(solution, extents, cycles, estimated, least, distance)

    def _family(self, digest: bytes) -> tuple[int, int, int, int] | None:
        """First member, members, sizes and first extent of a family."""
        at = bisect_left(range(self.families), digest, key=lambda i: self._family_row(i)[0])
        if at == self.families:
            return None
        found, *row = self._family_row(at)
        first, members, sizes, extent = row
        return (first, members, sizes, extent) if found == digest else None

    def _family_row(self, number: int) -> tuple[bytes, int, int, int, int]:
        row: tuple[bytes, int, int, int, int] = _FAMILY.unpack_from(
            self._block, self._family_rows + _FAMILY.size * number
        )
        return row

    @cached_property
    def rules(self) -> tuple[tuple[Predicate, int, int], ...]:
        """(when, solution, rank) of every rule, the highest rank first."""
        try:
            rules = msgpack.unpackb(self._rule_block)
        except (ValueError, msgpack.UnpackException) as error:
            raise self._damaged(f"rules that cannot be read ({error})", "MessagePack") from error
        if not isinstance(rules, list):
            raise self._damaged(f"rules that are {bounded_repr(rules)}", "a list")
        return tuple(self._rule(rule, f"{self.where}, rule {i}") for i, rule in enumerate(rules))

    def _rule(self, rule: Any, where: str) -> tuple[Predicate, int, int]:
        if not isinstance(rule, dict) or set(rule) != {"when", "solution", "rank"}:
            raise CatalogError(where, bounded_repr(rule), "when, solution and rank", _REMEDY)
        number, rank = rule["solution"], rule["rank"]
        if not isinstance(number, int) or not isinstance(rank, int):
            raise CatalogError(where, f"solution {number!r}, rank {rank!r}", "whole numbers", _REMEDY)
        return predicate_of(rule["when"], where), number, rank

    def to_data(self) -> TableData:
        """All of it, decoded."""
        return TableData(
            tuple(self._entry(row) for row in range(self.rows)),
            tuple(Rule(when, self.solution(number), rank) for when, number, rank in self.rules),
        )

    def _entry(self, row: int) -> Entry:
        at = self._keys + DIGEST * row
        solution, family, cycles, estimated, least = self._row(row)
        digest, first, members, sizes, extent = self._family_row(family)
        rows = np.frombuffer(self._block[self._members : self._members + 4 * self.rows], "<u4")
        place = int(np.flatnonzero(rows[first : first + members] == row)[0])
        begin = self._extents + 8 * (extent + sizes * place)
        extents = np.frombuffer(self._block[begin : begin + 8 * sizes], "<i8")
        return Entry(
            bytes(self._block[at : at + DIGEST]),
            digest,
            tuple(map(int, extents)),
            self.solution(solution),
            cycles,
            estimated,
            least,
        )
