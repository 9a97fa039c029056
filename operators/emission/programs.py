# SPDX-License-Identifier: Apache-2.0
"""What runs an operator's nests, and where it may come from instead of being emitted: code objects.

A program is a function of its key: the device, the nests with their solutions and places, their parameter
blocks, and the source of what emits it. So an object with that key is what would be emitted, byte for byte.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from onedispatch.operators.scheduling.plain import plain
from onedispatch.transactions.base.context import setting

DIGEST_BYTES = 16
# The folders that a program's bytes depend on, below the package; kernels are in their declarations' digests.
SOURCES = (
    *(f"operators/{room}" for room in ("declarations", "emission", "scheduling")),
    *(f"transactions/{room}" for room in ("arguments", "format", "fusion", "machine", "packets")),
)


@dataclass(frozen=True)
class NestProgram:
    """What runs an operator's nests.

    Attributes:
        params: for each nest, what shims bring of control packets with the parameter block behind them.
        blocks: the parameter blocks alone.
    """

    transaction: bytes
    params: bytes
    blocks: tuple[bytes, ...]


Lookup = Callable[[bytes], NestProgram | None]

_LOOKUPS: ContextVar[tuple[Lookup, ...]] = ContextVar("lookups", default=())
_RECORDED: list[dict[bytes, NestProgram]] = []


@contextmanager
def recorded() -> Iterator[dict[bytes, NestProgram]]:
    """The programs that the block asks for, by their digests."""
    found: dict[bytes, NestProgram] = {}
    _RECORDED.append(found)
    try:
        yield found
    finally:
        _RECORDED.remove(found)


def record(key: tuple[Hashable, ...], program: NestProgram) -> None:
    """Notes a program for the blocks of ``recorded`` that run."""
    if _RECORDED:
        digest = digest_of_program(key)
        for found in _RECORDED:
            found[digest] = program


@contextmanager
def provided(lookups: Sequence[Lookup]) -> Iterator[None]:
    """Has what the block compiles ask these for programs, by their digests, one after the other."""
    with setting(_LOOKUPS, tuple(lookups)):
        yield


def prebuilt(key: tuple[Hashable, ...]) -> NestProgram | None:
    """The program of a key, where some object has it."""
    lookups = _LOOKUPS.get()
    digest = digest_of_program(key) if lookups else b""
    return next((found for lookup in lookups if (found := lookup(digest)) is not None), None)


def digest_of_program(key: tuple[Hashable, ...]) -> bytes:
    """What names a program in every process, as long as what emits it stays as it is."""
    text = json.dumps([source_digest(), _plain(key)], separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=DIGEST_BYTES).digest()


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    return [_plain(one) for one in value] if isinstance(value, tuple) else plain(value)


@cache
def source_digest() -> str:
    """A digest of the Python source that programs depend on."""
    package = Path(__file__).resolve().parents[2]
    found = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for folder in SOURCES:
        for path in sorted((package / folder).rglob("*.py")):
            found.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes())
    return found.hexdigest()
