# SPDX-License-Identifier: Apache-2.0
"""A tuner's log: what was measured, one row a line, in a file that any number of processes append to.

Text, one JSON object a line; the first one names the format and its version. Every line begins with the
CRC-32 of what follows it::

    {"crc32":"1b2f0c33","format":"onedispatch tuning log","version":1}
    {"crc32":"96ad5f10","problem":{...},"solution":{...},"cycles":81243,"estimated":80112.5,"version":"0.1.0"}

A writer appends under a lock, and what was appended is on disk. A writer that was killed leaves a torn
last line at most: readers leave it out, and the next writer cuts it off.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import BufferedReader, BytesIO
from typing import Any, BinaryIO

from onedispatch.operators.scheduling.plain import plain
from onedispatch.operators.scheduling.plain import read as from_plain
from onedispatch.operators.scheduling.problem import Problem
from onedispatch.operators.scheduling.solution import Solution
from onedispatch.transactions.base.errors import CatalogError, SolutionError
from onedispatch.transactions.base.files import FilePath, appending, read_file
from onedispatch.transactions.base.signature import bounded_repr
from onedispatch.transactions.base.text import counted

PACKED = ".zst"
MOST_LINE, MOST_UNPACKED = 1 << 20, 1 << 28  # bytes of a log that is packed: those that ship have 18 million
FORMAT, VERSION = "onedispatch tuning log", 1
_LINE = re.compile(rb'\{"crc32":"([0-9a-f]{8})",(.*)', re.DOTALL)
_ACCEPTED = "a log that `onedispatch tune` wrote"


@dataclass(frozen=True)
class Tuned:
    """A solution of a problem, and what it costs: ``cycles`` were measured, ``estimated`` is what the cost
    model says. ``version`` is that of the package that measured."""

    problem: Problem
    solution: Solution
    cycles: int
    estimated: float
    version: str

    def to_data(self) -> dict[str, Any]:
        """The row as dictionaries, lists, strings and numbers."""
        return dict(plain(self))

    @classmethod
    def from_data(cls, data: Any) -> Tuned:
        """What ``to_data`` made. Raises ``SolutionError`` for anything else."""
        return from_plain(cls, data, "row")


def append(path: FilePath, rows: Iterable[Tuned]) -> None:
    """Appends ``rows`` to the log at ``path``, which is made where there is none; they are on disk then.

    Raises ``CatalogError`` where the file is no such log, is packed, or cannot be written.
    """
    check_appendable(path)
    lines = b"".join(_line(row.to_data()) for row in rows)
    with appending(path, CatalogError) as file:
        file.write(_completion(file, str(path)) + lines)


def check_appendable(path: FilePath) -> None:
    """Raises ``CatalogError`` where the name says that a log is compressed: such logs are read only."""
    if str(path).endswith(PACKED):
        remedy = f"unpack it, or append to another log: catalogs are built of any number, {PACKED} too"
        raise CatalogError(str(path), "a packed log to append to", "one that is not packed", remedy)


def read(path: FilePath) -> list[Tuned]:
    """The rows of a log, in the order in which they were appended; a torn last line is left out.

    A log whose name ends in .zst is compressed with zstandard. Raises ``CatalogError`` for a file that cannot
    be read, is no log, is of another version, or is damaged.
    """
    found = _contents(_lines(path), str(path))
    _check_head(next(found, None), str(path))
    known: dict[str, Problem] = {}
    return [_row(data, f"{path}, line {number}", known) for number, data in enumerate(found, 2)]


def contents(path: FilePath) -> bytes:
    """The text of a log, decompressed where its name ends in .zst. Raises ``CatalogError`` like ``read``."""
    return b"".join(_lines(path))


def _lines(path: FilePath) -> Iterator[bytes]:
    """The lines of a log. One that is packed is unpacked as they are asked for: a reader that refuses a line
    unpacks no more."""
    data = read_file(path, CatalogError, _ACCEPTED)
    if not str(path).endswith(PACKED):
        yield from BytesIO(data)
        return
    import zstandard

    unpacked = 0
    try:
        with zstandard.ZstdDecompressor().stream_reader(data) as reader:
            text = BufferedReader(reader)
            while line := text.readline(MOST_LINE + 1):
                unpacked += len(line)
                _check_unpacked(line, unpacked, str(path))
                yield line
    except zstandard.ZstdError as error:
        raise CatalogError(str(path), f"not what zstandard wrote: {error}", _ACCEPTED) from error


def _check_unpacked(line: bytes, unpacked: int, name: str) -> None:
    """Raises ``CatalogError`` where a packed log comes to more than a log does."""
    for what, count, most in (("in a line", len(line), MOST_LINE), ("unpacked", unpacked, MOST_UNPACKED)):
        if count > most:
            given = f"more than {counted(most, 'byte')} {what}"
            raise CatalogError(name, given, _ACCEPTED, "name it as it is unpacked")


def _line(data: dict[str, Any]) -> bytes:
    text = json.dumps(data, separators=(",", ":")).encode()[1:]
    return b'{"crc32":"%08x",%s\n' % (zlib.crc32(text), text)


_HEAD = _line({"format": FORMAT, "version": VERSION})


def _completion(file: BinaryIO, name: str) -> bytes:
    """What is written before rows: the head of a new log, or the end of a line that lacks nothing else. A
    torn last line is cut off."""
    file.seek(0)
    first = file.readline()
    if not first.endswith(b"\n") and _HEAD.startswith(first):
        file.truncate(0)
        return _HEAD
    _check_head(_checked(first, f"{name}, line 1"), name)
    start, last = _last_line(file)
    if not last or last.endswith(b"\n"):
        return b""
    if _data(last) is not None:
        return b"\n"
    file.truncate(start)
    return b""


_BLOCK = 1 << 16


def _last_line(file: BinaryIO) -> tuple[int, bytes]:
    """Where the last line begins, and what it says; its end included, where it has one."""
    at, tail = file.seek(0, 2), b""
    while at and b"\n" not in tail[:-1]:
        step = min(at, _BLOCK)
        at -= step
        file.seek(at)
        tail = file.read(step) + tail
    start = tail.rfind(b"\n", 0, -1) + 1
    return at + start, tail[start:]


def _contents(lines: Iterable[bytes], name: str) -> Iterator[dict[str, Any]]:
    """What each line says, one by one, without a torn last line."""
    for number, line in enumerate(lines, 1):
        if line.endswith(b"\n") or (number > 1 and _data(line) is not None):
            yield _checked(line, f"{name}, line {number}")
        elif number == 1 and not _HEAD.startswith(line):
            raise CatalogError(name, f"it begins with {bounded_repr(line)}", _ACCEPTED)


def _data(line: bytes) -> dict[str, Any] | None:
    """What a line says, but for its check sum; None where that does not fit, or is of no JSON."""
    found = _LINE.fullmatch(line.rstrip(b"\n"))
    if found is None or int(found[1], 16) != zlib.crc32(found[2]):
        return None
    try:
        return dict(json.loads(b"{" + found[2]))
    except (ValueError, RecursionError):
        return None


def _checked(line: bytes, where: str) -> dict[str, Any]:
    data = _data(line)
    if data is None:
        remedy = "delete that line: the others stay as they are"
        raise CatalogError(where, bounded_repr(line), f"a line of {_ACCEPTED}, as it was written", remedy)
    return data


def _check_head(data: dict[str, Any] | None, name: str) -> None:
    """Nothing at all, as before the first line was written, is a log without rows."""
    if data is None:
        return
    if data.get("format") != FORMAT:
        raise CatalogError(
            f"{name}, line 1", bounded_repr(data), f'"format": "{FORMAT}"', "name another file"
        )
    if data.get("version") != VERSION:
        given = f"version {bounded_repr(data.get('version'))} of the format"
        raise CatalogError(f"{name}, line 1", given, str(VERSION), "use the version that wrote it")


@dataclass(frozen=True)
class _Answer:
    """What a row says beside its problem, which many rows have in common."""

    solution: Solution
    cycles: int
    estimated: float
    version: str


def _row(data: dict[str, Any], where: str, known: dict[str, Problem]) -> Tuned:
    """The row of a line; ``known`` are problems that were read before, by their text."""
    text = json.dumps(data.get("problem"))
    try:
        if text not in known:
            known[text] = Tuned.from_data(data).problem
        answer = from_plain(_Answer, {key: data[key] for key in data if key != "problem"}, "row")
    except SolutionError as error:
        given = f"no row: {error.statement()}"
        raise CatalogError(where, given, _ACCEPTED, "use the version that wrote it") from error
    return Tuned(known[text], answer.solution, answer.cycles, answer.estimated, answer.version)
