# SPDX-License-Identifier: Apache-2.0
"""Memory stays a small multiple of a hostile file: decoded, checked, explained in a process of its own."""

from __future__ import annotations

import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from onedispatch.transactions import Transaction
from onedispatch.transactions.format import codec, spec

SIZE = 1 << 20
MULTIPLE = {"decode": 8, "check": 64, "explain": 64}
"""Peak of the process above what it holds before, in sizes of the file. An op of 4 bytes becomes a
few Python objects; each finding is a text."""

MEASURE = """
import sys
from onedispatch.transactions import Transaction
from onedispatch.transactions.analysis.picture import svg
data = open(sys.argv[1], "rb").read()
step = sys.argv[2]
def peak():  # not ru_maxrss: that starts with the parent's
    status = open("/proc/self/status").read()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024
before = peak()
read = Transaction.from_bytes(data)
if step == "check":
    found = read.check({0: 4096})
if step == "explain":
    told = read.explain()
    told.text()
    svg(told)
print((peak() - before) // len(data))
"""


def ops_of(one: Callable[[int], bytes]) -> bytes:
    """A v1.0 transaction of a megabyte."""
    ops, size, number = [], spec.HEADER_SIZE, 0
    while size < SIZE:
        ops.append(one(number))
        size += len(ops[-1])
        number += 1
    header = codec.Header(spec.V1_0, columns=4, op_count=len(ops), byte_size=size)
    return header.to_bytes() + b"".join(ops)


def _blocks(number: int) -> bytes:
    del number
    return struct.pack("<III", 1, 0x1A0000, 12 + 4 * 60000) + b"\x07" * (4 * 60000)


def _chains(number: int) -> bytes:
    """48 BDs in a chain; then, over and over, one of them is changed and the chain is pushed."""
    if number == 0:
        links = [(64, 0, 0x80000000 | min(i + 1, 47) << 20 | 1 << 19, 0, 0, 0, 0, 0) for i in range(48)]
        words = struct.pack("<384I", *(word for link in links for word in link))
        return struct.pack("<III", 1, 0x1A0000, 12 + len(words)) + words
    if number % 2:
        return struct.pack("<III", 0, 0x1A0000 + 0x20 * (number // 2 % 48), number)
    return struct.pack("<III", 0, 0x1A0634, 0)


HOSTILE: dict[str, Callable[[int], bytes]] = {
    "noops": lambda i: struct.pack("<I", 5),
    "anywhere": lambda i: struct.pack("<III", 0, i * 2654435761 & 0xFFFFFFFC, i),
    "patches": lambda i: struct.pack("<IIIIQ", 129, 24, 0x1D004, i & 255, i << 20),
    "polls": lambda i: struct.pack("<IIII", 4, 0x1D0200 + 0x400 * (i % 64), 1, 1),
    "tokens": lambda i: struct.pack("<IIII", 128, 16, i, 0xFFFFFF00),
    "blocks": _blocks,
    "chains": _chains,
}


@pytest.mark.daily(2)
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from Linux's /proc")
@pytest.mark.parametrize("step", MULTIPLE)
def test_memory_is_a_small_multiple_of_the_file(step: str, tmp_path: Path) -> None:
    worst = {}
    for name, one in HOSTILE.items():
        path = tmp_path / name
        path.write_bytes(ops_of(one))
        done = subprocess.run(
            [sys.executable, "-c", MEASURE, str(path), step], capture_output=True, text=True, check=True
        )
        worst[name] = int(done.stdout)
    print(step, worst)
    assert max(worst.values()) <= MULTIPLE[step], worst


def test_the_hostile_files_are_read() -> None:
    assert all(Transaction.from_bytes(ops_of(one)) for one in HOSTILE.values())
