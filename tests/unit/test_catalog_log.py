# SPDX-License-Identifier: Apache-2.0
"""The tuner's log: what is appended is read, with several writers, and whenever a writer ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import onedispatch as od
from onedispatch.operators.catalog import log
from onedispatch.operators.catalog.log import Tuned
from onedispatch.operators.kernels.moments import MOMENTS
from onedispatch.operators.scheduling.index_space import F32, OUTPUT, Access, Dim, Operand
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.operators.scheduling.problem import Problem
from onedispatch.operators.scheduling.solution import Mapping, Solution
from onedispatch.transactions import find_device
from tests.tables import NIGHTLY


def row(number: int = 0) -> Tuned:
    x = Operand("x", 0, F32, (8, 16), (16, 1), (Access(0), Access(None)))
    mean = Operand("mean", OUTPUT, F32, (8,), (1,), (Access(0),))
    spread = Operand("spread", OUTPUT - 1, F32, (8,), (1,), (Access(0),))
    nest = Nest(MOMENTS, (Dim("o", 8),), (x,), (mean, spread), {"o": 0}, {"count": 16.0})
    solution = Solution("od::moments@1", Mapping(0, None, 1, frozenset({"x"}), False, (0,)), (2,), 1)
    return Tuned(Problem.of(nest, find_device("npu2")), solution, number, number + 0.5, "1.2.3")


ROWS = [row(number) for number in range(3)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tuned.log"


def test_what_was_appended_is_read_in_order(path: Path) -> None:
    log.append(path, ROWS[:1])
    log.append(path, ROWS[1:])
    log.append(path, [])
    assert log.read(path) == ROWS


def test_every_line_is_an_object_with_the_check_sum_of_its_rest(path: Path) -> None:
    log.append(path, ROWS)
    head, *lines = path.read_bytes().splitlines()
    assert json.loads(head)["version"] == log.VERSION
    for line, one in zip(lines, ROWS, strict=True):
        data = json.loads(line)
        assert int(data.pop("crc32"), 16) == zlib.crc32(line[len('{"crc32":"00000000",') :])
        assert Tuned.from_data(data) == one


def test_a_file_torn_at_any_byte_has_the_rows_before_and_takes_others(path: Path) -> None:
    log.append(path, ROWS)
    whole = path.read_bytes()
    ends = [at for at, byte in enumerate(whole) if byte == ord("\n")]
    near = {end + by for end in ends for by in (-1, 0, 1, 2)}
    for size in sorted({*near, *range(0, len(whole), 1 if NIGHTLY else 10)}):
        path.write_bytes(whole[:size])
        kept = ROWS[
            : max(0, sum(end <= size for end in ends) - 1)
        ]  # its line feed is all that a row may lack
        assert log.read(path) == kept
        log.append(path, ROWS[:1])
        assert log.read(path) == [*kept, ROWS[0]]


@settings(max_examples=200, deadline=None)
@given(at=st.integers(0, 1 << 20), byte=st.integers(0, 255))
def test_a_byte_that_changed_is_an_error_that_names_its_line(
    tmp_path_factory: pytest.TempPathFactory, at: int, byte: int
) -> None:
    path = tmp_path_factory.mktemp("log") / "tuned.log"
    log.append(path, ROWS)
    data = bytearray(path.read_bytes())
    at %= len(data) - 1  # without its line feed the last line would be whole all the same
    if data[at] == byte:
        return
    line = data[:at].count(b"\n") + 1
    data[at] = byte
    path.write_bytes(data)
    with pytest.raises(od.CatalogError, match=rf"line {line}: given"):
        log.read(path)


def test_other_files_and_versions_are_refused_and_stay(path: Path) -> None:
    for text, said in (
        (b"{}\n", "line 1"),
        (b"no log", "it begins with"),
        (log._line({"format": "another"}), "Name another file"),
        (log._line({"format": log.FORMAT, "version": 2}), "version 2 of the format; accepted: 1"),
    ):
        path.write_bytes(text)
        for use in (lambda: log.read(path), lambda: log.append(path, ROWS)):
            with pytest.raises(od.CatalogError):
                use()
        with pytest.raises(od.CatalogError, match=said):
            log.read(path)
        assert path.read_bytes() == text


def test_lines_that_are_no_rows_say_what_they_lack(path: Path) -> None:
    data = ROWS[0].to_data()
    path.write_bytes(log._HEAD + log._line(data | {"cycles": "many"}))
    with pytest.raises(od.CatalogError, match=r"line 2: given no row: row.cycles: 'many' \(expected: int\)"):
        log.read(path)


def test_folders_and_missing_files_are_typed_errors(tmp_path: Path) -> None:
    for use in (lambda p: log.read(p), lambda p: log.append(p, ROWS)):
        with pytest.raises(od.CatalogError):
            use(tmp_path)
    with pytest.raises(od.CatalogError, match="No such file"):
        log.read(tmp_path / "none")
    with pytest.raises(od.CatalogError, match="a device"):
        log.append("/dev/null", ROWS)


WRITER = """
import sys, pickle
from onedispatch.operators.catalog import log
row = pickle.load(sys.stdin.buffer)
print("ready", flush=True)
for number in range(int(sys.argv[2])):
    log.append(sys.argv[1], [row])
    print(number, flush=True)
"""


def writer(path: Path, one: Tuned, times: int) -> subprocess.Popen[bytes]:
    import pickle

    command = [sys.executable, "-c", WRITER, str(path), str(times)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(pickle.dumps(one))
    process.stdin.close()
    return process


def test_two_processes_that_append_at_once_lose_nothing(path: Path) -> None:
    processes = [writer(path, one, 40) for one in ROWS[:2]]
    assert [process.wait(60) for process in processes] == [0, 0]
    for process in processes:
        assert process.stdout is not None
        process.stdout.close()
    found = log.read(path)
    assert sorted(one.cycles for one in found) == [0] * 40 + [1] * 40


@pytest.mark.parametrize("after", [0, 3, 17])
def test_a_killed_writer_loses_what_it_was_writing_at_most(path: Path, after: int) -> None:
    large = replace(ROWS[0], version="x" * 200_000)  # several writes of the system
    process = writer(path, large, 1000)
    assert process.stdout is not None
    with process.stdout as said:
        for _ in range(after + 1):
            last = said.readline()
        os.kill(process.pid, signal.SIGKILL)
        process.wait(60)
        lines = [line for line in (last, *said.read().splitlines()) if line.strip().isdigit()]
    whole = int(lines[-1]) + 1 if lines else 0
    if path.exists():
        assert whole <= len(log.read(path)) <= whole + 1
    log.append(path, ROWS[1:2])
    assert log.read(path)[-1] == ROWS[1]
